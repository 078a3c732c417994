import Crypto

/// The slow part of a change of the protection: opens the root with the old secret and seals it with the new one. It
/// uses only the keystore, so it can run on any thread.
package struct Rewrapping: Sendable {
    let keystore: Keystore
    let floor: Argon2Parameters
    let keyFile: KeyFile?
    /// Used only for a change to a key file.
    let newKeyFile: KeyFile

    /// - Parameters:
    ///   - old: ignored for a home with a key file.
    ///   - new: `nil` for a key file.
    /// - Throws: ``StoreError/wrongPassphrase``, ``StoreError/passphraseNeeded``,
    ///   ``StoreError/weakKeystore(iterations:memoryByteCount:)``, ``StoreError/outOfMemory(byteCount:)``.
    package func sealed(from old: borrowing SecretBytes?, to new: borrowing SecretBytes?) throws(StoreError)
        -> RewrappedRoot
    {
        let opened = try keystore.open(passphrase: old, keyFile: keyFile, floor: floor)
        let stored = opened.copy.parameters
        let parameters = Argon2Parameters(
            iterations: max(floor.iterations, stored.iterations),
            memoryByteCount: max(floor.memoryByteCount, stored.memoryByteCount))
        let salt = randomBytes(Argon2id.saltByteCount)
        let protection: Protection
        let wrapping: SecretBytes
        switch new {
        case .none:
            protection = .keyFile
            wrapping = newKeyFile.wrappingKey(salt: salt)
        case .some:
            protection = .passphrase
            wrapping = try KeystoreCopy.wrappingKey(from: new, salt: salt, parameters)
        }
        let copy = KeystoreCopy(
            sealing: opened.root, by: wrapping, generation: (keystore.copies.map(\.generation).max() ?? 0) &+ 1,
            protection: protection, parameters: parameters, salt: salt)
        return RewrappedRoot(opened: opened.copy, copy: copy, keyFile: protection == .keyFile ? newKeyFile : nil)
    }
}

/// The root under its new protection, for ``Store/protect(by:)``.
package struct RewrappedRoot: Sendable {
    let opened: KeystoreCopy
    let copy: KeystoreCopy
    let keyFile: KeyFile?
}
