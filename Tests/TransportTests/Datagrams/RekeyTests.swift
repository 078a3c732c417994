import Cryptography
import Testing

@testable import Transport

@Suite struct RekeyTests {
    private func pair(_ seed: UInt64, _ conditions: Conditions = Conditions()) throws -> Pair {
        let pair = Pair(seed: seed, conditions)
        try #require(pair.open())
        return pair
    }

    @Test(arguments: 1...5 as ClosedRange<UInt64>)
    func `a transfer over a lossy network goes on through rotations of both keys`(seed: UInt64) throws {
        var conditions = Conditions()
        conditions.delay = 1_000
        conditions.lost = 20
        conditions.reordered = 300
        conditions.jitter = 3_000
        conditions.duplicated = 100
        let pair = try pair(seed, conditions)
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
        let pair = try pair(1)
        let (near, far) = (try #require(pair.nearLink), try #require(pair.farLink))
        pair.network.run(for: 1_000_000)
        let late = [near.forge([1]), near.forge([1])]
        func rotate(acknowledged: UInt64) {
            near.nextNumber += LinkKeys.packetsPerKey
            near.keys.rotate(at: near.nextNumber, acknowledged: acknowledged)
        }
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
}

// `#expect` cannot take noncopyable values.
extension DatagramLink {
    var keyEpoch: UInt8 { keys.epoch }
    var keyReceivingEpoch: UInt8 { keys.receivingEpoch }
    var keyDiscardAt: Microseconds? { keys.discardAt }
}
