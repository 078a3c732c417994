import Cryptography

/// A member's profile: its name in this conversation and its endpoints (`mayfly/profile:1.0`). Signed by the member, so
/// that any member may relay it. The key belongs to this conversation only, so the signature need not name it.
package struct Member: Signed, Hashable, Sendable, Codable {
    package let key: PublicKey
    package let profile: String?
    /// Endpoints as signed, including kinds that this version does not know.
    package let endpointTexts: [String]
    /// The larger version counts. Milliseconds by the member's clock, or the previous version plus one.
    package let version: UInt64
    package var signature: SchnorrSignature

    package init(
        key: PublicKey, profile: String?, endpointTexts: [String], version: UInt64, signature: SchnorrSignature
    ) {
        (self.key, self.profile, self.endpointTexts, self.version) = (key, profile, endpointTexts, version)
        self.signature = signature
    }

    package init(
        profile: String?, endpoints: [Endpoint], mailbox: MailboxAddress? = nil, version: UInt64, key: IdentityKey,
        _ random: inout some RandomNumberGenerator
    ) {
        self.init(
            key: key.publicKey, profile: profile, endpointTexts: Self.texts(endpoints, mailbox), version: version,
            signature: .unsigned)
        self = signed(by: key, &random)
    }

    package var endpoints: [Endpoint] { endpointTexts.compactMap { Endpoint($0) } }

    /// The member's mailbox: the first one that this version understands.
    package var mailbox: MailboxAddress? { endpointTexts.lazy.compactMap { MailboxAddress($0) }.first }

    /// As many endpoints as a profile may hold.
    package static func fitting(_ endpoints: [Endpoint]) -> [Endpoint] {
        var result = Array(endpoints.prefix(Limits.endpointCount))
        while byteCount(result.map(\.description)) > Limits.endpointsByteCount {
            // Keeps one of each kind if possible: a direct one is the shortest way, a relayed one works everywhere.
            let relayed = result.indices.filter { result[$0].relay != nil }
            let direct = result.indices.filter { result[$0].relay == nil }
            let last = relayed.count > 1 ? relayed.last : direct.count > 1 ? direct.last : nil
            result.remove(at: last ?? result.count - 1)
        }
        return result
    }

    /// The texts of a profile. A mailbox replaces endpoints when there is no room for both.
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

    package var transcript: Transcript {
        let transcript = Transcript("mayfly/profile").adding(key).adding(profile ?? "")
        return endpointTexts.reduce(transcript.adding(UInt64(endpointTexts.count))) { $0.adding($1) }.adding(version)
    }

    /// Whether this profile replaces another of the same member. The larger version counts. A home restored from a copy
    /// may sign one version twice: then the smaller digest counts, at all members.
    func supersedes(_ known: Member) -> Bool {
        version != known.version ? version > known.version : digest.lexicographicallyPrecedes(known.digest)
    }

    /// The member has signed it, and its fields are within their limits.
    package var isValid: Bool {
        DisplayName.isValid(profile) && endpointTexts.count <= Limits.endpointCount
            && Self.byteCount(endpointTexts) <= Limits.endpointsByteCount && hasSignature(of: key)
    }
}
