import Cryptography

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
    /// The second half of act 1 follows the first at once.
    private var owesHalf = false

    private let startedAt: Microseconds
    var retransmission: Retransmission
    /// Act 3 was sent: the responder may have an open link.
    private var hasFinished = false

    /// - Throws: ``HandshakeError/reflection`` if we dial ourselves.
    init(_ dial: DatagramDial, id: UInt64, source: DatagramSource, limits: DatagramLimits, at now: Microseconds)
        throws(HandshakeError)
    {
        self.dial = dial
        self.id = id
        self.limits = limits
        var handshake = try LinkHandshake.initiator(
            identity: dial.identity.secret, remote: dial.remote, ephemeral: source.makeEphemeral(),
            prologue: DatagramPacket.prologue(token: dial.token), encapsulation: source.encapsulation)
        phase = .asking(actOne: try handshake.write())
        self.handshake = consume handshake
        startedAt = now
        retransmission = Retransmission(
            until: now + min(limits.actTimeout, limits.handshakeTimeout),
            interval: dial.isPunching ? 200_000 : 3 * limits.initialRoundTrip, at: now)
    }

    var isAnswered: Bool { if case .confirming = phase { true } else { false } }

    var failure: DatagramDialFailure { if case .confirming = phase { .noConfirmation } else { .noAnswer } }

    func poll(at now: Microseconds) -> DatagramTransmit? {
        let isSecond = owesHalf
        owesHalf = false
        guard isSecond || retransmission.send(at: now) else { return nil }
        switch phase {
        case .asking(let actOne):
            owesHalf = !isSecond
            let half = ActHalf(isSecond ? 1 : 0, of: actOne)
            let packet = DatagramPacket.dial(token: dial.token, dialer: id, cookie: cookie, half: half)
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
        owesHalf = false
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
            try handshake?.read(actTwo)
            act = try handshake?.write() ?? []
        } catch { return .handshake(error) }
        guard let finished = handshake.take() else { return nil }
        let link = finished.finish()
        owesHalf = false
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

/// One half of an incoming act 1, which waits for the other.
struct HalfDial {
    let token: [UInt8]
    let half: ActHalf
    /// The dialer has shown a cookie.
    let isProved: Bool
    let deadline: Microseconds
    /// Wrong other halves until the place is freed.
    var triesLeft = 4

    func isCompleted(by other: ActHalf, _ token: [UInt8]) -> Bool { other.number != half.number && token == self.token }
}

/// An incoming handshake, from act 1 to act 3. It sends act 2 only in answer to both halves of act 1, which are longer.
final class ResponderHandshake {
    /// Identifies a dialer's act 1 by its source address and connection id, to detect repetitions.
    struct Name: Hashable {
        let address: DatagramAddress
        let dialer: UInt64
    }

    let name: Name
    let id: UInt64
    let token: [UInt8]
    let route: RouteMatch
    private let limits: DatagramLimits
    private var handshake: LinkHandshake?
    private let actOne: [UInt8]
    private let answer: [UInt8]
    /// Act 3 must arrive within 5 s of the first answer.
    let deadline: Microseconds
    private var answeredAt: Microseconds
    private var answers = 1
    /// Halves of act 1 since the last answer.
    private var halves = 0
    /// Acts 3 with a wrong tag until the handshake ends. Each costs a curve operation.
    private var triesLeft = 4

    init(
        _ name: Name, id: UInt64, token: [UInt8], route: RouteMatch, actOne: [UInt8], source: DatagramSource,
        limits: DatagramLimits, at now: Microseconds
    ) throws(HandshakeError) {
        self.name = name
        self.id = id
        self.token = token
        self.route = route
        self.limits = limits
        self.actOne = actOne
        var handshake = LinkHandshake.responder(
            identity: route.identity.secret, ephemeral: source.makeEphemeral(),
            prologue: DatagramPacket.prologue(token: token), encapsulation: source.encapsulation)
        try handshake.read(actOne)
        let actTwo = try handshake.write()
        self.handshake = consume handshake
        answer = DatagramPacket.answer(dialer: name.dialer, responder: id, actTwo: actTwo).bytes
        deadline = now + min(limits.actTimeout, limits.handshakeTimeout)
        answeredAt = now
    }

    var firstAnswer: DatagramTransmit { DatagramTransmit(address: name.address, bytes: answer) }

    /// Repeats the answer for every second half, without a curve operation.
    func repeated(_ half: ActHalf, at now: Microseconds) -> DatagramTransmit? {
        guard half == ActHalf(half.number, of: actOne) else { return nil }
        halves += 1
        guard halves.isMultiple(of: 2) else { return nil }
        answers += 1
        answeredAt = now
        return firstAnswer
    }

    enum Outcome {
        case link(DatagramLink)
        /// Not act 3 of this handshake: the handshake continues.
        case refused(HandshakeError)
        /// The handshake ends: too many wrong acts, or another peer than the route's.
        case failed(Rejection)
    }

    func receiveFinish(_ actThree: [UInt8], source: DatagramSource, at now: Microseconds) -> Outcome {
        do throws(HandshakeError) { try handshake?.read(actThree) } catch {
            if error == .badMAC(.three) { triesLeft -= 1 }
            return triesLeft == 0 ? .failed(.handshake(error)) : .refused(error)
        }
        guard let finished = handshake.take() else { return .refused(.outOfTurn) }
        let link = finished.finish()
        guard route.remote == nil || route.remote == link.peer.publicKey else { return .failed(.wrongPeer) }
        return .link(
            DatagramLink(
                link, role: .responder, localID: id, remoteID: name.dialer, address: name.address,
                roundTrip: answers == 1 ? now - answeredAt : nil, limits: limits, source: source, at: now))
    }
}

/// A cookie that a dialer must show under load before the responder spends a curve operation. It proves that the dialer
/// receives at its source address (like WireGuard's cookie and the token of RFC 9000, section 8.1.2). Stateless: a MAC
/// over address, dialer's id, token and time period.
struct AddressCookie: ~Copyable {
    private let key: SecretBytes
    private let period: Microseconds

    init(key: consuming SecretBytes, period: Microseconds) {
        precondition(key.byteCount == 32, "the key of a MAC")
        self.key = key
        self.period = max(1, period)
    }

    borrowing func make(_ address: DatagramAddress, dialer: UInt64, token: [UInt8], at now: Microseconds) -> [UInt8] {
        let time = bigEndian(UInt64(bitPattern: now / period))
        let code = key.withBytes {
            HMACSHA256.authenticate(
                key: $0, Array("mayfly/1 cookie".utf8), address.bytes, bigEndian(dialer), token, time)
        }
        return Array(code.prefix(DatagramPacket.cookieByteCount))
    }

    /// Accepts the current period and the one before.
    borrowing func isValid(
        _ cookie: [UInt8], _ address: DatagramAddress, dialer: UInt64, token: [UInt8], at now: Microseconds
    ) -> Bool {
        guard !cookie.isEmpty else { return false }
        return equalInConstantTime(cookie, make(address, dialer: dialer, token: token, at: now))
            || equalInConstantTime(cookie, make(address, dialer: dialer, token: token, at: now - period))
    }
}
