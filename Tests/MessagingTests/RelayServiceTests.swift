import Crypto
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
    /// An address prefix.
    var source: UInt64?

    init(_ change: (inout RelayTerms) -> Void = { _ in }) {
        var terms = RelayTerms()
        terms.isServing = true
        change(&terms)
        #expect(machine.configure(terms, isPeer: { _ in false }).isEmpty)
    }

    @discardableResult mutating func say(
        _ request: RelayRequest, _ link: Int, as key: IdentityKey? = nil, isPeer: Bool? = nil
    ) -> [NodeAction] {
        let key = key ?? stranger
        return machine.receive(
            request, from: key.publicKey, on: LinkID(UInt64(link)), own: self.key,
            isPeer: isPeer ?? (key.publicKey == peer.publicKey), source: source, now: now)
    }

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

private func label(_ number: Int) -> RelayLabel {
    RelayLabel(unchecked: [UInt8](repeating: 0, count: 14) + [UInt8(number >> 8 & 0xff), UInt8(number & 0xff)])
}

extension RelayRequest { fileprivate static var reserve: RelayRequest { .reserve([label(1)]) } }

private func told(_ link: Int, _ answer: RelayAnswer) -> NodeAction {
    .forward(LinkID(UInt64(link)), .relayAnswer(answer))
}

private func close(_ link: Int) -> NodeAction { .close(LinkID(UInt64(link))) }

@Suite("Relay: the rendezvous node") struct RelayServiceTests {
    private let holder = 1
    private let guest = 2
    private let one = RelayStreamID(1)

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

    // MARK: Cells

    @Test("each request on a stranger's, a holder's and a guest's link") func cells() {
        let piece = RelayStreamFrame.data([1, 2, 3])
        let ended = [
            told(holder, .stream(one, .close(.violation))), told(guest, .stream(.guest, .close(.violation))),
            close(guest),
        ]
        let over = [told(guest, .stream(.guest, .close(.unknownReservation))), close(guest)]

        // A stranger's link.
        var service = opened()
        #expect(service.say(.reserve, 3) == [told(3, .refused(.unknownPeer))])
        #expect(!service.machine.serves(LinkID(3)))
        service = opened()
        #expect(service.say(.release, 3) == [close(3)])
        service = opened()
        #expect(service.say(.stream(.guest, piece), 3).isEmpty)
        #expect(service.say(.stream(one, .close(.closed)), 3).isEmpty)
        let two = RelayStreamID(2)
        #expect(service.say(.open(service.reservation), 3) == [told(holder, .incoming(two, service.reservation))])
        #expect(service.machine.serves(LinkID(3)))

        // A holder's link.
        service = opened()
        #expect(service.say(.reserve, holder, as: service.peer) == [told(holder, .reserved(service.grant))])
        #expect(service.say(.stream(one, piece), holder, as: service.peer) == [told(guest, .stream(.guest, piece))])
        #expect(service.say(.stream(two, piece), holder, as: service.peer).isEmpty, "no such stream, or none any more")
        #expect(service.say(.release, holder, as: service.peer) == over + [close(holder)])
        #expect(service.machine.isIdle)
        service = opened()
        let violated = [told(guest, .stream(.guest, .close(.violation))), close(guest), close(holder)]
        #expect(service.say(.open(service.reservation), holder, as: service.peer) == violated)
        #expect(service.machine.isIdle)

        // A guest's link.
        service = opened()
        #expect(service.say(.stream(.guest, piece), guest) == [told(holder, .stream(one, piece))])
        #expect(service.say(.reserve, guest) == ended)
        service = opened()
        #expect(service.say(.release, guest) == ended)
        service = opened()
        #expect(service.say(.open(service.reservation), guest) == ended)
        service = opened()
        #expect(service.say(.stream(one, piece), guest) == ended, "a guest's link has one stream, and its number is 0")
        #expect(service.machine.counts.violations == 1)
    }

