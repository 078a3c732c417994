import Cryptography
import Testing

@testable import Transport

@Suite struct PathTests {
    private func pair(_ seed: UInt64, _ conditions: Conditions = Conditions()) throws -> Pair {
        let pair = try Pair.opened(seed, conditions)
        pair.network.run(for: 2_000_000)
        return pair
    }
    private let elsewhere = DatagramAddress(v4: 0x0c00_0001, port: 77)

    @Test func `a link follows its peer to another address in mid-transfer within a second`() throws {
        let pair = try pair(1)
        pair.near.waiting = makeMessages(3_000, seed: 1)
        pair.network.run(for: 300_000)
        let before = pair.far.received.count
        pair.near.address = elsewhere
        #expect(pair.network.run(for: 1_000_000) { pair.far.moves == [elsewhere] })
        #expect(pair.farLink?.address == elsewhere && before < 3_000)
        #expect(pair.farLink?.path.number == 1)
        #expect(pair.network.run(for: 60_000_000) { pair.far.received.count == 3_000 })
        #expect(pair.far.received == pair.near.waiting && pair.near.closed.isEmpty)
    }

    @Test func `a reported change of network moves an idle link to its new address`() throws {
        let pair = try pair(2)
        pair.near.address = elsewhere
        pair.near.endpoint.networkChanged(at: pair.network.now)
        #expect(pair.network.run(for: 200_000) { pair.far.moves == [elsewhere] })
        pair.far.waiting = makeMessages(10, seed: 1)
        #expect(pair.network.run(for: 2_000_000) { pair.near.received.count == 10 })
    }

    @Test func `a peer can move again after the path count has reached its maximum`() throws {
        let pair = try pair(9)
        let far = try #require(pair.farLink)
        far.pathCount = .max
        for port in 1...3 as ClosedRange<UInt16> {
            pair.near.address = DatagramAddress(v4: 0x0c00_0001, port: port)
            pair.near.endpoint.networkChanged(at: pair.network.now)
            #expect(pair.network.run(for: 2_000_000) { far.address == pair.near.address })
        }
        pair.near.waiting = makeMessages(10, seed: 1)
        #expect(pair.network.run(for: 2_000_000) { pair.far.received.count == 10 })
    }

    @Test func `an old packet from another address does not move the link`() throws {
        let pair = try pair(3)
        let (near, far) = (try #require(pair.nearLink), try #require(pair.farLink))
        let old = near.forge([1])
        let new = near.forge([1])
        pair.far.endpoint.receive(new, from: pair.near.address, at: pair.network.now)
        pair.far.endpoint.receive(old, from: elsewhere, at: pair.network.now)
        #expect(far.address == pair.near.address && far.fallback == nil)
    }

    @Test func `a thief's address gets at most three bytes per stolen byte, and the link returns`() throws {
        let pair = try pair(4)
        pair.far.waiting = makeMessages(2_000, seed: 2)
        var stolenBytes = 0
        var sentBytes = 0
        var isStolen = false
        pair.network.tap = { from, to, bytes in
            if to == self.elsewhere { sentBytes += bytes.count }
            // A thief captures one packet of the near side and sends it before the original arrives.
            if from == pair.near.address, !isStolen, pair.far.received.isEmpty, pair.near.received.count > 100 {
                isStolen = true
                stolenBytes += bytes.count
                pair.network.inject(bytes, from: self.elsewhere, to: to, after: 1_000)
                return false
            }
            return !isStolen || from != pair.near.address || pair.network.now > 30_000_000
        }
        pair.network.run(for: 2_000_000)
        #expect(isStolen && stolenBytes > 0)
        #expect(sentBytes > 0 && sentBytes <= 3 * stolenBytes)
        pair.network.tap = { _, _, _ in true }
        // The thief's address never answers, so the link returns to the validated one.
        #expect(
            pair.network.run(for: 20_000_000) {
                pair.far.endpoint.link(pair.far.opened[0].number)?.address == pair.near.address
            })
        #expect(pair.network.run(for: 60_000_000) { pair.near.received.count == 2_000 })
        #expect(pair.near.received == pair.far.waiting)
    }

