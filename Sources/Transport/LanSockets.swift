import Discovery
import Glibc
import NIOCore
import NIOPosix

extension Sockets: LanNetwork {
    /// Those that are up, carry multicast and are no tunnels: whoever is at the other end of a tunnel is not near.
    package func interfaces() -> [LanInterface] {
        var first: UnsafeMutablePointer<ifaddrs>?
        guard getifaddrs(&first) == 0 else { return [] }
        defer { freeifaddrs(first) }
        var found: [String: LanInterface] = [:]
        var next = first
        while let entry = next {
            next = entry.pointee.ifa_next
            let flags = Int(entry.pointee.ifa_flags)
            let wanted = Int(IFF_UP) | Int(IFF_RUNNING) | Int(IFF_MULTICAST)
            let unwanted = Int(IFF_LOOPBACK) | Int(IFF_POINTOPOINT)
            guard flags & wanted == wanted, flags & unwanted == 0, let address = entry.pointee.ifa_addr,
                let own = LanAddress(address), let name = entry.pointee.ifa_name
            else { continue }
            let index = if_nametoindex(name)
            guard index != 0 else { continue }
            let text = String(cString: name)
            let mask = entry.pointee.ifa_netmask.flatMap { LanAddress($0, family: address.pointee.sa_family) }
            let width = own.isIPv4 ? 32 : 128
            let prefix = mask.map { Self.leadingOnes($0.bytes) } ?? width
            found[text, default: LanInterface(index: index, name: text, addresses: [])].addresses
                .append(LanInterface.Own(address: own, prefixLength: min(prefix, width)))
        }
        return found.values.sorted { $0.index < $1.index }
    }

    /// By rtnetlink(7), which needs no rights: links, and addresses of either family.
    package func watch(on loop: any EventLoop, changed: @escaping @Sendable () -> Void)
        -> EventLoopFuture<any Channel>
    {
        guard let bootstrap = NIOPipeBootstrap(validatingGroup: loop) else {
            preconditionFailure("a socket needs an event loop with sockets")
        }
        let type = CInt(SOCK_RAW.rawValue) | CInt(SOCK_NONBLOCK.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        let descriptor = socket(AF_NETLINK, type, 0)  // NETLINK_ROUTE
        guard descriptor >= 0 else { return loop.makeFailedFuture(IOError(errnoCode: errno, reason: "socket")) }
        // struct sockaddr_nl: family, padding, port, groups: RTMGRP_LINK, RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR.
        let address: (UInt16, UInt16, UInt32, UInt32) = (UInt16(AF_NETLINK), 0, 0, 0x1 | 0x10 | 0x100)
        let result = withUnsafeBytes(of: address) { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { Glibc.bind(descriptor, $0.baseAddress!, 12) }
        }
        guard result == 0 else {
            let error = IOError(errnoCode: errno, reason: "bind")
            Glibc.close(descriptor)
            return loop.makeFailedFuture(error)
        }
        return
            bootstrap
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(ChangeReader(changed: changed))
                }
            }
            .takingOwnershipOfDescriptor(input: descriptor)
            .map { $0 as any Channel }
            .flatMapErrorThrowing {
                Glibc.close(descriptor)
                throw $0
            }
    }

    private static func leadingOnes(_ bytes: [UInt8]) -> Int {
        var count = 0
        for byte in bytes {
            count += (~byte).leadingZeroBitCount
            if byte != 0xff { break }
        }
        return count
    }

    package func open(
        _ role: LanSocketRole,
        port: UInt16,
        on loop: any EventLoop,
        receive: @escaping @Sendable (LanSource, [UInt8]) -> Void
    ) -> EventLoopFuture<NIOLoopBound<any LanSocket>> {
        guard let bootstrap = DatagramBootstrap(validatingGroup: loop) else {
            preconditionFailure("a socket needs an event loop with sockets")
        }
        let descriptor: CInt
        do {
            descriptor = try LanDescriptor.open(role, port: port)
        } catch {
            return loop.makeFailedFuture(error)
        }
        // NIO reads, and closes its own descriptor; ours writes, so that a network that is down costs one datagram and not
        // the socket.
        let writing = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        guard writing >= 0 else {
            let error = IOError(errnoCode: errno, reason: "fcntl")
            Glibc.close(descriptor)
            return loop.makeFailedFuture(error)
        }
        let interface = role.interface
        return
            bootstrap
            .channelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: 2_048))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let reader = LanReader(interface: interface, receive: receive)
                    try channel.pipeline.syncOperations.addHandler(reader)
                }
            }
            .withBoundSocket(descriptor)
            .map { channel in
                NIOLoopBound(
                    KernelLanSocket(descriptor: writing, role: role, port: port, channel: channel),
                    eventLoop: loop
                )
            }
            .flatMapErrorThrowing {
                Glibc.close(writing)
                throw $0
            }
    }
}

