import Cryptography

/// A value that is stored as one text.
package protocol TextCodable: Codable {
    /// The expected form, for the error message.
    static var expectation: String { get }
    var coded: String { get }
    init?(coded text: String)
}

extension TextCodable {
    package init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        guard let value = Self(coded: try container.decode(String.self)) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "expected \(Self.expectation)")
        }
        self = value
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(coded)
    }
}

extension PublicKey: TextCodable {
    package static var expectation: String { "a compressed public key" }
    package var coded: String { Hex.encode(bytes) }
    package init?(coded text: String) {
        guard let bytes = Hex.decode(text), let key = try? PublicKey(bytes) else { return nil }
        self = key
    }
}

extension RecoverableSignature: TextCodable {
    package static var expectation: String { "a 65-byte signature" }
    package var coded: String { Hex.encode(bytes) }
    package init?(coded text: String) {
        guard let bytes = Hex.decode(text), let signature = try? RecoverableSignature(bytes) else { return nil }
        self = signature
    }
}

extension SchnorrSignature: TextCodable {
    package static var expectation: String { "a 64-byte signature" }
    package var coded: String { Hex.encode(bytes) }
    package init?(coded text: String) {
        guard let bytes = Hex.decode(text), let signature = try? SchnorrSignature(bytes) else { return nil }
        self = signature
    }
}
