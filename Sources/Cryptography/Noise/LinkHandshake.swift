package enum Role: Hashable, Sendable { case initiator, responder }

/// A message of the handshake, as BOLT 8 names it.
package enum Act: Int, Hashable, Sendable {
    case one, two, three

    /// Exact length: the version byte, the keys or the key and the ciphertext, and the tags.
    package var byteCount: Int { byteCount(isHybrid: true) }

    fileprivate func byteCount(isHybrid: Bool) -> Int {
        let curve = 1 + PublicKey.byteCount + 16
        return switch self {
        case .one: curve + (isHybrid ? KeyEncapsulationSecret.keyByteCount + 16 : 0)
        case .two: curve + (isHybrid ? KeyEncapsulationSecret.ciphertextByteCount + 16 : 0)
        case .three: curve + 16
        }
    }
}

/// Why a handshake failed, by act (BOLT 8, appendix A, has one name for each).
package enum HandshakeError: Error, Hashable {
    /// Not ``Act/byteCount`` bytes.
    case badLength(Act)
    /// The version byte is not 0.
    case badVersion(Act, UInt8)
    /// The ephemeral key of acts 1 and 2, or the opened static key of act 3, is no point of the curve; or the opened
    /// key of act 1 is none of ML-KEM.
    case badKey(Act)
    /// The sealed key of act 1 or 3, or the sealed ciphertext of act 2, fails authentication.
    case badCiphertext(Act)
    /// The tag at the end of the act does not match.
    case badMAC(Act)
    /// The other side has our own static key.
    case reflection
    /// The other side's turn, or the handshake is finished.
    case outOfTurn
}

/// Evidence that the holder of ``publicKey`` is on the other end of a link. Only ``LinkHandshake`` makes it, after a
/// finished handshake.
package struct AuthenticatedPeer: Hashable, Sendable {
    package let publicKey: PublicKey
    /// Names the handshake (Noise, section 11.2), 32 bytes.
    package let handshakeHash: [UInt8]
    /// A quantum computer must break ML-KEM, too.
    package let isPostQuantum: Bool
}

