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

        package var explained: CommandError {
            let hint = "copy the whole text that starts with mayfly:join/"
            return switch self {
            case .notAnInvite: CommandError(.usage, "this is not an invite", hint)
            case .tooLong: CommandError(.usage, "this is too long for an invite")
            case .damaged: CommandError(.usage, "the invite is damaged: cut off, or a character has changed", hint)
            case .signature:
                // Most typing errors end here, and so does an invite that was altered and signed again.
                CommandError(
                    .usage, "the invite is mistyped, cut off or altered: its signature is not valid",
                    "\(hint); if that fails too, ask its creator for a new one")
            }
        }
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

    package static func decodePayload(_ bytes: [UInt8]) throws(WireError) -> Invite {
        try Invite(serialized: bytes).known("invite")
    }

    package static func verify(_ signed: SignedInvite) -> VerifiedInvite? {
        guard let invite = try? decodePayload(signed.payload) else { return nil }
        return try? VerifiedInvite(signed, decoded: invite)
    }
}

extension SignedInvite: ProtoTabled {
    static let table = ProtoTable<SignedInvite>(
        { (payload, signature: [UInt8]) throws(WireError) in
            let signature = try (try? RecoverableSignature(signature)).known("signed_invite.signature")
            return SignedInvite(payload: payload, signature: signature)
        }, { ($0.payload, $0.signature.bytes) }, .bytes(1), .bytes(2))
}

extension Invite: ProtoTabled {
    static let table = ProtoTable(
        {
            (
                tag, token, creator, secret, endpoints: [String], name, description, lifetime: String, ends, expires,
                singleUse
            ) throws(WireError) in
            Invite(
                tag: try InviteTag(tag).known("invite.tag"), conversationToken: token, creator: creator,
                joinSecret: secret,
                // An endpoint of a later kind is skipped.
                endpoints: endpoints.compactMap { Endpoint($0) }, name: DisplayName.kept(name),
                description: description, lifetime: Lifetime(rawValue: lifetime) ?? .ephemeral,
                conversationExpiresAt: ends, expiresAt: expires, singleUse: singleUse)
        },
        {
            (
                $0.tag.description, $0.conversationToken, $0.creator, $0.joinSecret, $0.endpoints.map(\.description),
                $0.name, $0.description, $0.lifetime.rawValue, $0.conversationExpiresAt, $0.expiresAt, $0.singleUse
            )
        }, .text(1), .bytes(2, count: ConversationToken.byteCount), .id(3), .bytes(4, count: 32),
        .texts(5, atMost: Limits.endpointCount), .optionalText(6, atMost: Limits.nameByteCount),
        .optionalText(7, atMost: Limits.descriptionByteCount), .text(8), .optionalTime(9), .time(10), .flag(11))
}
