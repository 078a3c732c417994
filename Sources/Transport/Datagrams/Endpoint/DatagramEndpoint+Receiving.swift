import Cryptography

extension DatagramEndpoint {
    /// Most handshake replies that wait for the owner to send them.
    private static let replyCount = 1_024

    /// Processes a datagram. A foreign or invalid one is dropped and counted.
    package func receive(_ datagram: consuming [UInt8], from address: DatagramAddress, at now: Microseconds) {
        guard let packet = DatagramPacket(copy datagram) else { return reject(.unknownProtocol) }
        switch packet {
        case .sealed(let epoch, let receiver, let number):
            receiveSealed(datagram, epoch, receiver, number, address, now)
        case .dial(let token, let dialer, let cookie, let half):
            let name = ResponderHandshake.Name(address: address, dialer: dialer)
            receiveDial(name, token, cookie, half, now)
        case .answer(let dialer, let responder, let actTwo):
            guard case .dialing(let dialing)? = connections[dialer] else { return reject(.unknownConnection) }
            let wasAnswered = dialing.isAnswered
            let rejection = dialing.receiveAnswer(actTwo, responder: responder, from: address, source: source, at: now)
            if let rejection { reject(rejection) }
            if !wasAnswered, dialing.isAnswered, let number = numbers[dialer] {
                events.append(.answered(number, token: dialing.dial.token))
            }
            touch(dialer)
        case .cookie(let dialer, let cookie):
            guard case .dialing(let dialing)? = connections[dialer] else { return reject(.unknownConnection) }
            dialing.receiveCookie(cookie, from: address)
            touch(dialer)
        case .knock(let token, let asker, let sealed):
            guard source.acceptsKnock(token) else { return reject(.unknownToken) }
            guard knockAdmission.take(DatagramAddress.Network(address), now: now) else { return reject(.tooManyKnocks) }
            events.append(.knocked(DatagramKnock(token: token, sealed: sealed, address: address, asker: asker)))
        case .reply(let asker, let sealed):
            guard case .asking(let asking)? = connections[asker], case .knock = asking.question,
                asking.address == address, let number = numbers[asker]
            else { return reject(.unknownConnection) }
            remove(asker)
            events.append(.knockEnded(number, sealed))
        case .observe(let token, let asker):
            guard source.isKnown(token) else { return reject(.unknownToken) }
            guard knockAdmission.take(DatagramAddress.Network(address), now: now) else { return reject(.tooManyKnocks) }
            let packet = DatagramPacket.observed(
                asker: asker, high: address.ip.high, low: address.ip.low, port: address.port)
            reply(DatagramTransmit(address: address, bytes: packet.bytes))
        case .observed(let asker, let high, let low, let port):
            guard case .asking(let asking)? = connections[asker], case .whereAmI = asking.question,
                asking.address == address, let number = numbers[asker]
            else { return reject(.unknownConnection) }
            remove(asker)
            events.append(.observed(number, DatagramAddress(IPAddress(high: high, low: low), port: port)))
        case .punch(let nonce):
            guard let ids = punchers[nonce] else { return reject(.unknownConnection) }
            for id in ids { if let number = numbers[id] { events.append(.punched(number, address)) } }
        case .finish(let responder, let actThree): receiveFinish(responder, actThree, address, now)
        }
    }

    private func reject(_ rejection: Rejection) { events.append(.rejected(rejection)) }

    private func reply(_ transmit: DatagramTransmit) { if replies.count < Self.replyCount { replies.append(transmit) } }

    /// Answers a knock. The answer may not be longer than the knock.
    package func answer(_ knock: DatagramKnock, with sealed: [UInt8]?) {
        let answer = sealed ?? []
        guard answer.count <= knock.sealed.count else { return }
        reply(
            DatagramTransmit(
                address: knock.address, bytes: DatagramPacket.reply(asker: knock.asker, sealed: answer).bytes))
    }

    private func receiveSealed(
        _ datagram: consuming [UInt8], _ epoch: UInt8, _ receiver: UInt64, _ number: UInt64, _ address: DatagramAddress,
        _ now: Microseconds
    ) {
        switch connections[receiver] {
        case .link(let link): _ = link.receive(datagram, epoch: epoch, number: number, from: address, at: now)
        case .dialing(let dialing):
            let link = dialing.receiveSealed(datagram, epoch: epoch, number: number, from: address, at: now)
            if let link { open(link, receiver, route: dialing.dial.route, token: dialing.dial.token) }
        case .hearing, .answering, .asking, .punching, nil: return reject(.unknownConnection)
        }
        touch(receiver)
    }

