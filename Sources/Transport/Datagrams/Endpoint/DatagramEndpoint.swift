import Cryptography
import DequeModule
import HeapModule

/// All UDP links of one owner, without I/O: it gets datagrams and the time, and returns datagrams, events and its next
/// deadline. It has no socket, clock or randomness of its own.
///
/// After each call the owner drains ``nextEvent()`` and ``poll(at:)``.
package final class DatagramEndpoint {
    enum Connection {
        case dialing(Dialing)
        case hearing(HalfDial)
        case answering(ResponderHandshake)
        case link(DatagramLink)
        case asking(QueryHandshake)
        case punching(Punching)
    }

    private struct Alarm: Comparable {
        let time: Microseconds
        let id: UInt64
        static func < (left: Alarm, right: Alarm) -> Bool { (left.time, left.id) < (right.time, right.id) }
    }

    package let limits: DatagramLimits
    let source: DatagramSource
    let cookies: AddressCookie
    var handshakes: HandshakeAdmission
    var knockAdmission: Allowances<DatagramAddress.Network>
    /// Failed handshakes that cost curve operations: by network if its address is proved, and by half of the token.
    var sourceFailures: Allowances<UInt64>
    var tokenFailures: Allowances<UInt64>

    /// By our connection id.
    var connections: [UInt64: Connection] = [:]
    /// The owner's number of each connection, and the reverse.
    var numbers: [UInt64: UInt64] = [:]
    var ids: [UInt64: UInt64] = [:]
    var answering: [ResponderHandshake.Name: UInt64] = [:]
    /// The handshake name under which each incoming link was answered.
    var names: [UInt64: ResponderHandshake.Name] = [:]
    private var nextNumber: UInt64

    private var alarms = Heap<Alarm>()
    private var alarmOf: [UInt64: Microseconds] = [:]
    /// Connections that may have data to send, without duplicates.
    private var ready: Deque<UInt64> = []
    private var isReady: Set<UInt64> = []
    /// Datagrams that the first connection in `ready` has sent in its turn.
    private var turn = 0
    var replies: Deque<DatagramTransmit> = []
    /// Connections that expect punch packets with a nonce: two, if both ends are ours.
    private(set) var punchers: [[UInt8]: [UInt64]] = [:]
    private var punches = 0
    var events: Deque<DatagramEvent> = []

    /// `cookieKey`: 32 random bytes. `firstNumber`: of dials and incoming links.
    package init(
        limits: DatagramLimits = DatagramLimits(), cookieKey: consuming SecretBytes, source: DatagramSource,
        firstNumber: UInt64 = 1
    ) {
        self.limits = limits
        nextNumber = firstNumber
        self.source = source
        cookies = AddressCookie(key: cookieKey, period: limits.cookiePeriod)
        handshakes = HandshakeAdmission(limit: limits.handshakesInFlight, perNetwork: limits.handshakesPerPrefix)
        knockAdmission = Allowances(
            burst: limits.knocksPerPrefix, interval: 1_000_000 / limits.knocksPerPrefix,
            totalBurst: limits.knocksPerSecond, totalInterval: 1_000_000 / limits.knocksPerSecond)
        sourceFailures = Allowances(
            burst: limits.failuresPerSource, interval: 1_000_000, totalBurst: limits.failuresPerSecond,
            totalInterval: 1_000_000 / limits.failuresPerSecond)
        tokenFailures = sourceFailures
    }

    package var connectionCount: Int { connections.count }
    package var handshakesInFlight: Int { handshakes.inFlight }

    /// Dials. `opened` or `dialFailed` with this number follows.
    /// - Parameter taken: from ``takeNumber()``; a new number by default.
    @discardableResult package func dial(_ dial: DatagramDial, number taken: UInt64? = nil, at now: Microseconds)
        -> UInt64
    {
        let number = taken ?? takeNumber()
        guard connections.count < limits.connectionCount else {
            events.append(.dialFailed(number, .tooManyConnections))
            return number
        }
        let id = freshID()
        do throws(HandshakeError) {
            let dialing = try Dialing(dial, id: id, source: source, limits: limits, at: now)
            add(.dialing(dialing), id, number)
            touch(id)
        } catch { events.append(.dialFailed(number, .reflection)) }
        return number
    }

    /// Cancels a dial. Has no effect on an open link.
    package func cancelDial(_ number: UInt64, at now: Microseconds) {
        guard let id = ids[number], case .dialing(let dialing)? = connections[id] else { return }
        if let link = dialing.cancel() {
            // The owner gets no more events of it.
            numbers[id] = nil
            ids[number] = nil
            connections[id] = .link(link)
            link.abort(.requested, at: now)
            touch(id)
        } else {
            remove(id)
        }
        events.append(.dialFailed(number, .cancelled))
    }

    /// Delivers 1…1,024 sealed bytes without a handshake. `knockEnded` with this number follows.
    package func knock(_ sealed: [UInt8], token: [UInt8], at address: DatagramAddress, now: Microseconds) -> UInt64 {
        ask(.knock(sealed: sealed), token, address, now)
    }

    /// Asks a peer for our address as it sees it. `observed` with this number follows.
    package func observe(token: [UInt8], at address: DatagramAddress, now: Microseconds) -> UInt64 {
        ask(.whereAmI, token, address, now)
    }

    private func ask(
        _ question: QueryHandshake.Question, _ token: [UInt8], _ address: DatagramAddress, _ now: Microseconds
    ) -> UInt64 {
        let number = takeNumber()
        guard connections.count < limits.connectionCount, question.fits else {
            events.append(question.failed(number))
            return number
        }
        let id = freshID()
        add(.asking(QueryHandshake(question, token: token, to: address, id: id, limits: limits, at: now)), id, number)
        touch(id)
        return number
    }

    /// Punches through our own NAT, and reports the peer's packets by `punched`. Ends by itself.
    /// `nonce`: 16 bytes that both sides know. The first eight addresses are used.
    @discardableResult package func punch(_ nonce: [UInt8], to addresses: [DatagramAddress], at now: Microseconds)
        -> UInt64
    {
        let number = takeNumber()
        guard connections.count < limits.connectionCount, punches < limits.punches else { return number }
        let id = freshID()
        punches += 1
        punchers[nonce, default: []].append(id)
        add(.punching(Punching(nonce, to: addresses, at: now)), id, number)
        touch(id)
        return number
    }

    package func link(_ number: UInt64) -> DatagramLink? {
        guard let id = ids[number], case .link(let link)? = connections[id] else { return nil }
        return link
    }

    package func send(_ message: [UInt8], on number: UInt64, at now: Microseconds) throws(LinkSendError) {
        guard let id = ids[number], case .link(let link)? = connections[id] else { throw .closed }
        defer { touch(id) }
        try link.send(message, at: now)
    }

    package func read(_ number: UInt64, at now: Microseconds) -> [UInt8]? {
        withLink(number) { $0.read(at: now) } ?? nil
    }

    package func welcome(_ number: UInt64) { withLink(number) { $0.inbound.welcome() } }

    package func close(_ number: UInt64, _ reason: LinkCloseReason = .requested, at now: Microseconds) {
        withLink(number) { $0.close(reason, at: now) }
    }

    package func abort(_ number: UInt64, _ reason: LinkCloseReason = .requested, at now: Microseconds) {
        withLink(number) { $0.abort(reason, at: now) }
    }

    package func networkChanged(at now: Microseconds) {
        for number in ids.keys.sorted() { withLink(number) { $0.networkChanged(at: now) } }
    }

    @discardableResult private func withLink<Result>(_ number: UInt64, _ body: (DatagramLink) -> Result) -> Result? {
        guard let id = ids[number], case .link(let link)? = connections[id] else { return nil }
        defer { touch(id) }
        return body(link)
    }

    package var hasEvents: Bool { !events.isEmpty }
    package func nextEvent() -> DatagramEvent? { events.popFirst() }

    func takeNumber() -> UInt64 {
        defer { nextNumber += 1 }
        return nextNumber
    }

    func freshID() -> UInt64 {
        while true {
            let id = source.randomNumber()
            if connections[id] == nil { return id }
        }
    }

    func add(_ connection: Connection, _ id: UInt64, _ number: UInt64) {
        connections[id] = connection
        numbers[id] = number
        ids[number] = id
    }

    func remove(_ id: UInt64) {
        switch connections[id] {
        case .hearing, .answering: if let name = names[id] { handshakes.finish(DatagramAddress.Network(name.address)) }
        case .punching(let punching):
            punches -= 1
            let others = punchers[punching.nonce]?.filter { $0 != id } ?? []
            punchers[punching.nonce] = others.isEmpty ? nil : others
        case .dialing, .link, .asking, nil: break
        }
        connections[id] = nil
        alarmOf[id] = nil
        if let number = numbers.removeValue(forKey: id) { ids[number] = nil }
        if let name = names.removeValue(forKey: id) { answering[name] = nil }
    }

    /// Call after each change of a connection: takes its events, queues it for sending and updates its alarm.
    func touch(_ id: UInt64) {
        collect(id)
        guard connections[id] != nil else { return }
        if isReady.insert(id).inserted { ready.append(id) }
        setAlarm(id)
    }

    private func collect(_ id: UInt64) {
        guard case .link(let link)? = connections[id] else { return }
        for event in link.events {
            switch (event, numbers[id]) {
            case (.rejected(let rejection), _): events.append(.rejected(rejection))
            case (.readable, let number?): events.append(.readable(number))
            case (.writable, let number?): events.append(.writable(number))
            case (.pathChanged(let address), let number?): events.append(.pathChanged(number, address))
            case (.closed(let reason), let number?): events.append(.closed(number, reason))
            // Events of a cancelled dial.
            case (.readable, nil), (.writable, nil), (.pathChanged, nil), (.closed, nil): break
            }
        }
        link.events.removeAll(keepingCapacity: true)
        if link.isGone { remove(id) }
    }

    private func setAlarm(_ id: UInt64) {
        let time: Microseconds? =
            switch connections[id] {
            case .dialing(let dialing): dialing.retransmission.deadline
            case .hearing(let dial): dial.deadline
            case .answering(let handshake): handshake.deadline
            case .link(let link): link.deadline
            case .asking(let asking): asking.retransmission.deadline
            case .punching(let punching): punching.deadline
            case nil: nil
            }
        guard let time, alarmOf[id] != time else { return }
        alarmOf[id] = time
        alarms.insert(Alarm(time: time, id: id))
        // Stale alarms stay in the heap until due, at most this many.
        if alarms.count > 4 * connections.count + 64 {
            alarms = Heap(alarmOf.map { Alarm(time: $0.value, id: $0.key) })
        }
    }

    package var nextDeadline: Microseconds? {
        while let alarm = alarms.min {
            if alarmOf[alarm.id] == alarm.time { return alarm.time }
            alarms.removeMin()
        }
        return nil
    }

    /// Has no effect before ``nextDeadline``.
    package func timeout(at now: Microseconds) {
        var due: [UInt64] = []
        while let alarm = alarms.min, alarm.time <= now {
            alarms.removeMin()
            guard alarmOf[alarm.id] == alarm.time else { continue }
            alarmOf[alarm.id] = nil
            due.append(alarm.id)
        }
        for id in due {
            var isOver = false
            switch connections[id] {
            case .dialing(let dialing):
                isOver = dialing.retransmission.timeout(at: now)
                if isOver, let number = numbers[id] { events.append(.dialFailed(number, dialing.failure)) }
            case .hearing, .answering:
                isOver = true
                events.append(.rejected(.timedOut))
            case .link(let link): link.timeout(at: now)
            case .asking(let asking):
                isOver = asking.retransmission.timeout(at: now)
                if isOver, let number = numbers[id] { events.append(asking.question.failed(number)) }
            case .punching(let punching): isOver = punching.isOver(at: now)
            case nil: break
            }
            if isOver { remove(id) } else { touch(id) }
        }
    }

    /// The next datagram to send now. Connections take turns.
    package func poll(at now: Microseconds) -> DatagramTransmit? {
        if let reply = replies.popFirst() { return reply }
        while let id = ready.first {
            let transmit: DatagramTransmit?
            switch connections[id] {
            case .dialing(let dialing): transmit = dialing.poll(at: now)
            case .link(let link):
                transmit = link.poll(at: now)
                if transmit == nil { link.pollEnded(at: now) }
            case .asking(let asking): transmit = asking.poll(at: now)
            case .punching(let punching): transmit = punching.poll(at: now)
            case .hearing, .answering, nil: transmit = nil
            }
            if transmit == nil || turn + 1 >= limits.burst {
                turn = 0
                ready.removeFirst()
                isReady.remove(id)
                // After a full turn, queue the connection again. Otherwise its deadline is known only now.
                if transmit != nil {
                    touch(id)
                } else {
                    collect(id)
                    setAlarm(id)
                }
            } else {
                turn += 1
            }
            if let transmit { return transmit }
        }
        return nil
    }
}
