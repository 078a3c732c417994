import Cryptography

/// The creator's signed statement that joins by invites with this tag end with `conversation_expired`. It is signed
/// before the key is destroyed, since no handshake with a joiner is possible after.
package struct ExpiredStatement: Hashable, Sendable, Codable {
    package var tag: InviteTag
    /// By the creator's clock.
    package var timestamp: Timestamp
    package var signature: SchnorrSignature
}

extension ExpiredStatement {
    private static let byteCount = InviteTag.characterCount + 8 + 64
    package static let sealedByteCount = byteCount + XChaChaPoly.overheadByteCount

    package init(tag: InviteTag, timestamp: Timestamp, key: IdentityKey, _ random: inout some RandomNumberGenerator) {
        let digest = Self.digest(tag, timestamp, key.publicKey)
        self.init(
            tag: tag, timestamp: timestamp, signature: key.secret.sign(digest, auxiliaryRandomness: random.bytes(32)))
    }

    private static func digest(_ tag: InviteTag, _ timestamp: Timestamp, _ creator: PublicKey) -> [UInt8] {
        Transcript("mayfly/join_error").adding(JoinErrorType.conversationExpired.rawValue).adding(tag.description)
            .adding(timestamp).adding(creator).digest
    }

    package func isValid(creator: PublicKey) -> Bool {
        creator.isValid(signature, for: Self.digest(tag, timestamp, creator))
    }

    package var joinError: JoinError {
        JoinError(errorType: .conversationExpired, inviteTag: tag, timestamp: timestamp)
    }

    /// - Parameters:
    ///   - key: 32 bytes from the invite's knock secret.
    ///   - token: the routing token of the knock that it answers.
    package func sealed(key: borrowing SecretBytes, token: [UInt8], _ random: inout some RandomNumberGenerator)
        -> [UInt8]
    {
        let plain = Array(tag.description.utf8) + bigEndian(UInt64(timestamp.milliseconds)) + signature.bytes
        return XChaChaPoly.seal(
            plain, key: key, nonce: random.bytes(XChaChaPoly.nonceByteCount),
            authenticating: Array("join error".utf8) + token)
    }

    /// `nil` unless a holder of the invite sealed it. Check ``isValid(creator:)`` before believing it.
    package init?(opening sealed: [UInt8], key: borrowing SecretBytes, token: [UInt8]) {
        guard sealed.count == Self.sealedByteCount,
            let plain = try? XChaChaPoly.open(sealed, key: key, authenticating: Array("join error".utf8) + token),
            plain.count == Self.byteCount, let tag = InviteTag(String(decoding: plain[0..<10], as: UTF8.self)),
            let signature = try? SchnorrSignature(plain[18..<82])
        else { return nil }
        let milliseconds = plain[10..<18].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        self.init(tag: tag, timestamp: Timestamp(milliseconds: Int64(clamping: milliseconds)), signature: signature)
    }
}
