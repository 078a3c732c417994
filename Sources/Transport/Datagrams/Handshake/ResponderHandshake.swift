import Crypto

/// A handshake to which we are the responder, from a good act 1 to act 3. It sends nothing of its own accord: act 2 goes
/// out once for each act 1, which is longer.
final class ResponderHandshake {
    /// Where a dialer's first datagram comes from and what it calls itself: the same again is a repetition.
    struct Name: Hashable {
        let address: DatagramAddress
        let dialer: UInt64
    }

    let name: Name
    /// Our connection id.
    let id: UInt64
    let token: [UInt8]
    let route: RouteMatch
    private let limits: DatagramLimits
    private var handshake: LinkHandshake?
    private let actOne: [UInt8]
    private let answer: [UInt8]
    private let startedAt: Microseconds
    private var answeredAt: Microseconds
    private var answers = 1

    /// - Throws: ``HandshakeError`` for a bad act 1.
    init(
        _ name: Name, id: UInt64, token: [UInt8], route: RouteMatch, actOne: [UInt8], ephemeral: consuming SecretKey,
        limits: DatagramLimits, at now: Microseconds
    ) throws(HandshakeError) {
        self.name = name
        self.id = id
        self.token = token
        self.route = route
        self.limits = limits
        self.actOne = actOne
        var handshake = LinkHandshake.responder(
            identity: route.identity.secret, ephemeral: ephemeral, prologue: DatagramPacket.prologue(token: token))
        try handshake.read(actOne)
        let actTwo = try handshake.write()
        self.handshake = consume handshake
        answer = DatagramPacket.answer(dialer: name.dialer, responder: id, actTwo: actTwo).bytes
        startedAt = now
        answeredAt = now
    }

    var firstAnswer: DatagramTransmit { DatagramTransmit(address: name.address, bytes: answer) }

    /// Act 3 has 5 s from the first answer.
    var deadline: Microseconds { startedAt + min(limits.actTimeout, limits.handshakeTimeout) }

    /// The dialer asks again: the same answer, and no curve operation.
    func repeated(_ actOne: [UInt8], at now: Microseconds) -> DatagramTransmit? {
        guard actOne == self.actOne else { return nil }
        answers += 1
        answeredAt = now
        return firstAnswer
    }

    enum Outcome {
        case link(DatagramLink)
        /// Not act 3 of this handshake: it goes on.
        case refused(HandshakeError)
        /// Authentic, but not who may be at the end of this route: it is over.
        case wrongPeer
    }

    func receiveFinish(_ actThree: [UInt8], source: DatagramSource, at now: Microseconds) -> Outcome {
        do throws(HandshakeError) {
            guard handshake != nil else { return .refused(.outOfTurn) }
            try handshake?.read(actThree)
        } catch { return .refused(error) }
        guard let finished = handshake.take() else { return .refused(.outOfTurn) }
        let link = finished.finishForPackets()
        guard route.remote == nil || route.remote == link.peer.publicKey else { return .wrongPeer }
        return .link(
            DatagramLink(
                link, role: .responder, localID: id, remoteID: name.dialer, address: name.address,
                roundTrip: answers == 1 ? now - answeredAt : nil, limits: limits, source: source, at: now))
    }
}
