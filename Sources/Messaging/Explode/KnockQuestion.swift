import Cryptography

/// A knock's question whether a conversation is gone. It proves only that its sender has the knock secret. It is as
/// long as a notice, so that no answer is longer than the question.
package enum KnockQuestion {
    private static let plainByteCount = Limits.noticeByteCount - XChaChaPoly.overheadByteCount

    /// ``Limits/noticeByteCount`` bytes.
    /// - Parameters:
    ///   - key: 32 bytes from the knock secret.
    ///   - token: the routing token of the knock; it holds for its day only.
    package static func seal(key: borrowing SecretBytes, token: [UInt8], _ random: inout some RandomNumberGenerator)
        -> [UInt8]
    {
        XChaChaPoly.seal(
            [UInt8](repeating: 0, count: plainByteCount), key: key, nonce: random.bytes(XChaChaPoly.nonceByteCount),
            authenticating: token)
    }

    /// Whether a holder of the knock secret has sealed it for this token.
    package static func isAuthentic(_ sealed: [UInt8], key: borrowing SecretBytes, token: [UInt8]) -> Bool {
        sealed.count == Limits.noticeByteCount
            && (try? XChaChaPoly.open(sealed, key: key, authenticating: token)) != nil
    }
}
