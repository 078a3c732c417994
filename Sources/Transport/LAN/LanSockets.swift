import Glibc
import NIOCore
import NIOPosix

extension Sockets: LanNetwork {
    package func interfaces() -> [LanInterface]? {
        guard let links = Self.ask(.links), let addresses = Self.ask(.addresses) else { return nil }
        let sources = [IPAddress.elsewhere(isIPv4: true), .elsewhere(isIPv4: false)].compactMap { $0.source }
        return InterfaceDump.interfaces(links: links, addresses: addresses) { sources.contains($0) }
    }

    /// Asks by rtnetlink(7), which needs no privileges and answers at once; `nil` without an answer.
    private static func ask(_ request: InterfaceDump.Request) -> [UInt8]? {
        let descriptor = socket(AF_NETLINK, CInt(SOCK_RAW.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)  // NETLINK_ROUTE
        guard descriptor >= 0 else { return nil }
        defer { Glibc.close(descriptor) }
        let question = request.bytes
        guard Glibc.send(descriptor, question, question.count, 0) == question.count else { return nil }
        var answer: [UInt8] = []
        // The kernel sends at most 32 KiB at once.
        var chunk = [UInt8](repeating: 0, count: 64 << 10)
        while answer.count < LanLimits.interfaceByteCount {
            let count = recv(descriptor, &chunk, chunk.count, 0)
            guard count > 0 else { return nil }
            answer += chunk[..<count]
            let end = InterfaceDump.end(of: chunk[..<count])
            if end.isThere { return end.isError ? nil : answer }
        }
        return nil
    }

    /// Watches by rtnetlink(7), which needs no privileges: links, and addresses and routes of either family.
    package func watch(on loop: any EventLoop, changed: @escaping @Sendable () -> Void) -> EventLoopFuture<any Channel>
    {
        guard let bootstrap = NIOPipeBootstrap(validatingGroup: loop) else {
            preconditionFailure("a socket needs an event loop with sockets")
        }
        let type = CInt(SOCK_RAW.rawValue) | CInt(SOCK_NONBLOCK.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        let descriptor = socket(AF_NETLINK, type, 0)  // NETLINK_ROUTE
        guard descriptor >= 0 else { return loop.makeFailedFuture(IOError(errnoCode: errno, reason: "socket")) }
        // struct sockaddr_nl: family, padding, port, groups: RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE,
        // RTMGRP_IPV6_IFADDR and RTMGRP_IPV6_ROUTE.
        let groups: UInt32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400
        let address: (UInt16, UInt16, UInt32, UInt32) = (UInt16(AF_NETLINK), 0, 0, groups)
        let result = withUnsafeBytes(of: address) { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { Glibc.bind(descriptor, $0.baseAddress!, 12) }
        }
        guard result == 0 else {
            let error = IOError(errnoCode: errno, reason: "bind")
            Glibc.close(descriptor)
            return loop.makeFailedFuture(error)
        }
        return bootstrap.channelInitializer { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandler(ChangeReader(changed: changed))
            }
        }.takingOwnershipOfDescriptor(input: descriptor).map { $0 as any Channel }.flatMapErrorThrowing {
            Glibc.close(descriptor)
            throw $0
        }
    }

    package func open(
        _ role: LanSocketRole, port: UInt16, on loop: any EventLoop,
        receive: @escaping @Sendable (LanPlace, [UInt8]) -> Void
    ) -> EventLoopFuture<NIOLoopBound<any LanSocket>> {
        guard let bootstrap = DatagramBootstrap(validatingGroup: loop) else {
            preconditionFailure("a socket needs an event loop with sockets")
        }
        let descriptor: CInt
        do { descriptor = try LanDescriptor.open(role, port: port) } catch { return loop.makeFailedFuture(error) }
        // NIO closes its own descriptor. Ours writes, so that a network error loses one datagram, not the socket.
        let writing = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        guard writing >= 0 else {
            let error = IOError(errnoCode: errno, reason: "fcntl")
            Glibc.close(descriptor)
            return loop.makeFailedFuture(error)
        }
        let interface = role.interface
        return bootstrap.channelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: 2_048))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let reader = LanReader(interface: interface, receive: receive)
                    try channel.pipeline.syncOperations.addHandler(reader)
                }
            }.withBoundSocket(descriptor).map { channel in
                NIOLoopBound(
                    KernelLanSocket(descriptor: writing, role: role, port: port, channel: channel), eventLoop: loop)
            }.flatMapErrorThrowing {
                Glibc.close(writing)
                throw $0
            }
    }
}

