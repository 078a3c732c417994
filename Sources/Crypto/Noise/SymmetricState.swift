/// SymmetricState of the Noise specification (section 5.2): the chaining key, the handshake hash and, after the first
/// MixKey, a cipher.
struct SymmetricState: ~Copyable, Sendable {
    private(set) var chainingKey: SecretBytes
    /// The handshake hash, 32 bytes.
    private(set) var hash: [UInt8]
    private var cipher: CipherState?

    /// InitializeSymmetric.
    init(protocolName: String) {
        let name = Array(protocolName.utf8)
        hash = name.count <= 32 ? name + [UInt8](repeating: 0, count: 32 - name.count) : SHA256.hash(name)
        chainingKey = SecretBytes(copying: hash)
        cipher = nil
    }

    private init(chainingKey: consuming SecretBytes, hash: [UInt8], cipher: consuming CipherState?) {
        self.chainingKey = chainingKey
        self.hash = hash
        self.cipher = cipher
    }

    mutating func mixKey(_ input: borrowing SecretBytes) {
        let derived = KeyPair(chainingKey: chainingKey, input: input)
        chainingKey = derived.first()
        cipher = CipherState(key: derived.second())
    }

    mutating func mixHash(_ data: some Collection<UInt8>) {
        var hasher = SHA256()
        hasher.update(hash)
        hasher.update(data)
        hash = hasher.finalize()
    }

    mutating func encryptAndHash(_ plaintext: [UInt8]) throws(NoiseError) -> [UInt8] {
        let ciphertext = try cipher?.encrypt(plaintext, authenticating: hash) ?? plaintext
        mixHash(ciphertext)
        return ciphertext
    }

    mutating func decryptAndHash(_ ciphertext: ArraySlice<UInt8>) throws(NoiseError) -> [UInt8] {
        let plaintext = try cipher?.decrypt(ciphertext, authenticating: hash) ?? Array(ciphertext)
        mixHash(ciphertext)
        return plaintext
    }

    /// 16 once there is a key; 0 before.
    var tagByteCount: Int {
        switch cipher {
        case .some: ChaChaPoly.tagByteCount
        case .none: 0
        }
    }

    /// For a rollback after a bad message.
    borrowing func clone() -> SymmetricState {
        switch cipher {
        case .some(let cipher): SymmetricState(chainingKey: chainingKey.clone(), hash: hash, cipher: cipher.clone())
        case .none: SymmetricState(chainingKey: chainingKey.clone(), hash: hash, cipher: nil)
        }
    }

    /// Split: the keys of the initiator's and of the responder's messages.
    borrowing func split() -> KeyPair { KeyPair(chainingKey: chainingKey) }
}
