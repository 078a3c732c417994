import Cryptography

/// The keys of a link, by epoch.
///
///     current ──offer(…) by the initiator──▶ current and next ──packet of the next epoch──▶ previous and current
///     current ──install(…) by the responder──▶ previous and current
///     previous ──3 probe timeouts after the peer's first packet of the current epoch──▶ wiped
struct LinkKeys: ~Copyable {
    private struct Epoch: ~Copyable {
        let number: UInt8
        let link: LinkHandshake.PacketLink
    }

    enum Opened { case current, previous, next }

    private var current: Epoch
    private var previous: Epoch?
    private var next: Epoch?
    /// When the current keys came into use.
    private(set) var since: Microseconds
    private(set) var sentCount: UInt64 = 0
    private(set) var receivedCount: UInt64 = 0
    /// When the previous keys are wiped, set once the peer uses the current ones.
    private(set) var discardAt: Microseconds?

    init(_ link: consuming LinkHandshake.PacketLink, at now: Microseconds) {
        current = Epoch(number: 0, link: link)
        previous = nil
        next = nil
        since = now
    }

    /// The epoch of packets that we send.
    var epoch: UInt8 { current.number }
    /// The current keys' handshake hash, 32 bytes.
    var handshakeHash: [UInt8] { current.link.peer.handshakeHash }
    /// Our next keys await their first use by the peer.
    var awaitsPeer: Bool { next != nil }

    /// We are the initiator and know the new keys; the peer does not have act 3 yet.
    mutating func offer(_ link: consuming LinkHandshake.PacketLink) {
        next = Epoch(number: current.number &+ 1, link: link)
    }

    /// We are the responder and have act 3: use the new keys from now on.
    mutating func install(_ link: consuming LinkHandshake.PacketLink, at now: Microseconds) {
        promote(Epoch(number: current.number &+ 1, link: link), at: now)
        discardAt = nil
    }

    private mutating func promote(_ epoch: consuming Epoch, at now: Microseconds) {
        previous = exchange(&current, with: epoch)
        since = now
        sentCount = 0
        receivedCount = 0
    }

    mutating func seal(_ packet: inout [UInt8], number: UInt64) {
        sentCount += 1
        current.link.sending.seal(&packet, headerByteCount: DatagramPacket.sealedHeaderByteCount, number: number)
    }

    /// Opens a packet in place.
    /// - Parameter keepFor: how long the previous keys are kept once the peer uses the new ones.
    /// - Returns: `nil` if it does not open; the state is unchanged then.
    mutating func open(
        _ packet: inout [UInt8], epoch: UInt8, number: UInt64, keepFor: Microseconds, at now: Microseconds
    ) -> Opened? {
        let header = DatagramPacket.sealedHeaderByteCount
        do throws(NoiseError) {
            if epoch == current.number {
                try current.link.receiving.open(&packet, headerByteCount: header, number: number)
                receivedCount += 1
                if previous != nil, discardAt == nil { discardAt = now + keepFor }
                return .current
            }
            if let candidate = next?.number, epoch == candidate {
                try next?.link.receiving.open(&packet, headerByteCount: header, number: number)
                if let epoch = next.take() { promote(epoch, at: now) }
                receivedCount = 1
                discardAt = now + keepFor
                return .next
            }
            if let candidate = previous?.number, epoch == candidate {
                try previous?.link.receiving.open(&packet, headerByteCount: header, number: number)
                return .previous
            }
            return nil
        } catch { return nil }
    }

    mutating func timeout(at now: Microseconds) {
        guard let discardAt, discardAt <= now else { return }
        previous = nil
        self.discardAt = nil
    }
}

private func exchange<Value: ~Copyable>(_ place: inout Value, with value: consuming Value) -> Value {
    let old = consume place
    place = value
    return old
}

/// The rekey static keys of a link: they authenticate the handshakes of ``Rekeying``. Each side draws one per link and
/// sends it in sealed packets right after the first handshake. So the inbox's own key is neither needed nor held in
/// memory while its links are open.
struct LinkIdentities {
    private enum Sending { case owed, inFlight, acknowledged }

    private(set) var own: IdentityKey?
    private(set) var remote: PublicKey?
    private var sending = Sending.owed

    var isOwed: Bool { sending == .owed }

    /// Both sides have each other's key.
    var areKnown: Bool { sending == .acknowledged && remote != nil }

    mutating func send(_ make: () -> SecretKey) -> PublicKey {
        let key = own ?? IdentityKey(make())
        own = key
        sending = .inFlight
        return key.publicKey
    }

    mutating func acknowledged() { sending = .acknowledged }
    mutating func lost() { if sending == .inFlight { sending = .owed } }

    /// - Returns: false for an invalid key, our own, or a different one than before.
    mutating func receive(_ bytes: [UInt8]) -> Bool {
        if let remote { return remote.bytes == bytes }
        guard let key = try? PublicKey(bytes), key != own?.publicKey else { return false }
        remote = key
        return true
    }
}

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
                prologue: DatagramPacket.prologue(rekeying: keys.handshakeHash, epoch: epoch), pattern: .classical)
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
                    prologue: DatagramPacket.prologue(rekeying: keys.handshakeHash, epoch: epoch), pattern: .classical)
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
