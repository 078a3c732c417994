import Crypto

/// A member as it describes itself to the others: its name in this conversation and where it can be reached
/// (`mayfly/profile:1.0`). Signed by its own key, so that any member may pass it on; the key is of this conversation
/// alone, so the signature need not name the conversation.
package struct Member: Hashable, Sendable, Codable {
    package let key: PublicKey
    package let profile: String?
    /// Endpoints as they were signed, those of later kinds too.
    package let endpointTexts: [String]
    /// Of two descriptions the one with the larger version counts. Milliseconds by the member's clock, or one more than
    /// the version before.
    package let version: UInt64
    package let signature: SchnorrSignature

    package init(
        key: PublicKey, profile: String?, endpointTexts: [String], version: UInt64, signature: SchnorrSignature
    ) {
        self.key = key
        self.profile = profile
        self.endpointTexts = endpointTexts
        self.version = version
        self.signature = signature
    }

    /// Describes the holder of `key`.
    package init(
        profile: String?, endpoints: [Endpoint], mailbox: MailboxAddress? = nil, version: UInt64, key: IdentityKey,
        _ random: inout some RandomNumberGenerator
    ) {
        let texts = Self.texts(endpoints, mailbox)
        let digest = Self.digest(key.publicKey, profile, texts, version)
        self.init(
            key: key.publicKey, profile: profile, endpointTexts: texts, version: version,
            signature: key.secret.sign(digest, auxiliaryRandomness: random.bytes(32)))
    }

    /// Where the member can be reached, as far as this version understands it.
    package var endpoints: [Endpoint] { endpointTexts.compactMap { Endpoint($0) } }

    /// Its box, for contents that come while it is away: the first that this version understands.
    package var mailbox: MailboxAddress? { endpointTexts.lazy.compactMap { MailboxAddress($0) }.first }

    /// As many of a node's endpoints as a description may hold.
    package static func fitting(_ endpoints: [Endpoint]) -> [Endpoint] {
        var result = Array(endpoints.prefix(Limits.endpointCount))
        while byteCount(result.map(\.description)) > Limits.endpointsByteCount {
            // One of each kind stays as long as may be: the one is the shortest way, the other goes everywhere.
            let relayed = result.indices.filter { result[$0].relay != nil }
            let direct = result.indices.filter { result[$0].relay == nil }
            let last = relayed.count > 1 ? relayed.last : direct.count > 1 ? direct.last : nil
            result.remove(at: last ?? result.count - 1)
        }
        return result
    }

    /// How a description names these endpoints and a box: the box takes the place of an endpoint where both are too much.
    static func texts(_ endpoints: [Endpoint], _ mailbox: MailboxAddress?) -> [String] {
        guard let mailbox else { return endpoints.map(\.description) }
        var kept = endpoints
        func texts() -> [String] { kept.map(\.description) + [mailbox.text] }
        while kept.count > 1, kept.count >= Limits.endpointCount || byteCount(texts()) > Limits.endpointsByteCount {
            kept.removeLast()
        }
        return byteCount(texts()) > Limits.endpointsByteCount ? endpoints.map(\.description) : texts()
    }

    private static func byteCount(_ texts: [String]) -> Int { texts.reduce(0) { $0 + $1.utf8.count } }

    private static func digest(_ key: PublicKey, _ profile: String?, _ endpoints: [String], _ version: UInt64)
        -> [UInt8]
    {
        var transcript = Transcript()
        transcript.append(key)
        transcript.append(Array((profile ?? "").utf8))
        transcript.append(UInt64(endpoints.count))
        for endpoint in endpoints { transcript.append(Array(endpoint.utf8)) }
        transcript.append(version)
        return transcript.digest("mayfly/profile")
    }

    /// What the member has signed: the tagged hash of all fields.
    var digest: [UInt8] { Self.digest(key, profile, endpointTexts, version) }

    /// Whether this description takes the place of another of the same member: the larger version; of two of one version,
    /// which a home restored from a copy may sign, the smaller digest, so that all come to the same.
    func supersedes(_ known: Member) -> Bool {
        version != known.version ? version > known.version : digest.lexicographicallyPrecedes(known.digest)
    }

    /// The member has signed it, and its name can be shown.
    package var isValid: Bool {
        DisplayName.isValid(profile) && endpointTexts.count <= Limits.endpointCount
            && Self.byteCount(endpointTexts) <= Limits.endpointsByteCount
            && key.isValid(signature, for: Self.digest(key, profile, endpointTexts, version))
    }
}
