import Cryptography

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
