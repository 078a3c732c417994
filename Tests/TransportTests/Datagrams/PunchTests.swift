import Cryptography
import Testing

@testable import Transport

/// NAT traversal: asking for the observed address, and hole punching.
@Suite struct PunchTests {
    private static let nonce = [UInt8](repeating: 0x33, count: 16)

    @Test func `an asker with a known token learns its observed address from a shorter answer`() {
        let pair = Pair(seed: 1)
        var sizes: [UInt8: Int] = [:]
        pair.network.tap = { _, _, bytes in
            sizes[bytes[1]] = bytes.count
            return true
        }
        _ = pair.near.endpoint.observe(token: Pair.token, at: pair.far.address, now: pair.network.now)
        pair.network.run(for: 10_000_000)
        #expect(pair.near.observed.map { $0?.port } == [pair.near.address.port])
        #expect(pair.near.observed.map { $0?.ip.v4 } == [pair.near.address.ip.v4])
        #expect(pair.far.routesAsked == 0, "a route may cost a key, an answer does not")
        #expect(sizes[0x18] == 34 && sizes[0x19] == 28)
        #expect(pair.near.endpoint.connectionCount == 0 && pair.far.endpoint.connectionCount == 0)
    }

    /// A knock and a question.
    @Test(arguments: [0x16, 0x18] as [UInt8])
    func `an answer from another address, to another question or repeated changes nothing`(kind: UInt8) {
        let pair = Pair(seed: 2)
        let isKnock = kind == 0x16
        var asker: UInt64 = 0
        pair.network.tap = { _, _, bytes in
            if bytes[1] == kind { asker = bytes.bigEndian(at: 18) }
            return false
        }
        if isKnock {
            pair.near.knock(pair.far, token: Pair.token, [1])
        } else {
            _ = pair.near.endpoint.observe(token: Pair.token, at: pair.far.address, now: pair.network.now)
            pair.near.settle()
        }
        let reply = DatagramPacket.reply(asker: asker, sealed: [6]).bytes
        let observed = DatagramPacket.observed(asker: asker, high: 0, low: 0xffff_0102_0304, port: 9).bytes
        let (right, wrong) = isKnock ? (reply, observed) : (observed, reply)
        pair.near.receive(right, from: DatagramAddress(v4: 1, port: 1))
        pair.near.receive(wrong, from: pair.far.address)
        #expect(pair.near.observed.isEmpty && pair.near.knockAnswers.isEmpty)
        for _ in 0..<2 { pair.near.receive(right, from: pair.far.address) }
        #expect(pair.near.observed.map { $0?.ip.v4 } == (isKnock ? [] : [0x0102_0304]))
        #expect(pair.near.knockAnswers == (isKnock ? [[6]] : []))
        #expect(pair.near.rejections == [Rejection](repeating: .unknownConnection, count: 3))
    }

    @Test func `a punch sends five packets of 18 bytes to eight addresses at most, then ends`() {
        let pair = Pair(seed: 3)
        var sent: [DatagramAddress: Int] = [:]
        pair.network.tap = { _, to, bytes in
            #expect(bytes.count == 18 && bytes[1] == 0x1a)
            sent[to, default: 0] += 1
            return false
        }
        let addresses = (0..<12).map { DatagramAddress(v4: 0x0102_0300 + $0, port: 7) }
        pair.near.endpoint.punch(Self.nonce, to: addresses, at: pair.network.now)
        pair.network.run(for: 10_000_000)
        #expect(sent == Dictionary(uniqueKeysWithValues: addresses.prefix(8).map { ($0, 5) }))
        #expect(pair.near.endpoint.connectionCount == 0 && pair.near.endpoint.nextDeadline == nil)
    }

    @Test func `a punching node learns the source of an expected packet and drops others`() {
        let pair = Pair(seed: 4)
        pair.far.endpoint.punch(Self.nonce, to: [], at: pair.network.now)
        pair.far.settle()
        pair.near.endpoint.punch(Self.nonce, to: [pair.far.address], at: pair.network.now)
        pair.network.run(for: 2_000_000)
        #expect(pair.far.punched.count == 5 && Set(pair.far.punched.map(\.port)) == [pair.near.address.port])
        let other = DatagramPacket.punch(nonce: [UInt8](repeating: 1, count: 16)).bytes
        pair.far.receive(other, from: pair.near.address)
        #expect(pair.far.punched.count == 5 && pair.far.rejections == [.unknownConnection])
        pair.network.run(for: 10_000_000)
        pair.far.receive(DatagramPacket.punch(nonce: Self.nonce).bytes, from: pair.near.address)
        #expect(pair.far.punched.count == 5 && pair.far.endpoint.connectionCount == 0)
    }

    @Test func `two punches with one nonce at a node are each told, and end separately`() {
        let pair = Pair(seed: 7)
        let packet = DatagramPacket.punch(nonce: Self.nonce).bytes
        func told() -> Int {
            pair.near.punched = []
            pair.near.receive(packet, from: pair.far.address)
            return pair.near.punched.count
        }
        pair.near.endpoint.punch(Self.nonce, to: [], at: pair.network.now)
        pair.network.run(for: 3_000_000)
        pair.near.endpoint.punch(Self.nonce, to: [], at: pair.network.now)
        pair.near.settle()
        #expect(told() == 2)
        pair.network.run(for: 3_000_000)
        #expect(told() == 1, "the first is over")
        pair.network.run(for: 3_000_000)
        #expect(told() == 0 && pair.near.endpoint.punchers.isEmpty)
    }

    @Test func `a node keeps no more punches at a time than its limit`() {
        let pair = Pair(seed: 5)
        for index in 0..<200 {
            pair.near.endpoint.punch([UInt8](repeating: UInt8(index), count: 16), to: [], at: pair.network.now)
        }
        pair.near.settle()
        #expect(pair.near.endpoint.connectionCount == DatagramLimits().punches)
        pair.network.run(for: 10_000_000)
        #expect(pair.near.endpoint.connectionCount == 0)
        pair.near.endpoint.punch(Self.nonce, to: [], at: pair.network.now)
        #expect(pair.near.endpoint.connectionCount == 1)
    }

    @Test func `a dial through a NAT asks five times in five seconds`() {
        let pair = Pair(seed: 6)
        var times: [Microseconds] = []
        pair.network.tap = { [network = pair.network] _, _, _ in
            times.append(network.now)
            return false
        }
        let start = pair.network.now
        var dial = DatagramDial(
            address: pair.far.address, token: Pair.token, identity: pair.near.identity,
            remote: pair.far.identity.publicKey, route: 1)
        dial.isPunching = true
        _ = pair.near.endpoint.dial(dial, at: start)
        pair.network.run(for: 10_000_000)
        // Both halves of act 1 each time.
        #expect(times.map { $0 - start } == [0, 200_000, 600_000, 1_400_000, 3_000_000].flatMap { [$0, $0] })
        #expect(pair.near.failures == [.noAnswer])
    }
}
