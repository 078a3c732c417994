/// HandshakeState of the Noise specification (section 5.3), over any DH function, with ChaChaPoly and SHA256.
///
/// A failed read or write leaves the state unchanged, so a forged message cannot disturb a handshake. The ephemeral key
/// is an argument, so that published vectors replay.
package struct HandshakeState<Key: DiffieHellman & ~Copyable>: ~Copyable, Sendable {
    private let pattern: HandshakePattern
    package let role: Role
    private let ownStatic: Key
    private let ownEphemeral: Key

    /// The state that a message may change. A good message replaces it as a whole.
    private struct Progress: ~Copyable, Sendable {
        var symmetric: SymmetricState
        var remoteStatic: Key.Point?
        var remoteEphemeral: Key.Point?

        borrowing func clone() -> Progress {
            Progress(symmetric: symmetric.clone(), remoteStatic: remoteStatic, remoteEphemeral: remoteEphemeral)
        }
    }
    private var progress: Progress

    package private(set) var messageCount = 0

    /// Initialize.
    /// - Parameters:
    ///   - remoteStatic: the other side's static key, if the pattern says that we know it.
    ///   - prologue: data on which both sides must agree; any length.
    /// - Throws: ``NoiseError/reflection`` if `remoteStatic` is our own key.
    package init(
        pattern: HandshakePattern, role: Role, prologue: [UInt8], ownStatic: consuming Key, ownEphemeral: consuming Key,
        remoteStatic: Key.Point?
    ) throws(NoiseError) {
        let knowsRemote = role == .initiator ? pattern.responderIsKnown : pattern.initiatorIsKnown
        precondition(knowsRemote == (remoteStatic != nil), "the pattern says whose static key is known")
        let ownPoint = ownStatic.publicKey
        guard remoteStatic != ownPoint else { throw .reflection }

        var symmetric = SymmetricState(protocolName: "Noise_\(pattern.name)_\(Key.name)_ChaChaPoly_SHA256")
        symmetric.mixHash(prologue)
        let known: [(isKnown: Bool, side: Role)] = [
            (pattern.initiatorIsKnown, .initiator), (pattern.responderIsKnown, .responder),
        ]
        for (isKnown, side) in known where isKnown {
            if let point = side == role ? ownPoint : remoteStatic { symmetric.mixHash(Key.bytes(of: point)) }
        }
        self.pattern = pattern
        self.role = role
        self.ownStatic = ownStatic
        self.ownEphemeral = ownEphemeral
        self.progress = Progress(symmetric: symmetric, remoteStatic: remoteStatic, remoteEphemeral: nil)
    }

    package var isFinished: Bool { messageCount == pattern.messages.count }

    /// Whether the next message is ours to write. False when the handshake is finished.
    package var isOurTurn: Bool { !isFinished && messageCount.isMultiple(of: 2) == (role == .initiator) }

    /// WriteMessage.
    /// - Throws: ``NoiseError/outOfTurn``, ``NoiseError/invalidKey``.
    package mutating func write(_ payload: [UInt8] = []) throws(NoiseError) -> [UInt8] {
        guard isOurTurn else { throw .outOfTurn }
        var next = progress.clone()
        var message: [UInt8] = []
        for token in pattern.messages[messageCount] {
            switch token {
            case .e:
                let bytes = Key.bytes(of: ownEphemeral.publicKey)
                message += bytes
                next.symmetric.mixHash(bytes)
            case .s: message += try next.symmetric.encryptAndHash(Key.bytes(of: ownStatic.publicKey))
            case .ee, .es, .se, .ss: try mixProduct(token, into: &next)
            }
        }
        message += try next.symmetric.encryptAndHash(payload)
        progress = next
        messageCount += 1
        return message
    }

    /// ReadMessage.
    /// - Returns: the payload.
    /// - Throws: ``NoiseError`` for a message that is out of turn, truncated, forged or has bad keys; the state is then
    ///   unchanged.
    package mutating func read(_ message: [UInt8]) throws(NoiseError) -> [UInt8] {
        guard !isFinished, !isOurTurn else { throw .outOfTurn }
        var next = progress.clone()
        var rest = message[...]
        for token in pattern.messages[messageCount] {
            switch token {
            case .e:
                guard rest.count >= Key.pointByteCount else { throw .truncated }
                let bytes = rest.prefix(Key.pointByteCount)
                rest = rest.dropFirst(Key.pointByteCount)
                next.remoteEphemeral = try Self.point(bytes)
                next.symmetric.mixHash(bytes)
            case .s:
                let byteCount = Key.pointByteCount + next.symmetric.tagByteCount
                guard rest.count >= byteCount else { throw .truncated }
                let bytes: [UInt8]
                do { bytes = try next.symmetric.decryptAndHash(rest.prefix(byteCount)) } catch {
                    throw error == .notAuthentic ? .staticKeyNotAuthentic : error
                }
                rest = rest.dropFirst(byteCount)
                let point = try Self.point(bytes[...])
                guard point != ownStatic.publicKey else { throw .reflection }
                next.remoteStatic = point
            case .ee, .es, .se, .ss: try mixProduct(token, into: &next)
            }
        }
        guard rest.count >= next.symmetric.tagByteCount else { throw .truncated }
        let payload = try next.symmetric.decryptAndHash(rest)
        progress = next
        messageCount += 1
        return payload
    }

    /// - Precondition: ``isFinished``.
    package consuming func finish() -> Finished {
        precondition(isFinished, "the handshake has \(pattern.messages.count) messages, not \(messageCount)")
        guard let remoteStatic = progress.remoteStatic else {
            preconditionFailure("\(pattern.name) does not authenticate both sides")
        }
        let keys = progress.symmetric.split()
        let hash = progress.symmetric.hash
        let chainingKey = progress.symmetric.chainingKey.clone()
        switch role {
        case .initiator:
            return Finished(
                sending: CipherState(key: keys.first()), receiving: CipherState(key: keys.second()),
                chainingKey: chainingKey, handshakeHash: hash, remoteStatic: remoteStatic)
        case .responder:
            return Finished(
                sending: CipherState(key: keys.second()), receiving: CipherState(key: keys.first()),
                chainingKey: chainingKey, handshakeHash: hash, remoteStatic: remoteStatic)
        }
    }

    /// The outcome of Split.
    package struct Finished: ~Copyable, Sendable {
        package var sending: CipherState
        package var receiving: CipherState
        /// 32 bytes, for the key rotation of BOLT 8.
        let chainingKey: SecretBytes
        /// Names this handshake (Noise, section 11.2), 32 bytes.
        package let handshakeHash: [UInt8]
        package let remoteStatic: Key.Point
    }

    private static func point(_ bytes: ArraySlice<UInt8>) throws(NoiseError) -> Key.Point {
        do { return try Key.point(bytes) } catch { throw .invalidKey }
    }

    /// MixKey(DH(…)) of the token: its first letter is the initiator's key, its second the responder's.
    private borrowing func mixProduct(_ token: HandshakePattern.Token, into next: inout Progress) throws(NoiseError) {
        let usesOwnEphemeral: Bool
        let usesRemoteEphemeral: Bool
        switch (token, role) {
        case (.ee, _): (usesOwnEphemeral, usesRemoteEphemeral) = (true, true)
        case (.ss, _): (usesOwnEphemeral, usesRemoteEphemeral) = (false, false)
        case (.es, .initiator), (.se, .responder): (usesOwnEphemeral, usesRemoteEphemeral) = (true, false)
        case (.es, .responder), (.se, .initiator): (usesOwnEphemeral, usesRemoteEphemeral) = (false, true)
        case (.e, _), (.s, _): preconditionFailure("\(token) is not a product")
        }
        guard let remote = usesRemoteEphemeral ? next.remoteEphemeral : next.remoteStatic else {
            preconditionFailure("\(pattern.name) uses a key before it is sent")
        }
        let product: SecretBytes
        do {
            product =
                try usesOwnEphemeral ? ownEphemeral.sharedSecret(with: remote) : ownStatic.sharedSecret(with: remote)
        } catch { throw .invalidKey }
        next.symmetric.mixKey(product)
    }
}
