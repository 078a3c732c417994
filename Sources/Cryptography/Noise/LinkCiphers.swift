/// Why a sealed message cannot be made or opened.
package enum NoiseError: Error, Equatable {
    case notAuthentic
    /// Not ``TransportState/expectedByteCount`` bytes.
    case truncated
    /// More than ``TransportState/maximumFrameByteCount`` bytes.
    case tooLong
}

/// CipherState of the Noise specification (section 5.1): a key and the number of messages that it has sealed or opened,
/// which is the nonce. A key never comes near the last nonce: links rotate it after 1,000 messages.
package struct CipherState: ~Copyable, Sendable {
    fileprivate let key: SecretBytes
    package private(set) var nonce: UInt64

    /// - Parameter nonce: not 0 only in tests of the key rotation.
    /// - Precondition: `key` has 32 bytes.
    package init(key: consuming SecretBytes, nonce: UInt64 = 0) {
        self.key = key
        self.nonce = nonce
    }

    /// - Parameter body: plaintext ‖ room for the tag.
    package mutating func encrypt(inPlace body: UnsafeMutableRawBufferPointer, authenticating data: [UInt8] = []) {
        ChaChaPoly.Nonce(counter: nonce).withBytes { nonce in
            data.withUnsafeBytes { AEAD.seal(inPlace: body, key: key, nonce: nonce, authenticating: $0) }
        }
        nonce += 1
    }

    /// The counter advances only on success.
    /// - Throws: ``NoiseError/notAuthentic``.
    package mutating func decrypt(_ ciphertext: some Collection<UInt8>, authenticating data: [UInt8] = [])
        throws(NoiseError) -> [UInt8]
    {
        do {
            let plaintext = try ChaChaPoly.open(
                ciphertext, key: key, nonce: ChaChaPoly.Nonce(counter: nonce), authenticating: data)
            nonce += 1
            return plaintext
        } catch { throw .notAuthentic }
    }

    borrowing func clone() -> CipherState { CipherState(key: key.clone(), nonce: nonce) }
}

/// A cipher that changes its key after every 1,000 uses (BOLT 8, "Lightning Message Key Rotation").
private struct RotatingCipher: ~Copyable, Sendable {
    private static let usesPerKey = 1_000
    var cipher: CipherState
    var chainingKey: SecretBytes

    /// - Parameter target: room for ciphertext and tag.
    mutating func encrypt(_ plaintext: some Collection<UInt8>, into target: UnsafeMutableRawBufferPointer) {
        target.copyBytes(from: plaintext)
        cipher.encrypt(inPlace: target)
        rotateIfDue()
    }

    mutating func decrypt(_ ciphertext: some Collection<UInt8>) throws(NoiseError) -> [UInt8] {
        let plaintext = try cipher.decrypt(ciphertext)
        rotateIfDue()
        return plaintext
    }

    private mutating func rotateIfDue() {
        guard cipher.nonce == Self.usesPerKey else { return }
        cipher = CipherState(key: cipher.key.withBytes { chainingKey.expand($0) })
    }
}

extension SecretBytes {
    /// HKDF of the Noise specification (section 4.3), which is RFC 5869 with an empty info. The chaining key becomes
    /// the first output.
    /// - Returns: the second output.
    mutating func expand(_ input: UnsafeRawBufferPointer) -> SecretBytes {
        let outputs = derive(input, byteCount: 64)
        self = outputs.withBytes { SecretBytes(copying: $0[..<32]) }
        return outputs.withBytes { SecretBytes(copying: $0[32...]) }
    }

    fileprivate borrowing func derive(_ input: UnsafeRawBufferPointer, info: String = "", byteCount: Int = 32)
        -> SecretBytes
    {
        var salt = withBytes { Array($0) }
        defer { wipe(&salt) }
        return HKDF.derive(secret: input, salt: salt, info: Array(info.utf8), byteCount: byteCount)
    }
}

