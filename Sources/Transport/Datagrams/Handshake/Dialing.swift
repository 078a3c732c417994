import Crypto

/// A dial of ours, up to the open link.
///
///     asking ──act 2──▶ confirming ──first packet that opens──▶ open (the endpoint takes the link)
///     asking ──cookie──▶ asking, with the cookie, at once
///     asking, confirming ──5 s in one of them, 10 s in all──▶ failed
///     asking, confirming ──given up──▶ ended; the responder is told if it may have the link
///
/// Each act of ours is sent again after 1 s, or after three times the round trip once it is known, and then after twice as
/// long each time (RFC 9002, section 6.2). The responder repeats act 2 only when it is asked again, so that nobody can
/// make it send more than it gets.
final class Dialing {
    private enum Phase {
        case asking(actOne: [UInt8])
        case confirming(DatagramLink, finish: [UInt8])
        case ended
    }

    let dial: DatagramDial
    /// Our connection id.
    let id: UInt64
    private let limits: DatagramLimits
    private var handshake: LinkHandshake?
    private var phase: Phase
    private var cookie: [UInt8] = []
    private var cookies = 0

    private let startedAt: Microseconds
    private var actStartedAt: Microseconds
    private var sends = 0
    private var lastSentAt: Microseconds
    private var owesDatagram = true
    /// Act 3 has left: the responder may have an open link.
    private var hasFinished = false
    private var retransmitAfter: Microseconds

    /// - Throws: ``HandshakeError/reflection`` if the dial is to ourselves.
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
        actStartedAt = now
        lastSentAt = now
        retransmitAfter = dial.isPunching ? 200_000 : 3 * limits.initialRoundTrip
    }

    /// Act 2 has come, and is authentic.
    var isAnswered: Bool { if case .confirming = phase { true } else { false } }

    /// What the failure is called now.
    var failure: DatagramDialFailure { if case .confirming = phase { .noConfirmation } else { .noAnswer } }

    private var giveUpAt: Microseconds { min(actStartedAt + limits.actTimeout, startedAt + limits.handshakeTimeout) }

    var deadline: Microseconds { owesDatagram ? lastSentAt : min(giveUpAt, lastSentAt + retransmitAfter) }

    /// - Returns: whether the dial has failed.
    func timeout(at now: Microseconds) -> Bool {
        if giveUpAt <= now { return true }
        if !owesDatagram, lastSentAt + retransmitAfter <= now {
            owesDatagram = true
            retransmitAfter *= 2
        }
        return false
    }

    func poll(at now: Microseconds) -> DatagramTransmit? {
        guard owesDatagram else { return nil }
        owesDatagram = false
        sends += 1
        lastSentAt = now
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

    /// The responder is under load. One cookie is answered at once, and another when the first has grown old.
    func receiveCookie(_ cookie: [UInt8], from address: DatagramAddress) {
        guard case .asking = phase, address == dial.address, cookie != self.cookie, cookies < 2 else { return }
        cookies += 1
        self.cookie = cookie
        owesDatagram = true
    }

    /// - Returns: what is wrong with it; the dial then goes on as if it had not come.
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
        // Of several askings it is not known which was answered (Karn).
        let roundTrip = sends == 1 ? now - lastSentAt : nil
        phase = .confirming(
            DatagramLink(
                link, role: .initiator, localID: id, remoteID: responder, address: address, roundTrip: roundTrip,
                limits: limits, source: source, at: now),
            finish: DatagramPacket.finish(responder: responder, actThree: act).bytes)
        actStartedAt = now
        owesDatagram = true
        retransmitAfter = roundTrip.map { max(3 * $0, 20_000) } ?? 3 * limits.initialRoundTrip
        return nil
    }

    /// The dial is given up.
    /// - Returns: the link that the responder may have by now, to be closed.
    func cancel() -> DatagramLink? {
        defer { phase = .ended }
        guard case .confirming(let link, _) = phase, hasFinished else { return nil }
        return link
    }

    /// A sealed packet: if it opens, the responder has act 3.
    /// - Returns: the link that is open now.
    func receiveSealed(
        _ datagram: consuming [UInt8], epoch: UInt8, number: UInt64, from address: DatagramAddress, at now: Microseconds
    ) -> DatagramLink? {
        guard case .confirming(let link, _) = phase, address == dial.address else { return nil }
        guard link.receive(datagram, epoch: epoch, number: number, from: address, at: now) else { return nil }
        phase = .ended
        return link
    }
}
