import Cryptography
import Glibc
import NIOCore
import NIOPosix
import Transport

/// Throughput of links over TCP and UDP.
///
///     linkrates [MiB] [rounds]                            on the loopback, in turns
///     linkrates serve tcp|udp ADDRESS PORT                prints the bytes of each second
///     linkrates send tcp|udp ADDRESS PORT SECONDS [cubic|bbr]
@main enum LinkRates {
    static func main() async throws {
        let words = Array(CommandLine.arguments.dropFirst())
        if words.count >= 4, let port = Int(words[3]) {
            let isUDP = words[1] == "udp"
            if words[0] == "serve" { return try await Distance.serve(isUDP, words[2], port) }
            let seconds = words.count > 4 ? Int64(words[4]) ?? 10 : 10
            let control = words.count > 5 ? words[5] : "cubic"
            return try await Distance.send(isUDP, words[2], port, seconds: seconds, control: control)
        }
        let arguments = CommandLine.arguments.dropFirst().compactMap { Int($0) }
        let mebibytes = arguments.first ?? 64
        let rounds = arguments.dropFirst().first ?? 5
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        var rates: [String: [Double]] = [:]
        for _ in 0..<rounds {
            for carrier in ["TCP", "UDP"] {
                let run = try await Transfer.run(carrier == "UDP", mebibytes << 20, group)
                rates[carrier, default: []].append(run.rate)
                print("\(carrier) \(Int(run.rate)) MiB/s \(run.note)")
            }
        }
        let middle = rates.mapValues { $0.sorted()[$0.count / 2] }
        let (tcp, udp) = (middle["TCP"] ?? 1, middle["UDP"] ?? 0)
        print(
            "\(mebibytes) MiB on the loopback, middle of \(rounds): "
                + "TCP \(Int(tcp)), UDP \(Int(udp)) MiB/s, \(udp / tcp)")
        try await group.shutdownGracefully()
    }
}

/// One node of a transfer. Confined to its loop.
private final class Side: @unchecked Sendable {
    let loop: any EventLoop
    let identity: IdentityKey
    let transport: LinkTransport
    var left = 0
    var expected = 0
    var link: PeerConnection?
    var started = NIODeadline.now()
    var done: (Double) -> Void = { _ in }

    var bytes = 0

    init(_ loop: any EventLoop, key: UInt8, isUDP: Bool, control: String? = nil) throws {
        self.loop = loop
        identity = IdentityKey(try SecretKey(SecretBytes(copying: [UInt8](repeating: key, count: 32))))
        transport = LinkTransport(
            loop: loop, network: ControlledSockets(control: control, isOff: isUDP), datagrams: isUDP ? Sockets() : nil)
        var events = TransportEvents()
        events.linkOpened = { [unowned self] in
            link = $0
            $0.welcome()
            started = .now()
            write()
        }
        events.becameWritable = { [unowned self] _ in write() }
        events.frame = { [unowned self] link, frame in
            expected -= frame.count
            bytes += frame.count
            if expected == 0, left == 0, frame.count > 1 {
                try? link.send([1])
                link.flush()
            } else if frame.count == 1 {
                done(Double((NIODeadline.now() - started).nanoseconds) / 1e9)
            }
        }
        events.batchEnded = { $0.flush() }
        transport.events = events
    }

    func dial(_ endpoint: Endpoint, _ token: RoutingToken, _ remote: PublicKey) {
        let owner = Owner(token, self)
        _ = transport.dial(LinkTransport.Dial(endpoints: [endpoint], identity: identity, remote: remote, owner: owner))
    }

    private final class Owner: DialOwner {
        private let shown: RoutingToken
        private unowned let side: Side

        init(_ token: RoutingToken, _ side: Side) { (shown, self.side) = (token, side) }

        func token() -> RoutingToken? { shown }
        func opened(_ connection: PeerConnection) { side.transport.events.linkOpened(connection) }
        func failed(_ failure: DialFailure, _: LinkTransport.TokenHearing) { print("failed: \(failure)") }
    }

    func write() {
        guard let link else { return }
        while left > 0, link.isWritable {
            let count = min(left, 65_535)
            do { try link.send([UInt8](repeating: 7, count: count)) } catch { return }
            left -= count
        }
        link.flush()
    }
}