/// Ignores the messages' contents: their arrival is enough.
private final class ChangeReader: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let changed: @Sendable () -> Void

    init(changed: @escaping @Sendable () -> Void) { self.changed = changed }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {}
    func channelReadComplete(context: ChannelHandlerContext) { changed() }

    /// Messages were dropped, so something has changed.
    func errorCaught(context: ChannelHandlerContext, error: any Error) { changed() }
}

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
        guard let address = IPAddress(envelope.remoteAddress), let port = envelope.remoteAddress.port else { return }
        let source = LanPlace(interface: interface, address: address, port: UInt16(clamping: port))
        receive(source, Array(envelope.data.readableBytesView))
    }

    /// An error of one datagram does not break the socket.
    func errorCaught(context: ChannelHandlerContext, error: any Error) {}
}

/// Structures are written byte by byte: imported types belong to whichever module reads their header first.
private enum LanDescriptor {
    /// Opens a bound, non-blocking socket.
    ///
    /// A group socket is bound to the group's address, so that it gets nothing else, on one interface, shared with
    /// other nodes of this machine. An address socket is bound to our address and any port, with a TTL of one hop.
    static func open(_ role: LanSocketRole, port: UInt16) throws -> CInt {
        let isIPv4: Bool
        let bound: IPAddress
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
                // Receive only our own memberships, not those of other processes.
                try set(descriptor, ip, isIPv4 ? 49 : 29, native(0))  // IP_MULTICAST_ALL, IPV6_MULTICAST_ALL
                try bind(descriptor, bound, port, zone: interface)
                // IP_ADD_MEMBERSHIP and struct ip_mreqn; IPV6_JOIN_GROUP and struct ipv6_mreq.
                let group = isIPv4 ? membership(interface) : bound.bytes + native(interface)
                try set(descriptor, ip, isIPv4 ? 35 : 20, group)
            case .place(let place):
                try bind(descriptor, bound, 0, zone: place.address.isLinkLocal ? place.interface : 0)
                // IP_MULTICAST_IF, IPV6_MULTICAST_IF.
                let interface = isIPv4 ? membership(place.interface) : native(place.interface)
                try set(descriptor, ip, isIPv4 ? 32 : 17, interface)
                // IP_MULTICAST_TTL and IP_TTL; IPV6_MULTICAST_HOPS and IPV6_UNICAST_HOPS: never cross a router.
                try set(descriptor, ip, isIPv4 ? 33 : 18, native(1))
                try set(descriptor, ip, isIPv4 ? 2 : 16, native(1))
                // IP_MULTICAST_LOOP, IPV6_MULTICAST_LOOP: reach other nodes of this machine, too.
                try set(descriptor, ip, isIPv4 ? 34 : 19, native(1))
            }
        } catch {
            Glibc.close(descriptor)
            throw error
        }
        return descriptor
    }

    /// Native byte order.
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

    private static func bind(_ descriptor: CInt, _ address: IPAddress, _ port: UInt16, zone: UInt32) throws {
        let result = address.withSocketAddress(port: port, zone: zone) { Glibc.bind(descriptor, $0, $1) }
        guard result == 0 else { throw IOError(errnoCode: errno, reason: "bind") }
    }
}

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

    deinit { if isOpen { Glibc.close(descriptor) } }

    func announce(_ bytes: [UInt8]) {
        guard case .place(let place) = role else { return }
        send(bytes, place.address.isIPv4 ? LanLimits.group4 : LanLimits.group6, port, place.interface)
    }

    func answer(_ bytes: [UInt8], to source: LanPlace) {
        send(bytes, source.address, source.port, source.address.isLinkLocal ? source.interface : 0)
    }

    private func send(_ bytes: [UInt8], _ address: IPAddress, _ port: UInt16, _ zone: UInt32) {
        guard isOpen else { return }
        _ = address.withSocketAddress(port: port, zone: zone) { target, size in
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