    @Test func `an unproved address gets three bytes for each byte received`() {
        var path = DatagramPath(elsewhere, number: 1, isProved: false, limits: DatagramLimits(), seed: 1, at: 0)
        #expect(path.allowance == 0)
        path.datagramReceived(100)
        #expect(path.allowance == 300 && path.allowanceForData == 0)
        path.datagramReceived(900)
        #expect(path.allowance == 3_000 && path.allowanceForData == 3_000 - 512)
        path.datagramSent(2_700)
        path.datagramSent(300)
        #expect(path.allowance == 0)
        path.startChallenge(at: 0)
        path.challengeSent(7, at: 0)
        let wrong = path.response(8)
        #expect(!wrong && path.allowance == 0)
        let right = path.response(7)
        #expect(right && path.allowance == .max && path.challengeDeadline == nil)
        let again = path.response(7)
        #expect(!again)
    }

    @Test func `a side can announce its move while the peer's new address is unproved`() throws {
        let pair = try pair(8)
        let (near, far) = (try #require(pair.nearLink), try #require(pair.farLink))
        // The far side has moved. The near side has received one packet from there and no answer to its challenge.
        pair.far.address = elsewhere
        pair.near.endpoint.receive(far.forge([1]), from: elsewhere, at: pair.network.now)
        #expect(near.address == elsewhere && near.path.allowance > 0)
        let allowance = near.path.allowance
        pair.near.address = DatagramAddress(v4: 0x0d00_0001, port: 8)
        near.networkChanged(at: pair.network.now)
        #expect(near.path.allowance == allowance && near.fallback != nil)
        pair.near.endpoint.touch(near.localID)
        #expect(pair.network.run(for: 2_000_000) { near.path.isProved && far.path.isProved })
        #expect(far.address == pair.near.address && near.address == elsewhere)
    }

    @Test(arguments: [(1_500, 1_472), (1_471, 1_452), (1_400, 1_372), (1_250, 1_232), (1_231, 1_200), (1_200, 1_200)])
    func `datagrams grow to the largest size that gets through`(largest: Int, expected: Int) throws {
        let pair = try pair(5, Conditions(largest: largest))
        pair.near.waiting = makeMessages(100, seed: 1)
        pair.network.run(for: 20_000_000)
        #expect(pair.nearLink?.datagramByteCount == expected)
        #expect(pair.far.received.count == 100)
    }

    @Test func `datagrams on a loopback grow to 65,000 bytes`() throws {
        let pair = Pair(seed: 6, Conditions(delay: 50))
        pair.near.address = DatagramAddress(v4: 0x7f00_0001, port: 1)
        pair.far.address = DatagramAddress(v4: 0x7f00_0001, port: 2)
        try #require(pair.open())
        pair.near.waiting = makeMessages(100, seed: 1)
        pair.network.run(for: 2_000_000)
        #expect(pair.nearLink?.datagramByteCount == 65_000 && pair.far.received.count == 100)
    }

    @Test func `a transfer goes on with smaller datagrams when its path shrinks`() throws {
        let pair = try pair(7)
        #expect(pair.nearLink?.datagramByteCount == 1_472)
        pair.near.waiting = makeMessages(500, seed: 1)
        pair.network.run(for: 60_000)
        pair.network.conditions.largest = 1_300
        #expect(pair.network.run(for: 30_000_000) { pair.far.received.count == 500 })
        #expect(pair.nearLink?.datagramByteCount == 1_200 && pair.near.closed.isEmpty)
        #expect(pair.far.received == pair.near.waiting)
        pair.near.waiting += makeMessages(20, seed: 2)
        pair.network.run(for: 700_000_000)
        #expect(pair.nearLink?.datagramByteCount == 1_232)
    }

    @Test func `a path that swallows datagrams of 1,200 bytes carries smaller ones`() throws {
        let pair = try pair(10)
        pair.network.conditions.largest = 1_000
        pair.near.waiting = makeMessages(100, seed: 1)
        #expect(pair.network.run(for: 20_000_000) { pair.far.received.count == 100 }, "\(pair.diagnosis)")
        #expect(pair.far.received == pair.near.waiting && pair.near.closed.isEmpty)
        pair.network.conditions.largest = 1_500
        pair.network.run(for: 700_000_000)
        #expect(pair.nearLink?.datagramByteCount == 1_472 && pair.near.closed.isEmpty)
    }

    @Test func `a link closes when its data never arrive, even if its peer is heard`() throws {
        let pair = try pair(11)
        // Keep-alives and acknowledgements fit, data does not.
        pair.network.conditions.largest = 200
        pair.near.waiting = makeMessages(100, seed: 1)
        #expect(pair.network.run(for: 60_000_000) { !pair.near.closed.isEmpty })
        #expect(pair.near.closed.values.map { "\($0)" } == ["unacknowledged"])
    }
}
