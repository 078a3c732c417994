import Crypto

/// The work that makes a passphrase slow to guess: it takes a second and 256 MiB, and nothing of the store but its
/// keystore, so that it can be done beside everything else.
package struct PassphraseStretching: Sendable {
    let keystore: Keystore
    let floor: Argon2Parameters

    /// - Throws: ``StoreError/wrongPassphrase``, ``StoreError/weakKeystore(iterations:memoryByteCount:)``.
    package func keys(from passphrase: borrowing SecretBytes) throws(StoreError) -> StretchedKeys {
        let opened = try keystore.open(passphrase: passphrase.clone(), keyFile: nil, floor: floor)
        return StretchedKeys(keys: GridKeys(root: opened.root), copy: opened.copy)
    }
}

/// The keys of a home, for ``Store/unlock(with:)``. They are wiped with the last reference.
package struct StretchedKeys: Sendable {
    let keys: GridKeys
    let copy: KeystoreCopy
}
