import Cryptography
import Messaging
import Testing

private let start = Timestamp(milliseconds: 1_795_247_146_000)

/// The machine of a rendezvous node with one peer and strangers.
private struct Service {
    let key = IdentityKey(SecretKey.generate())
    let peer = IdentityKey(SecretKey.generate())
    let stranger = IdentityKey(SecretKey.generate())
    var machine = RelayServiceStateMachine()
    var now = start
    var source: UInt64?

    init(_ change: (inout RelayTerms) -> Void = { _ in }) {
        var terms = RelayTerms.serving
        change(&terms)
        #expect(machine.configure(terms, isPeer: { _ in false }).isEmpty)
    }

    @discardableResult mutating func say(
        _ request: RelayRequest, _ link: Int, as key: IdentityKey? = nil, isPeer: Bool? = nil
    ) -> [NodeAction] {
        let key = key ?? stranger
        return machine.receive(
            request, from: key.publicKey, on: MessagingTests.link(link), own: self.key,
            isPeer: isPeer ?? (key.publicKey == peer.publicKey), source: source, now: now)
    }

    @discardableResult mutating func hold(_ request: RelayRequest) -> [NodeAction] { say(request, holder, as: peer) }

    /// Whether the stream is opened; the holder is told of it.
    mutating func opens(_ link: Int, _ number: Int = 1) -> Bool {
        say(.open(reservation(label(number))), link).last != close(link)
    }

    @discardableResult mutating func end(_ number: Int) -> [NodeAction] { machine.linkClosed(link(number)) }

    mutating func configure(_ terms: RelayTerms, isPeer: Bool) -> [NodeAction] {
        machine.configure(terms, isPeer: { _ in isPeer })
    }

    func serves(_ number: Int) -> Bool { machine.serves(link(number)) }

    func reservation(_ label: RelayLabel) -> ReservationID {
        RelaySecret(rendezvous: key.publicKey, user: peer.publicKey, own: peer).reservation(label)
    }

    var reservation: ReservationID { reservation(label(1)) }

    var grant: RelayGrant {
        RelayGrant(
            reservationCount: machine.terms.reservationsPerUser,
            streamsPerReservation: machine.terms.streamsPerReservation, streamCount: machine.terms.streamsPerUser,
            byteRate: machine.terms.byteRate)
    }
}

private func label(_ number: Int) -> RelayLabel { numbered(number) }

extension RelayRequest { fileprivate static var reserve: RelayRequest { .reserve([label(1)]) } }

private let holder = 1
private let guest = 2
private let one = RelayStreamID(1)

private func link(_ number: Int) -> LinkID { LinkID(UInt64(number)) }

private func told(_ number: Int, _ answer: RelayAnswer) -> NodeAction { .forward(link(number), .relayAnswer(answer)) }

private func close(_ number: Int) -> NodeAction { .close(link(number)) }

/// A guest hears of the end of its stream, and its link is closed.
private func ended(_ number: Int, _ reason: RelayCloseReason) -> [NodeAction] {
    [told(number, .stream(.guest, .close(reason))), close(number)]
}

@Suite("Relay: the rendezvous node") struct RelayServiceTests {
    private func reserved(_ change: (inout RelayTerms) -> Void = { _ in }) -> Service {
        var service = Service(change)
        #expect(service.say(.reserve, holder, as: service.peer) == [told(holder, .reserved(service.grant))])
        return service
    }

    private func opened(_ change: (inout RelayTerms) -> Void = { _ in }) -> Service {
        var service = reserved(change)
        #expect(service.say(.open(service.reservation), guest) == [told(holder, .incoming(one, service.reservation))])
        return service
    }