    /// Runs the cheapest check first, and computes nothing before all checks pass and both halves are there.
    private func receiveDial(
        _ name: ResponderHandshake.Name, _ token: [UInt8], _ cookie: [UInt8], _ half: ActHalf, _ now: Microseconds
    ) {
        if let id = answering[name] {
            switch connections[id] {
            case .hearing(let dial): if dial.isCompleted(by: half, token) { answer(dial, half, id, name, now) }
            case .answering(let handshake): if let again = handshake.repeated(half, at: now) { reply(again) }
            // The link is already open: ignore the repetition.
            case .dialing, .link, .asking, .punching, nil: break
            }
            return
        }
        let network = DatagramAddress.Network(name.address)
        guard source.isKnown(token) else { return reject(.unknownToken) }
        guard connections.count < limits.connectionCount else { return reject(.tooManyHandshakes) }
        // An unproved source may be forged, so it gets only a part of the places and of the curve operations.
        let needsCookie =
            handshakes.inFlight >= limits.handshakesBeforeCookie
            || handshakes.byNetwork[network, default: 0] >= limits.handshakesPerPrefix / 2
            || tokenFailures.isSpent(token.bigEndian(at: 0), now: now)
        if needsCookie, sourceFailures.isSpent(network.number, now: now) { return reject(.tooManyFromPrefix) }
        if needsCookie, !cookies.isValid(cookie, name.address, dialer: name.dialer, token: token, at: now) {
            // The dialer sends both halves again.
            if half.number == 0 {
                let fresh = cookies.make(name.address, dialer: name.dialer, token: token, at: now)
                let packet = DatagramPacket.cookie(dialer: name.dialer, cookie: fresh)
                reply(DatagramTransmit(address: name.address, bytes: packet.bytes))
            }
            return reject(.cookieSent)
        }
        if let rejection = handshakes.begin(network) { return reject(rejection) }
        let id = freshID()
        let dial = HalfDial(token: token, half: half, isProved: needsCookie, deadline: now + limits.halfTimeout)
        add(.hearing(dial), id, takeNumber())
        answering[name] = id
        names[id] = name
        touch(id)
    }

    private func answer(
        _ dial: HalfDial, _ half: ActHalf, _ id: UInt64, _ name: ResponderHandshake.Name, _ now: Microseconds
    ) {
        guard let route = source.route(dial.token) else {
            remove(id)
            return reject(.unknownToken)
        }
        do throws(HandshakeError) {
            let handshake = try ResponderHandshake(
                name, id: id, token: dial.token, route: route, actOne: dial.half.joined(with: half), source: source,
                limits: limits, at: now)
            connections[id] = .answering(handshake)
            reply(handshake.firstAnswer)
            touch(id)
        } catch {
            noteFailure(of: dial.token, from: dial.isProved ? DatagramAddress.Network(name.address) : nil, at: now)
            // A forged half must not end the dial. Each try costs curve operations, so there are few.
            var kept = dial
            kept.triesLeft -= 1
            if kept.triesLeft > 0 { connections[id] = .hearing(kept) } else { remove(id) }
            reject(.handshake(error))
        }
    }

    /// Counts a failed handshake, over UDP or TCP, against its token and against a proved network.
    func noteFailure(of token: [UInt8], from network: DatagramAddress.Network?, at now: Microseconds) {
        tokenFailures.take(token.bigEndian(at: 0), now: now)
        if let network { sourceFailures.take(network.number, now: now) }
    }

    func failsOften(_ token: [UInt8], from network: DatagramAddress.Network?, at now: Microseconds) -> Bool {
        tokenFailures.isSpent(token.bigEndian(at: 0), now: now)
            && network.map { sourceFailures.isSpent($0.number, now: now) } ?? false
    }

    private func receiveFinish(_ id: UInt64, _ actThree: [UInt8], _ address: DatagramAddress, _ now: Microseconds) {
        guard case .answering(let handshake)? = connections[id] else {
            // A repetition if the link exists: its first packet is retransmitted until it arrives.
            if connections[id] == nil { reject(.unknownConnection) }
            return
        }
        // Act 2 went to this address, so the dialer receives there.
        guard address == handshake.name.address else { return reject(.unknownConnection) }
        switch handshake.receiveFinish(actThree, source: source, at: now) {
        case .refused(let error): reject(.handshake(error))
        case .failed(let rejection):
            noteFailure(of: handshake.token, from: DatagramAddress.Network(address), at: now)
            remove(id)
            reject(rejection)
        case .link(let link):
            handshakes.finish(DatagramAddress.Network(address))
            open(link, id, route: handshake.route.route, token: handshake.token)
            touch(id)
        }
    }

    private func open(_ link: DatagramLink, _ id: UInt64, route: UInt64, token: [UInt8]) {
        connections[id] = .link(link)
        guard let number = numbers[id] else { return }
        let opening = DatagramOpening(
            number: number, peer: link.peer, route: route, token: token, role: link.role, address: link.address)
        events.append(.opened(opening))
    }
}
