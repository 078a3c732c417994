import Cryptography

extension KeyEncapsulationSource {
    /// One key of ML-KEM, and for it always the same ciphertext: recorded acts replay.
    package static let repeating: KeyEncapsulationSource = {
        @Sendable func secret() -> KeyEncapsulationSecret {
            KeyEncapsulationSecret(seed: SecretBytes(copying: [UInt8](repeating: 7, count: 64)))
        }
        let key = secret().encapsulationKey
        guard let made = try? KeyEncapsulation(to: key) else { preconditionFailure("our own key is one") }
        let (ciphertext, shared) = (made.ciphertext, made.secret.withBytes { Array($0) })
        var source = KeyEncapsulationSource()
        source.makeSecret = { secret() }
        source.encapsulate = { other throws(KeyEncapsulationError) in
            guard other == key else { return try KeyEncapsulation(to: other) }
            return KeyEncapsulation(ciphertext: ciphertext, secret: SecretBytes(copying: shared))
        }
        return source
    }()
}
