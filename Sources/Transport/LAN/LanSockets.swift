import Glibc
import NIOCore
import NIOPosix

extension Sockets: LanNetwork {
    /// Those that are up, carry multicast and are no tunnels: whoever is at the other end of a tunnel is not near.
    package func interfaces() -> [LanInterface] {
        var found: [String: LanInterface] = [:]
        var flags: [String: UInt16] = [:]
        for device in (try? System.enumerateDevices()) ?? [] {
            guard let own = device.address.flatMap({ LanAddress($0) }),
                let index = UInt32(exactly: device.interfaceIndex)
            else { continue }
            if flags[device.name] == nil { flags[device.name] = LanDescriptor.flags(of: device.name) }
            guard let flags = flags[device.name], LanDescriptor.isUsable(flags) else { continue }
            let width = own.isIPv4 ? 32 : 128
            let mask = device.netmask.flatMap { LanAddress($0) }
            found[device.name, default: LanInterface(index: index, name: device.name, addresses: [])].addresses
                .append(
                    LanInterface.Own(address: own, prefixLength: mask.map { Self.leadingOnes($0.bytes) } ?? width)
                )
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
        receive: @escaping @Sendable (LanPlace, [UInt8]) -> Void
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
    private let receive: @Sendable (LanPlace, [UInt8]) -> Void

    init(interface: UInt32, receive: @escaping @Sendable (LanPlace, [UInt8]) -> Void) {
        self.interface = interface
        self.receive = receive
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let envelope = unwrapInboundIn(data)
        guard let address = LanAddress(envelope.remoteAddress), let port = envelope.remoteAddress.port else { return }
        let source = LanPlace(interface: interface, address: address, port: UInt16(clamping: port))
        receive(source, Array(envelope.data.readableBytesView))
    }

    /// An error of one datagram is no error of the socket.
    func errorCaught(context: ChannelHandlerContext, error: any Error) {}
}

/// What the kernel has to be told. Its structures are written byte by byte: as types they would belong to whichever
/// module happens to have read their header first.
private enum LanDescriptor {
    /// Of an interface: SIOCGIFFLAGS, netdevice(7); 0 for one that is gone.
    static func flags(of name: String) -> UInt16 {
        let descriptor = socket(AF_INET, CInt(SOCK_DGRAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return 0 }
        defer { Glibc.close(descriptor) }
        // struct ifreq: the name, 16 bytes, then the answer.
        var request = Array(name.utf8.prefix(15))
        request += [UInt8](repeating: 0, count: 40 - request.count)
        let result = request.withUnsafeMutableBytes { ioctl(descriptor, 0x8913, $0.baseAddress!) }
        return result == 0 ? UInt16(request[16]) | UInt16(request[17]) << 8 : 0
    }

    /// Up, running and with multicast; neither a loopback nor point-to-point.
    static func isUsable(_ flags: UInt16) -> Bool {
        let (up, loopback, pointToPoint, running, multicast): (UInt16, UInt16, UInt16, UInt16, UInt16) =
            (0x1, 0x8, 0x10, 0x40, 0x1000)
        return flags & (up | running | multicast) == up | running | multicast
            && flags & (loopback | pointToPoint) == 0
    }

    /// A bound socket that never blocks.
    ///
    /// For the group: bound to the group's address, so that nothing else comes by it, on one interface, shared with other
    /// nodes of this machine. For a place: bound to our address, any port, and with a time to live of one hop.
    static func open(_ role: LanSocketRole, port: UInt16) throws -> CInt {
        let isIPv4: Bool
        let bound: LanAddress
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
            if !isIPv4 { try set(descriptor, ip, 26, native(1)) }  // IPV6_V6ONLY
            switch role {
            case .group(let interface, _):
                try set(descriptor, SOL_SOCKET, SO_REUSEADDR, native(1))
                // Only what we have joined ourselves, not what others of this machine have.
                try set(descriptor, ip, isIPv4 ? 49 : 29, native(0))  // IP_MULTICAST_ALL, IPV6_MULTICAST_ALL
                try bind(descriptor, bound, port, scope: interface)
                // IP_ADD_MEMBERSHIP and struct ip_mreqn; IPV6_JOIN_GROUP and struct ipv6_mreq.
                let group = isIPv4 ? membership(interface) : bound.bytes + native(interface)
                try set(descriptor, ip, isIPv4 ? 35 : 20, group)
            case .place(let place):
                try bind(descriptor, bound, 0, scope: place.address.isLinkLocal ? place.interface : 0)
                // IP_MULTICAST_IF, IPV6_MULTICAST_IF.
                let interface = isIPv4 ? membership(place.interface) : native(place.interface)
                try set(descriptor, ip, isIPv4 ? 32 : 17, interface)
                // IP_MULTICAST_TTL and IP_TTL; IPV6_MULTICAST_HOPS and IPV6_UNICAST_HOPS: never behind a router.
                try set(descriptor, ip, isIPv4 ? 33 : 18, native(1))
                try set(descriptor, ip, isIPv4 ? 2 : 16, native(1))
                // IP_MULTICAST_LOOP, IPV6_MULTICAST_LOOP: other nodes of this machine are near, too.
                try set(descriptor, ip, isIPv4 ? 34 : 19, native(1))
            }
        } catch {
            Glibc.close(descriptor)
            throw error
        }
        return descriptor
    }

    /// As the machine has numbers.
    private static func native(_ number: UInt32) -> [UInt8] { withUnsafeBytes(of: number) { Array($0) } }

    /// struct ip_mreqn: group, no address, interface.
    private static func membership(_ interface: UInt32) -> [UInt8] {
        LanLimits.group4.bytes + [0, 0, 0, 0] + native(interface)
    }

    private static func set(_ descriptor: CInt, _ level: CInt, _ name: CInt, _ value: [UInt8]) throws {
        guard setsockopt(descriptor, level, name, value, socklen_t(value.count)) == 0 else {
            throw IOError(errnoCode: errno, reason: "setsockopt")
        }
    }

    private static func bind(_ descriptor: CInt, _ address: LanAddress, _ port: UInt16, scope: UInt32) throws {
        let result = address.withSocketAddress(port: port, scope: scope) { Glibc.bind(descriptor, $0, $1) }
        guard result == 0 else { throw IOError(errnoCode: errno, reason: "bind") }
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

    func answer(_ bytes: [UInt8], to source: LanPlace) {
        send(bytes, source.address, source.port, source.address.isLinkLocal ? source.interface : 0)
    }

    private func send(_ bytes: [UInt8], _ address: LanAddress, _ port: UInt16, _ scope: UInt32) {
        guard isOpen else { return }
        _ = address.withSocketAddress(port: port, scope: scope) { target, size in
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