/// What the kernel says is not read: that it says something is enough.
private final class ChangeReader: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let changed: @Sendable () -> Void

    init(changed: @escaping @Sendable () -> Void) { self.changed = changed }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {}
    func channelReadComplete(context: ChannelHandlerContext) { changed() }

    /// There was more to say than fits: something has changed.
    func errorCaught(context: ChannelHandlerContext, error: any Error) { changed() }
}

/// Hands over what a socket receives.
private final class LanReader: ChannelInboundHandler {
    typealias InboundIn = AddressedEnvelope<ByteBuffer>
    private let interface: UInt32
    private let receive: @Sendable (LanSource, [UInt8]) -> Void

    init(interface: UInt32, receive: @escaping @Sendable (LanSource, [UInt8]) -> Void) {
        self.interface = interface
        self.receive = receive
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let envelope = unwrapInboundIn(data)
        guard let address = LanAddress(envelope.remoteAddress), let port = envelope.remoteAddress.port else { return }
        let source = LanSource(interface: interface, address: address, port: UInt16(clamping: port))
        receive(source, Array(envelope.data.readableBytesView))
    }

    /// An error of one datagram is no error of the socket.
    func errorCaught(context: ChannelHandlerContext, error: any Error) {}
}

/// What the kernel has to be told.
private enum LanDescriptor {
    /// A bound socket that never blocks.
    ///
    /// For the group: bound to the group's address, so that nothing else comes by it, on one interface, shared with other
    /// nodes of this machine. For a place: bound to our address, any port, and with a time to live of one hop.
    static func open(_ role: LanSocketRole, port: UInt16) throws -> CInt {
        let isIPv4: Bool
        var bound: LanAddress
        switch role {
        case .group(_, let family):
            isIPv4 = family
            bound = family ? LanLimits.group4 : LanLimits.group6
        case .place(let place):
            isIPv4 = place.address.isIPv4
            bound = place.address
        }
        let type = CInt(SOCK_DGRAM.rawValue) | CInt(SOCK_NONBLOCK.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        let descriptor = socket(isIPv4 ? AF_INET : AF_INET6, type, 0)
        guard descriptor >= 0 else { throw IOError(errnoCode: errno, reason: "socket") }
        do {
            let ip = isIPv4 ? CInt(IPPROTO_IP) : CInt(IPPROTO_IPV6)
            if !isIPv4 { try set(descriptor, ip, 26, CInt(1)) }  // IPV6_V6ONLY
            switch role {
            case .group(let interface, _):
                try set(descriptor, SOL_SOCKET, SO_REUSEADDR, CInt(1))
                // Only what we have joined ourselves, not what others of this machine have.
                try set(descriptor, ip, isIPv4 ? 49 : 29, CInt(0))  // IP_MULTICAST_ALL, IPV6_MULTICAST_ALL
                try bind(descriptor, bound, port, scope: interface)
                if isIPv4 {
                    try set(descriptor, ip, 35, membership(interface))  // IP_ADD_MEMBERSHIP
                } else {
                    // IPV6_JOIN_GROUP, struct ipv6_mreq: the group, and the interface as the machine has numbers.
                    try set(descriptor, ip, 20, (bound.high.bigEndian, bound.low.bigEndian, interface), 20)
                }
            case .place(let place):
                try bind(descriptor, bound, 0, scope: place.address.isLinkLocal ? place.interface : 0)
                if isIPv4 {
                    try set(descriptor, ip, 32, membership(place.interface))  // IP_MULTICAST_IF
                } else {
                    try set(descriptor, ip, 17, CInt(bitPattern: place.interface))  // IPV6_MULTICAST_IF
                }
                // IP_MULTICAST_TTL and IP_TTL; IPV6_MULTICAST_HOPS and IPV6_UNICAST_HOPS: never behind a router.
                try set(descriptor, ip, isIPv4 ? 33 : 18, CInt(1))
                try set(descriptor, ip, isIPv4 ? 2 : 16, CInt(1))
                // IP_MULTICAST_LOOP, IPV6_MULTICAST_LOOP: other nodes of this machine are near, too.
                try set(descriptor, ip, isIPv4 ? 34 : 19, CInt(1))
            }
        } catch {
            Glibc.close(descriptor)
            throw error
        }
        return descriptor
    }

    private static func membership(_ interface: UInt32) -> ip_mreqn {
        var result = ip_mreqn()
        result.imr_multiaddr = address4(LanLimits.group4)
        result.imr_ifindex = CInt(bitPattern: interface)
        return result
    }

    private static func set<Value: BitwiseCopyable>(
        _ descriptor: CInt,
        _ level: CInt,
        _ name: CInt,
        _ value: Value,
        _ byteCount: Int? = nil
    )
        throws
    {
        var value = value
        guard setsockopt(descriptor, level, name, &value, socklen_t(byteCount ?? MemoryLayout<Value>.size)) == 0 else {
            throw IOError(errnoCode: errno, reason: "setsockopt")
        }
    }

    private static func bind(_ descriptor: CInt, _ address: LanAddress, _ port: UInt16, scope: UInt32) throws {
        let result = withSocketAddress(address, port, scope: scope) { Glibc.bind(descriptor, $0, $1) }
        guard result == 0 else { throw IOError(errnoCode: errno, reason: "bind") }
    }

    static func address4(_ address: LanAddress) -> in_addr {
        in_addr(s_addr: UInt32(truncatingIfNeeded: address.low).bigEndian)
    }

    static func address6(_ address: LanAddress) -> in6_addr {
        var result = in6_addr()
        withUnsafeMutableBytes(of: &result) { $0.copyBytes(from: address.bytes) }
        return result
    }

    static func withSocketAddress<Result>(
        _ address: LanAddress,
        _ port: UInt16,
        scope: UInt32,
        _ body: (UnsafePointer<sockaddr>, socklen_t) -> Result
    ) -> Result {
        if address.isIPv4 {
            var value = sockaddr_in()
            value.sin_family = sa_family_t(AF_INET)
            value.sin_port = port.bigEndian
            value.sin_addr = address4(address)
            let size = socklen_t(MemoryLayout<sockaddr_in>.size)
            return withUnsafePointer(to: &value) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, size) }
            }
        }
        var value = sockaddr_in6()
        value.sin6_family = sa_family_t(AF_INET6)
        value.sin6_port = port.bigEndian
        value.sin6_addr = address6(address)
        value.sin6_scope_id = scope
        let size = socklen_t(MemoryLayout<sockaddr_in6>.size)
        return withUnsafePointer(to: &value) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, size) }
        }
    }
}

