import CLinux
import Glibc
import NIOCore
import NIOPosix

extension Sockets: DatagramNetwork {
    package func bind(
        at endpoint: Endpoint, number: UInt32, on loop: any EventLoop,
        receive: @escaping @Sendable ((DatagramAddress, [UInt8])?) -> Void
    ) -> EventLoopFuture<NIOLoopBound<any DatagramSocket>> {
        guard (0...65_535).contains(endpoint.port), let address = SocketAddress(at: endpoint) else {
            return loop.makeFailedFuture(ListenFailure.unresolvable(endpoint))
        }
        do throws(ListenFailure) {
            let socket = try KernelDatagramSocket(address, endpoint, number: number, on: loop, receive: receive)
            let bound = NIOLoopBound<any DatagramSocket>(socket, eventLoop: loop)
            return socket.channel.map { _ in bound }.flatMapErrorThrowing { throw ListenFailure($0, endpoint) }
        } catch { return loop.makeFailedFuture(error) }
    }

    package func source(toward address: IPAddress) -> IPAddress? { address.source }
}

/// Delivers received datagrams, splitting the batches of GRO.
private final class DatagramReader: ChannelInboundHandler {
    typealias InboundIn = AddressedEnvelope<ByteBuffer>
    private let number: UInt32
    private let receive: @Sendable ((DatagramAddress, [UInt8])?) -> Void

    init(number: UInt32, receive: @escaping @Sendable ((DatagramAddress, [UInt8])?) -> Void) {
        self.number = number
        self.receive = receive
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let envelope = unwrapInboundIn(data)
        guard var address = DatagramAddress(envelope.remoteAddress, socket: number) else { return }
        if let arrival = envelope.metadata?.packetInfo {
            address.local = IPAddress(arrival.destinationAddress)?.zoned(UInt32(clamping: arrival.interfaceIndex))
        }
        var bytes = envelope.data
        let segment = max(1, envelope.metadata?.segmentSize ?? bytes.readableBytes)
        while bytes.readableBytes > 0 {
            guard let datagram = bytes.readBytes(length: min(segment, bytes.readableBytes)) else { return }
            receive((address, datagram))
        }
    }

    func channelReadComplete(context: ChannelHandlerContext) { receive(nil) }

    /// An error of one datagram does not break the socket.
    func errorCaught(context: ChannelHandlerContext, error: any Error) {}
}

/// A kernel socket. Datagrams are buffered until the flush. Consecutive ones with the same address and length leave as
/// one (UDP_SEGMENT), and all in few system calls (sendmmsg).
final class KernelDatagramSocket: DatagramSocket {
    /// Datagrams of one read, each up to 64 KiB because of UDP_GRO.
    static let readCount = 8
    static let readByteCount = readCount << 16
    /// Requested kernel buffer in each direction; the kernel may grant less.
    private static let bufferByteCount: CInt = 4 << 20
    private static let stageByteCount = 1 << 20
    private static let messagesPerCall = 64
    /// UDP_MAX_SEGMENTS of older kernels, and the bytes of a segmented datagram.
    private static let segments = 64
    private static let segmentedByteCount = 65_000

    /// `struct mmsghdr`.
    private struct Message {
        var header = msghdr()
        var byteCount: UInt32 = 0
    }
    private struct Run {
        var address: DatagramAddress
        let start: Int
        var byteCount: Int
        let segment: Int
        var count: Int
        /// A shorter datagram ends a run.
        var isClosed = false
    }

    let localAddress: SocketAddress
    /// Reads; completes once the socket does.
    let channel: EventLoopFuture<any Channel>
    private let descriptor: CInt
    private let isIPv6: Bool
    /// Whether a datagram leaves from another source if its own cannot send.
    private let changesSource: Bool
    private var isOpen = true
    private let stage: UnsafeMutableRawPointer
    private var staged = 0
    private var runs: [Run] = []
    private var segmentsAreSupported = System.supportsUDPSegmentationOffload

