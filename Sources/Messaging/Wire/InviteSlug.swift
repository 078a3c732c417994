import Crypto
import FoundationEssentials

/// The text form of an invite (Frames.md, "Invites"): `mayfly:join/` and base64url of the signed invite, in raw DEFLATE
/// behind a marker byte when that is smaller.
package enum InviteSlug {
    package static let prefix = "mayfly:join/"
    /// Longest text that is parsed.
    package static let byteCountLimit = 16_384
    private static let deflated: UInt8 = 0x1f
    private static let inflatedLimit = 65_536
    private static let ratioLimit = 32

    package enum Failure: Error, Hashable {
        case notAnInvite
        case tooLong
        /// Truncated, or characters changed.
        case damaged
        case signature(VerifiedInvite.Failure)
    }

    package static func encode(_ invite: SignedInvite) -> String {
        var proto = ProtoSignedInvite()
        proto.payload = Data(invite.payload)
        proto.signature = Data(invite.signature.bytes)
        let plain = serialized(proto)
        let packed = [deflated] + Deflate.compress(plain)
        return prefix + Base64URL.encode(packed.count < plain.count ? packed : plain)
    }

    /// With or without the prefix; white space is ignored (a wrapped line).
    package static func decode(_ text: String) throws(Failure) -> VerifiedInvite {
        guard text.utf8.count <= byteCountLimit else { throw .tooLong }
        var slug = text.filter { !$0.isWhitespace }
        if slug.hasPrefix(prefix) { slug.removeFirst(prefix.count) } else if slug.contains(":") { throw .notAnInvite }
        guard !slug.isEmpty else { throw .notAnInvite }
        guard var bytes = Base64URL.decode(slug) else { throw .damaged }
        if bytes.first == deflated {
            do throws(DeflateError) {
                bytes = try Deflate.decompress(Array(bytes.dropFirst()), limit: inflatedLimit, ratio: ratioLimit)
            } catch { throw error == .tooLarge ? .tooLong : .damaged }
        }
        guard let proto = try? parse(ProtoSignedInvite.self, bytes),
            let signature = try? RecoverableSignature(proto.signature)
        else { throw .damaged }
        let signed = SignedInvite(payload: Array(proto.payload), signature: signature)
        guard let invite = try? decodePayload(signed.payload) else { throw .damaged }
        do throws(VerifiedInvite.Failure) { return try VerifiedInvite(signed, decoded: invite) } catch {
            throw .signature(error)
        }
    }

    /// The bytes that the creator signs.
    package static func encodePayload(_ invite: Invite) -> [UInt8] {
        var proto = ProtoInvitePayload()
        proto.tag = invite.tag.description
        proto.conversationToken = Data(invite.conversationToken)
        proto.creatorInboxID = Data(invite.creator.bytes)
        proto.joinSecret = Data(invite.joinSecret)
        proto.endpoints = invite.endpoints.map(\.description)
        proto.name = invite.name ?? ""
        proto.description_p = invite.description ?? ""
        proto.lifetime = invite.lifetime.rawValue
        if let time = invite.conversationExpiresAt { proto.conversationExpiresAt = time.milliseconds }
        proto.expiresAt = invite.expiresAt.milliseconds
        proto.singleUse = invite.singleUse
        return serialized(proto)
    }

    package static func decodePayload(_ bytes: [UInt8]) throws(WireError) -> Invite {
        let proto = try parse(ProtoInvitePayload.self, bytes)
        guard let tag = InviteTag(proto.tag) else { throw .malformed("invite.tag") }
        guard proto.joinSecret.count == 32 else { throw .malformed("invite.join_secret") }
        guard proto.conversationToken.count == ConversationToken.byteCount else {
            throw .malformed("invite.conversation_token")
        }
        return Invite(
            tag: tag, conversationToken: Array(proto.conversationToken),
            creator: try identifier(proto.creatorInboxID, "invite.creator_inbox_id"),
            joinSecret: Array(proto.joinSecret), endpoints: try endpoints(proto.endpoints),
            name: try boundedText(proto.name, Limits.nameByteCount, "invite.name"),
            description: try boundedText(proto.description_p, Limits.descriptionByteCount, "invite.description"),
            lifetime: Lifetime(rawValue: proto.lifetime) ?? .ephemeral,
            conversationExpiresAt: proto.hasConversationExpiresAt
                ? Timestamp(milliseconds: proto.conversationExpiresAt) : nil,
            expiresAt: Timestamp(milliseconds: proto.expiresAt), singleUse: proto.singleUse)
    }

    package static func verify(_ signed: SignedInvite) -> VerifiedInvite? {
        guard let invite = try? decodePayload(signed.payload) else { return nil }
        return try? VerifiedInvite(signed, decoded: invite)
    }
}
