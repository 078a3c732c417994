import Primitives
import Testing

@Suite struct KnownAnswers {
    @Test func `HKDF reproduces RFC 5869, test case 1`() {
        let secret = SecretBytes(copying: [UInt8](repeating: 0x0b, count: 22))
        let output = secret.withBytes {
            HKDF.derive(secret: $0, salt: Array(0x00...0x0c), info: Array(0xf0...0xf9), byteCount: 42)
        }
        #expect(
            output.withBytes { Hex.encode($0) }
                == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
        )
    }

    @Test func `SHA-256 of abc`() {
        #expect(
            Hex.encode(SHA256.hash(Array("abc".utf8)))
                == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        )
    }
}
