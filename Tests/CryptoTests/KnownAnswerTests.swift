import Cryptography
import Testing

/// Published vectors; each test names its source.
@Suite struct KnownAnswers {
    /// FIPS 180-4, and NIST's examples (abc, 56 bytes, a million of `a`).
    @Test func `SHA-256 in pieces equals SHA-256 of the whole`() {
        let published = [
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
            ),
            (
                String(repeating: "a", count: 1_000_000),
                "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
            ),
        ]
        for (text, digest) in published {
            let bytes = Array(text.utf8)
            for step in [1, 63, 64, 65, 32_768] {
                let hasher = SHA256Hasher()
                hasher.update([])
                for start in stride(from: 0, to: bytes.count, by: step) {
                    hasher.update(bytes[start..<min(start + step, bytes.count)])
                }
                #expect(Hex.encode(hasher.finalize()) == digest)
            }
            #expect(Hex.encode(SHA256.hash(bytes)) == digest)
        }
    }

    @Test func `HKDF reproduces RFC 5869, test case 1`() {
        let secret = SecretBytes(copying: [UInt8](repeating: 0x0b, count: 22))
        let output = secret.withBytes {
            HKDF.derive(secret: $0, salt: Array(0x00...0x0c), info: Array(0xf0...0xf9), byteCount: 42)
        }
        #expect(
            output.withBytes { Hex.encode($0) }
                == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865")
    }

    @Test(arguments: [
        (bytes(0x0b, 20), text("Hi There"), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
        (
            text("Jefe"), text("what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        ), (bytes(0xaa, 20), bytes(0xdd, 50), "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
        (Array(0x01...0x19), bytes(0xcd, 50), "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"),
        (
            bytes(0xaa, 131), text("Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        ),
    ]) func `HMAC-SHA-256 reproduces RFC 4231`(key: [UInt8], message: [UInt8], code: String) {
        #expect(Hex.encode(HMACSHA256.authenticate(key: key, message)) == code)
        // The same message in two parts.
        let half = message.count / 2
        let parts = (Array(message.prefix(half)), Array(message.dropFirst(half)))
        #expect(Hex.encode(HMACSHA256.authenticate(key: key, parts.0, parts.1)) == code)
    }

    private static let sunscreen = text(
        "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would "
            + "be it.")
    private static let associatedData = hex("50515253c0c1c2c3c4c5c6c7")

    @Test func `ChaCha20-Poly1305 reproduces RFC 8439, section 2_8_2`() throws {
        let key = SecretBytes(copying: Array(0x80...0x9f))
        let nonce = hex("070000004041424344454647")
        let sealed = ChaChaPoly.seal(
            Self.sunscreen, key: key, nonce: ChaChaPoly.Nonce(nonce), authenticating: Self.associatedData)
        #expect(
            Hex.encode(sealed)
                == "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b"
                + "1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
                + "3ff4def08e4b7a9de576d26586cec64b61161ae10b594f09e26a7e902ecbd0600691")
        let opened = try ChaChaPoly.open(
            sealed, key: key, nonce: ChaChaPoly.Nonce(nonce), authenticating: Self.associatedData)
        #expect(opened == Self.sunscreen)
        let large = try #require(seal(Self.sunscreen, largely: true, Array(0x80...0x9f), nonce, Self.associatedData))
        #expect(large == sealed)
    }

    @Test func `XChaCha20-Poly1305 reproduces draft-irtf-cfrg-xchacha-03, appendix A_3_1`() throws {
        let key = SecretBytes(copying: Array(0x80...0x9f))
        let sealed = XChaChaPoly.seal(
            Self.sunscreen, key: key, nonce: Array(0x40...0x57), authenticating: Self.associatedData)
        #expect(Array(sealed.prefix(XChaChaPoly.nonceByteCount)) == Array(0x40...0x57))
        #expect(
            Hex.encode(sealed.dropFirst(XChaChaPoly.nonceByteCount))
                == "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb731c7f1b0b4aa6440bf3a82f4eda7e39"
                + "ae64c6708c54c216cb96b72e1213b4522f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff9"
                + "21f9664c97637da9768812f615c68b13b52ec0875924c1c7987947deafd8780acf49")
        #expect(try XChaChaPoly.open(sealed, key: key, authenticating: Self.associatedData) == Self.sunscreen)
        let large = seal(Self.sunscreen, largely: true, Array(0x80...0x9f), Array(0x40...0x57), Self.associatedData)
        #expect(large == Array(sealed.dropFirst(XChaChaPoly.nonceByteCount)))
    }

    /// Made with Argon2id of Python's `cryptography` 48.0.0 (OpenSSL): lanes 1, memory in KiB.
    @Test(arguments: [
        (
            "correct horse battery staple", Array(0...15) as [UInt8], 3 as UInt64, 8_192,
            "947312f62e4ac86f63c9b622f147b0061846739f53dd00f2d2236cd03db413ac"
        ), ("p", bytes(0x5a, 16), 1, 64, "777e9b42004d05988c429bd14f59f71205178bd3c302cecc1689c4d03475e037"),
    ]) func `Argon2id agrees with OpenSSL`(
        passphrase: String, salt: [UInt8], iterations: UInt64, kibibytes: Int, derived: String
    ) throws {
        let key = try Argon2id.derive(
            passphrase: SecretBytes(copying: text(passphrase)), salt: salt, iterations: iterations,
            memoryByteCount: kibibytes * 1_024)
        #expect(key.withBytes { Hex.encode($0) } == derived)
    }
}

func text(_ text: String) -> [UInt8] { Array(text.utf8) }
func bytes(_ byte: UInt8, _ count: Int) -> [UInt8] { [UInt8](repeating: byte, count: count) }
