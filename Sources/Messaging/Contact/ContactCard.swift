import Cryptography

/// A named peer's entry in `peers.json`: its contact inbox's key, the secret of its routing tokens, and its endpoints.
/// Text form: `mayfly:card/` and unpadded base64url of version ‖ key ‖ routing secret ‖ endpoints separated by newlines
/// ‖ checksum. The checksum detects mistyped characters.
package struct ContactCard: Hashable, Sendable, Codable, CustomStringConvertible {
    package static let prefix = "mayfly:card/"
    /// 1 had no checksum.
    private static let version: UInt8 = 2
    /// The beginning of SHA-256 of everything before it.
    private static let checksumByteCount = 4
    package static let routingSecretByteCount = 32

    package var key: PublicKey
    /// 32 bytes; any holder of them can reach the contact inbox.
    package var routingSecret: [UInt8]
    /// At most ``Limits/endpointCount``.
    package var endpoints: [Endpoint]

    package init(key: PublicKey, routingSecret: [UInt8], endpoints: [Endpoint]) {
        (self.key, self.routingSecret, self.endpoints) = (key, routingSecret, endpoints)
    }

    package enum Failure: Error, Hashable {
        case notACard
        case truncated
        /// Characters are missing or have changed.
        case damaged
        case unknownVersion(UInt8)
        case invalidKey
        case invalidEndpoint

        package var explained: CommandError {
            let what =
                switch self {
                case .notACard: "not a contact card"
                case .truncated: "a contact card that was cut off"
                case .damaged: "a contact card with a changed or missing character"
                case .unknownVersion(let version):
                    "a contact card of version \(version), which this version does not know"
                case .invalidKey: "a contact card with a damaged key"
                case .invalidEndpoint: "a contact card with a damaged endpoint"
                }
            return CommandError(.usage, what, "copy the whole line that starts with mayfly:card/")
        }
    }

    package init(text: String) throws(Failure) {
        guard text.hasPrefix(Self.prefix), let bytes = Base64URL.decode(text.dropFirst(Self.prefix.count)) else {
            throw .notACard
        }
        guard let first = bytes.first else { throw .truncated }
        guard first == Self.version else { throw .unknownVersion(first) }
        let head = 1 + PublicKey.byteCount + Self.routingSecretByteCount
        guard bytes.count >= head + Self.checksumByteCount else { throw .truncated }
        let body = bytes.dropLast(Self.checksumByteCount)
        guard Array(bytes.suffix(Self.checksumByteCount)) == Self.checksum(Array(body)) else { throw .damaged }
        guard let key = try? PublicKey(bytes[1..<(1 + PublicKey.byteCount)]) else { throw .invalidKey }
        self.key = key
        routingSecret = Array(bytes[(1 + PublicKey.byteCount)..<head])
        endpoints = []
        let text = String(decoding: body[head...], as: UTF8.self)
        for line in text.split(separator: "\n") {
            guard endpoints.count < Limits.endpointCount else { throw .invalidEndpoint }
            if let endpoint = Endpoint(line) {
                endpoints.append(endpoint)
            } else if !Endpoint.isOfUnknownKind(line) {
                throw .invalidEndpoint
            }
        }
    }

    package var description: String {
        let endpoints = endpoints.map(\.description).joined(separator: "\n")
        let body = [Self.version] + key.bytes + routingSecret + Array(endpoints.utf8)
        return Self.prefix + Base64URL.encode(body + Self.checksum(body))
    }

    private static func checksum(_ body: [UInt8]) -> [UInt8] { Array(SHA256.hash(body).prefix(checksumByteCount)) }

    package init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        do { self = try ContactCard(text: try container.decode(String.self)) } catch let failure as Failure {
            throw DecodingError.dataCorruptedError(
                in: container, debugDescription: "expected a contact card (mayfly:card/…): \(failure)")
        }
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(description)
    }
}

/// An invite sent from contact inbox to contact inbox (`conversation create --with PEER`).
package struct Invitation: Hashable, Sendable, Codable {
    /// Identifies the invitation in acknowledgements and user commands.
    package var id: MessageID
    package var slug: String
    package var name: String?

    package init(id: MessageID, slug: String, name: String?) { (self.id, self.slug, self.name) = (id, slug, name) }
}