    /// Opens a bound, non-blocking socket that never fragments, so that size probes are meaningful.
    /// - Parameters:
    ///   - number: the socket's in received addresses.
    ///   - options: further ones: level, name, value.
    init(
        _ requested: SocketAddress, _ endpoint: Endpoint, number: UInt32 = 0,
        options: [(level: CInt, name: CInt, value: CInt)] = [], changesSource: Bool = true, on loop: any EventLoop,
        receive: @escaping @Sendable ((DatagramAddress, [UInt8])?) -> Void
    ) throws(ListenFailure) {
        guard let bootstrap = DatagramBootstrap(validatingGroup: loop) else {
            preconditionFailure("a socket needs an event loop with sockets")
        }
        if case .v6 = requested { isIPv6 = true } else { isIPv6 = false }
        let probe: CInt = 3  // IP_PMTUDISC_PROBE, IPV6_PMTUDISC_PROBE
        var all =
            options + [
                (CInt(IPPROTO_IP), 10, probe),  // IP_MTU_DISCOVER
                (SOL_SOCKET, SO_RCVBUF, Self.bufferByteCount), (SOL_SOCKET, SO_SNDBUF, Self.bufferByteCount),
            ]
        if isIPv6 { all.append((CInt(IPPROTO_IPV6), 23, probe)) }  // IPV6_MTU_DISCOVER
        let bound = try requested.bind(SOCK_DGRAM, all, for: endpoint)
        // NIO closes its own descriptor. Ours writes, so that an unreachable address loses only one datagram.
        descriptor = fcntl(bound, F_DUPFD_CLOEXEC, 0)
        guard descriptor >= 0, let address = SocketAddress(boundBy: bound) else {
            let code = errno
            if descriptor >= 0 { Glibc.close(descriptor) }
            Glibc.close(bound)
            throw .system(endpoint, code)
        }
        stage = .allocate(byteCount: Self.stageByteCount, alignment: 16)
        localAddress = address
        self.changesSource = changesSource
        var reading = bootstrap.channelOption(
            .recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: Self.readByteCount)
        ).channelOption(.datagramVectorReadMessageCount, value: Self.readCount)
        if System.supportsUDPReceiveOffload {
            reading = reading.channelOption(.datagramReceiveOffload, value: true).channelOption(
                .datagramReceiveSegmentSize, value: true)
        }
        // A socket with one address replies from it.
        if IPAddress(address).map({ $0.isWildcard || $0.isMulticast }) ?? false {
            reading = reading.channelOption(.receivePacketInfo, value: true)
        }
        channel = reading.channelInitializer { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandler(DatagramReader(number: number, receive: receive))
            }
        }.withBoundSocket(bound)
    }

    deinit {
        if isOpen { Glibc.close(descriptor) }
        stage.deallocate()
    }

    func send(_ bytes: [UInt8], to address: DatagramAddress) {
        guard isOpen, !bytes.isEmpty, bytes.count <= 65_507, address.ip.isIPv4 != isIPv6 else { return }
        if staged + bytes.count > Self.stageByteCount { flush() }
        bytes.withUnsafeBytes { (stage + staged).copyMemory(from: $0.baseAddress!, byteCount: $0.count) }
        if let last = runs.indices.last, segmentsAreSupported, runs[last].address == address,
            runs[last].address.local == address.local, !runs[last].isClosed, bytes.count <= runs[last].segment,
            runs[last].count < Self.segments, runs[last].byteCount + bytes.count <= Self.segmentedByteCount
        {
            runs[last].isClosed = bytes.count < runs[last].segment
            runs[last].byteCount += bytes.count
            runs[last].count += 1
        } else {
            runs.append(Run(address: address, start: staged, byteCount: bytes.count, segment: bytes.count, count: 1))
        }
        staged += bytes.count
    }

    func flush() {
        defer {
            runs.removeAll(keepingCapacity: true)
            staged = 0
        }
        guard isOpen else { return }
        var next = 0
        while next < runs.count {
            let end = min(next + Self.messagesPerCall, runs.count)
            let sent = write(runs[next..<end])
            if sent > 0 {
                next += sent
                continue
            }
            switch errno {
            case EINTR: continue
            // The kernel's buffer is full: the datagrams are lost, and the sender slows down.
            case EAGAIN, ENOBUFS, ENOMEM: return
            case EIO where runs[next].count > 1, EINVAL where runs[next].count > 1:
                // The device does not support segmentation.
                segmentsAreSupported = false
                writeApart(runs[next])
                next += 1
            // The source address is no longer ours, or cannot send.
            case _ where runs[next].address.local != nil && changesSource:
                let local = runs[next].address.local
                for index in next..<runs.count where runs[index].address.local == local {
                    runs[index].address.local = nil
                }
            // An unreachable datagram is lost.
            default: next += 1
            }
        }
    }

    private func writeApart(_ run: Run) {
        var offset = 0
        while offset < run.byteCount {
            let count = min(run.segment, run.byteCount - offset)
            let single = Run(
                address: run.address, start: run.start + offset, byteCount: count, segment: count, count: 1)
            _ = write([single][...])
            offset += count
        }
    }

    /// - Returns: the number of runs sent; -1 and `errno` if the first failed.
    private func write(_ runs: ArraySlice<Run>) -> Int {
        let count = runs.count
        let controlByteCount = 64
        return withUnsafeTemporaryAllocation(of: Message.self, capacity: count) { messages in
            withUnsafeTemporaryAllocation(of: iovec.self, capacity: count) { vectors in
                withUnsafeTemporaryAllocation(byteCount: count * (controlByteCount + 32), alignment: 16) { memory in
                    memory.initializeMemory(as: UInt8.self, repeating: 0)
                    for (index, run) in runs.enumerated() {
                        vectors.initializeElement(
                            at: index, to: iovec(iov_base: stage + run.start, iov_len: run.byteCount))
                        var message = Message()
                        let base = memory.baseAddress! + index * (controlByteCount + 32)
                        message.header.msg_namelen = run.address.ip.writeSocketAddress(
                            port: run.address.port, zone: run.address.ip.zone, to: base)
                        message.header.msg_name = base
                        message.header.msg_iov = vectors.baseAddress! + index
                        message.header.msg_iovlen = 1
                        let length = control(run, at: base + 32)
                        if length > 0 {
                            message.header.msg_control = base + 32
                            message.header.msg_controllen = length
                        }
                        messages.initializeElement(at: index, to: message)
                    }
                    return Int(socket_send_messages(descriptor, messages.baseAddress, UInt32(count), 0))
                }
            }
        }
    }

    /// Writes the control messages of a run: the segment length (udp(7), UDP_SEGMENT) and the source (ip(7),
    /// IP_PKTINFO; ipv6(7), IPV6_PKTINFO).
    /// - Returns: the length, padding included; at most 64.
    private func control(_ run: Run, at base: UnsafeMutableRawPointer) -> Int {
        let header = MemoryLayout<cmsghdr>.size
        var length = 0
        func append(_ level: CInt, _ type: CInt, _ byteCount: Int) -> UnsafeMutableRawPointer {
            let start = base + length
            var message = cmsghdr()
            message.cmsg_len = header + byteCount
            message.cmsg_level = level
            message.cmsg_type = type
            start.storeBytes(of: message, as: cmsghdr.self)
            length += header + (byteCount + 7) & ~7
            return start + header
        }
        if run.count > 1 { append(17, 103, 2).storeBytes(of: UInt16(run.segment), as: UInt16.self) }
        guard let source = run.address.local else { return length }
        // Replies to other addresses take their own route.
        let isOnLink = run.address.ip.isMulticast || source.isLinkLocal && !source.isIPv4
        let interface = isOnLink ? source.zone : 0
        if let v4 = source.v4 {
            // in_pktinfo: interface 4, source 4, address 4.
            let info = append(CInt(IPPROTO_IP), 8, 12)
            info.storeBytes(of: interface, as: UInt32.self)
            info.storeBytes(of: v4.bigEndian, toByteOffset: 4, as: UInt32.self)
        } else {
            // in6_pktinfo: address 16, interface 4.
            let info = append(CInt(IPPROTO_IPV6), 50, 20)
            info.storeBytes(of: source.high.bigEndian, as: UInt64.self)
            info.storeBytes(of: source.low.bigEndian, toByteOffset: 8, as: UInt64.self)
            info.storeBytes(of: interface, toByteOffset: 16, as: UInt32.self)
        }
        return length
    }

    /// - Returns: the system's error; 0 for none.
    func setOption(_ level: CInt, _ name: CInt, _ value: [UInt8]) -> CInt {
        setsockopt(descriptor, level, name, value, socklen_t(value.count)) == 0 ? 0 : errno
    }

    func close() {
        guard isOpen else { return }
        flush()
        isOpen = false
        Glibc.close(descriptor)
        channel.whenSuccess { $0.close(promise: nil) }
    }
}