/// The handshake of a link: `Noise_XKhfs_secp256k1+MLKEM768_ChaChaPoly_SHA256` in acts like BOLT 8's.
///
///     initiator                                                  responder
///     one     version 0 ‖ e ‖ sealed ML-KEM key ‖ tag      ──▶   e, es, e1
///     ee, ekem1   ◀──   version 0 ‖ e ‖ sealed ciphertext ‖ tag   two
///     three   version 0 ‖ sealed s ‖ tag                   ──▶   s, se
///
/// A bad act does not change the state. The caller sends no answer: it closes (TCP) or drops the packet (UDP).
package struct LinkHandshake: ~Copyable, Sendable {
    private static let version: UInt8 = 0
    private let role: Role
    private let identity: SecretKey
    private let ephemeral: SecretKey
    private let encapsulation: KeyEncapsulationSource?
    /// The initiator has it from act 1 to act 2.
    private var decapsulation: KeyEncapsulationSecret?
    /// The responder has it from act 1 to act 2.
    private var encapsulated: KeyEncapsulation?
    private var remoteStatic: PublicKey?
    private var remoteEphemeral: Point?
    private var symmetric: SymmetricState
    /// The act to be written or read next; `nil` when finished.
    package private(set) var nextAct: Act? = .one

    /// - Parameters:
    ///   - remote: the expected key of the other side.
    ///   - ephemeral: a fresh key for this handshake only.
    ///   - prologue: `lightning` in the vectors; ours names magic, version, transport kind and routing token.
    ///   - encapsulation: `nil` only for the vectors of BOLT 8, which have no ML-KEM.
    /// - Throws: ``HandshakeError/reflection`` if `remote` is our own key.
    package static func initiator(
        identity: borrowing SecretKey, remote: PublicKey, ephemeral: consuming SecretKey, prologue: [UInt8],
        encapsulation: KeyEncapsulationSource? = KeyEncapsulationSource()
    ) throws(HandshakeError) -> LinkHandshake {
        guard remote != identity.publicKey else { throw .reflection }
        return LinkHandshake(.initiator, identity, remote, ephemeral, prologue, encapsulation)
    }

    package static func responder(
        identity: borrowing SecretKey, ephemeral: consuming SecretKey, prologue: [UInt8],
        encapsulation: KeyEncapsulationSource? = KeyEncapsulationSource()
    ) -> LinkHandshake { LinkHandshake(.responder, identity, nil, ephemeral, prologue, encapsulation) }

    init(
        _ role: Role, _ identity: borrowing SecretKey, _ remote: PublicKey?, _ ephemeral: consuming SecretKey,
        _ prologue: [UInt8], _ encapsulation: KeyEncapsulationSource? = KeyEncapsulationSource()
    ) {
        self.role = role
        self.identity = identity.clone()
        self.ephemeral = ephemeral
        self.encapsulation = encapsulation
        decapsulation = nil
        encapsulated = nil
        remoteStatic = remote
        let pattern = encapsulation == nil ? "XK_secp256k1" : "XKhfs_secp256k1+MLKEM768"
        symmetric = SymmetricState(protocolName: "Noise_\(pattern)_ChaChaPoly_SHA256")
        symmetric.mixHash(prologue)
        symmetric.mixHash((remote ?? identity.publicKey).bytes)
    }

    package var isFinished: Bool { nextAct == nil }

    private var isOurTurn: Bool { nextAct.map { ($0 == .two) == (role == .responder) } ?? false }

    /// - Returns: ``Act/byteCount`` bytes of ``nextAct``.
    /// - Throws: ``HandshakeError/outOfTurn``.
    package mutating func write() throws(HandshakeError) -> [UInt8] {
        guard let act = nextAct, isOurTurn, let remote = act == .one ? remoteStatic.map(Point.init) : remoteEphemeral
        else { throw .outOfTurn }
        var bytes = [Self.version]
        if act == .three {
            bytes += symmetric.encryptAndHash(identity.publicKey.bytes)
            symmetric.mixKey(identity.sharedSecret(with: remote))
        } else {
            bytes += ephemeral.publicKey.bytes
            symmetric.mixHash(ephemeral.publicKey.bytes)
            symmetric.mixKey(ephemeral.sharedSecret(with: remote))
            if let encapsulation { bytes += encapsulate(act, encapsulation) }
        }
        bytes += symmetric.encryptAndHash([])
        nextAct = Act(rawValue: act.rawValue + 1)
        return bytes
    }

    /// The token e1 of act 1, or ekem1 of act 2.
    private mutating func encapsulate(_ act: Act, _ source: KeyEncapsulationSource) -> [UInt8] {
        if act == .one {
            let secret = source.makeSecret()
            let sealed = symmetric.encryptAndHash(secret.encapsulationKey)
            decapsulation = consume secret
            return sealed
        }
        guard let made = encapsulated.take() else { preconditionFailure("act 1 has been read") }
        let sealed = symmetric.encryptAndHash(made.ciphertext)
        symmetric.mixKey(made.secret)
        return sealed
    }

    /// Reads ``nextAct``.
    /// - Throws: ``HandshakeError``; the state is then unchanged.
    package mutating func read(_ bytes: [UInt8]) throws(HandshakeError) {
        guard let act = nextAct, !isOurTurn else { throw .outOfTurn }
        guard bytes.count == act.byteCount(isHybrid: encapsulation != nil) else { throw .badLength(act) }
        guard bytes[0] == Self.version else { throw .badVersion(act, bytes[0]) }
        let (sent, tag) = (bytes[1...].dropLast(ChaChaPoly.tagByteCount), bytes.suffix(ChaChaPoly.tagByteCount))
        var next = symmetric.clone()
        if act == .three {
            guard let opened = next.decryptAndHash(sent) else { throw .badCiphertext(act) }
            guard let point = try? Point(opened) else { throw .badKey(act) }
            guard point.key != identity.publicKey else { throw .reflection }
            next.mixKey(ephemeral.sharedSecret(with: point))
            guard next.decryptAndHash(tag) != nil else { throw .badMAC(act) }
            remoteStatic = point.key
        } else {
            let (key, sealed) = (sent.prefix(PublicKey.byteCount), sent.dropFirst(PublicKey.byteCount))
            guard let point = try? Point(key) else { throw .badKey(act) }
            next.mixHash(key)
            next.mixKey(act == .one ? identity.sharedSecret(with: point) : ephemeral.sharedSecret(with: point))
            var opened: [UInt8] = []
            if encapsulation != nil {
                guard let bytes = next.decryptAndHash(sealed) else { throw .badCiphertext(act) }
                opened = bytes
                // A ciphertext for another key gives another secret: the tag does not match.
                if act == .two {
                    guard let secret = try? decapsulation?.decapsulate(opened) else { throw .badCiphertext(act) }
                    next.mixKey(secret)
                }
            }
            guard next.decryptAndHash(tag) != nil else { throw .badMAC(act) }
            if let encapsulation, act == .one {
                guard let made = try? encapsulation.encapsulate(opened) else { throw .badKey(act) }
                encapsulated = consume made
            }
            if act == .two { decapsulation = nil }
            remoteEphemeral = point
        }
        symmetric = next
        nextAct = Act(rawValue: act.rawValue + 1)
    }

    /// - Precondition: ``isFinished``.
    package consuming func finish() -> Link {
        guard isFinished, let remoteStatic else { preconditionFailure("the handshake has three acts") }
        return Link(
            peer: AuthenticatedPeer(
                publicKey: remoteStatic, handshakeHash: symmetric.hash, isPostQuantum: encapsulation != nil),
            secrets: LinkSecrets(chainingKey: symmetric.chainingKey, role: role))
    }

    package struct Link: ~Copyable, Sendable {
        package let peer: AuthenticatedPeer
        package let secrets: LinkSecrets

        package consuming func takeTransport() -> TransportState { TransportState(secrets) }
    }
}

