import Cryptography

/// The payload of an invite (Frames.md, "InvitePayload").
package struct Invite: Hashable, Sendable, Codable {
    /// Rotating the conversation's tag revokes every invite with the old tag.
    package var tag: InviteTag
    /// See ``ConversationToken``.
    package var conversationToken: [UInt8]
    package var creator: InboxID
    /// 32 secret bytes; any holder of them may ask to join.
    package var joinSecret: [UInt8]
    package var endpoints: [Endpoint]
    package var name: String?
    package var description: String?
    /// The lifetime in force when the invite was made.
    package var lifetime: Lifetime
    /// The time of the scheduled explosion; `nil` without one.
    package var conversationExpiresAt: Timestamp?
    package var expiresAt: Timestamp
    package var singleUse: Bool

    package init(
        tag: InviteTag, conversationToken: [UInt8], creator: InboxID, joinSecret: [UInt8], endpoints: [Endpoint],
        name: String?, description: String?, lifetime: Lifetime, conversationExpiresAt: Timestamp?,
        expiresAt: Timestamp, singleUse: Bool
    ) {
        (self.tag, self.conversationToken, self.creator) = (tag, conversationToken, creator)
        (self.joinSecret, self.endpoints, self.name, self.description) = (joinSecret, endpoints, name, description)
        (self.lifetime, self.conversationExpiresAt, self.expiresAt) = (lifetime, conversationExpiresAt, expiresAt)
        self.singleUse = singleUse
    }

    /// The creator keeps this hash of the secret.
    package var id: InviteID { InviteID(unchecked: SHA256.hash(joinSecret)) }
}

/// 10 alphanumerics that correlate an invite, a join and its error.
package struct InviteTag: Hashable, Sendable, TextCodable, CustomStringConvertible {
    package static let characterCount = 10
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
    package let description: String

    /// `nil` unless there are 10 ASCII letters and digits.
    package init?(_ text: String) {
        guard text.utf8.count == Self.characterCount, text.allSatisfy({ $0.isASCII && ($0.isLetter || $0.isNumber) })
        else { return nil }
        self.description = text
    }

    package static func random(_ random: inout some RandomNumberGenerator) -> InviteTag {
        var text = ""
        for _ in 0..<characterCount { text.append(alphabet[Int(random.next(upperBound: UInt64(alphabet.count)))]) }
        return InviteTag(text)!
    }

    package static var expectation: String { "10 alphanumerics" }
    package var coded: String { description }
    package init?(coded text: String) { self.init(text) }
}

/// The exact bytes of an invite and the creator's signature, not verified.
package struct SignedInvite: Hashable, Sendable, Codable {
    /// Protobuf is not canonical, so the signed bytes are kept.
    package let payload: [UInt8]
    /// Over SHA-256 of ``payload``.
    package let signature: RecoverableSignature
}

extension SignedInvite {
    package init(payload: [UInt8], signedBy key: borrowing SecretKey) {
        self.init(payload: payload, signature: key.signRecoverably(SHA256.hash(payload)))
    }
}

/// An invite with a verified signature of the inbox that it names as its creator.
package struct VerifiedInvite: Hashable, Sendable {
    package let invite: Invite
    package let creatorKey: PublicKey
    package let signed: SignedInvite

    package enum Failure: Error, Hashable {
        case invalidSignature
        /// Another key than the creator's: altered and signed again.
        case foreignSignature
    }

    /// - Parameter invite: the value that `signed.payload` decodes to.
    package init(_ signed: SignedInvite, decoded invite: Invite) throws(Failure) {
        guard let key = try? signed.signature.recoverKey(digest: SHA256.hash(signed.payload)) else {
            throw .invalidSignature
        }
        guard InboxID(key) == invite.creator else { throw .foreignSignature }
        self.invite = invite
        self.creatorKey = key
        self.signed = signed
    }
}

/// The conversation's id in an invite: version ‖ nonce ‖ ChaCha20-Poly1305. Only the creator can open it.
package enum ConversationToken {
    private static let version: UInt8 = 1
    private static let nonceByteCount = 12
    package static let byteCount = 1 + nonceByteCount + ConversationID.byteCount + ChaChaPoly.tagByteCount

    /// - Parameter nonce: 12 random bytes, used once.
    package static func seal(_ conversation: ConversationID, key: borrowing SecretKey, nonce: [UInt8]) -> [UInt8] {
        [version] + nonce
            + ChaChaPoly.seal(
                conversation.bytes, key: tokenKey(key), nonce: ChaChaPoly.Nonce(nonce),
                authenticating: InboxID(key.publicKey).bytes)
    }

    /// `nil` unless this key sealed it.
    package static func open(_ token: [UInt8], key: borrowing SecretKey) -> ConversationID? {
        guard token.count == byteCount, token[0] == version else { return nil }
        let opened = try? ChaChaPoly.open(
            token[(1 + nonceByteCount)...], key: tokenKey(key),
            nonce: ChaChaPoly.Nonce(Array(token[1...nonceByteCount])), authenticating: InboxID(key.publicKey).bytes)
        return opened.flatMap { ConversationID($0) }
    }

    private static func tokenKey(_ key: borrowing SecretKey) -> SecretBytes {
        key.withBytes { HKDF.derive(secret: $0, info: Array("mayfly conversation token v1".utf8)) }
    }
}
