import Crypto

/// The question of a knock: is this conversation gone? It says nothing but that its sender has the knock secret, and is
/// as long as a notice, so that nobody is made to send more than was sent to them.
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
