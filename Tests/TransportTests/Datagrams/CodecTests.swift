import Cryptography
import Testing

@testable import Transport

@Suite struct CodecTests {
    /// RFC 9000, appendix A.1.
    @Test(
        arguments: [
            ([0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            ([0x9d, 0x7f, 0x3e, 0x7d], 494_878_333), ([0x7b, 0xbd], 15_293), ([0x25], 37),
        ] as [([UInt8], UInt64)]) func `variable-length integers are encoded as in RFC 9000`(
            bytes: [UInt8], value: UInt64
        )
    {
        var reader = ByteReader(bytes)
        #expect(reader.variable() == value)
        var written: [UInt8] = []
        VariableInteger.append(value, to: &written)
        #expect(written == bytes && VariableInteger.byteCount(value) == bytes.count)
        for length in 0..<bytes.count {
            var reader = ByteReader(Array(bytes.prefix(length)))
            #expect(reader.variable() == nil)
        }
        // A longer encoding of the same number (same appendix: 0x4025 is 37).
        var longer = ByteReader([0x40, 0x25])
        #expect(longer.variable() == 37)
    }

    static let packets: [DatagramPacket] = [
        .dial(token: bytes(16, 1), dialer: 7, cookie: [], half: ActHalf(number: 0, bytes: bytes(625, 2))),
        .dial(token: bytes(16, 1), dialer: .max, cookie: bytes(16, 3), half: ActHalf(number: 1, bytes: bytes(625, 2))),
        .answer(dialer: 1, responder: 2, actTwo: bytes(1_154, 9)), .finish(responder: 5, actThree: bytes(66, 8)),
        .cookie(dialer: 3, cookie: bytes(16, 4)), .knock(token: bytes(16, 1), asker: 9, sealed: bytes(1_024, 5)),
        .reply(asker: 9, sealed: bytes(1_024, 6)), .observe(token: bytes(16, 1), asker: 9),
        .observed(asker: 9, high: 1, low: 2, port: 0x1234), .punch(nonce: bytes(16, 7)),
    ]

    @Test func `a knock has 1 to 1,024 sealed bytes, and a reply 0 to 1,024`() {
        for count in 0...1_025 {
            let knock = DatagramPacket.knock(token: Self.bytes(16, 1), asker: 2, sealed: Self.bytes(count, 3))
            #expect(DatagramPacket(knock.bytes) == ((1...1_024).contains(count) ? knock : nil))
            let reply = DatagramPacket.reply(asker: 2, sealed: Self.bytes(count, 3))
            #expect(DatagramPacket(reply.bytes) == (count <= 1_024 ? reply : nil))
        }
    }

    @Test(arguments: packets) func `packets round-trip, and packets of another length are refused`(
        packet: DatagramPacket
    ) {
        let bytes = packet.bytes
        #expect(DatagramPacket(bytes) == packet)
        // The sealed part may have any length.
        let sealedFrom =
            switch packet {
            case .knock: 27
            case .reply: 10
            case .dial, .answer, .finish, .cookie, .sealed, .observe, .observed, .punch: bytes.count
            }
        for length in 0..<sealedFrom { #expect(DatagramPacket(Array(bytes.prefix(length))) == nil) }
        #expect(DatagramPacket(bytes + [0]) == nil)
        var other = bytes
        other[0] = 0x4d
        #expect(DatagramPacket(other) == nil)
        other = bytes
        other[1] ^= 0x30
        #expect(DatagramPacket(other) == nil)
        #expect(DatagramPacket([0x0d, 0x10]) == nil && DatagramPacket([0x0d, 0x1b]) == nil)
    }

    @Test func `a sealed packet has a header, a tag and a number of 62 bits`() {
        let packet = DatagramPacket.sealed(epoch: 3, receiver: 4, number: VariableInteger.maximum)
        let bytes = packet.bytes
        #expect(bytes.count == DatagramPacket.sealedHeaderByteCount)
        for length in 0..<16 { #expect(DatagramPacket(bytes + CodecTests.bytes(length, 0)) == nil) }
        #expect(DatagramPacket(bytes + CodecTests.bytes(16, 0)) == packet)
        let large = DatagramPacket.sealed(epoch: 3, receiver: 4, number: VariableInteger.maximum + 1)
        #expect(DatagramPacket(large.bytes + CodecTests.bytes(16, 0)) == nil)
    }

    static func bytes(_ count: Int, _ first: UInt8) -> [UInt8] {
        (0..<count).map { first &+ UInt8(truncatingIfNeeded: $0) }
    }

    private static func write(_ frame: DatagramFrame, _ data: [UInt8] = []) -> [UInt8] {
        var bytes: [UInt8] = []
        switch frame {
        case .ping: bytes.append(1)
        case .acknowledgement(let acknowledgement): DatagramFrame.append(acknowledgement, to: &bytes)
        case .data(let offset, let range, let isLast):
            DatagramFrame.appendDataHeader(offset: offset, length: range.count, isLast: isLast, to: &bytes)
            bytes += data
        case .credit(let offset): DatagramFrame.appendCredit(offset, to: &bytes)
        case .challenge(let value): DatagramFrame.append(.challenge, value, to: &bytes)
        case .response(let value): DatagramFrame.append(.response, value, to: &bytes)
        case .close(let reason): bytes += [8, reason]
        }
        return bytes
    }

    static let frames: [(DatagramFrame, [UInt8])] = [
        (.ping, []), (.acknowledgement(.init(ranges: [0...0], delay: 0)), []),
        (.acknowledgement(.init(ranges: [900...1_000, 100...898, 2...3, 0...0], delay: 25_000)), []),
        (.acknowledgement(.init(ranges: [VariableInteger.maximum...VariableInteger.maximum], delay: 70_000)), []),
        (.data(offset: 0, 3..<3, isLast: true), []), (.data(offset: 70_000, 6..<10, isLast: false), [1, 2, 3, 4]),
        (.credit(1 << 40), []), (.challenge(.max), []), (.response(0), []), (.close(6), []),
    ]

    @Test(arguments: 0..<frames.count) func `frames round-trip, and a cut frame is malformed`(index: Int) throws {
        let (frame, data) = Self.frames[index]
        let bytes = Self.write(frame, data)
        var reader = ByteReader([0, 0] + bytes + [0])
        let read = try DatagramFrame.read(&reader)
        switch (read, frame) {
        case (.data(let offset, let range, let isLast), .data(let expected, let length, let expectedLast)):
            #expect(offset == expected && range.count == length.count && isLast == expectedLast)
        default: #expect(read == frame)
        }
        #expect(try DatagramFrame.read(&reader) == nil)
        for length in 1..<bytes.count {
            var short = ByteReader(Array(bytes.prefix(length)))
            #expect(throws: DatagramFrame.Malformed.self) { while try DatagramFrame.read(&short) != nil {} }
        }
    }

    @Test(
        arguments: [
            [9], [255],  // no such frame
            [2, 0, 0, 0, 1],  // a range that begins below zero
            [2, 5, 0, 1, 0, 4, 0],  // a gap that leads below zero
            [2, 5, 0, 1, 0, 3, 1],  // the next range begins below zero
            [2, 0, 0, 1, 0, 0, 0],  // no room for a second range
            [2, 63, 0, 0x40, 64, 0],  // more ranges than the reader accepts
            [3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0],  // data that ends above 2^62 − 1
            [3, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],  // data longer than the packet
        ] as [[UInt8]]) func `an impossible frame is refused as malformed`(bytes: [UInt8])
    {
        var reader = ByteReader(bytes)
        #expect(throws: DatagramFrame.Malformed.self) { while try DatagramFrame.read(&reader) != nil {} }
    }
}

@Suite struct RangeTests {
    @Test(arguments: 1...20 as ClosedRange<UInt64>)
    func `ranges hold the same numbers as a set after any inserts and removals`(seed: UInt64) {
        var random = SplitMix64(state: seed)
        var ranges = OffsetRanges()
        var model: Set<UInt64> = []
        for _ in 0..<300 {
            let start = UInt64.random(in: 0..<200, using: &random)
            let range = start..<start + UInt64.random(in: 0...20, using: &random)
            if Int.random(in: 0..<3, using: &random) > 0 {
                ranges.insert(range)
                model.formUnion(range)
            } else {
                ranges.remove(range)
                model.subtract(range)
            }
            #expect(Set(ranges.ranges.flatMap { Array($0) }) == model)
            for (left, right) in zip(ranges.ranges, ranges.ranges.dropFirst()) {
                #expect(left.upperBound < right.lowerBound)
            }
            #expect(ranges.missing(in: range).flatMap { Array($0) } == range.filter { !model.contains($0) })
            #expect(ranges.contains(start) == model.contains(start))
        }
    }
}

@Suite struct ReplayTests {
    @Test(arguments: 1...10 as ClosedRange<UInt64>) func `a replay window never takes a number twice, in any order`(
        seed: UInt64
    ) {
        var random = SplitMix64(state: seed)
        var window = ReplayWindow()
        var seen: Set<UInt64> = []
        var largest: UInt64 = 0
        for _ in 0..<20_000 {
            let back = UInt64.random(in: 0...2_200, using: &random)
            let ahead = Int.random(in: 0..<200, using: &random) == 0 ? UInt64.random(in: 0...5_000, using: &random) : 3
            let number = largest + ahead >= back ? largest + ahead - back : 0
            let expected = !seen.contains(number) && (number > largest || largest - number < 2_048)
            #expect(window.isFresh(number) == (expected || (seen.isEmpty && number == 0)))
            guard window.isFresh(number) else { continue }
            window.mark(number)
            seen.insert(number)
            largest = max(largest, number)
        }
    }
}
