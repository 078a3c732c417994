import Cryptography
import Testing

@testable import Transport

@Suite struct RekeyTests {
    private static let minute: Microseconds = 60_000_000

    @Test(arguments: 1...5 as ClosedRange<UInt64>)
    func `a transfer over a lossy network goes on through rotations of both keys`(seed: UInt64) throws {
        let conditions = Conditions(lost: 20, duplicated: 100, reordered: 300, delay: 1_000, jitter: 3_000)
        let pair = try Pair.opened(seed, conditions)
        pair.near.waiting = [[UInt8]](repeating: [UInt8](repeating: 1, count: 10_000), count: 1_500)
        pair.far.waiting = [[UInt8]](repeating: [UInt8](repeating: 2, count: 10_000), count: 1_500)
        let isDone = pair.network.run(for: 300_000_000) {
            pair.far.received.count == 1_500 && pair.near.received.count == 1_500
        }
        #expect(isDone && pair.far.received == pair.near.waiting && pair.near.received == pair.far.waiting)
        let (near, far) = (try #require(pair.nearLink), try #require(pair.farLink))
        pair.network.run(for: 1_000_000)
        #expect(near.keyEpoch >= 2 && near.keyEpoch == far.keyReceivingEpoch)
        #expect(far.keyEpoch >= 2 && far.keyEpoch == near.keyReceivingEpoch)
        #expect(near.keyDiscardAt == nil && far.keyDiscardAt == nil)
    }

    @Test func `a key rotates only when the peer has a packet of it, and only the last two keys open`() throws {
        let pair = try Pair.opened(1)
        let (near, far) = (try #require(pair.nearLink), try #require(pair.farLink))
        pair.network.run(for: 1_000_000)
        let late = [near.forge([1]), near.forge([1])]
        func rotate(acknowledged: UInt64) {
            near.nextNumber += LinkKeys.packetsPerKey
            near.keys.rotate(at: near.nextNumber, acknowledged: acknowledged)
        }
        near.keys.rotate(at: near.nextNumber, acknowledged: nil)
        let first = near.nextNumber
        rotate(acknowledged: 0)
        rotate(acknowledged: first - 1)
        #expect(near.keyEpoch == 1)
        far.replay = ReplayWindow()
        // The next rotation is accepted, and an earlier packet afterwards; a packet two rotations ahead is not.
        let next = near.forge([1])
        rotate(acknowledged: near.nextNumber)
        let beyond = near.forge([1])
        #expect(near.keyEpoch == 2)
        func isTaken(_ packet: [UInt8]) -> Bool {
            let before = far.bytesIn
            pair.far.endpoint.receive(packet, from: pair.near.address, at: pair.network.now)
            return far.bytesIn > before
        }
        #expect(!isTaken(beyond) && far.keyReceivingEpoch == 0)
        #expect(isTaken(next) && far.keyReceivingEpoch == 1)
        far.replay = ReplayWindow()
        #expect(isTaken(late[0]))
        // The previous key is wiped after three probe timeouts.
        pair.network.run(for: 3_000_000)
        #expect(!isTaken(late[1]) && far.keyDiscardAt == nil)
        #expect(isTaken(beyond) && far.keyReceivingEpoch == 2)
    }

    @Test func `a link has new secrets each hour and refuses packets under old keys`() throws {
        let pair = try Pair.opened(1)
        // An open link needs no inbox key, which a lock wipes.
        for side in [pair.near, pair.far] { side.identity.wipe() }
        let (near, far) = (try #require(pair.nearLink), try #require(pair.farLink))
        var seen: Set<[UInt8]> = []
        for hour in 0..<4 as Range<UInt8> {
            #expect(near.rootBytes == far.rootBytes && seen.insert(near.rootBytes).inserted)
            #expect(near.keyEpoch == hour << 4 && far.keyEpoch == hour << 4)
            #expect(near.keyDiscardAt == nil && far.keyDiscardAt == nil)
            let old = near.forge([1])
            pair.network.run(for: 61 * Self.minute)
            let before = far.fingerprint
            pair.far.endpoint.receive(old, from: pair.near.address, at: pair.network.now)
            #expect(far.fingerprint == before)
        }
        #expect(pair.near.closed.isEmpty && pair.far.closed.isEmpty)
        #expect(pair.near.received.isEmpty && pair.far.received.isEmpty)
    }

    @Test(arguments: 1...20 as ClosedRange<UInt64>)
    func `a transfer over a lossy network goes on through many exchanges`(seed: UInt64) throws {
        var limits = DatagramLimits()
        limits.rekey.frameCount = 30
        limits.outboundHighWater = 8 << 10
        limits.outboundLowWater = 2 << 10
        let conditions = Conditions(lost: 100, duplicated: 100, reordered: 300, jitter: 60_000)
        let pair = try Pair.opened(seed, conditions, limits: limits)
        pair.near.waiting = makeMessages(300, seed: 1)
        pair.far.waiting = makeMessages(300, seed: 2)
        let (near, far) = (try #require(pair.nearLink), try #require(pair.farLink))
        var seen: Set<[UInt8]> = []
        let isDone = pair.network.run(for: 300_000_000) {
            seen.insert(far.rootBytes)
            return pair.far.received.count == 300 && pair.near.received.count == 300
        }
        #expect(isDone && pair.far.received == pair.near.waiting && pair.near.received == pair.far.waiting)
        pair.network.run(for: 20_000_000)
        #expect(near.rootBytes == far.rootBytes && seen.count > 5)
        #expect(near.keyEpoch == far.keyReceivingEpoch && far.keyEpoch == near.keyReceivingEpoch)
        #expect(near.keyDiscardAt == nil && far.keyDiscardAt == nil)
    }

    @Test func `a link ends ten minutes after its dialer has asked, if no answer comes`() throws {
        let pair = try Pair.opened(4)
        // The frame waits behind what the owner does not read.
        pair.far.reads = false
        #expect(pair.network.run(for: 69 * Self.minute) { !pair.near.closed.isEmpty } == false)
        #expect(pair.network.run(for: 2 * Self.minute) { !pair.near.closed.isEmpty && !pair.far.closed.isEmpty })
        #expect(pair.near.closed.values.first == .rekeyOverdue || pair.far.closed.values.first == .rekeyOverdue)
    }
}

// `#expect` cannot take noncopyable values.
extension DatagramLink {
    var keyEpoch: UInt8 { keys.epoch }
    var keyReceivingEpoch: UInt8 { keys.receivingEpoch }
    var keyDiscardAt: Microseconds? { keys.discardAt }
    var rootBytes: [UInt8] { rekeying.rootBytes }
}