/// SymmetricState of the Noise specification (section 5.2): the chaining key, the handshake hash and a cipher.
private struct SymmetricState: ~Copyable, Sendable {
    private(set) var chainingKey: SecretBytes
    /// The handshake hash, 32 bytes.
    private(set) var hash: [UInt8]
    private var cipher: CipherState

    borrowing func clone() -> SymmetricState {
        SymmetricState(chainingKey: chainingKey.clone(), hash: hash, cipher: cipher.clone())
    }

    mutating func mixKey(_ secret: borrowing SecretBytes) {
        cipher = CipherState(key: secret.withBytes { chainingKey.expand($0) })
    }

    mutating func mixHash(_ data: some Collection<UInt8>) {
        var hasher = SHA256()
        hasher.update(hash)
        hasher.update(data)
        hash = hasher.finalize()
    }

    mutating func encryptAndHash(_ plaintext: [UInt8]) -> [UInt8] {
        var ciphertext = plaintext + [UInt8](repeating: 0, count: ChaChaPoly.tagByteCount)
        ciphertext.withUnsafeMutableBytes { cipher.encrypt(inPlace: $0, authenticating: hash) }
        mixHash(ciphertext)
        return ciphertext
    }

    /// `nil` for a ciphertext that is not authentic.
    mutating func decryptAndHash(_ ciphertext: ArraySlice<UInt8>) -> [UInt8]? {
        guard let plaintext = try? cipher.decrypt(ciphertext, authenticating: hash) else { return nil }
        mixHash(ciphertext)
        return plaintext
    }
}

extension SymmetricState {
    /// InitializeSymmetric, for a name of more than 32 bytes. XK seals nothing before the first ``mixKey(_:)``; the
    /// cipher has a random key until then.
    fileprivate init(protocolName: String) {
        let hash = SHA256.hash(Array(protocolName.utf8))
        self.init(
            chainingKey: SecretBytes(copying: hash), hash: hash,
            cipher: CipherState(key: SecretBytes(randomByteCount: 32)))
    }
}
