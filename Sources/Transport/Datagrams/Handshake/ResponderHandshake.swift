import Crypto

/// An incoming handshake, from act 1 to act 3. It sends act 2 only in answer to act 1, which is longer.
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

    /// Act 3 must arrive within 5 s of the first answer.
    var deadline: Microseconds { startedAt + min(limits.actTimeout, limits.handshakeTimeout) }

    /// Repeats the answer without a curve operation.
    func repeated(_ actOne: [UInt8], at now: Microseconds) -> DatagramTransmit? {
        guard actOne == self.actOne else { return nil }
        answers += 1
        answeredAt = now
        return firstAnswer
    }

    enum Outcome {
        case link(DatagramLink)
        /// Not act 3 of this handshake: the handshake continues.
        case refused(HandshakeError)
        /// Authentic, but not the peer of this route: the handshake ends.
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
