import Crypto

/// Replaces the keys of an open link by a handshake inside the old keys (DatagramLinks.md, "Path, size and keys"). Its
/// acts travel in frames that are retransmitted until they arrive.
struct Rekeying: ~Copyable {
    private enum State: ~Copyable {
        case idle
        case initiating(LinkHandshake)
        case answering(LinkHandshake)

        mutating func take() -> State {
            let state = consume self
            self = .idle
            return state
        }
    }

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

    private var state = State.idle
    private(set) var outgoing: Outgoing?

    init() {}

    var isIdle: Bool {
        switch state {
        case .idle: true
        case .initiating: false
        case .answering: false
        }
    }

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
            state = .initiating(handshake)
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
        switch act {
        case .one: return receiveOne(epoch, bytes, identity, remote, keys, makeEphemeral)
        case .two: return receiveTwo(epoch, bytes, remote)
        case .three: return receiveThree(bytes, remote)
        }
    }

    private mutating func receiveOne(
        _ epoch: UInt8, _ bytes: [UInt8], _ identity: IdentityKey, _ remote: PublicKey, _ keys: borrowing LinkKeys,
        _ makeEphemeral: () -> SecretKey
    ) -> Outcome {
        switch state.take() {
        case .answering(let handshake):
            state = .answering(handshake)
            return .nothing
        case .initiating(let handshake):
            // Both sides began: the side with the smaller key continues, the other one responds.
            if identity.publicKey < remote {
                state = .initiating(handshake)
                return .nothing
            }
        case .idle: break
        }
        outgoing = nil
        var handshake = LinkHandshake.responder(
            identity: identity.secret, ephemeral: makeEphemeral(),
            prologue: DatagramPacket.prologue(rekeying: keys.handshakeHash, epoch: epoch))
        do throws(HandshakeError) {
            try handshake.read(bytes)
            outgoing = Outgoing(act: .two, epoch: epoch, bytes: try handshake.write())
        } catch { return .violation }
        state = .answering(handshake)
        return .nothing
    }

    private mutating func receiveTwo(_ epoch: UInt8, _ bytes: [UInt8], _ remote: PublicKey) -> Outcome {
        switch state.take() {
        case .initiating(var handshake):
            do throws(HandshakeError) {
                try handshake.read(bytes)
                outgoing = Outgoing(act: .three, epoch: epoch, bytes: try handshake.write())
            } catch { return .violation }
            let link = handshake.finishForPackets()
            return link.peer.publicKey == remote ? .offered(link) : .violation
        case .answering(let handshake):
            // An answer to our abandoned act 1.
            state = .answering(handshake)
            return .nothing
        case .idle: return .nothing
        }
    }

    private mutating func receiveThree(_ bytes: [UInt8], _ remote: PublicKey) -> Outcome {
        switch state.take() {
        case .answering(var handshake):
            do throws(HandshakeError) { try handshake.read(bytes) } catch { return .violation }
            outgoing = nil
            let link = handshake.finishForPackets()
            return link.peer.publicKey == remote ? .installed(link) : .violation
        case .initiating(let handshake):
            state = .initiating(handshake)
            return .nothing
        case .idle: return .nothing
        }
    }
}
