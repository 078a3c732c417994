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

/// A key or signature; its text is hexadecimal.
package protocol HexCodable: TextCodable {
    var bytes: [UInt8] { get }
    init(_ bytes: [UInt8]) throws
}

extension HexCodable {
    package var coded: String { Hex.encode(bytes) }
    package init?(coded text: String) {
        guard let bytes = Hex.decode(text), let value = try? Self(bytes) else { return nil }
        self = value
    }
}

extension PublicKey: HexCodable { package static var expectation: String { "a compressed public key" } }

extension RecoverableSignature: HexCodable { package static var expectation: String { "a 65-byte signature" } }

extension SchnorrSignature: HexCodable { package static var expectation: String { "a 64-byte signature" } }
