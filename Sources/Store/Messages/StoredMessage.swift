import Crypto

/// A stored message, opened.
package struct StoredMessage: Equatable, Sendable {
    package let id: Bytes16
    /// Milliseconds since the epoch.
    package let expiresAt: Int64
    package let payload: [UInt8]
}

/// Where a message or a hidden record lies, and how long it is kept: what a status of it needs.
package struct MessagePlace: Equatable, Sendable {
    package let order: UInt64
    package let tier: Tier
    package let expiresAt: Int64
}
