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
        isIPv4: Bool, port: UInt16?, on loop: any EventLoop,
        receive: @escaping @Sendable ((DatagramAddress, [UInt8])?) -> Void
    ) throws(ListenFailure) -> any LanSocket {
        let level = isIPv4 ? CInt(IPPROTO_IP) : CInt(IPPROTO_IPV6)
        // Shared with other nodes of this machine.
        let shared = port == nil ? [] : [(level: SOL_SOCKET, name: SO_REUSEADDR, value: CInt(1))]
        // The system binds no IPv6 socket to a link-local group on several interfaces.
        let host = isIPv4 ? port == nil ? "0.0.0.0" : LanLimits.group4.text : "::"
        let endpoint = Endpoint(host: host, port: Int(port ?? 0))
        guard let address = SocketAddress(at: endpoint) else { throw .unresolvable(endpoint) }
        let socket = try KernelDatagramSocket(
            address, endpoint, options: shared, changesSource: false, on: loop, receive: receive)
        let options: [(name: CInt, value: CInt)] = [
            // IP_MULTICAST_TTL and IP_TTL; IPV6_MULTICAST_HOPS and IPV6_UNICAST_HOPS: never cross a router.
            (isIPv4 ? 33 : 18, 1), (isIPv4 ? 2 : 16, 1),
            // IP_MULTICAST_LOOP, IPV6_MULTICAST_LOOP: reach other nodes of this machine, too.
            (isIPv4 ? 34 : 19, 1),
            // IP_MULTICAST_ALL, IPV6_MULTICAST_ALL: receive only our own memberships, not those of other processes.
            (isIPv4 ? 49 : 29, 0),
        ]
        for (name, value) in options {
            let error = socket.setOption(level, name, withUnsafeBytes(of: value) { Array($0) })
            guard error == 0 else {
                socket.close()
                throw .system(endpoint, error)
            }
        }
        return socket
    }
}

extension KernelDatagramSocket: LanSocket {
    func setMembership(of interface: UInt32, _ isMember: Bool) -> CInt {
        let isIPv4 = if case .v4 = localAddress { true } else { false }
        let index = withUnsafeBytes(of: interface) { Array($0) }
        // struct ip_mreqn: group, no address, interface; struct ipv6_mreq: group, interface.
        let group = isIPv4 ? LanLimits.group4.bytes + [0, 0, 0, 0] + index : LanLimits.group6.bytes + index
        // IP_ADD_MEMBERSHIP, IP_DROP_MEMBERSHIP, IPV6_JOIN_GROUP, IPV6_LEAVE_GROUP.
        let name: CInt = isIPv4 ? isMember ? 35 : 36 : isMember ? 20 : 21
        return setOption(isIPv4 ? CInt(IPPROTO_IP) : CInt(IPPROTO_IPV6), name, group)
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