/// The secrets of a link, from its handshake or a rekey (Links.md, "Keys").
package struct LinkSecrets: ~Copyable, Sendable {
    fileprivate let chainingKey: SecretBytes
    fileprivate let sending: SecretBytes
    fileprivate let receiving: SecretBytes
    /// Reveals none of the other secrets.
    package let rootKey: SecretBytes

    /// Split of the Noise specification (section 5.2): the first key is for what the dialer sends.
    package init(chainingKey: consuming SecretBytes, role: Role) {
        let empty = UnsafeRawBufferPointer(start: nil, count: 0)
        rootKey = chainingKey.derive(empty, info: "root")
        var first = chainingKey.clone()
        let second = first.expand(empty)
        if role == .initiator {
            sending = first
            receiving = second
        } else {
            sending = second
            receiving = first
        }
        self.chainingKey = chainingKey
    }

    /// New secrets from those before, which `rootKey` stands for, and from an exchange: MixKey of the Noise
    /// specification for both secrets, then Split.
    package init(
        rootKey: borrowing SecretBytes, curve: borrowing SecretBytes, encapsulated: borrowing SecretBytes, role: Role
    ) {
        var chainingKey = rootKey.clone()
        _ = curve.withBytes { chainingKey.expand($0) }
        _ = encapsulated.withBytes { chainingKey.expand($0) }
        self.init(chainingKey: chainingKey, role: role)
    }

    fileprivate borrowing func cipher(_ key: borrowing SecretBytes) -> RotatingCipher {
        RotatingCipher(cipher: CipherState(key: key.clone()), chainingKey: chainingKey.clone())
    }

    package var packetSender: PacketCipher { PacketCipher(key: sending.clone(), chainingKey: chainingKey.clone()) }
    package var packetReceiver: PacketCipher { PacketCipher(key: receiving.clone(), chainingKey: chainingKey.clone()) }
}

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

    private var sending: RotatingCipher
    private var receiving: RotatingCipher
    /// Opens the peer's frames from the first one that only this opens.
    private var nextReceiving: RotatingCipher?
    /// Without its tag; `nil` while the length is expected.
    private var bodyByteCount: Int?

    package init(sending: consuming CipherState, receiving: consuming CipherState, chainingKey: consuming SecretBytes) {
        self.sending = RotatingCipher(cipher: sending, chainingKey: chainingKey.clone())
        self.receiving = RotatingCipher(cipher: receiving, chainingKey: chainingKey)
    }

    package init(_ secrets: borrowing LinkSecrets) {
        sending = secrets.cipher(secrets.sending)
        receiving = secrets.cipher(secrets.receiving)
    }

    /// Replaces the keys after a frame: ours from the next one on, the peer's the same or, with `later`, when the peer
    /// does. Call again only once the peer has.
    package mutating func replace(by secrets: borrowing LinkSecrets, receivingLater later: Bool) {
        sending = secrets.cipher(secrets.sending)
        if later {
            nextReceiving = secrets.cipher(secrets.receiving)
        } else {
            receiving = secrets.cipher(secrets.receiving)
        }
    }

    /// The peer has not used the new keys yet.
    package var awaitsPeer: Bool { nextReceiving != nil }

    /// - Throws: ``NoiseError/tooLong``.
    package mutating func seal(_ frame: [UInt8]) throws(NoiseError) -> [UInt8] {
        guard frame.count <= Self.maximumFrameByteCount else { throw .tooLong }
        var sealed = [UInt8](repeating: 0, count: frame.count + Self.overheadByteCount)
        sealed.withUnsafeMutableBytes { seal(frame, into: $0) }
        return sealed
    }

    /// Seals in the caller's memory.
    /// - Precondition: `frame` has at most ``maximumFrameByteCount`` bytes; `target` is ``overheadByteCount`` longer.
    package mutating func seal(_ frame: [UInt8], into target: UnsafeMutableRawBufferPointer) {
        precondition(target.count == frame.count + Self.overheadByteCount)
        let lengthByteCount = 2 + ChaChaPoly.tagByteCount
        withUnsafeBytes(of: UInt16(frame.count).bigEndian) {
            sending.encrypt($0, into: UnsafeMutableRawBufferPointer(rebasing: target[..<lengthByteCount]))
        }
        sending.encrypt(frame, into: UnsafeMutableRawBufferPointer(rebasing: target[lengthByteCount...]))
    }

    /// The length of the next input of ``open(_:)``: 18, or up to 65,551.
    package var expectedByteCount: Int { (bodyByteCount ?? 2) + ChaChaPoly.tagByteCount }

    /// Opens the next ``expectedByteCount`` bytes.
    /// - Returns: a frame, or `nil` if the bytes were its length.
    /// - Throws: ``NoiseError/truncated`` for another number of bytes, ``NoiseError/notAuthentic``. Close the link
    ///   after either.
    package mutating func open(_ bytes: some Collection<UInt8>) throws(NoiseError) -> [UInt8]? {
        guard bytes.count == expectedByteCount else { throw .truncated }
        let opened = try decrypt(bytes)
        guard bodyByteCount == nil else {
            bodyByteCount = nil
            return opened
        }
        bodyByteCount = Int(opened[0]) << 8 | Int(opened[1])
        return nil
    }

    private mutating func decrypt(_ bytes: some Collection<UInt8>) throws(NoiseError) -> [UInt8] {
        do { return try receiving.decrypt(bytes) } catch {
            // A frame has one key, so only a length may be the first under the next one.
            guard bodyByteCount == nil, let opened = try nextReceiving?.decrypt(bytes), let next = nextReceiving.take()
            else { throw error }
            receiving = next
            return opened
        }
    }
}

