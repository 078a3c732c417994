import Crypto

/// Argon2id takes a second and 256 MiB. It needs only the keystore, so it can run on any thread.
package struct PassphraseStretching: Sendable {
    let keystore: Keystore
    let floor: Argon2Parameters

    /// - Throws: ``StoreError/wrongPassphrase``, ``StoreError/weakKeystore(iterations:memoryByteCount:)``.
    package func keys(from passphrase: borrowing SecretBytes) throws(StoreError) -> StretchedKeys {
        let opened = try keystore.open(passphrase: passphrase.clone(), keyFile: nil, floor: floor)
        return StretchedKeys(keys: GridKeys(root: opened.root), copy: opened.copy)
    }
}

/// The keys of a home, for ``Store/unlock(with:)``. The last reference wipes them.
package struct StretchedKeys: Sendable {
    let keys: GridKeys
    let copy: KeystoreCopy
}
