import Cryptography
import NIOCore
import Testing
import Transport

private final class Carrier: @unchecked Sendable {
    let sockets: [RelayedSocket]
    private var credit: [Int]
    private var hasEnded = [false, false]
    var isCut = false

    init(_ loop: any EventLoop, window: Int) {
        sockets = [RelayedSocket(loop: loop, through: nil), RelayedSocket(loop: loop, through: nil)]
        credit = [window, window]
        for side in 0..<2 {
            sockets[side].events.hasOutput = { [unowned self] in pump(side) }
            sockets[side].events.consumed = { [unowned self] count in
                credit[1 - side] += count
                loop.execute { self.pump(1 - side) }
            }
            sockets[side].events.closed = { [unowned self] in
                let other = sockets[1 - side]
                loop.execute { other.finish() }
            }
        }
    }

    private func pump(_ side: Int) {
        guard !isCut else { return }
        let bytes = sockets[side].take(credit[side])
        credit[side] -= bytes.count
        if !bytes.isEmpty { sockets[1 - side].arrive(bytes) }
        if sockets[side].isDrained, !hasEnded[side] {
            hasEnded[side] = true
            sockets[1 - side].endInput()
        }
    }
}

@Suite("Sockets of relayed streams") struct RelayedSocketTests {
    private func run(
        window: Int, _ begin: @escaping @Sendable (_ near: Side, _ far: Side, _ carrier: Carrier) -> Void,
        until isDone: @escaping @Sendable (_ near: Side, _ far: Side) -> Bool,
        check: @escaping @Sendable (_ near: Side, _ far: Side) -> Void
    ) async throws {
        let net = try await SocketPair(.tcp)
        let loop = net.loop
        let carrier = try await net.act { near, far in
            let carrier = Carrier(loop, window: window)
            try far.transport.accept(carrier.sockets[1])
            near.dial(far.identity.publicKey, SocketPair.token) { $0.dial($1, over: .stream(carrier.sockets[0])) }
            return carrier
        }
        try await net.until(isDone) { near, far in
            for socket in carrier.sockets { socket.begin() }
            begin(near, far, carrier)
        }
        try await net.act(check)
        try await net.end()
        withExtendedLifetime(carrier) {}
    }

    @Test(
        "a link over a stream carries frames of every length both ways, whatever the window",
        arguments: [1, 100, 65_536]) func frames(window: Int) async throws
    {
        let counts = [0, 1, 1_000, 65_535]
        try await run(window: window) { near, far, _ in
            let heard = near.changed
            near.changed = {
                heard()
                guard near.links.count == 1, near.frames.isEmpty else { return }
                for count in counts { try? near.links[0].send([UInt8](repeating: 1, count: count)) }
                near.links[0].flush()
            }
            let told = far.changed
            far.changed = {
                told()
                guard far.frames.count == counts.count, near.frames.isEmpty else { return }
                for count in counts { try? far.links[0].send([UInt8](repeating: 2, count: count)) }
                far.links[0].flush()
            }
        } until: { near, far in
            near.frames.count == counts.count && far.frames.count == counts.count
        } check: { near, far in
            #expect(far.frames.map(\.count) == counts && near.frames.map(\.count) == counts)
            #expect(near.links.allSatisfy(\.isRelayed) && far.links.allSatisfy(\.isRelayed))
            #expect(near.links[0].carrier == .tcp && far.links[0].route == 7)
        }
    }

    @Test func `A link that is closed delivers everything that was sent before`() async throws {
        try await run(window: 1_000) { near, _, _ in
            let heard = near.changed
            near.changed = {
                heard()
                guard near.links.count == 1, near.closed.isEmpty else { return }
                for index in 0..<50 { try? near.links[0].send([UInt8](repeating: UInt8(index), count: 900)) }
                near.links[0].close()
            }
        } until: { near, far in
            !near.closed.isEmpty && !far.closed.isEmpty
        } check: { near, far in
            #expect(far.frames.count == 50 && far.frames.last?.first == 49)
            #expect(near.closed == [.requested] && far.closed == [.closedByPeer])
        }
    }

    @Test func `A lost stream ends its link on both sides, and a dial over it`() async throws {
        try await run(window: 1_000) { near, _, carrier in
            let heard = near.changed
            near.changed = {
                heard()
                guard near.links.count == 1, !carrier.isCut else { return }
                carrier.isCut = true
                for socket in carrier.sockets { socket.finish() }
            }
        } until: { near, far in
            !near.closed.isEmpty && !far.closed.isEmpty
        } check: { near, far in
            #expect(near.closed == [.closedByPeer] && far.closed == [.closedByPeer])
        }
        try await run(window: 1_000) { _, _, carrier in
            for socket in carrier.sockets { socket.fail() }
        } until: { near, _ in
            !near.failures.isEmpty
        } check: { near, far in
            #expect(near.failures == [.closedBeforeActTwo] && near.links.isEmpty && far.links.isEmpty)
        }
    }
}
