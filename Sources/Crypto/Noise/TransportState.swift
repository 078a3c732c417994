/// Messages after the handshake, in the frames of BOLT 8 ("Lightning Message Specification"): a sealed 2-byte length,
/// big-endian, then the sealed body, each with a tag of 16 bytes. Needs a reliable, ordered transport: nonces are
/// implicit.
///
/// The reader repeatedly passes exactly ``expectedByteCount`` bytes to ``open(_:)``:
///
///     length (18 bytes) ──▶ body (length + 16 bytes) ──▶ length …
package struct TransportState: ~Copyable, Sendable {
    /// Most bytes in a frame before sealing.
    package static let maximumFrameByteCount = 65_535
    package static let overheadByteCount = 2 + 2 * ChaChaPoly.tagByteCount
    private static let lengthByteCount = 2 + ChaChaPoly.tagByteCount

    private enum Expected: Sendable {
        case length
        /// Entered after a length; `byteCount` excludes the body's tag.
        case body(byteCount: Int)
    }

    private var sending: RotatingCipher
    private var receiving: RotatingCipher
    private var expected = Expected.length

    package init(sending: consuming CipherState, receiving: consuming CipherState, chainingKey: consuming SecretBytes) {
        self.sending = RotatingCipher(cipher: sending, chainingKey: chainingKey.clone())
        self.receiving = RotatingCipher(cipher: receiving, chainingKey: chainingKey)
    }

    package mutating func seal(_ frame: some Collection<UInt8>) throws(NoiseError) -> [UInt8] {
        let count = frame.count
        guard count <= Self.maximumFrameByteCount else { throw .tooLong }
        var sealed = try sending.encrypt([UInt8(count >> 8), UInt8(count & 0xff)])
        sealed.reserveCapacity(count + Self.overheadByteCount)
        sealed += try sending.encrypt(frame)
        return sealed
    }

    /// The length of the next input of ``open(_:)``: 18, or up to 65,551.
    package var expectedByteCount: Int {
        switch expected {
        case .length: Self.lengthByteCount
        case .body(let byteCount): byteCount + ChaChaPoly.tagByteCount
        }
    }

    /// Opens the next ``expectedByteCount`` bytes.
    /// - Returns: a frame, or `nil` if the bytes were its length.
    /// - Throws: ``NoiseError/truncated`` for another number of bytes, ``NoiseError/notAuthentic``. Close the link
    ///   after either.
    package mutating func open(_ bytes: some Collection<UInt8>) throws(NoiseError) -> [UInt8]? {
        guard bytes.count == expectedByteCount else { throw .truncated }
        let opened = try receiving.decrypt(bytes)
        switch expected {
        case .length:
            expected = .body(byteCount: Int(opened[0]) << 8 | Int(opened[1]))
            return nil
        case .body:
            expected = .length
            return opened
        }
    }
}

/// A cipher that changes its key after every 1,000 uses (BOLT 8, "Lightning Message Key Rotation").
private struct RotatingCipher: ~Copyable, Sendable {
    private static let usesPerKey: UInt64 = 1_000
    private var cipher: CipherState
    private var chainingKey: SecretBytes

    init(cipher: consuming CipherState, chainingKey: consuming SecretBytes) {
        self.cipher = cipher
        self.chainingKey = chainingKey
    }

    mutating func encrypt(_ plaintext: some Collection<UInt8>) throws(NoiseError) -> [UInt8] {
        let ciphertext = try cipher.encrypt(plaintext)
        rotateIfDue()
        return ciphertext
    }

    mutating func decrypt(_ ciphertext: some Collection<UInt8>) throws(NoiseError) -> [UInt8] {
        let plaintext = try cipher.decrypt(ciphertext)
        rotateIfDue()
        return plaintext
    }

    private mutating func rotateIfDue() { if cipher.nonce == Self.usesPerKey { cipher.rotate(&chainingKey) } }
}
