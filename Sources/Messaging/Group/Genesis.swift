import Crypto

/// How a conversation began, signed by its creator, who alone may explode it.
package struct Genesis: Hashable, Sendable, Codable {
    package var conversation: ConversationID
    package var creator: PublicKey
    /// By the creator's clock.
    package var createdAt: Timestamp
    package var signature: SchnorrSignature

    package init(conversation: ConversationID, creator: PublicKey, createdAt: Timestamp, signature: SchnorrSignature) {
        self.conversation = conversation
        self.creator = creator
        self.createdAt = createdAt
        self.signature = signature
    }

    package init(
        conversation: ConversationID, createdAt: Timestamp, key: IdentityKey, _ random: inout some RandomNumberGenerator
    ) {
        let digest = Self.digest(conversation, key.publicKey, createdAt)
        self.init(
            conversation: conversation, creator: key.publicKey, createdAt: createdAt,
            signature: key.secret.sign(digest, auxiliaryRandomness: random.bytes(32)))
    }

    private static func digest(_ conversation: ConversationID, _ creator: PublicKey, _ createdAt: Timestamp) -> [UInt8]
    {
        var transcript = Transcript()
        transcript.append(conversation)
        transcript.append(creator)
        transcript.append(createdAt)
        return transcript.digest("mayfly/genesis")
    }

    /// The signed digest, which explode notices name.
    package var digest: [UInt8] { Self.digest(conversation, creator, createdAt) }
    package var isSignatureValid: Bool { creator.isValid(signature, for: digest) }
}
