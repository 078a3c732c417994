import Cryptography
import Testing

private func key(_ byte: UInt8) -> SecretBytes { SecretBytes(copying: [UInt8](repeating: byte, count: 32)) }

private struct Ends: ~Copyable {
    var near = TransportState(
        sending: CipherState(key: key(1)), receiving: CipherState(key: key(2)), chainingKey: key(3))
    var far = TransportState(
        sending: CipherState(key: key(2)), receiving: CipherState(key: key(1)), chainingKey: key(3))
}

@Suite struct TransportStateTests {
    @Test(arguments: [0, 1, 17, 65_535]) func `a frame of any allowed length arrives`(byteCount: Int) throws {
        var ends = Ends()
        let frame = (0..<byteCount).map { UInt8(truncatingIfNeeded: $0) }
        let sealed = try ends.near.seal(frame)
        #expect(sealed.count == byteCount + TransportState.overheadByteCount)
        let opened = try open(sealed, with: &ends.far)
        #expect(opened == frame)
    }

    @Test func `an overlong frame is not sealed and uses no nonce`() throws {
        var ends = Ends()
        #expect(throws: NoiseError.tooLong) { try ends.near.seal([UInt8](repeating: 0, count: 65_536)) }
        let opened = try pass(&ends.near, &ends.far, "next")
        #expect(opened == Array("next".utf8))
    }

    @Test func `each direction rotates its keys independently`() throws {
        var ends = Ends()
        for number in 0..<1_200 {
            let there = try pass(&ends.near, &ends.far, "\(number)")
            #expect(there == Array("\(number)".utf8))
            if number.isMultiple(of: 3) {
                let back = try pass(&ends.far, &ends.near, "answer \(number)")
                #expect(back == Array("answer \(number)".utf8))
            }
        }
    }

    @Test func `a flipped bit in any byte of a frame is refused`() throws {
        for index in 0..<(5 + TransportState.overheadByteCount) {
            for bit in 0..<8 {
                var ends = Ends()
                var sealed = try ends.near.seal(Array("hello".utf8))
                sealed[index] ^= 1 << UInt8(bit)
                #expect(throws: NoiseError.notAuthentic) { try open(sealed, with: &ends.far) }
            }
        }
    }

    @Test func `a piece of unexpected length is refused and changes nothing`() throws {
        var ends = Ends()
        let sealed = try ends.near.seal(Array("hello".utf8))
        for byteCount in 0..<sealed.count where byteCount != ends.far.expectedByteCount {
            #expect(throws: NoiseError.truncated) { try ends.far.open(sealed.prefix(byteCount)) }
        }
        #expect(try open(sealed, with: &ends.far) == Array("hello".utf8))
    }

    @Test func `a repeated, skipped or reflected frame is refused`() throws {
        var ends = Ends()
        let first = try ends.near.seal([1])
        let second = try ends.near.seal([2])
        #expect(throws: NoiseError.notAuthentic) { try open(second, with: &ends.far) }
        #expect(try open(first, with: &ends.far) == [1])
        #expect(throws: NoiseError.notAuthentic) { try open(first, with: &ends.far) }
        #expect(throws: NoiseError.notAuthentic) { try open(second, with: &ends.near) }
        #expect(try open(second, with: &ends.far) == [2])
    }
}

@Suite struct CipherStateTests {
    @Test func `the nonce advances only when a message opens`() throws {
        var sealing = CipherState(key: key(1))
        var opening = CipherState(key: key(1))
        var sealed = [9] + [UInt8](repeating: 0, count: ChaChaPoly.tagByteCount)
        sealed.withUnsafeMutableBytes { sealing.encrypt(inPlace: $0, authenticating: [1]) }
        for forged in [[], [0], sealed.dropLast(), sealed + [0], sealed.map { $0 ^ 1 }] as [[UInt8]] {
            #expect(throws: NoiseError.notAuthentic) { try opening.decrypt(forged, authenticating: [1]) }
        }
        #expect(throws: NoiseError.notAuthentic) { try opening.decrypt(sealed, authenticating: [2]) }
        let moved = opening.nonce
        #expect(moved == 0)
        #expect(try opening.decrypt(sealed, authenticating: [1]) == [9])
    }
}
