import Crypto
import FoundationEssentials

package enum KeyEncapsulationError: Error, Equatable {
    /// Not 1,184 bytes, or a coefficient is not below 3,329 (FIPS 203, section 7.2).
    case invalidKey
    /// Not 1,088 bytes.
    case invalidCiphertext
}

/// The decapsulation key of ML-KEM-768 (FIPS 203), for one exchange.
///
/// The library keeps it expanded in ordinary memory, which the node's program wipes when it is freed.
package struct KeyEncapsulationSecret: ~Copyable, Sendable {
    /// d ‖ z.
    package static let seedByteCount = 64
    package static let keyByteCount = 1_184
    package static let ciphertextByteCount = 1_088
    private let key: MLKEM768.PrivateKey
    package let encapsulationKey: [UInt8]

    /// - Precondition: ``seedByteCount`` bytes.
    package init(seed: borrowing SecretBytes) {
        precondition(seed.byteCount == Self.seedByteCount)
        self.init(seed.withBytes { try! MLKEM768.PrivateKey(seedRepresentation: $0, publicKey: nil) })
    }

    private init(_ key: MLKEM768.PrivateKey) {
        self.key = key
        encapsulationKey = Array(key.publicKey.rawRepresentation)
    }

    /// From the library's generator. With a seed the library hashes the public key once more.
    package static func generate() -> KeyEncapsulationSecret { KeyEncapsulationSecret(try! MLKEM768.PrivateKey()) }

    /// A ciphertext for another key gives another secret, without an error (implicit rejection).
    package borrowing func decapsulate(_ ciphertext: some Collection<UInt8>) throws(KeyEncapsulationError)
        -> SecretBytes
    {
        guard ciphertext.count == Self.ciphertextByteCount, let secret = try? key.decapsulate(Array(ciphertext)) else {
            throw .invalidCiphertext
        }
        return SecretBytes(copying: secret)
    }
}

/// A ciphertext for the other side's key of ML-KEM-768, and the secret of 32 bytes in it.
package struct KeyEncapsulation: ~Copyable, Sendable {
    package let ciphertext: [UInt8]
    package let secret: SecretBytes

    package init(to key: some Collection<UInt8>) throws(KeyEncapsulationError) {
        guard key.count == KeyEncapsulationSecret.keyByteCount,
            let made = try? MLKEM768.PublicKey(rawRepresentation: Array(key)).encapsulate()
        else { throw .invalidKey }
        ciphertext = Array(made.encapsulated)
        secret = SecretBytes(copying: made.sharedSecret)
    }

    /// A recorded one.
    package init(ciphertext: [UInt8], secret: consuming SecretBytes) {
        self.ciphertext = ciphertext
        self.secret = secret
    }
}

/// Where handshakes take fresh values of ML-KEM from. Vectors repeat recorded ones.
package struct KeyEncapsulationSource: Sendable {
    package var makeSecret: @Sendable () -> KeyEncapsulationSecret = { .generate() }
    package var encapsulate: @Sendable ([UInt8]) throws(KeyEncapsulationError) -> KeyEncapsulation = {
        key throws(KeyEncapsulationError) in try KeyEncapsulation(to: key)
    }

    package init() {}
}

extension SecretBytes {
    fileprivate init(copying key: SymmetricKey) {
        self.init(byteCount: key.bitCount / 8) { destination in key.withUnsafeBytes { destination.copyMemory(from: $0) }
        }
    }
}
