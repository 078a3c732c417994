import Crypto

/// The payload of an invite (protocol, section 4).
package struct Invite: Hashable, Sendable, Codable {
    /// 10 alphanumerics; rotating the conversation's tag revokes every invite that carries the old one.
    package var tag: InviteTag
    /// The conversation's id, sealed so that only the creator can read it.
    package var conversationToken: [UInt8]
    package var creator: InboxID
    /// 32 secret bytes; whoever has them may ask to join.
    package var joinSecret: [UInt8]
    /// Where the creator listens.
    package var endpoints: [Endpoint]
    package var name: String?
    package var description: String?
    /// The lifetime in force when the invite was made.
    package var lifetime: Lifetime
    /// When the scheduled explosion ends the conversation; `nil` without one.
    package var conversationExpiresAt: Timestamp?
    /// From then on it admits nobody.
    package var expiresAt: Timestamp
    /// It admits one joiner.
    package var singleUse: Bool

    package init(
        tag: InviteTag, conversationToken: [UInt8], creator: InboxID, joinSecret: [UInt8], endpoints: [Endpoint],
        name: String?, description: String?, lifetime: Lifetime, conversationExpiresAt: Timestamp?,
        expiresAt: Timestamp, singleUse: Bool
    ) {
        self.tag = tag
        self.conversationToken = conversationToken
        self.creator = creator
        self.joinSecret = joinSecret
        self.endpoints = endpoints
        self.name = name
        self.description = description
        self.lifetime = lifetime
        self.conversationExpiresAt = conversationExpiresAt
        self.expiresAt = expiresAt
        self.singleUse = singleUse
    }

    /// What the creator keeps of the invite: the hash of its secret.
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

/// The exact bytes of an invite and the creator's signature over them. Not yet believed.
package struct SignedInvite: Hashable, Sendable, Codable {
    /// Protobuf is not canonical, so what was signed is kept as it was.
    package let payload: [UInt8]
    /// Over SHA-256 of ``payload``.
    package let signature: RecoverableSignature

    package init(payload: [UInt8], signature: RecoverableSignature) {
        self.payload = payload
        self.signature = signature
    }

    package init(payload: [UInt8], signedBy key: borrowing SecretKey) {
        self.init(payload: payload, signature: key.signRecoverably(SHA256.hash(payload)))
    }
}

/// An invite whose signature is that of the inbox that it names as its creator. A re-signed invite cannot be one.
package struct VerifiedInvite: Hashable, Sendable {
    package let invite: Invite
    package let creatorKey: PublicKey
    package let signed: SignedInvite

    /// Why an invite is not believed.
    package enum Failure: Error, Hashable {
        /// The signature recovers to no key.
        case invalidSignature
        /// The signature is that of another key than the creator's: altered and signed again.
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
