import Cryptography
import Messaging
import NIOCore
import NIOPosix
import Testing

@testable import NodeRuntime

/// Dials of a node to peers that accept and stay silent.
@Suite struct DialLimitTests {
    /// Dials that many peers, and waits for the first connection.
    /// - Parameter own: their cards name the node's own endpoint first.
    /// - Returns: the dials under way at once, and the connections that the node itself has rejected.
    private func dial(_ peers: UInt8, own: Bool = false) async throws -> [Int] {
        let machine = try NodeMachine()
        let reached = machine.loop.makePromise(of: Void.self)
        let listener = try await ServerBootstrap(group: machine.loop).childChannelInitializer { channel in
            reached.succeed()
            return channel.eventLoop.makeSucceededVoidFuture()
        }.bind(host: "127.0.0.1", port: 0).get()
        let node = try await machine.node(listen: [Endpoint(host: "127.0.0.1", port: 0)])
        try await node.start(passphrase: nil)
        let silent = Endpoint(host: "127.0.0.1", port: UInt16(listener.localAddress?.port ?? 0))
        let underWay = try await node.ping(peers, at: silent, own)
        try await reached.futureResult.get()
        let rejected = await node.rejectionCount
        try await listener.close()
        try await machine.end(node)
        return [underWay, rejected]
    }

    @Test func `a node has 64 dials under way, and further ones wait`() async throws {
        #expect(try await dial(70) == [64, 0])
    }

    @Test func `a dial leaves out the node's own endpoint`() async throws {
        #expect(try await dial(1, own: true) == [1, 0])
    }
}

extension Node {
    fileprivate func ping(_ peers: UInt8, at endpoint: Endpoint, _ own: Bool) throws -> Int {
        for number in 1...peers {
            let secret = [UInt8](repeating: number, count: 32)
            let card = ContactCard(
                key: try SecretKey(SecretBytes(copying: secret)).publicKey, routingSecret: secret,
                endpoints: (own ? shell.listening.endpoints : []) + [endpoint])
            core.turn { core.machine.withContact(&$0) { contact, turn in contact.ping(card, nonce: 1, &turn) } }
        }
        return shell.dials.begun.count
    }

    fileprivate var rejectionCount: Int { services.counters.rejections.values.reduce(0) { $0 + Int($1) } }
}

@Suite struct KnockAllowanceTests {
    private let noon = Timestamp(milliseconds: 1_750_000_000_000)

    /// How many of `count` knocks are checked.
    private func look(
        _ count: Int, _ allowance: inout KnockAllowance, route: UInt64 = 1, from source: UInt64?, at now: Timestamp
    ) -> Int {
        var result = 0
        for _ in 0..<count where allowance.allows(route, from: source, now: now) {
            result += 1
            allowance.charge(route, from: source, now: now)
        }
        return result
    }

    @Test func `one network gets three checks of forged knocks, then one per ten seconds, over all routes`() {
        var allowance = KnockAllowance.forged
        var looked = 0
        for route in 0..<50 as Range<UInt64> { looked += look(10, &allowance, route: route, from: 7, at: noon) }
        #expect(looked == 3)
        #expect(look(10, &allowance, route: 99, from: 7, at: noon + 9_999) == 0)
        #expect(look(10, &allowance, route: 99, from: 7, at: noon + 10_000) == 1)
        #expect(look(10, &allowance, route: 98, from: nil, at: noon) == 3)
    }