    @Test func `each request on a stranger's, a holder's and a guest's link`() {
        let base = opened()
        let (id, piece, two) = (base.reservation, RelayStreamFrame.data([1, 2, 3]), RelayStreamID(2))
        let violation = [told(holder, .stream(one, .close(.violation)))] + ended(guest, .violation)
        /// `isServed`: whether the link is served afterwards.
        typealias Row = (request: RelayRequest, actions: [NodeAction], isServed: Bool)
        let strangers: [Row] = [
            (.reserve, [told(3, .refused(.unknownPeer))], false), (.release, [close(3)], false),
            (.withdraw([label(1)]), [close(3)], false), (.stream(.guest, piece), [], false),
            (.stream(one, .close(.closed)), [], false), (.open(id), [told(holder, .incoming(two, id))], true),
        ]
        let holders: [Row] = [
            (.reserve, [told(holder, .reserved(base.grant))], true),
            (.stream(one, piece), [told(guest, .stream(.guest, piece))], true),
            // No such stream, or none any more.
            (.stream(two, piece), [], true), (.release, ended(guest, .unknownReservation) + [close(holder)], false),
            (.open(id), ended(guest, .violation) + [close(holder)], false),
        ]
        let guests: [Row] = [
            (.stream(.guest, piece), [told(holder, .stream(one, piece))], true), (.reserve, violation, false),
            (.withdraw([label(1)]), violation, false), (.release, violation, false), (.open(id), violation, false),
            // A guest's link has one stream, and its number is 0.
            (.stream(one, piece), violation, false),
        ]
        for (link, rows) in [(3, strangers), (holder, holders), (guest, guests)] {
            for row in rows {
                var service = base
                let actions = service.say(row.request, link, as: link == holder ? service.peer : nil)
                #expect(actions == row.actions && service.serves(link) == row.isServed, "link \(link), \(row.request)")
                #expect(service.machine.isIdle == (link == holder && !row.isServed), "link \(link), \(row.request)")
                let violations = service.machine.counts.violations
                #expect(link != guest || violations == (row.isServed ? 0 : 1), "link \(link), \(row.request)")
            }
        }
    }

    @Test func `either side can end the stream, and the other is told`() {
        var service = opened()
        #expect(service.say(.stream(.guest, .end), guest) == [told(holder, .stream(one, .end))])
        #expect(service.say(.stream(one, .data([5])), holder) == [told(guest, .stream(.guest, .data([5])))])
        #expect(service.say(.stream(one, .end), holder) == [told(guest, .stream(.guest, .end)), close(guest)])
        #expect(service.machine.counts.streams == 0)

        service = opened()
        #expect(service.say(.stream(one, .close(.closed)), holder) == ended(guest, .closed))
        #expect(service.say(.stream(.guest, .data([1])), guest).isEmpty && service.end(guest).isEmpty)

        service = opened()
        #expect(service.end(guest) == [told(holder, .stream(one, .close(.closed)))])
        service = opened()
        #expect(service.end(holder) == ended(guest, .unknownReservation))
        #expect(service.machine.isIdle && service.end(77).isEmpty)
    }

