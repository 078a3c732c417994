import Crypto

package struct StoredMessage: Equatable, Sendable {
    package let id: Bytes16
    /// Milliseconds since the epoch.
    package let expiresAt: Int64
    package let payload: [UInt8]
}

/// A record's order and lifetime, for appending a status of it.
package struct MessagePlace: Equatable, Sendable {
    package let order: UInt64
    package let tier: Tier
    package let expiresAt: Int64
}
