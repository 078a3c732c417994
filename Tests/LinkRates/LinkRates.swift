import Datagrams
import NIOCore
import NIOPosix
import Noise
import Primitives
import Transport

/// How fast links are on the loopback, over TCP and over UDP, in turns: `linkrates [MiB] [rounds]`.
@main
enum LinkRates {
    static func main() async throws {
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
            "\(mebibytes) MiB on the loopback, middle of \(rounds): TCP \(Int(tcp)), UDP \(Int(udp)) MiB/s, \(udp / tcp)"
        )
        try await group.shutdownGracefully()
    }
}

/// One node of a transfer, on its loop.
private final class Side: @unchecked Sendable {
    let loop: any EventLoop
    let identity: IdentityKey
    let tcp: TCPTransport
    let udp: UDPTransport
    var left = 0
    var expected = 0
    var link: PeerConnection?
    var started = NIODeadline.now()
    var done: (Double) -> Void = { _ in }

    init(_ loop: any EventLoop, key: UInt8) throws {
        self.loop = loop
        identity = IdentityKey(try SecretKey(SecretBytes(copying: [UInt8](repeating: key, count: 32))))
        tcp = TCPTransport(loop: loop)
        var limits = DatagramLimits()
        limits.largestDatagramByteCount = 65_507
        udp = UDPTransport(loop: loop, datagramLimits: limits)
        var events = TransportEvents()
        events.linkOpened = { [unowned self] in
            link = $0
            started = .now()
            write()
        }
        events.becameWritable = { [unowned self] _ in write() }
        events.frame = { [unowned self] link, frame in
            expected -= frame.count
            if expected == 0, left == 0, frame.count > 1 {
                try? link.send([1])
                link.flush()
            } else if frame.count == 1 {
                done(Double((NIODeadline.now() - started).nanoseconds) / 1e9)
            }
        }
        events.batchEnded = { $0.flush() }
        tcp.events = events
        udp.events = events
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
    static func run(_ isUDP: Bool, _ byteCount: Int, _ group: MultiThreadedEventLoopGroup) async throws
        -> (rate: Double, note: String)
    {
        let loops = [group.next(), group.next()]
        let near = try await loops[0].submit { try Side(loops[0], key: 0x11) }.get()
        let far = try await loops[1].submit { try Side(loops[1], key: 0x21) }.get()
        let token = RoutingSecret(SecretBytes(copying: [UInt8](repeating: 5, count: 32))).token(day: 1, counter: 1)
        let match = RouteMatch(identity: far.identity, route: 1, remote: near.identity.publicKey)
        let address = try await loops[1].flatSubmit { () -> EventLoopFuture<SocketAddress> in
            far.expected = byteCount
            if isUDP {
                far.udp.events.route = { $0 == token ? match : nil }
                return far.udp.listen(host: "127.0.0.1", port: 0)
            }
            far.tcp.events.route = { $0 == token ? match : nil }
            return far.tcp.listen(host: "127.0.0.1", port: 0).map(\.address)
        }.get()
        let seconds = try await loops[0].flatSubmit { () -> EventLoopFuture<Double> in
            let promise = loops[0].makePromise(of: Double.self)
            near.left = byteCount
            near.done = { promise.succeed($0) }
            let dial = TCPTransport.Dial(
                endpoint: Endpoint(host: "127.0.0.1", port: address.port ?? 0),
                token: token,
                identity: near.identity,
                remote: far.identity.publicKey,
                route: 1
            )
            _ = isUDP ? near.udp.dial(dial) : near.tcp.dial(dial)
            return promise.futureResult
        }.get()
        let note = try await loops[0].submit {
            let note = near.udp.summary
            near.tcp.close()
            near.udp.close()
            return note
        }.get()
        try await loops[1].submit {
            far.tcp.close()
            far.udp.close()
        }.get()
        return (Double(byteCount) / 1_048_576 / seconds, isUDP ? note : "")
    }
}
