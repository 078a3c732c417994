import Testing

@testable import Transport

/// Knocks: sealed messages without a handshake.
@Suite struct DatagramKnockTests {
    private static let token = [UInt8](repeating: 0x21, count: 16)

    private func pair(seed: UInt64, answer: [UInt8]? = nil) -> Pair {
        let pair = Pair(seed: seed)
        pair.far.acceptKnocks(Self.token)
        pair.far.knockAnswer = answer
        return pair
    }

    @Test(arguments: [nil, [], [9, 8, 7]] as [[UInt8]?]) func `a knock is read once and answered`(answer: [UInt8]?) {
        let pair = pair(seed: 1, answer: answer)
        pair.near.knock(pair.far, token: Self.token, [1, 2, 3])
        pair.network.run(for: 20_000_000)
        #expect(pair.far.knocks.map(\.sealed) == [[1, 2, 3]] && pair.far.knocks.map(\.token) == [Self.token])
        #expect(pair.near.knockAnswers == [answer ?? []])
        #expect(pair.near.endpoint.connectionCount == 0 && pair.far.endpoint.connectionCount == 0)
        #expect(pair.far.keysDrawn == 0 && pair.near.keysDrawn == 0)
    }

    @Test(arguments: [UInt8(6), 7]) func `a lost knock or answer is sent again`(kind: UInt8) {
        let pair = pair(seed: 3, answer: [5])
        var lost = 0
        pair.network.tap = { _, _, bytes in
            guard bytes[1] == 0x10 | kind, lost < 2 else { return true }
            lost += 1
            return false
        }
        pair.near.knock(pair.far, token: Self.token, [1, 2])
        pair.network.run(for: 20_000_000)
        #expect(pair.near.knockAnswers == [[5]] && pair.far.knocks.count == (kind == 6 ? 1 : 3))
    }

    @Test func `an answer longer than its knock is never sent`() {
        let pair = pair(seed: 4, answer: [1, 2, 3, 4])
        pair.near.knock(pair.far, token: Self.token, [1, 2, 3])
        pair.network.run(for: 20_000_000)
        #expect(pair.near.knockAnswers == [nil] && pair.far.knocks.count == 3)
    }

    @Test func `a node reads a limited number of knocks a second, and fewer from one network`() {
        let limits = DatagramLimits()
        let pair = pair(seed: 6, answer: [])
        let (most, ofOne) = (Int(limits.knocksPerSecond), Int(limits.knocksPerPrefix))
        func knock(_ asker: UInt64, of network: UInt32) {
            let bytes = DatagramPacket.knock(token: Self.token, asker: asker, sealed: [1]).bytes
            let address = DatagramAddress(v4: network << 8 | UInt32(asker & 255), port: 7)
            pair.far.receive(bytes, from: address)
        }
        for index in 0..<UInt64(ofOne) + 10 { knock(index, of: 1) }
        #expect(pair.far.knocks.count == ofOne)
        #expect(pair.far.rejections == [Rejection](repeating: .tooManyKnocks, count: 10))
        for network in 2...UInt32(most / ofOne) { for index in 0..<UInt64(ofOne) { knock(index, of: network) } }
        #expect(pair.far.knocks.count == most)
        knock(1, of: 1_000)
        #expect(pair.far.knocks.count == most)
        pair.network.run(for: 1_000_001)
        knock(1, of: 1)
        #expect(pair.far.knocks.count == most + 1)
    }
}
