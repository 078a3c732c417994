import Cryptography

/// The creator's signed notice that a conversation ends (Explode.md, "The notice"; seed 000).
package struct ExplodeNotice: Signed, Hashable, Sendable, Codable {
    package var conversation: ConversationID
    /// Digest of the genesis, which names the creator.
    package var genesis: [UInt8]
    /// Whole seconds.
    package var expiresAt: Timestamp
    /// It takes effect on arrival, whatever the receiver's clock says.
    package var isImmediate: Bool
    package var signature: SchnorrSignature
}

extension ExplodeNotice {
    package init(
        genesis: Genesis, expiresAt: Timestamp, isImmediate: Bool = true, key: IdentityKey,
        _ random: inout some RandomNumberGenerator
    ) {
        self.init(
            conversation: genesis.conversation, genesis: genesis.digest,
            expiresAt: Timestamp(milliseconds: expiresAt.milliseconds / .second * .second), isImmediate: isImmediate,
            signature: .unsigned)
        self = signed(by: key, &random)
    }

    /// The payload of `convos.org/explode_settings:1.0`: the seed's JSON, with `immediate` when no clock counts.
    private static func settings(_ expiresAt: Timestamp, _ isImmediate: Bool) -> [UInt8] {
        Array("{\"expiresAt\":\"\(expiresAt.iso8601)\"\(isImmediate ? ",\"immediate\":true" : "")}".utf8)
    }

    package func isDue(now: Timestamp) -> Bool { isImmediate || expiresAt <= now }

    /// Whether it ends the conversation before `other`: of two notices the earlier end counts.
    package func precedes(_ other: ExplodeNotice) -> Bool {
        isImmediate == other.isImmediate ? !isImmediate && expiresAt < other.expiresAt : isImmediate
    }

    /// Shown by readers that do not know the content type.
    package var fallback: String { "Conversation expires at \(expiresAt.iso8601)" }

    package var transcript: Transcript {
        Transcript("mayfly/explode_notice").adding(conversation).adding(genesis).adding(
            ContentType.explodeSettings.description
        ).adding(Self.settings(expiresAt, isImmediate))
    }

    /// It names this conversation, and the creator in the genesis has signed it.
    package func isValid(for genesis: Genesis) -> Bool {
        conversation == genesis.conversation && equalInConstantTime(self.genesis, genesis.digest)
            && hasSignature(of: genesis.creator)
    }

    /// Seals notices and receipts outside a handshake: members derive the key, strangers cannot.
    static func key(_ conversation: ConversationID) -> SecretBytes {
        HKDF.derive(secret: SecretBytes(copying: conversation.bytes), info: "mayfly explode notice v1")
    }

    /// ``Limits/noticeByteCount`` bytes, whatever the notice says.
    package func sealed(_ random: inout some RandomNumberGenerator) -> [UInt8] {
        var plain = conversation.bytes + genesis + signature.bytes + Self.settings(expiresAt, isImmediate)
        let padding = Limits.noticeByteCount - XChaChaPoly.overheadByteCount - plain.count
        plain += [UInt8](repeating: 0, count: padding)
        return XChaChaPoly.seal(
            plain, key: Self.key(conversation), nonce: random.bytes(XChaChaPoly.nonceByteCount),
            authenticating: Array("notice".utf8))
    }

    /// `nil` unless a member of this conversation sealed it. Check ``isValid(for:)`` before believing it.
    package init?(opening sealed: [UInt8], conversation: ConversationID) {
        guard sealed.count == Limits.noticeByteCount,
            let plain = try? XChaChaPoly.open(
                sealed, key: Self.key(conversation), authenticating: Array("notice".utf8)),
            let named = ConversationID(plain[0..<32]), let signature = try? SchnorrSignature(plain[64..<128])
        else { return nil }
        // {"expiresAt":"2026-11-21T06:37:11Z"} or {…,"immediate":true}, and zeros: nothing else varies.
        guard let expiresAt = Timestamp(iso8601: String(decoding: plain[142..<162], as: UTF8.self)) else { return nil }
        let isImmediate = plain[163] == UInt8(ascii: ",")
        let settings = Self.settings(expiresAt, isImmediate)
        let padding = [UInt8](repeating: 0, count: plain.count - 128 - settings.count)
        guard plain[128...].elementsEqual(settings + padding) else { return nil }
        self.init(
            conversation: named, genesis: Array(plain[32..<64]), expiresAt: expiresAt, isImmediate: isImmediate,
            signature: signature)
    }
}

/// A member's signed statement that it destroyed its copy; signed before the key is destroyed, sent after.
package struct DeletionReceipt: Signed, Hashable, Sendable, Codable {
    package var conversation: ConversationID
    package var member: PublicKey
    /// By the member's clock.
    package var destroyedAt: Timestamp
    package var signature: SchnorrSignature
}

extension DeletionReceipt {
    package init(
        conversation: ConversationID, destroyedAt: Timestamp, key: IdentityKey,
        _ random: inout some RandomNumberGenerator
    ) {
        self.init(conversation: conversation, member: key.publicKey, destroyedAt: destroyedAt, signature: .unsigned)
        self = signed(by: key, &random)
    }

    package var transcript: Transcript {
        Transcript("mayfly/deletion_receipt").adding(conversation).adding(member).adding(destroyedAt)
    }

    /// Checks the signature only; the tombstone knows who is a member.
    package var isSignatureValid: Bool { hasSignature(of: member) }

    /// Sealed like the notice, for the answer to a knock.
    package func sealed(_ random: inout some RandomNumberGenerator) -> [UInt8] {
        let plain = conversation.bytes + member.bytes + signature.bytes + bigEndian(UInt64(destroyedAt.milliseconds))
        return XChaChaPoly.seal(
            plain, key: ExplodeNotice.key(conversation), nonce: random.bytes(XChaChaPoly.nonceByteCount),
            authenticating: Array("receipt".utf8))
    }

    package init?(opening sealed: [UInt8], conversation: ConversationID) {
        guard
            let plain = try? XChaChaPoly.open(
                sealed, key: ExplodeNotice.key(conversation), authenticating: Array("receipt".utf8)),
            plain.count == 32 + 33 + 64 + 8, let named = ConversationID(plain[0..<32]),
            let member = try? PublicKey(plain[32..<65]), let signature = try? SchnorrSignature(plain[65..<129])
        else { return nil }
        let milliseconds = plain[129..<137].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        self.init(
            conversation: named, member: member, destroyedAt: Timestamp(milliseconds: Int64(clamping: milliseconds)),
            signature: signature)
    }
}
