import Cryptography

/// A value that is signed with BIP 340 over the tagged hash of its fields (SignedValues.md).
package protocol Signed {
    var transcript: Transcript { get }
    var signature: SchnorrSignature { get set }
}

extension Signed {
    /// The hash that was signed.
    package var digest: [UInt8] { transcript.digest }

    package func hasSignature(of key: PublicKey) -> Bool { key.isValid(signature, for: digest) }

    package func signed(by key: IdentityKey, _ random: inout some RandomNumberGenerator) -> Self {
        var signed = self
        signed.signature = key.secret.sign(digest, auxiliaryRandomness: random.bytes(32))
        return signed
    }
}

extension SchnorrSignature {
    /// Zeros: the value is not signed yet.
    package static let unsigned = try! SchnorrSignature([UInt8](repeating: 0, count: byteCount))
}

/// The canonical bytes of a signed value. Fields are length-prefixed, so two values never share their bytes.
package struct Transcript {
    private let tag: String
    private var bytes: [UInt8] = []

    package init(_ tag: String) { self.tag = tag }

    /// Its length as 64 bits, big-endian, then the bytes.
    package consuming func adding(_ field: some Collection<UInt8>) -> Transcript {
        self = adding(UInt64(field.count))
        bytes.append(contentsOf: field)
        return self
    }

    package consuming func adding(_ field: some FixedBytes) -> Transcript { adding(field.bytes) }
    package consuming func adding(_ field: PublicKey) -> Transcript { adding(field.bytes) }
    package consuming func adding(_ text: String) -> Transcript { adding(text.utf8) }
    /// Milliseconds, as a number.
    package consuming func adding(_ field: Timestamp) -> Transcript { adding(UInt64(field.milliseconds)) }

    /// 64 bits, big-endian, without a length.
    package consuming func adding(_ number: UInt64) -> Transcript {
        bytes.append(contentsOf: bigEndian(number))
        return self
    }

    /// BIP 340's tagged hash of the fields so far.
    package var digest: [UInt8] { SHA256.tagged(tag, bytes) }
}
