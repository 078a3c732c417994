import Cryptography
import Testing

@Suite struct DeflateTests {
    // Sizes around the growth of the window, and the largest.
    @Test(arguments: [
        200, 500, 761, 762, 763, 1_024, 1_500, 1_786, 1_787, 2_048, 4_000, 8_192, 16_122, 16_123, 32_000, 32_506,
    ]) func `compression finds a repetition of the beginning at the end`(count: Int) throws {
        var generator = SplitMix64(state: 1)
        let beginning = generator.bytes(100)
        let text = beginning + generator.bytes(count - 200) + beginning
        let packed = Deflate.compress(text)
        // Data without a repetition grows by five bytes.
        #expect(packed.count < count - 40)
        #expect(try Deflate.decompress(packed, limit: count, ratio: 1_000) == text)
    }

    @Test(arguments: [0, 1, 2, 33_000, 100_000]) func `empty and long texts are decompressed unchanged`(count: Int)
        throws
    {
        let text = [UInt8](repeating: 7, count: count)
        let packed = Deflate.compress(text, level: 1)
        #expect(try Deflate.decompress(packed, limit: max(1, count), ratio: 2_000) == text)
    }

    @Test func `decompression of a bomb stops at the limit or the ratio, the nearer one`() throws {
        let bomb = Deflate.compress(bytes(0, 1 << 20))
        #expect(bomb.count < 2_048)
        #expect(throws: DeflateError.tooLarge) { try Deflate.decompress(bomb, limit: 65_536, ratio: 32) }
        #expect(throws: DeflateError.tooLarge) { try Deflate.decompress(bomb, limit: 65_536, ratio: 100_000) }
        #expect(throws: DeflateError.tooLarge) { try Deflate.decompress(bomb, limit: 1 << 30, ratio: 32) }
        #expect(try Deflate.decompress(bomb, limit: 1 << 20, ratio: 100_000).count == 1 << 20)
        #expect(throws: DeflateError.tooLarge) { try Deflate.decompress(bomb, limit: (1 << 20) - 1, ratio: 100_000) }
    }

    @Test func `a truncated or extended stream is refused`() {
        let compressed = Deflate.compress(text("Messages will be deleted after 1 Day, and after 7 Days, and 30 Days"))
        for count in compressed.indices {
            #expect(throws: DeflateError.malformed) {
                try Deflate.decompress(Array(compressed.prefix(count)), limit: 65_536, ratio: 32)
            }
        }
        #expect(throws: DeflateError.malformed) { try Deflate.decompress(compressed + [0], limit: 65_536, ratio: 32) }
    }
}

@Suite struct EncodingTests {
    @Test func `base64url and hexadecimal are decoded unchanged`() {
        var generator = SplitMix64(state: 3)
        for count in 0..<200 {
            let noise = generator.bytes(count)
            #expect(Base64URL.decode(Base64URL.encode(noise)) == noise)
            #expect(Hex.decode(Hex.encode(noise)) == noise)
        }
        // RFC 4648, section 10, without padding.
        #expect(
            ["", "f", "fo", "foo", "foob"].map { Base64URL.encode(text($0)) } == ["", "Zg", "Zm8", "Zm9v", "Zm9vYg"])
        #expect(Base64URL.encode([0xfb, 0xff]) == "-_8")
        #expect(Hex.decode("00aAfF") == [0x00, 0xaa, 0xff])
    }

    @Test(arguments: ["Z", "Zh", "Zg==", "Zm9=", "Zm+v", "Zm/v", "Zm 9v", "Zm9v\n", "é", "Zm8a8"])
    func `an invalid or non-canonical base64url text is refused`(_ text: String) {
        #expect(Base64URL.decode(text) == nil)
    }

    @Test(arguments: ["0", "0g", "0x00", " 00", "00 ", "é"]) func `an invalid hexadecimal text is refused`(
        _ text: String
    ) { #expect(Hex.decode(text) == nil) }
}

@Suite struct SecretBytesTests {
    @Test func `the memory of a secret is zero when it is used again`() {
        for count in [1, 32, 64, 65, 4_096] {
            for _ in 0..<200 {
                _ = SecretBytes(copying: bytes(0xa5, count))
                var wasZero = false
                _ = SecretBytes(byteCount: count) { fresh in wasZero = fresh.allSatisfy { $0 == 0 } }
                #expect(wasZero)
            }
        }
    }

    @Test func `the memory of a destroyed secret no longer holds it`() throws {
        for count in [8, 32, 64] {
            let secret = bytes(0xa5, count)
            for _ in 0..<200 {
                let place = SecretBytes(copying: secret).withBytes { UInt(bitPattern: $0.baseAddress) }
                // The slab stays mapped. Another test may have reused the place for its own bytes.
                let memory = try #require(UnsafeRawPointer(bitPattern: place))
                #expect(!UnsafeRawBufferPointer(start: memory, count: count).elementsEqual(secret))
            }
        }
    }

    @Test func `a clone outlives its original`() {
        func clone() -> SecretBytes {
            let original = SecretBytes(copying: bytes(0x3c, 48))
            return original.clone()
        }
        let copy = clone()
        #expect(copy.withBytes { Array($0) } == bytes(0x3c, 48))
    }

    @Test func `a failing filler leaves nothing behind`() {
        struct Refusal: Error {}
        for _ in 0..<3_000 {
            #expect(throws: Refusal.self) {
                _ = try SecretBytes(byteCount: 32) { (_) throws(Refusal) in throw Refusal() }
            }
        }
    }
}
