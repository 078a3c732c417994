import Cryptography

/// How a conversation began, signed by its creator, who alone may explode it.
package struct Genesis: Signed, Hashable, Sendable, Codable {
    package var conversation: ConversationID
    package var creator: PublicKey
    /// By the creator's clock.
    package var createdAt: Timestamp
    package var signature: SchnorrSignature
}

extension Genesis {
    package init(
        conversation: ConversationID, createdAt: Timestamp, key: IdentityKey, _ random: inout some RandomNumberGenerator
    ) {
        self.init(conversation: conversation, creator: key.publicKey, createdAt: createdAt, signature: .unsigned)
        self = signed(by: key, &random)
    }

    package var transcript: Transcript {
        Transcript("mayfly/genesis").adding(conversation).adding(creator).adding(createdAt)
    }

    package var isSignatureValid: Bool { hasSignature(of: creator) }
}