/// One direction's key of a packet link. A packet carries its number, which is the nonce (Noise, section 11.4). The
/// caller must not seal two packets with one number.
package struct PacketCipher: ~Copyable, Sendable {
    package static let overheadByteCount = ChaChaPoly.tagByteCount
    private let key: SecretBytes
    private let chainingKey: SecretBytes

    /// - Precondition: `key` has 32 bytes.
    package init(key: consuming SecretBytes, chainingKey: consuming SecretBytes) {
        self.key = key
        self.chainingKey = chainingKey
    }

    /// The cipher of the next key, as in BOLT 8 ("Lightning Message Key Rotation").
    package borrowing func rotated() -> PacketCipher {
        var next = chainingKey.clone()
        return PacketCipher(key: key.withBytes { next.expand($0) }, chainingKey: next)
    }

    /// Seals the packet behind its header in place, authenticates the header and appends the tag.
    package borrowing func seal(_ packet: inout [UInt8], headerByteCount: Int, number: UInt64) {
        packet.append(contentsOf: repeatElement(0, count: Self.overheadByteCount))
        packet.withUnsafeMutableBytes { packet in
            let header = UnsafeRawBufferPointer(rebasing: packet[..<headerByteCount])
            let body = UnsafeMutableRawBufferPointer(rebasing: packet[headerByteCount...])
            ChaChaPoly.Nonce(counter: number).withBytes {
                AEAD.seal(inPlace: body, key: key, nonce: $0, authenticating: header)
            }
        }
    }

    /// Opens a packet in place and removes the tag.
    /// - Throws: ``NoiseError/notAuthentic``; the packet is then invalid.
    package borrowing func open(_ packet: inout [UInt8], headerByteCount: Int, number: UInt64) throws(NoiseError) {
        guard packet.count >= headerByteCount + Self.overheadByteCount else { throw .notAuthentic }
        let isOpened = packet.withUnsafeMutableBytes { packet in
            let header = UnsafeRawBufferPointer(rebasing: packet[..<headerByteCount])
            let body = UnsafeMutableRawBufferPointer(rebasing: packet[headerByteCount...])
            return ChaChaPoly.Nonce(counter: number).withBytes {
                AEAD.open(UnsafeRawBufferPointer(body), into: body.octets, key: key, nonce: $0, authenticating: header)
            }
        }
        guard isOpened else { throw .notAuthentic }
        packet.removeLast(Self.overheadByteCount)
    }
}