    @Test func `a route used up by other networks stays open to an uncharged network`() {
        var allowance = KnockAllowance.forged
        for source in 0..<4 as Range<UInt64> { _ = look(10, &allowance, from: source, at: noon) }
        // A valid notice is always checked: it is not charged.
        for _ in 0..<100 { #expect(allowance.allows(1, from: 99, now: noon)) }
        #expect(!allowance.allows(1, from: 0, now: noon))
        #expect(allowance.allows(2, from: 99, now: noon))
    }

    @Test func `many networks together get the route's allowance and the reserve, then one check per second`() {
        var allowance = KnockAllowance.forged
        var looked = 0
        for source in 0..<1_000 as Range<UInt64> { looked += look(10, &allowance, from: source, at: noon) }
        #expect(looked == Limits.forgedKnockRate.burst + Limits.knockReserveRate.burst)
        looked = 0
        for source in 2_000..<3_000 as Range<UInt64> { looked += look(10, &allowance, from: source, at: noon + 1_000) }
        #expect(looked == 1)
    }

    @Test func `a member gets four answers at once, then one per second, however often it asks`() {
        var allowance = KnockAllowance.answered
        #expect(look(10_000, &allowance, from: 3, at: noon) == 4)
        #expect(look(10_000, &allowance, from: 3, at: noon + 1_000) == 1)
        // Another member at the same network, up to the network's limit.
        #expect(look(10_000, &allowance, route: 2, from: 3, at: noon) == 4)
        var others = 0
        for route in 3..<100 as Range<UInt64> { others += look(1, &allowance, route: route, from: 3, at: noon) }
        #expect(others < Limits.knockSourceRate.burst)
    }

    @Test func `the number of tracked networks and routes is limited, and the rest share one allowance`() {
        var allowance = KnockAllowance.answered
        var looked = 0
        for name in 0..<1_000 as Range<UInt64> { looked += look(10, &allowance, route: name, from: name, at: noon) }
        let ofKnown = Limits.knockBucketCount * Limits.answeredKnockRate.burst
        #expect(looked <= ofKnown + Limits.answeredKnockRate.burst + Limits.knockSourceRate.burst)
        #expect(look(100, &allowance, route: 500_000, from: 500_000, at: noon + .hour) == 4)
    }
}

@Suite struct ClosingGuestsTests {
    @Test func `a flood of refused guests leaves no more closing links open than the limit`() {
        var closing = ClosingGuests()
        var open: Set<LinkID> = []
        for number in 1...10_000 as ClosedRange<UInt64> {
            open.insert(LinkID(number))
            if let victim = closing.add(LinkID(number)) { open.remove(victim) }
            #expect(open.count <= Limits.closingGuestCount)
        }
        #expect(open.contains(LinkID(10_000)) && !open.contains(LinkID(1)))
    }
}

@Suite struct ReadingPausesTests {
    private func ends(_ pauses: inout ReadingPauses, _ reasons: ReadingPauses.Reason...) -> [Bool] {
        reasons.map { pauses.remove($0) }
    }

    @Test func `reading of a link resumes once, when no reason for a pause is left`() {
        var pauses = ReadingPauses()
        #expect(ends(&pauses, .disk) == [false], "it was not paused")
        pauses.add(.disk)
        pauses.add(.haste)
        #expect(ends(&pauses, .haste) == [false], "the disk has not caught up")
        #expect(ends(&pauses, .disk, .disk) == [true, false])
        pauses.add(.haste)
        pauses.add(.haste)
        pauses.add(.disk)
        #expect(ends(&pauses, .disk) == [false], "a commit does not end the pause of a hasty peer")
        #expect(ends(&pauses, .haste) == [true])
    }
}

/// Small pieces over one link to a rendezvous node (Relay.md).
@Suite struct RelaySendingTests {
    private let noon = Timestamp(milliseconds: 1_795_262_400_000)

    @Test func `a sender uses the rendezvous node's whole burst, and then half of its rate`() {
        var sending = RelaySending()
        var theirs = IdleFrames.relayed
        var said = 0
        for time in 0..<10_000 {
            let now = noon + Milliseconds(time)
            while sending.take(now: now) {
                said += 1
                let wait = theirs.note(now: now)
                #expect(wait == nil, "it is never left unread")
            }
        }
        #expect(said == Limits.sentPieceRate.burst + 9_999)
    }

    @Test func `waiting streams are served in turn, and no other stream before them`() {
        var sending = RelaySending()
        while sending.take(now: noon) {}
        let streams = (1...3).map { RelayStreamID($0) }
        let isFirst = streams.map { sending.wait($0) } + [sending.wait(streams[0])]
        #expect(isFirst == [true, false, false, false])
        let early = sending.take(now: noon + .second)
        #expect(!early, "there is leave, but others wait for it")
        let next = sending.next()
        #expect(next == streams)
        let served = sending.take(now: noon + Limits.sentPieceRate.interval)
        let second = sending.take(now: noon + Limits.sentPieceRate.interval)
        #expect(served && !second)
        let isFirstAgain = [sending.wait(streams[1]), sending.wait(streams[2])]
        #expect(isFirstAgain == [true, false])
        let rest = sending.next()
        #expect(rest == [streams[1], streams[2]])
    }
}
