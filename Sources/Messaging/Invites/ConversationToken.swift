import Crypto

/// The conversation's id in an invite: version ‖ nonce ‖ ChaCha20-Poly1305. Only the creator can open it.
package enum ConversationToken {
    private static let version: UInt8 = 1
    private static let nonceByteCount = 12
    package static let byteCount = 1 + nonceByteCount + ConversationID.byteCount + ChaChaPoly.tagByteCount

    /// - Parameter nonce: 12 random bytes, used once.
    package static func seal(_ conversation: ConversationID, key: borrowing SecretKey, nonce: [UInt8]) -> [UInt8] {
        let sealed = tokenKey(key).withBytes {
            ChaChaPoly.seal(conversation.bytes, key: $0, nonce: nonce, authenticating: InboxID(key.publicKey).bytes)
        }
        return [version] + nonce + sealed
    }

    /// `nil` unless this key sealed it.
    package static func open(_ token: [UInt8], key: borrowing SecretKey) -> ConversationID? {
        guard token.count == byteCount, token[0] == version else { return nil }
        let nonce = Array(token[1...nonceByteCount])
        let inbox = InboxID(key.publicKey)
        let opened = tokenKey(key).withBytes {
            try? ChaChaPoly.open(
                Array(token[(1 + nonceByteCount)...]), key: $0, nonce: nonce, authenticating: inbox.bytes)
        }
        return opened.flatMap { ConversationID($0) }
    }

    private static func tokenKey(_ key: borrowing SecretKey) -> SecretBytes {
        key.withBytes { HKDF.derive(secret: $0, info: Array("mayfly conversation token v1".utf8)) }
    }
}
