import Cryptography
import Testing

@Suite struct KeyEncapsulationTests {
    /// NIST's first known answer of ML-KEM-768, as BoringSSL carries it.
    private let published = Dictionary(
        uniqueKeysWithValues: vectorFile("mlkem768.txt").split(separator: "\n").filter { !$0.hasPrefix("#") }.map {
            let parts = $0.split(separator: ": ")
            return (String(parts[0]), hex(parts[1]))
        })

    private func key(_ byte: UInt8) -> KeyEncapsulationSecret {
        KeyEncapsulationSecret(seed: SecretBytes(copying: [UInt8](repeating: byte, count: 64)))
    }

    private func decapsulated(_ ciphertext: [UInt8], _ key: borrowing KeyEncapsulationSecret) throws -> [UInt8] {
        try key.decapsulate(ciphertext).withBytes { Array($0) }
    }

    @Test func `a key and a decapsulation reproduce the known answers, also of a changed ciphertext`() throws {
        let secret = KeyEncapsulationSecret(seed: SecretBytes(copying: try #require(published["seed"])))
        #expect(secret.encapsulationKey == published["key"])
        var ciphertext = try #require(published["ciphertext"])
        #expect(try decapsulated(ciphertext, secret) == published["secret"])
        ciphertext[0] ^= 1
        let rejected = published["secret of the ciphertext with its first bit changed"]
        #expect(try decapsulated(ciphertext, secret) == rejected)
    }

    @Test func `both sides share a secret that no other key and no other ciphertext gives`() throws {
        let own = key(1)
        let other = key(2)
        let first = try KeyEncapsulation(to: own.encapsulationKey)
        let second = try KeyEncapsulation(to: own.encapsulationKey)
        let secret = first.secret.withBytes { Array($0) }
        #expect(secret.count == 32 && first.ciphertext.count == KeyEncapsulationSecret.ciphertextByteCount)
        #expect(try decapsulated(first.ciphertext, own) == secret)
        #expect(try decapsulated(first.ciphertext, other) != secret)
        #expect(try decapsulated(second.ciphertext, own) != secret)
        #expect(first.ciphertext != second.ciphertext)
        for index in 0..<first.ciphertext.count {
            var changed = first.ciphertext
            changed[index] ^= 0x80
            #expect(try decapsulated(changed, own) != secret, "byte \(index)")
        }
    }

    @Test func `a key or a ciphertext of another length, and a coefficient of 3,329, are refused`() throws {
        let own = key(1)
        let good = own.encapsulationKey
        for bad in [[], Array(good.dropLast()), good + [0], [0x01, 0x0d, 0] + good.dropFirst(3)] {
            #expect(throws: KeyEncapsulationError.invalidKey) { _ = try KeyEncapsulation(to: bad) }
        }
        // 3,328 is the largest coefficient.
        _ = try KeyEncapsulation(to: [0x00, 0x0d, 0] + good.dropFirst(3))
        for count in [0, 1_087, 1_089] {
            #expect(throws: KeyEncapsulationError.invalidCiphertext) {
                _ = try own.decapsulate([UInt8](repeating: 0, count: count))
            }
        }
    }
}
