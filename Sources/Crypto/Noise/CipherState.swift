/// CipherState of the Noise specification (section 5.1): a key and the number of messages it has sealed or opened.
/// ChaChaPoly (section 12.3): the nonce is 32 zero bits and a little-endian counter.
package struct CipherState: ~Copyable, Sendable {
    private var key: SecretBytes
    package private(set) var nonce: UInt64

    /// - Parameter nonce: the first counter; not 0 only in tests of the counter's end.
    /// - Precondition: `key` has 32 bytes.
    package init(key: consuming SecretBytes, nonce: UInt64 = 0) {
        precondition(key.byteCount == 32, "a cipher key has 32 bytes")
        self.key = key
        self.nonce = nonce
    }

    /// Encrypts, and appends a tag of 16 bytes.
    /// - Throws: ``NoiseError/nonceExhausted``.
    package mutating func encrypt(_ plaintext: some Collection<UInt8>, authenticating data: [UInt8] = [])
        throws(NoiseError) -> [UInt8]
    {
        guard nonce < .max else { throw .nonceExhausted }
        let ciphertext = key.withBytes { ChaChaPoly.seal(plaintext, key: $0, nonce: nonceBytes, authenticating: data) }
        nonce += 1
        return ciphertext
    }

    /// The counter advances only on success.
    /// - Throws: ``NoiseError/notAuthentic``, ``NoiseError/nonceExhausted``.
    package mutating func decrypt(_ ciphertext: some Collection<UInt8>, authenticating data: [UInt8] = [])
        throws(NoiseError) -> [UInt8]
    {
        guard nonce < .max else { throw .nonceExhausted }
        let plaintext: [UInt8]
        do {
            plaintext = try key.withBytes { key throws(AEADError) in
                try ChaChaPoly.open(ciphertext, key: key, nonce: nonceBytes, authenticating: data)
            }
        } catch { throw .notAuthentic }
        nonce += 1
        return plaintext
    }

    /// A new key and a counter at zero: `chainingKey, key = HKDF(chainingKey, key)` (BOLT 8, "Lightning Message Key
    /// Rotation").
    mutating func rotate(_ chainingKey: inout SecretBytes) {
        let derived = KeyPair(chainingKey: chainingKey, input: key)
        chainingKey = derived.first()
        key = derived.second()
        nonce = 0
    }

    /// For messages that carry their number.
    consuming func packetCipher() -> PacketCipher { PacketCipher(key: key) }

    borrowing func clone() -> CipherState { CipherState(key: key.clone(), nonce: nonce) }

    private var nonceBytes: [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 12)
        for index in 0..<8 { bytes[4 + index] = UInt8(truncatingIfNeeded: nonce >> UInt64(8 * index)) }
        return bytes
    }
}

/// The two outputs of the Noise specification's HKDF (section 4.3), which is RFC 5869 with an empty info.
struct KeyPair: ~Copyable {
    private let material: SecretBytes

    init(chainingKey: borrowing SecretBytes, input: borrowing SecretBytes) {
        material = input.withBytes { KeyPair.derive(chainingKey, $0) }
    }

    /// HKDF of the chaining key with an empty input, as in `Split`.
    init(chainingKey: borrowing SecretBytes) {
        material = KeyPair.derive(chainingKey, UnsafeRawBufferPointer(start: nil, count: 0))
    }

    borrowing func first() -> SecretBytes { half(0..<32) }
    borrowing func second() -> SecretBytes { half(32..<64) }

    private static func derive(_ chainingKey: borrowing SecretBytes, _ input: UnsafeRawBufferPointer) -> SecretBytes {
        var salt = chainingKey.withBytes { Array($0) }
        defer { wipe(&salt) }
        return HKDF.derive(secret: input, salt: salt, info: [], byteCount: 64)
    }

    private borrowing func half(_ range: Range<Int>) -> SecretBytes {
        material.withBytes { source in
            SecretBytes(byteCount: 32) { $0.copyMemory(from: UnsafeRawBufferPointer(rebasing: source[range])) }
        }
    }
}
