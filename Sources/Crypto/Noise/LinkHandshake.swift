/// A message of the handshake, as BOLT 8 names it.
package enum Act: Int, Hashable, Sendable {
    case one, two, three

    /// Exact length: the version byte, the keys and the tags.
    package var byteCount: Int {
        switch self {
        case .one, .two: 1 + 33 + 16
        case .three: 1 + 33 + 16 + 16
        }
    }
}

/// Why a handshake failed, by act (BOLT 8, appendix A, has one name for each).
package enum HandshakeError: Error, Hashable {
    /// Not ``Act/byteCount`` bytes.
    case badLength(Act)
    /// The version byte is not 0.
    case badVersion(Act, UInt8)
    /// The ephemeral key of acts 1 and 2, or the opened static key of act 3, is no point of the curve.
    case badKey(Act)
    /// The sealed static key of act 3 fails authentication.
    case badCiphertext(Act)
    /// The tag at the end of the act does not match.
    case badMAC(Act)
    /// The other side has our own static key.
    case reflection
    /// The other side's turn, or the handshake is finished.
    case outOfTurn
}

/// The handshake of a link: `Noise_XK_secp256k1_ChaChaPoly_SHA256` in the acts of BOLT 8.
///
///     initiator                                  responder
///     one     version 0 ‖ e ‖ tag          ──▶   e, es
///     ee      ◀──          version 0 ‖ e ‖ tag   two
///     three   version 0 ‖ sealed s ‖ tag   ──▶   s, se
///
/// A bad act does not change the state. The caller sends no answer: it closes (TCP) or drops the packet (UDP).
package struct LinkHandshake: ~Copyable, Sendable {
    private static let version: UInt8 = 0
    private var state: HandshakeState<SecretKey>

    /// - Parameters:
    ///   - remote: the expected key of the other side.
    ///   - ephemeral: a fresh key for this handshake only.
    ///   - prologue: `lightning` in the vectors; ours names magic, version, transport kind and routing token.
    /// - Throws: ``HandshakeError/reflection`` if `remote` is our own key.
    package static func initiator(
        identity: borrowing SecretKey, remote: PublicKey, ephemeral: consuming SecretKey, prologue: [UInt8]
    ) throws(HandshakeError) -> LinkHandshake {
        try LinkHandshake(.initiator, identity.clone(), remote, ephemeral, prologue)
    }

    package static func responder(identity: borrowing SecretKey, ephemeral: consuming SecretKey, prologue: [UInt8])
        -> LinkHandshake
    {
        do throws(HandshakeError) {
            return try LinkHandshake(.responder, identity.clone(), nil, ephemeral, prologue)
        } catch { preconditionFailure("without a remote key there is nothing to refuse: \(error)") }
    }

    private init(
        _ role: Role, _ identity: consuming SecretKey, _ remote: PublicKey?, _ ephemeral: consuming SecretKey,
        _ prologue: [UInt8]
    ) throws(HandshakeError) {
        do throws(NoiseError) {
            state = try HandshakeState(
                pattern: .xk, role: role, prologue: prologue, ownStatic: identity, ownEphemeral: ephemeral,
                remoteStatic: remote)
        } catch { throw .reflection }
    }

    package var isFinished: Bool { state.isFinished }

    /// The act to be written or read next; `nil` when finished.
    package var nextAct: Act? { Act(rawValue: state.messageCount) }

    /// - Returns: ``Act/byteCount`` bytes of ``nextAct``.
    /// - Throws: ``HandshakeError/outOfTurn``.
    package mutating func write() throws(HandshakeError) -> [UInt8] {
        guard let act = nextAct, state.isOurTurn else { throw .outOfTurn }
        do { return [Self.version] + (try state.write()) } catch { throw Self.failure(error, act) }
    }

    /// Reads ``nextAct``.
    /// - Throws: ``HandshakeError``; the state is then unchanged.
    package mutating func read(_ bytes: [UInt8]) throws(HandshakeError) {
        guard let act = nextAct, !state.isOurTurn else { throw .outOfTurn }
        guard bytes.count == act.byteCount else { throw .badLength(act) }
        guard bytes[0] == Self.version else { throw .badVersion(act, bytes[0]) }
        do { _ = try state.read(Array(bytes.dropFirst())) } catch { throw Self.failure(error, act) }
    }

    /// For a reliable, ordered transport.
    /// - Precondition: ``isFinished``.
    package consuming func finish() -> Link {
        let finished = state.finish()
        return Link(
            peer: AuthenticatedPeer(publicKey: finished.remoteStatic, handshakeHash: finished.handshakeHash),
            transport: TransportState(
                sending: finished.sending, receiving: finished.receiving, chainingKey: finished.chainingKey))
    }

    /// For packets that may be lost or reordered.
    /// - Precondition: ``isFinished``.
    package consuming func finishForPackets() -> PacketLink {
        let finished = state.finish()
        let peer = AuthenticatedPeer(publicKey: finished.remoteStatic, handshakeHash: finished.handshakeHash)
        return PacketLink(
            peer: peer, sending: finished.sending.packetCipher(), receiving: finished.receiving.packetCipher())
    }

    package struct PacketLink: ~Copyable, Sendable {
        package let peer: AuthenticatedPeer
        package let sending: PacketCipher
        package let receiving: PacketCipher

        package consuming func takeKeys<Result: ~Copyable>(
            _ body: (consuming PacketCipher, consuming PacketCipher) -> Result
        ) -> Result { body(sending, receiving) }
    }

    package struct Link: ~Copyable, Sendable {
        package let peer: AuthenticatedPeer
        package var transport: TransportState

        package consuming func takeTransport() -> TransportState { transport }
    }

    private static func failure(_ error: NoiseError, _ act: Act) -> HandshakeError {
        switch error {
        case .outOfTurn: .outOfTurn
        case .truncated, .tooLong: .badLength(act)
        case .invalidKey: .badKey(act)
        case .staticKeyNotAuthentic: .badCiphertext(act)
        case .notAuthentic, .nonceExhausted: .badMAC(act)
        case .reflection: .reflection
        }
    }
}