/// A socket of the kernel.
private final class KernelLanSocket: LanSocket {
    private let descriptor: CInt
    private let role: LanSocketRole
    private let port: UInt16
    private let channel: any Channel
    private var isOpen = true

    init(descriptor: CInt, role: LanSocketRole, port: UInt16, channel: any Channel) {
        self.descriptor = descriptor
        self.role = role
        self.port = port
        self.channel = channel
    }

    deinit {
        if isOpen { Glibc.close(descriptor) }
    }

    func announce(_ bytes: [UInt8]) {
        guard case .place(let place) = role else { return }
        send(bytes, place.address.isIPv4 ? LanLimits.group4 : LanLimits.group6, port, place.interface)
    }

    func answer(_ bytes: [UInt8], to source: LanSource) {
        send(bytes, source.address, source.port, source.address.isLinkLocal ? source.interface : 0)
    }

    private func send(_ bytes: [UInt8], _ address: LanAddress, _ port: UInt16, _ scope: UInt32) {
        guard isOpen else { return }
        _ = LanDescriptor.withSocketAddress(address, port, scope: scope) { target, size in
            sendto(descriptor, bytes, bytes.count, CInt(MSG_DONTWAIT | MSG_NOSIGNAL), target, size)
        }
    }

    func close() {
        guard isOpen else { return }
        isOpen = false
        Glibc.close(descriptor)
        channel.close(promise: nil)
    }
}

extension LanAddress {
    /// `nil` for what is no address of the Internet.
    package init?(_ address: SocketAddress) {
        switch address {
        case .v4(let address): self.init(withUnsafeBytes(of: address.address.sin_addr) { Array($0) })
        case .v6(let address): self.init(withUnsafeBytes(of: address.address.sin6_addr) { Array($0) })
        case .unixDomainSocket: return nil
        }
    }

    fileprivate init?(_ address: UnsafePointer<sockaddr>, family: sa_family_t? = nil) {
        switch CInt(family ?? address.pointee.sa_family) {
        case AF_INET:
            self.init(
                address.withMemoryRebound(to: sockaddr_in.self, capacity: 1) {
                    withUnsafeBytes(of: $0.pointee.sin_addr) { Array($0) }
                }
            )
        case AF_INET6:
            self.init(
                address.withMemoryRebound(to: sockaddr_in6.self, capacity: 1) {
                    withUnsafeBytes(of: $0.pointee.sin6_addr) { Array($0) }
                }
            )
        default: return nil
        }
    }

    /// As a host to be dialled: a link-local address of IPv6 with its interface.
    /// - Parameter interface: the system's number of it.
    package func host(interface: UInt32) -> String? {
        var buffer = ByteBuffer()
        buffer.writeBytes(bytes)
        guard let text = (try? SocketAddress(packedIPAddress: buffer, port: 1))?.ipAddress else { return nil }
        return isLinkLocal && !isIPv4 ? "\(text)%\(interface)" : text
    }
}
