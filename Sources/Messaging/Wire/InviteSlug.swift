import Cryptography

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
        let plain = invite.serialized
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
        guard let signed = try? SignedInvite(ProtoFields(bytes)) else { throw .damaged }
        guard let invite = try? decodePayload(signed.payload) else { throw .damaged }
        do throws(VerifiedInvite.Failure) { return try VerifiedInvite(signed, decoded: invite) } catch {
            throw .signature(error)
        }
    }

    /// The bytes that the creator signs.
    package static func encodePayload(_ invite: Invite) -> [UInt8] { invite.serialized }

    package static func decodePayload(_ bytes: [UInt8]) throws(WireError) -> Invite { try Invite(ProtoFields(bytes)) }

    package static func verify(_ signed: SignedInvite) -> VerifiedInvite? {
        guard let invite = try? decodePayload(signed.payload) else { return nil }
        return try? VerifiedInvite(signed, decoded: invite)
    }
}

extension SignedInvite: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(1, payload)
        writer.put(2, signature.bytes)
    }

    init(_ fields: ProtoFields) throws(WireError) {
        let signature: RecoverableSignature
        do throws(CurveError) { signature = try RecoverableSignature(fields.slice(2)) } catch {
            throw .malformed("signed_invite.signature")
        }
        self.init(payload: fields.bytes(1), signature: signature)
    }
}

extension Invite: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(1, tag.description)
        writer.put(2, conversationToken)
        writer.put(3, creator)
        writer.put(4, joinSecret)
        writer.put(5, each: endpoints.map(\.description))
        writer.put(6, name)
        writer.put(7, description)
        writer.put(8, lifetime.rawValue)
        writer.put(9, optional: conversationExpiresAt)
        writer.put(10, expiresAt)
        writer.put(11, singleUse)
    }

    init(_ fields: ProtoFields) throws(WireError) {
        guard let tag = InviteTag(try fields.text(1, "invite.tag")) else { throw .malformed("invite.tag") }
        self.init(
            tag: tag,
            conversationToken: try fields.bytes(2, "invite.conversation_token", count: ConversationToken.byteCount),
            creator: try fields.id(3, "invite.creator_inbox_id"),
            joinSecret: try fields.bytes(4, "invite.join_secret", count: 32),
            // An endpoint of a later kind is skipped.
            endpoints: try fields.texts(5, "invite.endpoints", atMost: Limits.endpointCount).compactMap {
                Endpoint($0)
            }, name: try fields.optionalText(6, "invite.name", atMost: Limits.nameByteCount),
            description: try fields.optionalText(7, "invite.description", atMost: Limits.descriptionByteCount),
            lifetime: Lifetime(rawValue: try fields.text(8, "invite.lifetime")) ?? .ephemeral,
            conversationExpiresAt: fields.optionalTime(9), expiresAt: fields.time(10), singleUse: fields.flag(11))
    }
}
