import CSodium
import Testing

@testable import Cryptography

/// - Parameter largely: whether libcrypto computes it, whatever its length, or libsodium.
/// - Returns: ciphertext ‖ tag; `nil` where libcrypto lacks the cipher.
func seal(_ plaintext: [UInt8], largely: Bool, _ key: [UInt8], _ nonce: [UInt8], _ data: [UInt8]) -> [UInt8]? {
    var sealed = plaintext + [UInt8](repeating: 0, count: 16)
    if largely {
        let isDone = sealed.withUnsafeMutableBytes { sealed in
            data.withUnsafeBytes { data in
                nonce.withUnsafeBytes { nonce in
                    AEAD.sealLarge(sealed, key: SecretBytes(copying: key), nonce: nonce, authenticating: data)
                }
            }
        }
        return isDone ? sealed : nil
    }
    let function =
        nonce.count == 12 ? crypto_aead_chacha20poly1305_ietf_encrypt : crypto_aead_xchacha20poly1305_ietf_encrypt
    _ = function(&sealed, nil, plaintext, UInt64(plaintext.count), data, UInt64(data.count), nil, nonce, key)
    return sealed
}

/// Long messages use another library than short ones. Each opens what the other has sealed, around the length where
/// they change places and around the blocks of both algorithms.
@Suite struct LargeCiphers {
    private static let lengths =
        [0, 1, 15, 16, 17, 63, 64, 65, 255, 512] + Array(1_000...1_056) + [
            2_048, 4_095, 4_096, 16_400, 65_519, 1 << 20,
        ]
    private static let key: [UInt8] = Array(1...32)

    private static func bytes(_ count: Int) -> [UInt8] { (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 7 / 3) } }

    @Test(arguments: [12, 24]) func `both libraries give the same ciphertext`(nonceByteCount: Int) throws {
        for length in Self.lengths {
            for dataLength in [0, 1, 16, 33, 2_000] {
                let (plaintext, nonce) = (Self.bytes(length), Self.bytes(nonceByteCount))
                let data = Self.bytes(dataLength)
                let small = try #require(seal(plaintext, largely: false, Self.key, nonce, data))
                let large = try #require(seal(plaintext, largely: true, Self.key, nonce, data))
                #expect(small == large, "\(length) bytes, \(dataLength) of data")
            }
        }
    }

    @Test func `sealed data opens in place and elsewhere`() throws {
        let key = SecretBytes(copying: Self.key)
        for length in Self.lengths {
            let (plaintext, data) = (Self.bytes(length), Self.bytes(24))
            let sealed = XChaChaPoly.seal(plaintext, key: key, nonce: Self.bytes(24), authenticating: data)
            var record = Self.bytes(24) + plaintext + [UInt8](repeating: 0, count: 16)
            record.withUnsafeMutableBytes { record in
                data.withUnsafeBytes { XChaChaPoly.seal(inPlace: record, key: key, authenticating: $0) }
            }
            #expect(record == sealed)
            #expect(try XChaChaPoly.open(sealed, key: key, authenticating: data) == plaintext)
            var packet = data + plaintext
            let cipher = PacketCipher(key: SecretBytes(copying: Self.key), chainingKey: key.clone())
            cipher.seal(&packet, headerByteCount: 24, number: 1 << 40)
            #expect(packet.count == 24 + length + 16)
            try cipher.open(&packet, headerByteCount: 24, number: 1 << 40)
            #expect(packet == data + plaintext)
        }
    }

    @Test(arguments: [0, 7, 1_007, 1_008, 1_100]) func `changed, truncated or foreign data does not open`(length: Int)
        throws
    {
        let (plaintext, data) = (Self.bytes(length), Self.bytes(20))
        let key = SecretBytes(copying: Self.key)
        let nonce = ChaChaPoly.Nonce(Self.bytes(12))
        let short = ChaChaPoly.seal(plaintext, key: key, nonce: nonce, authenticating: data)
        let long = XChaChaPoly.seal(plaintext, key: key, nonce: Self.bytes(24), authenticating: data)
        for (sealed, isLong) in [(short, false), (long, true)] {
            func opens(_ sealed: [UInt8], _ data: [UInt8]) -> Bool {
                if isLong { return (try? XChaChaPoly.open(sealed, key: key, authenticating: data)) != nil }
                return (try? ChaChaPoly.open(sealed, key: key, nonce: nonce, authenticating: data)) != nil
            }
            #expect(opens(sealed, data) && !opens(sealed, []) && !opens(sealed, data.dropLast()))
            for index in sealed.indices {
                var changed = sealed
                changed[index] ^= 1 << UInt8(index % 8)
                #expect(!opens(changed, data) && !opens(Array(sealed.prefix(index)), data))
            }
        }
    }

    @Test func `a failed opening leaves zeros`() {
        let key = SecretBytes(copying: Self.key)
        var sealed = ChaChaPoly.seal(Self.bytes(5_000), key: key, nonce: ChaChaPoly.Nonce(Self.bytes(12)))
        sealed[5_000] ^= 1
        sealed.withUnsafeMutableBytes { sealed in
            Self.bytes(12).withUnsafeBytes { nonce in
                let isOpened = AEAD.open(
                    UnsafeRawBufferPointer(sealed), into: sealed.octets, key: key, nonce: nonce,
                    authenticating: UnsafeRawBufferPointer(start: nil, count: 0))
                #expect(!isOpened)
            }
            #expect(sealed[..<5_000].allSatisfy { $0 == 0 })
        }
    }
}
