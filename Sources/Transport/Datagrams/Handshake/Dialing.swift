import Crypto

/// An outgoing dial until the link is open.
/// Each of our acts is retransmitted after 1 s, or three RTTs once the RTT is known, then with doubling intervals (RFC
/// 9002, section 6.2). The responder repeats act 2 only on request, so it cannot be used for amplification.
final class Dialing {
    private enum Phase {
        case asking(actOne: [UInt8])
        case confirming(DatagramLink, finish: [UInt8])
        case ended
    }

    let dial: DatagramDial
    let id: UInt64
    private let limits: DatagramLimits
    private var handshake: LinkHandshake?
    private var phase: Phase
    private var cookie: [UInt8] = []
    private var cookies = 0

    private let startedAt: Microseconds
    private var retransmission: Retransmission
    /// Act 3 was sent: the responder may have an open link.
    private var hasFinished = false

    /// - Throws: ``HandshakeError/reflection`` if we dial ourselves.
    init(_ dial: DatagramDial, id: UInt64, ephemeral: consuming SecretKey, limits: DatagramLimits, at now: Microseconds)
        throws(HandshakeError)
    {
        self.dial = dial
        self.id = id
        self.limits = limits
        var handshake = try LinkHandshake.initiator(
            identity: dial.identity.secret, remote: dial.remote, ephemeral: ephemeral,
            prologue: DatagramPacket.prologue(token: dial.token))
        phase = .asking(actOne: try handshake.write())
        self.handshake = consume handshake
        startedAt = now
        retransmission = Retransmission(
            until: now + min(limits.actTimeout, limits.handshakeTimeout),
            interval: dial.isPunching ? 200_000 : 3 * limits.initialRoundTrip, at: now)
    }

    var isAnswered: Bool { if case .confirming = phase { true } else { false } }

    /// The failure to report in the current phase.
    var failure: DatagramDialFailure { if case .confirming = phase { .noConfirmation } else { .noAnswer } }

    var deadline: Microseconds { retransmission.deadline }

    /// - Returns: whether the dial has failed.
    func timeout(at now: Microseconds) -> Bool { retransmission.timeout(at: now) }

    func poll(at now: Microseconds) -> DatagramTransmit? {
        guard retransmission.send(at: now) else { return nil }
        switch phase {
        case .asking(let actOne):
            let packet = DatagramPacket.dial(token: dial.token, dialer: id, cookie: cookie, actOne: actOne)
            return DatagramTransmit(address: dial.address, bytes: packet.bytes)
        case .confirming(_, let finish):
            hasFinished = true
            return DatagramTransmit(address: dial.address, bytes: finish)
        case .ended: return nil
        }
    }

    /// The responder is under load. The dial answers one cookie at once, and one more when the first has expired.
    func receiveCookie(_ cookie: [UInt8], from address: DatagramAddress) {
        guard case .asking = phase, address == dial.address, cookie != self.cookie, cookies < 2 else { return }
        cookies += 1
        self.cookie = cookie
        retransmission.hasten()
    }

    /// - Returns: the error of an invalid act 2, which the dial ignores.
    func receiveAnswer(
        _ actTwo: [UInt8], responder: UInt64, from address: DatagramAddress, source: DatagramSource,
        at now: Microseconds
    ) -> Rejection? {
        guard case .asking = phase, address == dial.address else { return nil }
        let act: [UInt8]
        do throws(HandshakeError) {
            guard handshake != nil else { return nil }
            try handshake?.read(actTwo)
            act = try handshake?.write() ?? []
        } catch { return .handshake(error) }
        guard let finished = handshake.take() else { return nil }
        let link = finished.finishForPackets()
        // After a retransmission the RTT is ambiguous (Karn's algorithm).
        let roundTrip = retransmission.count == 1 ? now - retransmission.lastSentAt : nil
        phase = .confirming(
            DatagramLink(
                link, role: .initiator, localID: id, remoteID: responder, address: address, roundTrip: roundTrip,
                limits: limits, source: source, at: now),
            finish: DatagramPacket.finish(responder: responder, actThree: act).bytes)
        retransmission.next(
            until: min(now + limits.actTimeout, startedAt + limits.handshakeTimeout),
            interval: roundTrip.map { max(3 * $0, 20_000) } ?? 3 * limits.initialRoundTrip)
        return nil
    }

    /// Cancels the dial, and returns the link to close if the responder may have it.
    func cancel() -> DatagramLink? {
        defer { phase = .ended }
        guard case .confirming(let link, _) = phase, hasFinished else { return nil }
        return link
    }

    /// Processes a sealed packet. If it opens, the responder has act 3 and the link is open.
    func receiveSealed(
        _ datagram: consuming [UInt8], epoch: UInt8, number: UInt64, from address: DatagramAddress, at now: Microseconds
    ) -> DatagramLink? {
        guard case .confirming(let link, _) = phase, address == dial.address else { return nil }
        guard link.receive(datagram, epoch: epoch, number: number, from: address, at: now) else { return nil }
        phase = .ended
        return link
    }
}