private enum Transfer {
    static func run(_ isUDP: Bool, _ byteCount: Int, _ group: MultiThreadedEventLoopGroup) async throws -> (
        rate: Double, note: String
    ) {
        let loops = [group.next(), group.next()]
        let near = try await loops[0].submit { try Side(loops[0], key: 0x11, isUDP: isUDP) }.get()
        let far = try await loops[1].submit { try Side(loops[1], key: 0x21, isUDP: isUDP) }.get()
        let token = RoutingSecret(SecretBytes(copying: [UInt8](repeating: 5, count: 32))).token(day: 1, counter: 1)
        let match = RouteMatch(identity: far.identity, route: 1, remote: near.identity.publicKey)
        let address = try await loops[1].flatSubmit { () -> EventLoopFuture<SocketAddress> in
            far.expected = byteCount
            far.transport.events.route = { $0 == token ? match : nil }
            return far.transport.listen(host: "127.0.0.1", port: 0).map(\.tcp.address)
        }.get()
        let seconds = try await loops[0].flatSubmit { () -> EventLoopFuture<Double> in
            let promise = loops[0].makePromise(of: Double.self)
            near.left = byteCount
            near.done = { promise.succeed($0) }
            near.dial(Endpoint(host: "127.0.0.1", port: address.port ?? 0), token, far.identity.publicKey)
            return promise.futureResult
        }.get()
        let note = try await loops[0].submit {
            let note = near.transport.summary
            near.transport.close()
            return note
        }.get()
        try await loops[1].submit { far.transport.close() }.get()
        return (Double(byteCount) / 1_048_576 / seconds, isUDP ? note : "")
    }
}

/// The kernel's sockets with a chosen congestion control.
private struct ControlledSockets: Network {
    let control: String?
    let isOff: Bool

    func connect(to endpoint: Endpoint, limits: TransportLimits, on loop: any EventLoop) -> EventLoopFuture<any Channel>
    {
        guard !isOff else { return loop.makeFailedFuture(IOError(errnoCode: 111, reason: "connect")) }
        return Sockets().connect(to: endpoint, limits: limits, on: loop).flatMap { channel in
            guard let provider = channel as? any SocketOptionProvider else { return loop.makeSucceededFuture(channel) }
            let name = NIOBSDSocket.Option(rawValue: 13)  // TCP_CONGESTION
            let set: EventLoopFuture<Void>
            switch control {
            case "cubic":
                set = provider.unsafeSetSocketOption(
                    level: .tcp, name: name, value: (UInt8(0x63), UInt8(0x75), UInt8(0x62), UInt8(0x69), UInt8(0x63)))
            case "bbr":
                set = provider.unsafeSetSocketOption(
                    level: .tcp, name: name, value: (UInt8(0x62), UInt8(0x62), UInt8(0x72)))
            default: set = loop.makeSucceededVoidFuture()
            }
            return set.map { channel }
        }
    }

    func listen(at endpoint: Endpoint, limits: TransportLimits, on loop: any EventLoop, reception: Reception)
        -> EventLoopFuture<TCPListener>
    { Sockets().listen(at: endpoint, limits: limits, on: loop, reception: reception) }
}

private enum Distance {
    static let token = RoutingSecret(SecretBytes(copying: [UInt8](repeating: 5, count: 32))).token(day: 1, counter: 1)

    static func serve(_ isUDP: Bool, _ host: String, _ port: Int) async throws {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let side = try await loop.submit { try Side(loop, key: 0x21, isUDP: isUDP) }.get()
        _ = try await loop.flatSubmit { () -> EventLoopFuture<Void> in
            side.expected = .max
            let match = RouteMatch(identity: side.identity, route: 1, remote: nil)
            side.transport.events.route = { $0 == token ? match : nil }
            return side.transport.listen(host: host, port: port).map { _ in }
        }.get()
        say("ready")
        while true {
            try await Task.sleep(for: .seconds(1))
            let bytes = try await loop.submit {
                defer { side.bytes = 0 }
                return side.bytes
            }.get()
            if bytes > 0 { say("\(bytes)") }
        }
    }

    static func send(_ isUDP: Bool, _ host: String, _ port: Int, seconds: Int64, control: String) async throws {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let peer = try SecretKey(SecretBytes(copying: [UInt8](repeating: 0x21, count: 32))).publicKey
        let side = try await loop.submit { try Side(loop, key: 0x11, isUDP: isUDP, control: control) }.get()
        try await loop.submit {
            side.left = .max
            side.dial(Endpoint(host: host, port: port), token, peer)
        }.get()
        try await Task.sleep(for: .seconds(seconds))
        say(try await loop.submit { side.transport.summary }.get())
        // Pending tasks of the loop run before the side is released.
        try await loop.submit {
            side.left = 0
            side.transport.close()
        }.get()
        withExtendedLifetime(side) {}
    }

    private static func say(_ line: String) {
        print(line)
        fflush(nil)
    }
}
