import Cryptography
import Testing
import Transport

@Suite("LAN datagrams") struct LanDatagramTests {
    private func sample(_ count: Int, _ kind: LanDatagram.Kind = .announcement) -> LanDatagram {
        var random = SplitMix64(state: 5)
        let entries = (0..<count).map { LanDatagram.Entry(tag: UInt64($0), proof: UInt64($0) << 32) }
        return LanDatagram(kind, port: 7_440, nonce: 0x0102_0304_0506_0708, entries: entries, using: &random)
    }

    @Test("A datagram round-trips and has the bytes of the specification", arguments: [1, 8, 9, 33, 64]) func roundTrip(
        count: Int
    ) {
        for kind in [LanDatagram.Kind.announcement, .answer] {
            let datagram = sample(count, kind)
            #expect(LanDatagram(datagram.bytes) == datagram)
            #expect(datagram.bytes.prefix(12) == [1, kind.rawValue, 0x1d, 0x10, 1, 2, 3, 4, 5, 6, 7, 8])
        }
    }

    @Test func `True entries stand at any place among the random ones`() {
        var random = SplitMix64(state: 9)
        var places: Set<Int> = []
        for _ in 0..<200 {
            let entry = LanDatagram.Entry(tag: 7, proof: 8)
            let datagram = LanDatagram(.announcement, port: 1, nonce: 1, entries: [entry], using: &random)
            places.insert(datagram.entries.firstIndex(of: entry) ?? -1)
        }
        #expect(places == Set(0..<8))
    }

    @Test func `A datagram that is cut at any byte or has bytes added is refused`() {
        let bytes = sample(9).bytes
        for count in 0..<bytes.count {
            // Eight entries form a valid shorter datagram.
            #expect((LanDatagram(Array(bytes.prefix(count))) == nil) == (count != 12 + 16 * 8), "\(count)")
        }
        for extra in 1...16 { #expect(LanDatagram(bytes + [UInt8](repeating: 0, count: extra)) == nil) }
        let largest = sample(64).bytes
        #expect(LanDatagram(largest + largest) == nil)
    }

    @Test func `A datagram with another version, an unknown kind, port 0 or another number of entries is refused`() {
        let bytes = sample(8).bytes
        for (index, values) in [(0, [0, 2, 255]), (1, [0, 3, 255])] {
            for value in values {
                var changed = bytes
                changed[index] = UInt8(value)
                #expect(LanDatagram(changed) == nil)
            }
        }
        var portless = bytes
        portless[2] = 0
        portless[3] = 0
        #expect(LanDatagram(portless) == nil)
        for count in 0...70 {
            let head = Array(bytes.prefix(12)) + [UInt8](repeating: 1, count: 16 * count)
            #expect((LanDatagram(head) != nil) == [8, 16, 32, 64].contains(count))
        }
    }
}

@Suite("LAN secrets") struct LanSecretTests {
    @Test func `Tags and proofs have the bytes of the specification`() {
        let v4 = IPAddress(192, 168, 1, 20)
        let v6 = IPAddress(high: 0xfe80_0000_0000_0000, low: 0x0011_2233_4455_6677)
        let nonce: UInt64 = 0x0102_0304_0506_0708
        let low = Array(0..<32 as Range<UInt8>).withUnsafeBytes { LanSecret(routingSecret: $0) }
        #expect(low.tag(slot: 2_000_000) == 0x5a9d_8e8f_87c4_ace7)
        #expect(low.tag(slot: 2_000_001) == 0x2332_7e99_9dee_b6d5)
        #expect(low.proof(slot: 2_000_000, nonce: nonce, port: 7_440, address: v4) == 0x2ccc_1b26_7980_f5b9)
        #expect(low.proof(slot: 2_000_000, nonce: nonce, port: 7_440, address: v6) == 0x2ced_d904_7f6a_05ae)
        #expect(low.answerProof(nonce: nonce, port: 7_440, address: v4) == 0x5d90_f697_4a21_7678)
        let high = [UInt8](repeating: 0xff, count: 32).withUnsafeBytes { LanSecret(routingSecret: $0) }
        #expect(high.tag(slot: 2_000_000) == 0x4b3a_52d7_26f3_4233)
        #expect(high.tag(slot: 2_000_001) == 0xec0e_142c_a6cb_b105)
        #expect(high.proof(slot: 2_000_000, nonce: nonce, port: 7_440, address: v4) == 0xe688_e79a_863d_5631)
        #expect(high.proof(slot: 2_000_000, nonce: nonce, port: 7_440, address: v6) == 0x99d0_bf67_3aa1_0015)
        #expect(high.answerProof(nonce: nonce, port: 7_440, address: v4) == 0xb0ac_82d9_0793_3d24)
    }
}

@Suite("LAN addresses") struct LanAddressTests {
    @Test(
        "A prefix may have any length, also an impossible one",
        arguments: [-1, 0, 1, 31, 32, 33, 63, 64, 65, 127, 128, 999]) func prefixes(length: Int)
    {
        let one = IPAddress(high: 0x2001_0db8_0000_0000, low: 1)
        #expect(one.shares(length, with: one))
        #expect(one.shares(length, with: IPAddress(high: one.high, low: 0)) == (length < 128))
        #expect(one.shares(length, with: IPAddress(high: ~one.high, low: ~one.low)) == (length <= 0))
        #expect(!one.shares(length, with: IPAddress(1, 2, 3, 4)))
        #expect(IPAddress(1, 2, 3, 4).shares(length, with: IPAddress(254, 2, 3, 4)) == (length <= 0))
        #expect(IPAddress(1, 2, 3, 4).shares(length, with: IPAddress(1, 2, 3, 5)) == (length < 32))
    }

    @Test func `Loopback, multicast and unspecified addresses are no unicast addresses`() {
        let (unspecified, loopback) = (IPAddress(high: 0, low: 0), IPAddress(high: 0, low: 1))
        for address in [
            IPAddress(239, 1, 2, 3), IPAddress(255, 255, 255, 255), IPAddress(0, 0, 0, 0), unspecified,
            LanLimits.group6,
        ] { #expect(!address.isUnicast) }
        #expect(IPAddress(127, 0, 0, 1).isLoopback && loopback.isLoopback)
        #expect(IPAddress(169, 254, 7, 7).isLinkLocal && IPAddress(high: 0xfebf << 48, low: 1).isLinkLocal)
        #expect(!IPAddress(high: 0xfec0 << 48, low: 1).isLinkLocal)
        for bytes in [LanLimits.group6.bytes, [10, 0, 0, 7]] { #expect(IPAddress(bytes)?.bytes == bytes) }
        #expect(IPAddress([1, 2, 3]) == nil)
    }
}
