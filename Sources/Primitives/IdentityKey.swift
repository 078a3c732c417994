/// A shared reference to one inbox's secret key, so that links, tables and the key ring can hold the same key. The key
/// is wiped when the last reference goes.
package final class IdentityKey: Sendable {
    package let secret: SecretKey
    package var publicKey: PublicKey { secret.publicKey }

    package init(_ secret: consuming SecretKey) {
        self.secret = secret
    }
}