    @Test func `a late frame on a closed link is ignored: a replaced link does not take a reservation back`() {
        let second = 7
        var service = reserved()
        #expect(
            service.say(.reserve, second, as: service.peer) == [close(holder), told(second, .reserved(service.grant))])
        // The first link was left unread.
        let requests: [RelayRequest] = [
            .reserve, .release, .open(service.reservation), .stream(one, .data([1])), .stream(.guest, .close(.closed)),
        ]
        for request in requests { #expect(service.hold(request).isEmpty, "\(request)") }
        #expect(service.serves(second) && !service.serves(holder))
        #expect(service.end(holder).isEmpty && service.machine.counts.reservations == 1)
        // The reservation has moved there, is the same, and moves again with the end of its streams.
        #expect(service.say(.open(service.reservation), 6) == [told(second, .incoming(one, service.reservation))])
        let granted = [close(second), told(5, .reserved(service.grant))]
        #expect(service.say(.reserve, 5, as: service.peer) == ended(6, .unknownReservation) + granted)

        // A link closed after a violation, a release, a refusal or silence, and a guest without a holder.
        let ways: [(inout Service) -> Void] = [
            { $0.hold(.open($0.reservation)) }, { $0.hold(.release) }, { _ = $0.configure(RelayTerms(), isPeer: true) },
            { _ = $0.machine.advance(now: $0.now + Limits.reservationSilence) },
        ]
        for (number, end) in ways.enumerated() {
            service = opened()
            let terms = service.machine.terms
            end(&service)
            #expect(service.configure(terms, isPeer: true).isEmpty)
            #expect(
                service.hold(.reserve).isEmpty && service.say(.open(service.reservation), guest).isEmpty, "\(number)")
            #expect(service.machine.isIdle, "\(number)")
            // The number of a closed link may be used again.
            service.end(holder)
            #expect(service.hold(.reserve) == [told(holder, .reserved(service.grant))])
        }
    }

    @Test func `only peers get a reservation, unless the node is open; no node gets one when it does not serve`() {
        var service = Service()
        #expect(service.say(.reserve, 1) == [told(1, .refused(.unknownPeer))] && service.machine.counts.refused == 1)
        service = Service { $0.isServing = false }
        #expect(service.hold(.reserve) == [told(holder, .refused(.notServing))])
        #expect(service.say(.open(service.reservation), 2) == ended(2, .unknownReservation))
        service = Service { $0.isOpen = true }
        let stranger = service.stranger
        let secret = RelaySecret(rendezvous: service.key.publicKey, user: stranger.publicKey, own: stranger)
        let id = secret.reservation(label(1))
        #expect(service.say(.reserve, 1) == [told(1, .reserved(service.grant))], "open to everybody")
        #expect(service.say(.open(id), 2) == [told(1, .incoming(one, id))], "both sides know it")
    }

    @Test func `each label is a reservation of its own, named by its streams; no other user can take it`() {
        var service = Service { $0.isOpen = true }
        let granted = [told(holder, .reserved(service.grant))]
        #expect(service.hold(.reserve([label(1), label(2), label(2)])) == granted)
        #expect(service.machine.counts.users == 1 && service.machine.counts.reservations == 2)
        // Another user with the same labels has other reservations.
        #expect(service.say(.reserve([label(1), label(2)]), 9).count == 1 && service.machine.counts.reservations == 4)
        for number in [1, 2] {
            let id = service.reservation(label(number))
            let incoming = told(holder, .incoming(RelayStreamID(UInt32(number)), id))
            #expect(service.say(.open(id), 20 + number) == [incoming])
        }
        #expect(service.opens(30, 3) == false)
        // More labels at any time, and none.
        #expect(service.hold(.reserve([label(3)])) == granted && service.hold(.reserve([])) == granted)
        #expect(service.opens(31, 3) == true)
        // The end of the link ends all of its reservations.
        #expect(service.end(holder).count == 6 && service.machine.counts.reservations == 2)
    }

    @Test func `a withdrawn reservation opens no new stream, and its open streams go on`() {
        var service = opened()
        #expect(service.hold(.reserve([label(2)])).count == 1 && service.hold(.withdraw([label(1), label(7)])).isEmpty)
        #expect(service.machine.counts.reservations == 1)
        #expect(service.say(.open(service.reservation), 3) == ended(3, .unknownReservation))
        #expect(service.say(.stream(.guest, .data([1])), guest) == [told(holder, .stream(one, .data([1])))])
        #expect(service.say(.stream(one, .data([2])), holder) == [told(guest, .stream(.guest, .data([2])))])
        #expect(service.opens(4, 2) == true && service.say(.stream(.guest, .close(.closed)), guest).count == 2)
        // Named again, it exists again.
        #expect(service.hold(.reserve).count == 1 && service.opens(6) == true)
    }

    @Test func `labels are reserved in their order up to the limit of a node; freed room goes to the next`() {
        var service = Service { $0.reservationsPerUser = 3 }
        func open(_ first: Int) -> [Int] {
            (1...5).filter { number in
                defer { service.end(first + number) }
                return service.opens(first + number, number)
            }
        }
        #expect(service.hold(.reserve((1...5).map(label))).count == 1)
        #expect(service.machine.counts.reservations == 3 && open(10) == [1, 2, 3])
        #expect(service.hold(.withdraw([label(2)])).isEmpty && service.hold(.reserve([label(4), label(5)])).count == 1)
        #expect(open(20) == [1, 3, 4])
    }

    @Test func `the members of one conversation cannot use up a node's places or its rate of opening streams`() {
        var service = Service { terms in (terms.streamsPerReservation, terms.streamsPerUser) = (2, 3) }
        service.hold(.reserve([label(1), label(2)]))
        let opened = [(1, 10), (1, 11), (1, 12), (2, 13), (2, 14)].map { service.opens($1, $0) }
        #expect(opened == [true, true, false, true, false], "the last: of all together")

        service = Service()
        service.hold(.reserve([label(1), label(2)]))
        let taken = (100..<400).count { number in
            defer { service.end(number) }
            return service.opens(number)
        }
        #expect(taken == Limits.relayOpenRate.burst && service.opens(500, 2))
    }

    @Test func `a flood of labels leaves its sender's link unread, and a new link does not reset the limit`() {
        var service = Service()
        let many = (0..<Limits.relayLabelCount).map(label)
        func pauses(_ actions: [NodeAction]) -> Bool {
            actions.contains { if case .pauseReading = $0 { true } else { false } }
        }
        let first = (1...100).first { pauses(service.hold($0 % 2 == 0 ? .withdraw(many) : .reserve(many))) }
        // Several times the labels of a node are not yet a flood.
        #expect((first ?? 0) * Limits.relayLabelCount > 4 * Limits.reservationsPerUser)
        #expect((first ?? .max) <= Limits.relayLabelRate.burst / Limits.relayLabelCount + 1)
        #expect(pauses(service.say(.reserve(many), 5, as: service.peer)))
        #expect(service.machine.counts.reservations <= Limits.reservationsPerUser)
        service.now = service.now + Milliseconds(Limits.relayLabelRate.burst) * Limits.relayLabelRate.interval * 2
        #expect(!pauses(service.say(.reserve(many), 5, as: service.peer)))
    }

    @Test func `a peer that is blocked or removed loses its reservation at once`() {
        var service = opened()
        var terms = service.machine.terms
        let peer = service.peer.publicKey
        #expect(service.machine.configure(terms, isPeer: { $0 == peer }).isEmpty)
        let over = ended(guest, .unknownReservation)
        #expect(
            service.configure(terms, isPeer: false) == [told(holder, .refused(.unknownPeer))] + over + [close(holder)])
        #expect(service.machine.isIdle)
        service = reserved()
        terms.isServing = false
        #expect(service.configure(terms, isPeer: true) == [told(holder, .refused(.notServing)), close(holder)])
    }

    @Test func `reservations, streams per user and streams in all are limited`() {
        var service = reserved { terms in (terms.userCount, terms.streamsPerReservation) = (1, 2) }
        let another = IdentityKey(SecretKey.generate())
        #expect(service.say(.reserve, 9, as: another, isPeer: true) == [told(9, .refused(.full))])
        #expect([2, 3].map { service.opens($0) } == [true, true])
        #expect(service.say(.open(service.reservation), 4) == ended(4, .busy))
        service.end(3)
        #expect(service.opens(5) == true)

        service = opened { $0.streamCount = 1 }
        #expect(service.say(.open(service.reservation), 4) == ended(4, .busy))
        #expect(service.machine.counts.streams == 1 && service.machine.counts.opened == 1)
        #expect(service.machine.counts.refused == 1)
    }

    @Test func `opening streams is rate-limited, to one node and from one network`() {
        func open(_ service: inout Service, _ count: Int, from source: (Int) -> UInt64?) -> Int {
            (100..<100 + count).count { number in
                service.source = source(number - 100)
                defer { service.end(number) }
                return service.opens(number)
            }
        }
        let guessed = RelayRequest.open(ReservationID(unchecked: [UInt8](repeating: 1, count: 16)))
        var service = reserved()
        #expect(open(&service, 100) { UInt64($0) } == Limits.relayOpenRate.burst, "to one node, from wherever")
        service.now = service.now + 3 * Limits.relayOpenRate.interval
        #expect(open(&service, 100) { UInt64($0) } == 3)

        // Guessed reservations count, too.
        service = reserved()
        service.source = 7
        for index in 0..<Limits.relayOpenRate.burst { service.say(guessed, 1_000 + index) }
        #expect(open(&service, 5) { _ in 7 } == 0 && open(&service, 5) { _ in 8 } == 5)

        // The list of networks is bounded; an unlisted one has to wait.
        service = reserved { $0.isOpen = true }
        for index in 0..<(2 * Limits.relaySourceCount) {
            service.source = UInt64(index)
            service.say(guessed, 5_000 + index)
        }
        #expect(open(&service, 1) { _ in .max } == 0)
        service.now = service.now + .hour
        #expect(open(&service, 1) { _ in .max } == 1)
    }

    @Test func `bytes beyond the window end the stream for both sides`() {
        for side in [holder, guest] {
            var service = opened()
            let number = side == guest ? RelayStreamID.guest : one
            let piece = RelayStreamFrame.data([UInt8](repeating: 0, count: Limits.relayPieceByteCount))
            for _ in 0..<(Limits.relayWindow / Limits.relayPieceByteCount) {
                #expect(service.say(.stream(number, piece), side).count == 1)
            }
            #expect(
                service.say(.stream(number, .data([1])), side) == [told(holder, .stream(one, .close(.violation)))]
                    + ended(guest, .violation))
            #expect(service.machine.counts.byteCount == UInt64(Limits.relayWindow))
        }
    }

    @Test func `credit waits until the rate allows it, and is then granted by a timer`() {
        var service = opened { $0.byteRate = 10_000 }
        let piece = RelayStreamFrame.data([UInt8](repeating: 0, count: 10_000))
        _ = service.say(.stream(.guest, piece), guest)
        #expect(service.say(.stream(one, .credit(10_000)), holder) == [told(guest, .stream(.guest, .credit(10_000)))])
        _ = service.say(.stream(.guest, piece), guest)
        #expect(service.say(.stream(one, .credit(4_000)), holder).isEmpty)
        #expect(service.say(.stream(one, .credit(6_000)), holder).isEmpty)
        let due = start + .second - Limits.relayBurst
        #expect(service.machine.nextDeadline == due && service.machine.advance(now: due - 1).isEmpty)
        #expect(service.machine.advance(now: due) == [told(guest, .stream(.guest, .credit(10_000)))])
        #expect(service.machine.advance(now: due + .second).isEmpty)
    }

    @Test func `idle streams and silent holders are ended`() {
        var service = opened()
        // The holder sends a frame outside of the stream.
        service.machine.heard(link(holder), now: start + Limits.relayIdle - 1)
        #expect(service.machine.advance(now: start + Limits.relayIdle - 1).isEmpty)
        let idle = [told(holder, .stream(one, .close(.idle)))] + ended(guest, .idle)
        #expect(service.machine.advance(now: start + Limits.relayIdle) == idle)
        let end = start + Limits.relayIdle - 1 + Limits.reservationSilence
        #expect(service.machine.nextDeadline == end && service.machine.advance(now: end) == [close(holder)])
        #expect(service.machine.isIdle && service.machine.nextDeadline == nil)
    }

    @Test func `a hundred thousand random requests keep every bound and leave nothing behind`() {
        var service = Service { terms in
            (terms.isOpen, terms.userCount, terms.reservationsPerUser) = (true, 4, 2)
            (terms.streamsPerReservation, terms.streamCount, terms.byteRate) = (3, 8, 100_000)
        }
        let keys = (0..<6).map { _ in IdentityKey(SecretKey.generate()) }
        let ids = keys.map {
            RelaySecret(rendezvous: service.key.publicKey, user: $0.publicKey, own: $0).reservation(label(1))
        }
        var random = Randomness.seeded(11)
        var closed: Set<LinkID> = []
        func pick(_ count: Int) -> Int { Int.random(in: 0..<count, using: &random) }
        for _ in 0..<100_000 {
            let link = pick(24)
            let frames: [RelayStreamFrame] = [
                .data([UInt8](repeating: 1, count: pick(16_384) + 1)), .credit(pick(65_536) + 1), .end, .close(.closed),
                .data([1]), .credit(1),
            ]
            let numbers = (0..<4).map { RelayStreamID($0) }
            let frame = frames[pick(6)]
            let request: RelayRequest =
                switch pick(10) {
                case 0: pick(3) == 0 ? .reserve((0..<3).map { _ in label(pick(4)) }) : .reserve
                case 1: pick(10) == 0 ? .withdraw([label(pick(4))]) : .open(ids[pick(6)])
                case 2: pick(20) == 0 ? .release : .open(ids[0])
                default: .stream(numbers[pick(4)], frame)
                }
            service.source = UInt64(pick(50))
            var actions = service.say(request, link, as: keys[link % 6], isPeer: false)
            service.now = service.now + Milliseconds(pick(40))
            actions += service.machine.advance(now: service.now)
            for case .close(let link) in actions {
                // The shell's transport reports it later.
                let isServed = service.machine.serves(link)
                #expect(!isServed, "a link that is closed is served no more")
                closed.insert(link)
            }
            if pick(20) == 0 { closed.insert(LinkID(UInt64(link))) }
            if pick(2) == 0, !closed.isEmpty {
                let link = closed.sorted()[pick(closed.count)]
                closed.remove(link)
                _ = service.machine.linkClosed(link)
            }
            let counts = service.machine.counts
            if counts.users > 4 || counts.reservations > 8 || counts.streams > 8 { Issue.record("\(counts)") }
        }
        #expect(service.machine.counts.opened > 1_000 && service.machine.counts.byteCount > 1_000_000)
        for number in 0..<24 { service.end(number) }
        #expect(service.machine.isIdle)
        _ = service.machine.advance(now: service.now + .hour)
        #expect(service.machine.nextDeadline == nil)
    }
}

extension RelayServiceStateMachine {
    /// No client and no guest has a link.
    var isIdle: Bool { counts.users == 0 && counts.streams == 0 }
}
