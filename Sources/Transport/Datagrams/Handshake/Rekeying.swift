import Crypto

/// Replaces the keys of an open link by a handshake inside the old keys (DatagramLinks.md, "Path, size and keys"). Its
/// acts travel in frames that are retransmitted until they arrive.
struct Rekeying: ~Copyable {
    struct Outgoing {
        let act: Act
        let epoch: UInt8
        let bytes: [UInt8]
        var isInFlight = false
    }

    enum Outcome: ~Copyable {
        /// A repetition, or an act that requires another act.
        case nothing
        /// We initiated: the peer may use the keys as soon as it has act 3.
        case offered(LinkHandshake.PacketLink)
        /// We responded: the keys are in use from now on.
        case installed(LinkHandshake.PacketLink)
        /// The packet was authentic, but the act is wrong.
        case violation
    }

    private var handshake: LinkHandshake?
    private var isInitiator = false
    private(set) var outgoing: Outgoing?

    var isIdle: Bool { handshake == nil }
    var hasWork: Bool { outgoing.map { !$0.isInFlight } ?? false }

    mutating func sent() { outgoing?.isInFlight = true }
    mutating func acknowledged(_ act: Act) { if outgoing?.act == act, act == .three { outgoing = nil } }
    mutating func lost(_ act: Act) { if outgoing?.act == act { outgoing?.isInFlight = false } }

    mutating func begin(
        identity: IdentityKey, remote: PublicKey, keys: borrowing LinkKeys, ephemeral: consuming SecretKey
    ) {
        guard isIdle else { return }
        let epoch = keys.epoch &+ 1
        do throws(HandshakeError) {
            var handshake = try LinkHandshake.initiator(
                identity: identity.secret, remote: remote, ephemeral: ephemeral,
                prologue: DatagramPacket.prologue(rekeying: keys.handshakeHash, epoch: epoch))
            outgoing = Outgoing(act: .one, epoch: epoch, bytes: try handshake.write())
            self.handshake = consume handshake
            isInitiator = true
        } catch {
            // Unreachable: a link to ourselves does not open. The deadline would close it.
            return
        }
    }

    mutating func receive(
        _ act: Act, epoch: UInt8, _ bytes: [UInt8], identity: IdentityKey, remote: PublicKey, keys: borrowing LinkKeys,
        makeEphemeral: () -> SecretKey
    ) -> Outcome {
        // Acts for keys already in use or offered are repetitions.
        guard epoch == keys.epoch &+ 1, !keys.awaitsPeer else { return .nothing }
        do throws(HandshakeError) {
            switch act {
            case .one:
                // Both sides began: the side with the smaller key continues, the other one responds.
                guard isIdle || isInitiator && remote < identity.publicKey else { return .nothing }
                handshake = .responder(
                    identity: identity.secret, ephemeral: makeEphemeral(),
                    prologue: DatagramPacket.prologue(rekeying: keys.handshakeHash, epoch: epoch))
                isInitiator = false
                try answer(bytes, with: .two, epoch)
                return .nothing
            case .two:
                // Otherwise an answer to our abandoned act 1.
                guard !isIdle, isInitiator else { return .nothing }
                try answer(bytes, with: .three, epoch)
            case .three:
                guard !isIdle, !isInitiator else { return .nothing }
                try handshake?.read(bytes)
                outgoing = nil
            }
        } catch {
            handshake = nil
            return .violation
        }
        guard let finished = handshake.take() else { return .nothing }
        let link = finished.finishForPackets()
        guard link.peer.publicKey == remote else { return .violation }
        return isInitiator ? .offered(link) : .installed(link)
    }

    private mutating func answer(_ bytes: [UInt8], with act: Act, _ epoch: UInt8) throws(HandshakeError) {
        outgoing = nil
        try handshake?.read(bytes)
        outgoing = Outgoing(act: act, epoch: epoch, bytes: try handshake?.write() ?? [])
    }
}