    @Test("either side can end the stream, and the other is told") func endings() {
        var service = opened()
        #expect(service.say(.stream(.guest, .end), guest) == [told(holder, .stream(one, .end))])
        #expect(service.say(.stream(one, .data([5])), holder) == [told(guest, .stream(.guest, .data([5])))])
        #expect(service.say(.stream(one, .end), holder) == [told(guest, .stream(.guest, .end)), close(guest)])
        #expect(service.machine.counts.streams == 0)

        service = opened()
        let closing = RelayStreamFrame.close(.closed)
        #expect(service.say(.stream(one, closing), holder) == [told(guest, .stream(.guest, closing)), close(guest)])
        #expect(service.say(.stream(.guest, .data([1])), guest).isEmpty)
        #expect(service.machine.linkClosed(LinkID(UInt64(guest))).isEmpty)

        service = opened()
        #expect(service.machine.linkClosed(LinkID(UInt64(guest))) == [told(holder, .stream(one, closing))])
        service = opened()
        let gone = RelayStreamFrame.close(.unknownReservation)
        #expect(
            service.machine.linkClosed(LinkID(UInt64(holder))) == [told(guest, .stream(.guest, gone)), close(guest)])
        #expect(service.machine.isIdle)
        #expect(service.machine.linkClosed(LinkID(77)).isEmpty)
    }

    @Test("a late frame on a closed link is ignored: a replaced link does not take a reservation back") func dismissed()
    {
        let second = 7
        var service = reserved()
        let granted = told(second, .reserved(service.grant))
        #expect(service.say(.reserve, second, as: service.peer) == [close(holder), granted])
        // The first link was left unread.
        let requests: [RelayRequest] = [
            .reserve, .release, .open(service.reservation), .stream(one, .data([1])), .stream(.guest, .close(.closed)),
        ]
        for request in requests { #expect(service.say(request, holder, as: service.peer).isEmpty, "\(request)") }
        #expect(service.machine.serves(LinkID(UInt64(second))) && !service.machine.serves(LinkID(UInt64(holder))))
        #expect(service.machine.linkClosed(LinkID(UInt64(holder))).isEmpty)
        #expect(service.machine.counts.reservations == 1)

        // A link closed after a violation, a release, a refusal or silence, and a guest without a holder.
        let ways: [(inout Service) -> Void] = [
            { $0.say(.open($0.reservation), 1, as: $0.peer) }, { $0.say(.release, 1, as: $0.peer) },
            { _ = $0.machine.configure(RelayTerms(), isPeer: { _ in true }) },
            { _ = $0.machine.advance(now: $0.now + Limits.reservationSilence) },
        ]
        for (number, end) in ways.enumerated() {
            service = opened()
            let terms = service.machine.terms
            end(&service)
            #expect(service.machine.configure(terms, isPeer: { _ in true }).isEmpty)
            #expect(service.say(.reserve, holder, as: service.peer).isEmpty, "\(number)")
            #expect(service.say(.open(service.reservation), guest).isEmpty, "\(number)")
            #expect(service.machine.isIdle, "\(number)")
            // The number of a closed link may be used again.
            _ = service.machine.linkClosed(LinkID(UInt64(holder)))
            #expect(service.say(.reserve, holder, as: service.peer) == [told(holder, .reserved(service.grant))])
        }
    }

    // MARK: Admission

    @Test("only peers get a reservation, unless the node is open; no node gets one when it does not serve")
    func admission() {
        var service = Service()
        #expect(service.say(.reserve, 1) == [told(1, .refused(.unknownPeer))])
        #expect(service.machine.counts.refused == 1)
        service = Service { $0.isServing = false }
        #expect(service.say(.reserve, 1, as: service.peer) == [told(1, .refused(.notServing))])
        #expect(
            service.say(.open(service.reservation), 2) == [
                told(2, .stream(.guest, .close(.unknownReservation))), close(2),
            ])
        service = Service { $0.isOpen = true }
        let stranger = service.stranger
        let id = RelaySecret(rendezvous: service.key.publicKey, user: stranger.publicKey, own: stranger).reservation(
            label(1))
        #expect(service.say(.reserve, 1) == [told(1, .reserved(service.grant))], "open to everybody")
        #expect(service.say(.open(id), 2) == [told(1, .incoming(one, id))], "both sides know it")
    }

    // MARK: One for each inbox

    @Test("each label is a reservation of its own, named by its streams; no other user can take it") func several() {
        var service = Service { $0.isOpen = true }
        let holder = holder
        #expect(
            service.say(.reserve([label(1), label(2), label(2)]), holder, as: service.peer) == [
                told(holder, .reserved(service.grant))
            ])
        #expect(service.machine.counts.users == 1 && service.machine.counts.reservations == 2)
        // Another user with the same labels has other reservations.
        #expect(service.say(.reserve([label(1), label(2)]), 9).count == 1)
        #expect(service.machine.counts.reservations == 4)
        for (index, number) in [1, 2].enumerated() {
            let id = service.reservation(label(number))
            let stream = RelayStreamID(UInt32(index + 1))
            #expect(service.say(.open(id), 20 + index) == [told(holder, .incoming(stream, id))])
        }
        #expect(service.say(.open(service.reservation(label(3))), 30).last == close(30))
        // More labels at any time, and none.
        #expect(service.say(.reserve([label(3)]), holder, as: service.peer) == [told(holder, .reserved(service.grant))])
        #expect(service.say(.reserve([]), holder, as: service.peer) == [told(holder, .reserved(service.grant))])
        #expect(service.say(.open(service.reservation(label(3))), 31).count == 1)
        // The end of the link ends all of its reservations.
        let gone = service.machine.linkClosed(LinkID(UInt64(holder)))
        #expect(gone.count == 6 && service.machine.counts.reservations == 2)
    }

    @Test("a withdrawn reservation opens no new stream, and its open streams go on") func withdrawn() {
        var service = opened()
        #expect(service.say(.reserve([label(2)]), holder, as: service.peer).count == 1)
        #expect(service.say(.withdraw([label(1), label(7)]), holder, as: service.peer).isEmpty)
        #expect(service.machine.counts.reservations == 1)
        #expect(
            service.say(.open(service.reservation), 3) == [
                told(3, .stream(.guest, .close(.unknownReservation))), close(3),
            ])
        #expect(service.say(.stream(.guest, .data([1])), guest) == [told(holder, .stream(one, .data([1])))])
        #expect(service.say(.stream(one, .data([2])), holder) == [told(guest, .stream(.guest, .data([2])))])
        #expect(service.say(.open(service.reservation(label(2))), 4).count == 1)
        #expect(service.say(.stream(.guest, .close(.closed)), guest).count == 2)
        // From a guest or a stranger it breaks the protocol.
        #expect(service.say(.withdraw([label(2)]), 4).contains(close(4)))
        #expect(service.say(.withdraw([label(2)]), 5) == [close(5)])
        #expect(service.machine.counts.reservations == 1 && service.machine.counts.violations == 2)
        // Named again, it exists again.
        #expect(service.say(.reserve, holder, as: service.peer).count == 1)
        #expect(service.say(.open(service.reservation), 6).count == 1)
    }

    @Test("labels are reserved in their order up to the limit of a node; freed room goes to the next") func perUser() {
        var service = Service { $0.reservationsPerUser = 3 }
        #expect(service.say(.reserve((1...5).map(label)), holder, as: service.peer).count == 1)
        #expect(service.machine.counts.reservations == 3)
        func isThere(_ number: Int, _ link: Int) -> Bool {
            defer { _ = service.machine.linkClosed(LinkID(UInt64(link))) }
            return service.say(.open(service.reservation(label(number))), link).count == 1
        }
        for number in 1...5 { #expect(isThere(number, 10 + number) == (number <= 3)) }
        #expect(service.say(.withdraw([label(2)]), holder, as: service.peer).isEmpty)
        #expect(service.say(.reserve([label(4), label(5)]), holder, as: service.peer).count == 1)
        for number in 1...5 { #expect(isThere(number, 20 + number) == [1, 3, 4].contains(number)) }
    }

    @Test("the members of one conversation cannot use up a node's places or its rate of opening streams")
    func fairness() {
        var service = Service { terms in
            terms.streamsPerReservation = 2
            terms.streamsPerUser = 3
        }
        _ = service.say(.reserve([label(1), label(2)]), holder, as: service.peer)
        for link in 10...11 { #expect(service.say(.open(service.reservation), link).count == 1) }
        #expect(service.say(.open(service.reservation), 12).last == close(12))
        #expect(service.say(.open(service.reservation(label(2))), 13).count == 1)
        #expect(service.say(.open(service.reservation(label(2))), 14).last == close(14), "of all together")

        service = Service()
        _ = service.say(.reserve([label(1), label(2)]), holder, as: service.peer)
        var taken = 0
        for link in 100..<400 {
            if service.say(.open(service.reservation), link).count == 1 { taken += 1 }
            _ = service.machine.linkClosed(LinkID(UInt64(link)))
        }
        #expect(taken == Limits.relayOpenRate.burst)
        #expect(service.say(.open(service.reservation(label(2))), 500).count == 1)
    }

    @Test("a flood of labels leaves its sender's link unread, and a new link does not reset the limit") func labels() {
        var service = Service()
        let many = (0..<Limits.relayLabelCount).map(label)
        func pauses(_ actions: [NodeAction]) -> Bool {
            actions.contains { if case .pauseReading = $0 { true } else { false } }
        }
        var first: Int?
        for number in 1...100 where first == nil {
            let request: RelayRequest = number % 2 == 0 ? .withdraw(many) : .reserve(many)
            if pauses(service.say(request, holder, as: service.peer)) { first = number }
        }
        // Several times the labels of a node are not yet a flood.
        #expect((first ?? 0) * Limits.relayLabelCount > 4 * Limits.reservationsPerUser)
        #expect((first ?? .max) <= Limits.relayLabelRate.burst / Limits.relayLabelCount + 1)
        #expect(pauses(service.say(.reserve(many), 5, as: service.peer)))
        #expect(service.machine.counts.reservations <= Limits.reservationsPerUser)
        service.now = service.now + Milliseconds(Limits.relayLabelRate.burst) * Limits.relayLabelRate.interval * 2
        #expect(!pauses(service.say(.reserve(many), 5, as: service.peer)))
    }

    @Test("a peer that is blocked or removed loses its reservation at once") func revoked() {
        var service = opened()
        var terms = service.machine.terms
        let peer = service.peer.publicKey
        #expect(service.machine.configure(terms, isPeer: { $0 == peer }).isEmpty)
        #expect(
            service.machine.configure(terms, isPeer: { _ in false }) == [
                told(holder, .refused(.unknownPeer)), told(guest, .stream(.guest, .close(.unknownReservation))),
                close(guest), close(holder),
            ])
        #expect(service.machine.isIdle)
        service = reserved()
        terms.isServing = false
        #expect(
            service.machine.configure(terms, isPeer: { $0 == peer }) == [
                told(holder, .refused(.notServing)), close(holder),
            ])
    }

    @Test("a reservation requested on another link moves there and stays the same") func moved() {
        var service = opened()
        #expect(
            service.say(.reserve, 5, as: service.peer) == [
                told(guest, .stream(.guest, .close(.unknownReservation))), close(guest), close(holder),
                told(5, .reserved(service.grant)),
            ])
        #expect(service.machine.linkClosed(LinkID(UInt64(holder))).isEmpty, "the older link's end changes nothing")
        #expect(service.say(.open(service.reservation), 6) == [told(5, .incoming(one, service.reservation))])
    }

    // MARK: Limits

    @Test("reservations, streams per user and streams in all are limited") func counts() {
        var service = reserved { terms in
            terms.userCount = 1
            terms.streamsPerReservation = 2
        }
        let another = IdentityKey(SecretKey.generate())
        #expect(service.say(.reserve, 9, as: another, isPeer: true) == [told(9, .refused(.full))])
        for link in 2...3 { #expect(service.say(.open(service.reservation), link).count == 1) }
        let busy = { (link: Int) in [told(link, .stream(.guest, .close(.busy))), close(link)] }
        #expect(service.say(.open(service.reservation), 4) == busy(4))
        _ = service.machine.linkClosed(LinkID(3))
        #expect(service.say(.open(service.reservation), 5).count == 1)

        service = opened { $0.streamCount = 1 }
        #expect(service.say(.open(service.reservation), 4) == busy(4))
        #expect(service.machine.counts.streams == 1 && service.machine.counts.opened == 1)
        #expect(service.machine.counts.refused == 1)
    }

    @Test("opening streams is rate-limited, to one node and from one network") func rates() {
        func open(_ service: inout Service, _ count: Int, from source: (Int) -> UInt64?) -> Int {
            var taken = 0
            for index in 0..<count {
                service.source = source(index)
                let link = 100 + index
                if !service.say(.open(service.reservation), link).contains(close(link)) { taken += 1 }
                _ = service.machine.linkClosed(LinkID(UInt64(link)))
            }
            return taken
        }
        var service = reserved()
        #expect(open(&service, 100) { UInt64($0) } == Limits.relayOpenRate.burst, "to one node, from wherever")
        service.now = service.now + 3 * Limits.relayOpenRate.interval
        #expect(open(&service, 100) { UInt64($0) } == 3)

        // Guessed reservations count, too.
        service = reserved()
        service.source = 7
        for index in 0..<Limits.relayOpenRate.burst {
            _ = service.say(.open(ReservationID(unchecked: [UInt8](repeating: 1, count: 16))), 1_000 + index)
        }
        #expect(open(&service, 5) { _ in 7 } == 0)
        #expect(open(&service, 5) { _ in 8 } == 5)

        // The list of networks is bounded; an unlisted one has to wait.
        service = reserved { $0.isOpen = true }
        for index in 0..<(2 * Limits.relaySourceCount) {
            service.source = UInt64(index)
            _ = service.say(.open(ReservationID(unchecked: [UInt8](repeating: 1, count: 16))), 5_000 + index)
        }
        #expect(open(&service, 1) { _ in .max } == 0)
        service.now = service.now + .hour
        #expect(open(&service, 1) { _ in .max } == 1)
    }

    @Test("bytes beyond the window end the stream for both sides") func beyondCredit() {
        for side in [holder, guest] {
            var service = opened()
            let number = side == guest ? RelayStreamID.guest : one
            let piece = RelayStreamFrame.data([UInt8](repeating: 0, count: Limits.relayPieceByteCount))
            for _ in 0..<(Limits.relayWindow / Limits.relayPieceByteCount) {
                #expect(service.say(.stream(number, piece), side).count == 1)
            }
            #expect(
                service.say(.stream(number, .data([1])), side) == [
                    told(holder, .stream(one, .close(.violation))), told(guest, .stream(.guest, .close(.violation))),
                    close(guest),
                ])
            #expect(service.machine.counts.byteCount == UInt64(Limits.relayWindow))
        }
    }

    @Test("credit waits until the rate allows it, and is then granted by a timer") func paced() {
        var service = opened { $0.byteRate = 10_000 }
        let piece = RelayStreamFrame.data([UInt8](repeating: 0, count: 10_000))
        _ = service.say(.stream(.guest, piece), guest)
        #expect(service.say(.stream(one, .credit(10_000)), holder) == [told(guest, .stream(.guest, .credit(10_000)))])
        _ = service.say(.stream(.guest, piece), guest)
        #expect(service.say(.stream(one, .credit(4_000)), holder).isEmpty)
        #expect(service.say(.stream(one, .credit(6_000)), holder).isEmpty)
        let due = start + .second - Limits.relayBurst
        #expect(service.machine.nextDeadline == due)
        #expect(service.machine.advance(now: due - 1).isEmpty)
        #expect(service.machine.advance(now: due) == [told(guest, .stream(.guest, .credit(10_000)))])
        #expect(service.machine.advance(now: due + .second).isEmpty)
    }

    @Test("idle streams and silent holders are ended") func silence() {
        var service = opened()
        // The holder sends a frame outside of the stream.
        service.machine.heard(LinkID(UInt64(holder)), now: start + Limits.relayIdle - 1)
        #expect(service.machine.advance(now: start + Limits.relayIdle - 1).isEmpty)
        #expect(
            service.machine.advance(now: start + Limits.relayIdle) == [
                told(holder, .stream(one, .close(.idle))), told(guest, .stream(.guest, .close(.idle))), close(guest),
            ])
        let end = start + Limits.relayIdle - 1 + Limits.reservationSilence
        #expect(service.machine.nextDeadline == end)
        #expect(service.machine.advance(now: end) == [close(holder)])
        #expect(service.machine.isIdle && service.machine.nextDeadline == nil)
    }

    @Test("a hundred thousand random requests keep every bound and leave nothing behind") func flood() {
        var service = Service { terms in
            terms.isOpen = true
            terms.userCount = 4
            terms.reservationsPerUser = 2
            terms.streamsPerReservation = 3
            terms.streamCount = 8
            terms.byteRate = 100_000
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
        for link in 0..<24 { _ = service.machine.linkClosed(LinkID(UInt64(link))) }
        #expect(service.machine.isIdle)
        _ = service.machine.advance(now: service.now + .hour)
        #expect(service.machine.nextDeadline == nil)
    }
}

extension RelayServiceStateMachine {
    /// No client and no guest has a link.
    var isIdle: Bool { counts.users == 0 && counts.streams == 0 }
}
