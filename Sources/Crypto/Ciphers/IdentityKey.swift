import Synchronization

/// A shared reference to one inbox's secret key, so that links, tables and the key ring can hold the same key. The key
/// is wiped when the last reference goes, and for all who hold it by ``wipe()``.
package final class IdentityKey: Sendable {
    package let publicKey: PublicKey
    private let held: Mutex<SecretKey?>

    package init(_ secret: consuming SecretKey) {
        publicKey = secret.publicKey
        held = Mutex(secret)
    }

    /// Takes the secret from everybody who holds this reference, until ``restore(from:)``.
    package func wipe() { held.withLock { $0 = nil } }

    /// Gives the secret back.
    /// - Parameter other: the same key, derived again.
    package func restore(from other: IdentityKey) {
        guard other.publicKey == publicKey, !other.isWiped else { return }
        let secret = other.secret
        held.withLock { $0 = secret.clone() }
    }

    /// Whether the secret is gone for now. Who would use it has to ask first and to do without.
    package var isWiped: Bool {
        held.withLock { held in
            switch held {
            case .some: false
            case .none: true
            }
        }
    }

    /// The secret key, a copy of the caller's own. While ``isWiped`` it is a random one, so that who has not asked fails as
    /// with a wrong key: its signatures hold for nobody, and nobody shares its secrets.
    package var secret: SecretKey {
        held.withLock { held in
            switch held {
            case .some(let key): key.clone()
            case .none: SecretKey.generate()
            }
        }
    }
}
