import Cryptography

/// One authenticated UDP link, without I/O: it gets packets and the time, and returns packets and its next deadline.
/// A lingering link repeats its close to a peer that still sends.
package final class DatagramLink {
    enum State: Equatable {
        case open
        case finishing(LinkCloseReason, until: Microseconds)
        case lingering(until: Microseconds)
        case gone
    }

    /// The endpoint adds the link's number.
    enum Event: Equatable {
        case readable
        case writable
        case pathChanged(DatagramAddress)
        case closed(LinkCloseReason)
        case rejected(Rejection)
    }

    let limits: DatagramLimits
    let source: DatagramSource
    package let peer: AuthenticatedPeer
    package let role: Role
    /// The connection ids in packets to us and to the peer.
    let localID: UInt64
    let remoteID: UInt64

    var state = State.open
    var events: [Event] = []

    var keys: LinkKeys
    var rekeying: Rekeying
    var replay = ReplayWindow()
    var received: ReceivedPackets
    var sent = SentPackets()
    var nextNumber: UInt64 = 0
    var outbound: SendStream
    var inbound: ReceiveStream

    var path: DatagramPath
    /// The last validated path, while another one is validated.
    var fallback: DatagramPath?
    var pathCount: UInt32 = 1
    /// Challenges to answer, each with its source address.
    var responses: [(address: DatagramAddress, value: UInt64)] = []

    var lastReceivedAt: Microseconds
    var lastAskedAt: Microseconds
    /// When the peer last acknowledged the oldest unacknowledged byte; if there was none, when the next byte was first
    /// sent.
    var progressAt: Microseconds
    var owesPing = false
    /// Messages behind a wrong frame of the exchange are not read.
    private var isViolated = false
    var owesCredit = false
    var owesClose = false
    /// Probe packets that may exceed the window after a timeout.
    var probesDue = 0
    var lastProbeAt = Microseconds.min
    /// When the pacer allows the next packet.
    var pacedUntil: Microseconds?
    var closeCode: UInt8 = 0
    /// Closes sent by a lingering link, and packets received since the last one.
    var closesSent = 0
    var packetsWhileLingering = 0
    var wasUnwritable = false
    // Reused between acknowledgements to avoid allocations.
    var acknowledgedScratch: [SentPacket] = []
    var lostScratch: [SentPacket] = []

    /// Datagram bytes for statistics: authentic ones received, and all sent.
    package internal(set) var bytesIn: UInt64 = 0
    package internal(set) var bytesOut: UInt64 = 0
    package internal(set) var lostPackets: UInt64 = 0

    /// The handshake has validated the address and may have measured the round trip.
    init(
        _ link: borrowing LinkHandshake.Link, role: Role, localID: UInt64, remoteID: UInt64, address: DatagramAddress,
        roundTrip: Microseconds?, limits: DatagramLimits, source: DatagramSource, at now: Microseconds
    ) {
        self.limits = limits
        self.source = source
        self.role = role
        self.localID = localID
        self.remoteID = remoteID
        peer = link.peer
        keys = LinkKeys(link.secrets)
        rekeying = Rekeying(role, rootKey: link.secrets.rootKey.clone(), limits: limits.rekey, at: now)
        received = ReceivedPackets(limits: limits)
        outbound = SendStream(credit: UInt64(limits.initialReceiveWindow))
        inbound = ReceiveStream(limits: limits)
        path = DatagramPath(
            address, number: 0, isProved: true, limits: limits, seed: source.randomNumber(), measured: roundTrip,
            at: now)
        lastReceivedAt = now
        lastAskedAt = now
        progressAt = now
        // The responder's first packet confirms act 3 to the dialer.
        owesPing = role == .responder
    }

    package var address: DatagramAddress { path.address }
    /// Smoothed, or assumed before the first measurement.
    package var roundTripTime: Microseconds { path.roundTrip.smoothed }
    package var datagramByteCount: Int { path.size.current }
    package var isWritable: Bool { state == .open && !wasUnwritable }
    var isGone: Bool { state == .gone }

    func send(_ message: [UInt8], at now: Microseconds) throws(LinkSendError) {
        guard state == .open, !outbound.isFinished else { throw .closed }
        guard message.count <= limits.messageByteCount else { throw .tooLong }
        outbound.write(message)
        rekeying.countFrame()
        if outbound.byteCount > limits.outboundByteCount {
            end(.outboundOverflow, at: now)
            throw .outboundOverflow
        }
        if outbound.unsentByteCount > limits.outboundHighWater || outbound.byteCount > limits.outboundByteCount / 8 * 7
        {
            wasUnwritable = true
        }
    }

    func checkWritable() {
        guard wasUnwritable, outbound.unsentByteCount <= limits.outboundLowWater,
            outbound.byteCount <= limits.outboundByteCount / 8 * 7
        else { return }
        wasUnwritable = false
        if state == .open { events.append(.writable) }
    }

    /// The next message, or `nil`. Reading extends the peer's credit.
    func read(at now: Microseconds) -> [UInt8]? {
        guard !isViolated else { return nil }
        do throws(ReceiveStream.Malformed) {
            while let message = try inbound.next() {
                rekeying.countFrame()
                if Rekeying.kind(of: message) != nil {
                    renew(message, at: now)
                    if isViolated { return nil }
                    continue
                }
                if inbound.isEnded { inboundEnded(at: now) }
                return message
            }
            if inbound.isEnded { inboundEnded(at: now) }
        } catch { end(.protocolViolation, at: now) }
        return nil
    }

    /// A closing link gets no new secrets.
    private func renew(_ message: [UInt8], at now: Microseconds) {
        guard state == .open else { return }
        do throws(Rekeying.Violation) {
            let renewal = try rekeying.receive(message, at: now, makeEphemeral: source.makeEphemeral)
            if let answer = renewal.answer { try? send(answer, at: now) }
            keys.replace(by: renewal.secrets, role)
            // The listener uses the new keys when it sees them.
            owesPing = true
        } catch {
            isViolated = true
            end(.protocolViolation, at: now)
        }
    }

    /// Closes without losing a message of either side.
    func close(_ reason: LinkCloseReason, at now: Microseconds) {
        guard state == .open else { return }
        outbound.close()
        state = .finishing(reason, until: now + limits.closeTimeout)
        endIfFinished(at: now)
    }

    func abort(_ reason: LinkCloseReason, at now: Microseconds) { end(reason, at: now) }

    /// Our own addresses changed: sends from the new one at once and measures the path again.
    func networkChanged(at now: Microseconds) {
        guard state != .gone else { return }
        // The sending budget of an unvalidated address stays, whichever side has moved.
        path = newPath(path.address, isProved: path.isProved, at: now).continuing(path)
        sent.timeouts = 0
        pacedUntil = nil
        path.startChallenge(at: now)
    }

    func newPath(_ address: DatagramAddress, isProved: Bool, at now: Microseconds) -> DatagramPath {
        // Wraps: a peer may move with each packet, but only few paths are remembered.
        defer { pathCount &+= 1 }
        return DatagramPath(
            address, number: pathCount, isProved: isProved, limits: limits, seed: source.randomNumber(), at: now)
    }

    private func inboundEnded(at now: Microseconds) {
        if state == .open { close(.closedByPeer, at: now) } else { endIfFinished(at: now) }
    }

    func endIfFinished(at now: Microseconds) {
        guard case .finishing(let reason, _) = state else { return }
        if outbound.isAcknowledged, inbound.isEnded { end(reason, at: now) }
    }

    /// Ends the link, except on the peer's close. Sends a close and lingers to repeat it.
    func end(_ reason: LinkCloseReason, at now: Microseconds) {
        switch state {
        case .open, .finishing: break
        case .lingering, .gone: return
        }
        state = .lingering(until: now + 3 * probeTimeout)
        closeCode = reason.code
        owesClose = true
        outbound = SendStream(credit: 0)
        events.append(.closed(reason))
    }

    func closedByPeer() {
        switch state {
        case .open: events.append(.closed(.closedByPeer))
        case .finishing(let reason, _): events.append(.closed(reason))
        case .lingering: break
        case .gone: return
        }
        state = .gone
        owesClose = false
    }

    var probeTimeout: Microseconds { path.roundTrip.probeTimeout(acknowledgementDelay: limits.acknowledgementDelay) }

    /// The probe timeout (RFC 9002, section 6.2). At most 5 s away, so that a link recovers quickly after a blackout.
    var probeDeadline: Microseconds? {
        guard !sent.isEmpty else { return nil }
        let wait = min(probeTimeout, 5_000_000) << Microseconds(min(sent.timeouts, 10))
        return max(sent.lastSentAt, lastProbeAt) + min(wait, max(5_000_000, probeTimeout))
    }

    /// Lost if packets arrive but none acknowledges our data. A vanished peer hits the silence limit first.
    private var stallDeadline: Microseconds { progressAt + limits.silence + limits.keepAlive }

    private var keepAliveDeadline: Microseconds? {
        guard sent.isEmpty, !owesPing else { return nil }
        // At whole seconds: so few wake-ups serve all links.
        return (max(lastReceivedAt, lastAskedAt) + limits.keepAlive + 999_999) / 1_000_000 * 1_000_000
    }

    /// When ``timeout(at:)`` or a poll has work, apart from data to send at once.
    var deadline: Microseconds? {
        switch state {
        case .gone: return nil
        case .lingering(let until): return until
        case .open, .finishing: break
        }
        var earliest = lastReceivedAt + limits.silence
        if case .finishing(_, let until) = state { earliest = min(earliest, until) }
        if state == .open { earliest = min(earliest, rekeying.deadline) }
        if outbound.isInFlight { earliest = min(earliest, stallDeadline) }
        func consider(_ other: Microseconds?) { if let other { earliest = min(earliest, other) } }
        // Loss detection replaces the probe timeout (RFC 9002, section 6.2.1).
        consider(sent.lossTime ?? probeDeadline)
        consider(keepAliveDeadline)
        consider(path.challengeDeadline)
        consider(path.size.deadline)
        consider(keys.discardAt)
        // Without allowance on an unvalidated path, ack and pacing timers are pointless: only an incoming packet helps.
        if path.allowanceForData > 128 {
            consider(received.deadline)
            consider(pacedUntil)
        }
        return earliest
    }

    func timeout(at now: Microseconds) {
        switch state {
        case .gone: return
        case .lingering(let until):
            if until <= now { state = .gone }
            return
        case .finishing(let reason, let until): if until <= now { return end(reason, at: now) }
        case .open:
            if rekeying.isOverdue(at: now) { return end(.rekeyOverdue, at: now) }
            if rekeying.deadline <= now { try? send(rekeying.ask(at: now, ephemeral: source.makeEphemeral()), at: now) }
        }
        if lastReceivedAt + limits.silence <= now { return end(.silent, at: now) }
        if outbound.isInFlight, stallDeadline <= now { return end(.unacknowledged, at: now) }
        keys.timeout(at: now)
        path.size.timeout(at: now)
        if let pacedUntil, pacedUntil <= now { self.pacedUntil = nil }
        if path.challengeIsHopeless(limits, at: now) { pathFailed() }
        if let keepAliveDeadline, keepAliveDeadline <= now { owesPing = true }
        if let lossTime = sent.lossTime {
            if lossTime <= now { detectLost(at: now) }
        } else if let probeDeadline, probeDeadline <= now {
            probe(at: now)
        }
    }

    /// Probe timeout: retransmits the contents of the oldest packets (RFC 9002, section 6.2.4).
    private func probe(at now: Microseconds) {
        sent.timeouts += 1
        lastProbeAt = now
        probesDue = 2
        for packet in sent.oldest(2) { sendAgain(packet) }
        if path.size.timeouts(sent.timeouts, at: now) { path.congestion.setDatagram(path.size.current) }
    }

    func sendAgain(_ packet: SentPacket) {
        if let piece = packet.piece { outbound.lose(piece) }
        if packet.carriesCredit { owesCredit = true }
    }

    /// The new address did not answer any challenge.
    private func pathFailed() {
        path.giveUpChallenge()
        guard let fallback else { return }
        path = fallback
        self.fallback = nil
        sent.timeouts = 0
    }
}
