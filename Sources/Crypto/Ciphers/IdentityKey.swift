import Synchronization

/// A shared reference to one inbox's secret key for links, tables and the key ring. The last reference wipes the key;
/// ``wipe()`` wipes it for all references.
package final class IdentityKey: Sendable {
    package let publicKey: PublicKey
    private let held: Mutex<SecretKey?>

    package init(_ secret: consuming SecretKey) {
        publicKey = secret.publicKey
        held = Mutex(secret)
    }

    /// Wipes the secret until ``restore(from:)``.
    package func wipe() { held.withLock { $0 = nil } }

    /// - Parameter other: the same key, derived again.
    package func restore(from other: IdentityKey) {
        guard other.publicKey == publicKey, !other.isWiped else { return }
        let secret = other.secret
        held.withLock { $0 = secret.clone() }
    }

    /// Whether the secret is wiped for now. Check this before using ``secret``.
    package var isWiped: Bool {
        held.withLock { held in
            switch held {
            case .some: false
            case .none: true
            }
        }
    }

    /// A copy of the secret key. While ``isWiped`` it is a random key, so an unchecked use fails like a wrong key: its
    /// signatures verify nowhere, and its shared secrets match no other side's.
    package var secret: SecretKey {
        held.withLock { held in
            switch held {
            case .some(let key): key.clone()
            case .none: SecretKey.generate()
            }
        }
    }
}
