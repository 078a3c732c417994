import Cryptography
import Testing

@testable import Transport

@Suite struct EstablishingTests {
    @Test(arguments: [0x11, 0x16, 0x18] as [UInt8])
    func `a dial, knock or question with an unknown token gets no answer and costs no key`(kind: UInt8) {
        let pair = Pair(seed: 1)
        let count = kind == 0x11 ? 6 : 3
        // A link's token is unknown for knocks.
        if kind != 0x16 { pair.far.forget(Pair.token) }
        switch kind {
        case 0x11: _ = pair.near.dial(pair.far, token: Pair.token)
        case 0x16: pair.near.knock(pair.far, token: Pair.token, [1])
        default: _ = pair.near.endpoint.observe(token: Pair.token, at: pair.far.address, now: pair.network.now)
        }
        pair.network.run(for: 20_000_000)
        #expect(pair.near.failures == (kind == 0x11 ? [.noAnswer] : []))
        #expect(pair.near.knockAnswers == (kind == 0x16 ? [nil] : []))
        #expect(pair.near.observed == (kind == 0x18 ? [nil] : []))
        // Sent at 0, 1 and 3 s, a dial in two halves; all fail at 5 s.
        #expect(pair.network.datagrams == count && pair.far.keysDrawn == 0)
        #expect(pair.far.rejections == [Rejection](repeating: .unknownToken, count: count))
        #expect(pair.near.endpoint.connectionCount == 0)
    }

    @Test func `a repeated act 1 gets the same act 2 and no second key`() throws {
        let pair = Pair(seed: 4)
        let halves = try dialDatagrams(pair)
        var answers: [[UInt8]] = []
        // Any two halves are longer than the answer.
        for (first, second) in [(0, 1), (1, 0), (0, 1), (0, 0), (1, 1)] {
            #expect(give(pair, halves[first]) == nil)
            answers.append(try #require(give(pair, halves[second])))
            #expect(answers[0].count <= halves[0].count + halves[1].count)
        }
        #expect(Set(answers).count == 1 && pair.far.keysDrawn == 1)
        #expect(pair.far.endpoint.handshakesInFlight == 1)
        // Another act 1 with the same connection id is ignored.
        for half in halves {
            var other = half
            other[40] ^= 1
            #expect(give(pair, other) == nil && give(pair, other) == nil && pair.far.keysDrawn == 1)
        }
    }

    /// The two halves of act 1.
    private func dialDatagrams(_ pair: Pair) throws -> [[UInt8]] {
        var halves: [[UInt8]] = []
        pair.network.tap = { from, _, bytes in
            halves.append(bytes)
            return false
        }
        pair.near.endpoint.cancelDial(pair.near.dial(pair.far, token: Pair.token), at: pair.network.now)
        pair.network.tap = { _, _, _ in true }
        try #require(halves.count == 2)
        return halves
    }

    /// The far node's only answer.
    private func give(_ pair: Pair, _ datagram: [UInt8], from address: DatagramAddress? = nil) -> [UInt8]? {
        pair.far.endpoint.receive(datagram, from: address ?? pair.near.address, at: pair.network.now)
        defer { #expect(pair.far.endpoint.poll(at: pair.network.now) == nil) }
        return pair.far.endpoint.poll(at: pair.network.now)?.bytes
    }

    @Test(arguments: [0, 1]) func `half of act 1 costs no key and is kept for 1.3 s`(number: Int) throws {
        let pair = Pair(seed: 14)
        let halves = try dialDatagrams(pair)
        #expect(give(pair, halves[number]) == nil && give(pair, halves[number]) == nil)
        #expect(pair.far.keysDrawn == 0 && pair.far.routesAsked == 0 && pair.far.endpoint.handshakesInFlight == 1)
        pair.network.run(for: 1_299_999)
        #expect(pair.far.endpoint.handshakesInFlight == 1)
        pair.network.run(for: 1)
        pair.far.settle()
        #expect(pair.far.endpoint.handshakesInFlight == 0 && pair.far.endpoint.connectionCount == 0)
        #expect(pair.far.rejections == [.timedOut])
        // The other half comes too late; with the first again, in any order, it is answered.
        #expect(give(pair, halves[1 - number]) == nil)
        #expect(try #require(give(pair, halves[number])).count == 18 + Act.two.byteCount && pair.far.keysDrawn == 1)
    }

    @Test func `halves of two dials, of two tokens or with a changed byte open nothing`() throws {
        let pair = Pair(seed: 15)
        let other = CodecTests.bytes(16, 9)
        pair.far.accept(other, from: nil)
        let (first, second) = (try dialDatagrams(pair), try dialDatagrams(pair))
        #expect(give(pair, first[0]) == nil && give(pair, second[1]) == nil)
        #expect(pair.far.keysDrawn == 0 && pair.far.endpoint.handshakesInFlight == 2)
        // Under another token, from another address.
        #expect(give(pair, Array(first[1].prefix(2)) + other + first[1].dropFirst(18)) == nil)
        #expect(give(pair, first[1], from: DatagramAddress(v4: 7, port: 7)) == nil && pair.far.keysDrawn == 0)
        // As if they were of one dial: no act 1 of anyone, and the first half stays.
        #expect(give(pair, Array(first[1].prefix(28)) + second[1].dropFirst(28)) == nil)
        var events: [DatagramEvent] = []
        while let event = pair.far.endpoint.nextEvent() { events.append(event) }
        #expect(events == [.rejected(.handshake(.badCiphertext(.one)))] && pair.far.endpoint.handshakesInFlight == 3)
        // Both dials are still answered.
        #expect(give(pair, second[0]) != nil && give(pair, first[0]) == nil && give(pair, first[1]) != nil)
    }

    @Test(arguments: 0...3) func `a lost act is sent again, and the link opens`(lostKind: UInt8) {
        // 0: the second half of act 1.
        let kind = max(lostKind, 1)
        let pair = Pair(seed: 5)
        var lost = 0
        pair.network.tap = { _, _, bytes in
            if bytes[1] == 0x10 | kind, kind != 1 || bytes[26] == 1 - lostKind, lost == 0 {
                lost += 1
                return false
            }
            return true
        }
        #expect(pair.open() && lost == 1)
        #expect(pair.far.opened.count == 1 && pair.near.failures.isEmpty)
        // Act 3 is repeated after a round trip, the others after the initial timeout.
        #expect(pair.network.now - 1_000_000 <= (kind == 3 ? 250_000 : 1_100_000))
        #expect(pair.far.keysDrawn == 1 && pair.near.keysDrawn == 1)
    }

    @Test(arguments: 1...3 as ClosedRange<UInt8>) func `an act with any byte changed opens no link`(kind: UInt8) {
        // The header and the start of the act, then some bytes.
        let length = kind == 1 ? 653 : kind == 2 ? 1_172 : 76
        for index in 0..<length where index < 100 || index % 50 == 0 {
            let pair = Pair(seed: UInt64(index) + 10)
            pair.network.tap = { _, _, bytes in
                if bytes[1] == 0x10 | kind { bytes[index] ^= 0x40 }
                return true
            }
            _ = pair.near.dial(pair.far, token: Pair.token)
            pair.network.run(for: 20_000_000)
            // The dialer's own id names its connection: if it is changed, the answer matches no connection.
            #expect(pair.near.opened.isEmpty && pair.far.opened.isEmpty, "byte \(index) of act \(kind)")
            #expect(pair.near.endpoint.connectionCount == 0 && pair.far.endpoint.connectionCount == 0)
            #expect(pair.far.endpoint.handshakesInFlight == 0)
        }
    }

    @Test func `a dialer that is not the route's member gets no confirmation and no link`() {
        let pair = Pair(seed: 7)
        let other = pair.network.makeNode()
        pair.far.accept(Pair.token, from: other.identity.publicKey)
        for _ in 0..<9 {
            _ = pair.near.dial(pair.far, token: Pair.token)
            pair.network.run(for: 100_000)
        }
        // Eight fail within a second; then the network's dials are dropped for a while.
        let rejections = pair.far.rejections.filter { $0 != .unknownConnection }
        #expect(rejections == [Rejection](repeating: .wrongPeer, count: 8) + [.tooManyFromPrefix, .tooManyFromPrefix])
        pair.network.run(for: 20_000_000)
        #expect(pair.near.failures == [DatagramDialFailure](repeating: .noConfirmation, count: 9))
        #expect(pair.near.opened.isEmpty && pair.far.opened.isEmpty && pair.far.endpoint.connectionCount == 0)
    }

    @Test func `a dial for another key fails at act 1, and a dial to oneself is refused`() {
        let pair = Pair(seed: 8)
        let other = pair.network.makeNode()
        _ = pair.near.endpoint.dial(
            DatagramDial(
                address: pair.far.address, token: Pair.token, identity: pair.near.identity,
                remote: other.identity.publicKey, route: 1), at: pair.network.now)
        pair.network.run(for: 20_000_000)
        #expect(pair.near.failures == [.noAnswer])
        #expect(pair.far.rejections.first == .handshake(.badCiphertext(.one)))
        #expect(pair.far.endpoint.handshakesInFlight == 0)
        _ = pair.near.dial(pair.near, token: Pair.token)
        pair.near.settle()
        #expect(pair.near.failures == [.noAnswer, .reflection])
    }

    @Test func `a cancelled dial fails once`() {
        let pair = Pair(seed: 9)
        let number = pair.near.dial(pair.far, token: Pair.token)
        pair.near.endpoint.cancelDial(number, at: pair.network.now)
        pair.near.endpoint.cancelDial(number, at: pair.network.now)
        pair.network.run(for: 20_000_000)
        #expect(pair.near.failures == [.cancelled] && pair.near.opened.isEmpty && pair.far.opened.isEmpty)
        #expect(pair.far.rejections.last == .timedOut)
    }

    @Test func `a dial cancelled after act 3 also closes the responder's link`() {
        let pair = Pair(seed: 9)
        let number = pair.near.dial(pair.far, token: Pair.token)
        // The responder has the link, and its answer is still on its way.
        #expect(pair.network.run(for: 5_000_000) { pair.far.opened.count == 1 })
        #expect(pair.near.opened.isEmpty)
        pair.near.endpoint.cancelDial(number, at: pair.network.now)
        pair.network.run(for: 10_000_000)
        #expect(pair.near.failures == [.cancelled] && pair.near.opened.isEmpty && pair.near.closed.isEmpty)
        #expect(Array(pair.far.closed.values) == [.closedByPeer])
        #expect(pair.near.endpoint.connectionCount == 0 && pair.far.endpoint.connectionCount == 0)
    }

    private func renamed(_ dial: [UInt8], _ dialer: UInt64, cookie: ArraySlice<UInt8> = []) -> [UInt8] {
        Array(dial[..<18]) + bigEndian(dialer) + [dial[26], UInt8(cookie.count)] + Array(cookie) + Array(dial[28...])
    }

    /// The far node's answers to datagrams of a dial under another dialer's id.
    private func answers(
        _ pair: Pair, to dial: [[UInt8]], by dialer: UInt64, at address: DatagramAddress, cookie: ArraySlice<UInt8> = []
    ) -> [[UInt8]] {
        for half in dial {
            pair.far.endpoint.receive(renamed(half, dialer, cookie: cookie), from: address, at: pair.network.now)
        }
        var result: [[UInt8]] = []
        while let reply = pair.far.endpoint.poll(at: pair.network.now) { result.append(reply.bytes) }
        return result
    }

    @Test func `a network gets eight handshakes in flight, all networks 256, and half or 64 of them without a cookie`()
        throws
    {
        let pair = Pair(seed: 10)
        let halves = try dialDatagrams(pair)
        func dial(_ count: UInt64, _ unproved: Int, _ all: Int, _ address: (UInt64) -> DatagramAddress) {
            let first = (0..<count).map { answers(pair, to: halves, by: $0, at: address($0)).first ?? [] }
            #expect(pair.far.endpoint.handshakesInFlight == unproved && pair.far.keysDrawn == unproved)
            for (dialer, answer) in zip(0..<count, first) where answer.count == 26 {
                _ = answers(pair, to: halves, by: dialer, at: address(dialer), cookie: answer.suffix(16))
            }
            #expect(pair.far.endpoint.handshakesInFlight == all && pair.far.keysDrawn == all)
        }
        dial(20, 4, 8) { DatagramAddress(v4: 0x0100_0000 + UInt32($0), port: 1) }
        dial(20, 12, 16) { DatagramAddress(IPAddress(high: 0x2001_0db8_0000_0000 | $0, low: $0), port: 1) }
        dial(400, 64, 256) { DatagramAddress(v4: UInt32($0) << 8, port: 1) }
        pair.network.run(for: 6_000_000)
        #expect(pair.far.endpoint.handshakesInFlight == 0 && pair.far.endpoint.connectionCount == 0)
    }

    @Test func `dials open from a network whose addresses are forged for 200 halves of act 1 a second`() throws {
        let pair = Pair(seed: 16)
        let half = try dialDatagrams(pair)[0]
        for index in 0..<1_000 as Range<UInt64> {
            let source = DatagramAddress(v4: 0x0a00_0002 + UInt32(index % 250), port: 1)
            pair.network.inject(
                renamed(half, index), from: source, to: pair.far.address, after: Microseconds(index) * 5_000)
        }
        for number in 1...5 {
            pair.network.run(for: 500_000)
            _ = pair.near.dial(pair.far, token: Pair.token)
            #expect(pair.network.run(for: 200_000) { pair.near.opened.count == number })
        }
    }

    /// A dial whose second half is wrong, four times.
    private func wrongDial(_ pair: Pair) throws -> [[UInt8]] {
        var halves = try dialDatagrams(pair)
        halves[1][100] ^= 1
        return [halves[0]] + [[UInt8]](repeating: halves[1], count: 4)
    }

    @Test func `wrong dials soon cost no curve operation, and a right one with their token opens`() throws {
        let pair = Pair(seed: 17)
        let dial = try wrongDial(pair)
        for index in 0..<2_000 as Range<UInt64> {
            let source = DatagramAddress(v4: 0x0b00_0000 + UInt32(index) << 8, port: 1)
            for half in dial {
                pair.network.inject(
                    renamed(half, index), from: source, to: pair.far.address, after: Microseconds(index) * 1_000)
            }
        }
        #expect(!pair.network.run(for: 1_000_000) { pair.far.keysDrawn > 12 })
        _ = pair.near.dial(pair.far, token: Pair.token)
        // The cookie costs one more round trip.
        #expect(pair.network.run(for: 130_000) { !pair.near.opened.isEmpty })
        #expect(!pair.network.run(for: 1_000_000) { pair.far.keysDrawn > 17 })
    }

    @Test func `eight wrong dials cost a token its dials without a cookie, and a network all dials, for a second`()
        throws
    {
        let pair = Pair(seed: 18)
        let (halves, dial) = (try dialDatagrams(pair), try wrongDial(pair))
        let (thief, other) = (DatagramAddress(v4: 0x0c00_0001, port: 1), DatagramAddress(v4: 0x0d00_0001, port: 1))
        for dialer in 0..<20 as Range<UInt64> {
            let cookie = answers(pair, to: dial, by: dialer, at: thief).first ?? []
            _ = answers(pair, to: dial, by: dialer, at: thief, cookie: cookie.suffix(16))
        }
        // Eight without a cookie, eight with one.
        #expect(pair.far.keysDrawn == 16 && pair.far.endpoint.handshakesInFlight == 0)
        #expect(answers(pair, to: halves, by: 20, at: thief).isEmpty)
        #expect(answers(pair, to: halves, by: 20, at: other).map(\.count) == [26])
        pair.network.run(for: 1_000_000)
        #expect(answers(pair, to: halves, by: 21, at: thief).map(\.count) == [1_172])
    }

    @Test func `an act 3 that does not open ends nothing, the fourth with a wrong tag ends its handshake`() {
        let pair = Pair(seed: 19)
        var finish: [UInt8] = []
        pair.network.tap = { _, _, bytes in
            if bytes[1] == 0x13 { finish = bytes }
            return bytes[1] != 0x13
        }
        _ = pair.near.dial(pair.far, token: Pair.token)
        pair.network.run(for: 100_000)
        for (index, count) in [(20, 50), (75, 3), (75, 1)] {
            #expect(pair.far.endpoint.handshakesInFlight == 1)
            finish[index] ^= 1
            for _ in 0..<count { pair.far.receive(finish, from: pair.near.address) }
            finish[index] ^= 1
        }
        #expect(pair.far.endpoint.handshakesInFlight == 0 && pair.far.endpoint.connectionCount == 0)
    }

    @Test func `a cookie is valid only for its address, dialer, token and time`() {
        let cookies = AddressCookie(key: SecretBytes(copying: [UInt8](repeating: 1, count: 32)), period: 30_000_000)
        let address = DatagramAddress(v4: 1, port: 2)
        let token = CodecTests.bytes(16, 1)
        let cookie = cookies.make(address, dialer: 5, token: token, at: 100_000_000)
        #expect(cookie.count == 16)
        func isValid(
            _ cookie: [UInt8], _ address: DatagramAddress, dialer: UInt64, token: [UInt8], at now: Microseconds
        ) -> Bool { cookies.isValid(cookie, address, dialer: dialer, token: token, at: now) }
        #expect(isValid(cookie, address, dialer: 5, token: token, at: 100_000_000))
        #expect(isValid(cookie, address, dialer: 5, token: token, at: 149_999_999))
        #expect(!isValid(cookie, address, dialer: 5, token: token, at: 150_000_000))
        #expect(!isValid(cookie, address, dialer: 5, token: token, at: 80_000_000))
        #expect(!isValid(cookie, address, dialer: 6, token: token, at: 100_000_000))
        #expect(!isValid([], address, dialer: 5, token: token, at: 100_000_000))
        #expect(!isValid(cookie, address, dialer: 5, token: CodecTests.bytes(16, 2), at: 100_000_000))
        for other in [
            DatagramAddress(v4: 1, port: 3), DatagramAddress(v4: 2, port: 2),
            DatagramAddress(v4: 1, port: 2, socket: 1),
        ] { #expect(!isValid(cookie, other, dialer: 5, token: token, at: 100_000_000)) }
    }
}
