import Cryptography

/// The rendezvous node: keeps reservations for its clients and forwards streams from strangers to them. It dials no
/// node, writes nothing to the disk, and cannot read what it forwards.
///
/// States of a link to the contact inbox:
///
///     stranger ──reserve, granted──▶ holder ──release, refused later, silent, closed──▶ gone
///                                    │  ▲
///                                    └──┘ reserve and withdraw: more labels, fewer
///     stranger ──open, granted────▶ guest  ──its stream is over, closed──▶ gone
///
/// A *holder* is a client's link, which carries all its streams; a *guest* is a link for one stream. A refused stranger
/// is told why.
package struct RelayServiceStateMachine: Sendable {
    private struct Holder: Sendable {
        let key: PublicKey
        let secret: RelaySecret
        /// The number of streams to each.
        var reservations: [ReservationID: Int] = [:]
        var guests: [RelayStreamID: LinkID] = [:]
        var lastNumber: UInt32 = 0
        var rates = RelayRates()
        var heardAt: Timestamp
    }

    private struct Guest: Sendable {
        let holder: LinkID
        let number: RelayStreamID
        let reservation: ReservationID
        var stream = RelayedStream()
        var heardAt: Timestamp
    }

    private struct Flow: Hashable, Sendable {
        let guest: LinkID
        let sender: RelayedStream.Side
    }

    package private(set) var terms = RelayTerms()
    private var holders: [LinkID: Holder] = [:]
    private var holdersByKey: [PublicKey: LinkID] = [:]
    private var reservations: [ReservationID: LinkID] = [:]
    private var guests: [LinkID: Guest] = [:]
    /// Links being closed. Frames that still arrive on them are ignored: a replaced holder would take its reservation
    /// back.
    private var dismissed: Set<LinkID> = []
    /// Flows with deferred credit, in order of waiting.
    private var waiting: [Flow] = []
    private var total = RelayPace()
    private var smallPieces = IdleFrames.relayedTotal
    private var sources = RateTable<UInt64>(Limits.relayOpenRate, limit: Limits.relaySourceCount)
    /// Rates of clients whose link ended recently.
    private var formerRates: [PublicKey: RelayRates] = [:]
    /// A lower bound of the next deadline.
    private var dueAt: Timestamp?
    private var counted = RelayCounts()

    package init() {}

    package var counts: RelayCounts {
        var result = counted
        result.users = holders.count
        result.reservations = reservations.count
        result.streams = guests.count
        return result
    }

    package var nextDeadline: Timestamp? { dueAt }

    /// Whether this link is a holder's or a guest's: it may stay open while it is used.
    package func serves(_ link: LinkID) -> Bool { holders[link] != nil || guests[link] != nil }

    package func link(of user: PublicKey) -> LinkID? { holdersByKey[user] }

    /// Applies a new configuration or peer list; refuses and closes links of clients that are no longer allowed.
    package mutating func configure(_ terms: RelayTerms, isPeer: (PublicKey) -> Bool) -> [NodeAction] {
        self.terms = terms
        var result: [NodeAction] = []
        for link in holders.keys.sorted() {
            guard let holder = holders[link], let refusal = refusal(isPeer: isPeer(holder.key)) else { continue }
            result += [.forward(link, .relayAnswer(.refused(refusal)))] + endHolder(link, .unknownReservation)
            result.append(.close(link))
        }
        return dismissing(result)
    }

    private func refusal(isPeer: Bool) -> RelayRefusal? {
        if !terms.isServing { return .notServing }
        return isPeer || terms.isOpen ? nil : .unknownPeer
    }

    /// - Parameters:
    ///   - isPeer: `remote` is a named peer and not blocked.
    ///   - source: a hash of the other side's address prefix; `nil` if it has none.
    package mutating func receive(
        _ request: RelayRequest, from remote: PublicKey, on link: LinkID, own: IdentityKey, isPeer: Bool,
        source: UInt64?, now: Timestamp
    ) -> [NodeAction] {
        guard !dismissed.contains(link) else { return [] }
        heard(link, now: now)
        return switch request {
        case .reserve(let labels): dismissing(reserve(labels, link, remote, own, isPeer: isPeer, now: now))
        case .withdraw(let labels): dismissing(withdraw(labels, link, now: now))
        case .release where holders[link] == nil: dismissing(violation(of: link))
        case .release: dismissing(endHolder(link, .unknownReservation) + [.close(link)])
        case .open(let reservation): dismissing(open(reservation, link, source: source, now: now))
        case .stream(let number, let frame): dismissing(count(frame, of: number, on: link, now: now))
        }
    }

    /// Forwards a frame and pauses reading from a sender above its rate.
    private mutating func count(_ frame: RelayStreamFrame, of number: RelayStreamID, on link: LinkID, now: Timestamp)
        -> [NodeAction]
    {
        let holding = guests[link]?.holder ?? link
        let actions = receive(frame, of: number, on: link, now: now)
        // A dropped frame counts whatever its size.
        guard frame.isSmall || actions == nil, let wait = haste(link, of: holding, now: now) else {
            return actions ?? []
        }
        return (actions ?? []) + [.pauseReading(link, wait)]
    }

    private mutating func reserve(
        _ labels: [RelayLabel], _ link: LinkID, _ remote: PublicKey, _ own: IdentityKey, isPeer: Bool, now: Timestamp
    ) -> [NodeAction] {
        guard guests[link] == nil else { return violation(of: link) }
        if let refusal = refusal(isPeer: isPeer) { return refuse(link, refusal) }
        var result: [NodeAction] = []
        if holders[link] == nil {
            // The key is needed to derive reservations. The client dials again and is answered after the unlock.
            guard !own.isWiped else { return [.close(link)] }
            // A new link means that the client's earlier one is lost.
            if let before = holdersByKey[remote] { result += endHolder(before, .unknownReservation) + [.close(before)] }
            guard holders.count < terms.userCount else { return result + refuse(link, .full) }
            holders[link] = Holder(
                key: remote, secret: RelaySecret(rendezvous: own.publicKey, user: remote, own: own),
                rates: formerRates.removeValue(forKey: remote) ?? RelayRates(), heardAt: now)
            holdersByKey[remote] = link
            due(now + Limits.reservationSilence)
        }
        for label in labels.prefix(Limits.relayLabelCount) { register(label, link) }
        return result + [.forward(link, .relayAnswer(.reserved(grant)))] + noteLabels(labels.count, link, now: now)
    }

    /// Does nothing for a known label or beyond the client's quota.
    private mutating func register(_ label: RelayLabel, _ link: LinkID) {
        guard let holder = holders[link], holder.reservations.count < terms.reservationsPerUser else { return }
        let reservation = holder.secret.reservation(label)
        guard reservations[reservation] == nil else { return }
        reservations[reservation] = link
        holders[link]?.reservations[reservation] = 0
    }

    /// Withdrawing closes no stream. Inboxes reject removed members themselves; the others learn the new reservation
    /// over these streams.
    private mutating func withdraw(_ labels: [RelayLabel], _ link: LinkID, now: Timestamp) -> [NodeAction] {
        guard let secret = holders[link]?.secret else { return violation(of: link) }
        for label in labels.prefix(Limits.relayLabelCount) {
            let reservation = secret.reservation(label)
            guard holders[link]?.reservations.removeValue(forKey: reservation) != nil else { continue }
            reservations[reservation] = nil
        }
        return noteLabels(labels.count, link, now: now)
    }

    /// Each label costs a key derivation.
    private mutating func noteLabels(_ count: Int, _ link: LinkID, now: Timestamp) -> [NodeAction] {
        guard let wait = holders[link]?.rates.noteLabels(count, now: now) else { return [] }
        return [.pauseReading(link, wait)]
    }

    private var grant: RelayGrant {
        RelayGrant(
            reservationCount: terms.reservationsPerUser, streamsPerReservation: terms.streamsPerReservation,
            streamCount: terms.streamsPerUser, byteRate: terms.byteRate)
    }

    private mutating func refuse(_ link: LinkID, _ refusal: RelayRefusal) -> [NodeAction] {
        counted.refused += 1
        return [.forward(link, .relayAnswer(.refused(refusal)))]
    }

    private mutating func open(_ reservation: ReservationID, _ link: LinkID, source: UInt64?, now: Timestamp)
        -> [NodeAction]
    {
        guard !serves(link) else { return violation(of: link) }
        if let source, !sources.take(source, now: now) { return turnAway(link, .busy) }
        guard terms.isServing, let holding = reservations[reservation], let holder = holders[holding] else {
            return turnAway(link, .unknownReservation)
        }
        guard holder.reservations[reservation, default: 0] < terms.streamsPerReservation,
            holder.guests.count < terms.streamsPerUser, guests.count < terms.streamCount,
            holders[holding]?.rates.takesStream(to: reservation, now: now) == true, let number = takeNumber(holding)
        else { return turnAway(link, .busy) }
        holders[holding]?.guests[number] = link
        holders[holding]?.reservations[reservation, default: 0] += 1
        guests[link] = Guest(holder: holding, number: number, reservation: reservation, heardAt: now)
        counted.opened += 1
        due(now + terms.idle)
        return [.forward(holding, .relayAnswer(.incoming(number, reservation)))]
    }

    private mutating func turnAway(_ link: LinkID, _ reason: RelayCloseReason) -> [NodeAction] {
        counted.refused += 1
        return [.forward(link, .relayAnswer(.stream(.guest, .close(reason)))), .close(link)]
    }

    private mutating func takeNumber(_ link: LinkID) -> RelayStreamID? {
        guard let holder = holders[link] else { return nil }
        var number = holder.lastNumber
        // One of these numbers is free.
        for _ in 0...holder.guests.count {
            number = number == .max ? 1 : number + 1
            guard holder.guests[RelayStreamID(number)] == nil else { continue }
            holders[link]?.lastNumber = number
            return RelayStreamID(number)
        }
        return nil
    }

    /// Counts a small piece. A holder's guests share one rate, and all clients share another: many streams of one-byte
    /// pieces would use all of the processor, far below the byte rate.
    private mutating func haste(_ link: LinkID, of holding: LinkID, now: Timestamp) -> Milliseconds? {
        let isGuest = link != holding
        guard holders[holding] != nil else { return nil }
        let wait = holders[holding]!.rates.noteSmallPiece(isGuest: isGuest, now: now)
        return [wait, smallPieces.note(now: now)].compactMap(\.self).max()
    }

    private mutating func receive(_ frame: RelayStreamFrame, of number: RelayStreamID, on link: LinkID, now: Timestamp)
        -> [NodeAction]?
    {
        if let holder = holders[link] {
            // The stream has ended; frames in transit are dropped.
            guard let guest = holder.guests[number] else { return nil }
            return pass(frame, from: .holder, stream: guest, now: now)
        }
        guard guests[link] != nil else { return nil }
        guard number == .guest else { return violation(of: link) }
        return pass(frame, from: .guest, stream: link, now: now)
    }

    private mutating func pass(
        _ frame: RelayStreamFrame, from side: RelayedStream.Side, stream link: LinkID, now: Timestamp
    ) -> [NodeAction]? {
        guard let outcome = guests[link]?.stream.receive(frame, from: side) else { return nil }
        guests[link]?.heardAt = now
        switch outcome {
        case .forward:
            if case .data(let bytes) = frame { counted.byteCount += UInt64(bytes.count) }
            return tell(side.other, of: link, frame)
        case .withhold:
            let flow = Flow(guest: link, sender: side.other)
            return waiting.contains(flow) ? [] : release(flow, now: now)
        case .forwardLast: return tell(side.other, of: link, frame) + endGuest(link)
        case .drop: return nil
        case .violation: return violation(of: link)
        }
    }

    private func tell(_ side: RelayedStream.Side, of link: LinkID, _ frame: RelayStreamFrame) -> [NodeAction] {
        guard let guest = guests[link] else { return [] }
        return switch side {
        case .holder: [.forward(guest.holder, .relayAnswer(.stream(guest.number, frame)))]
        case .guest: [.forward(link, .relayAnswer(.stream(.guest, frame)))]
        }
    }

    private mutating func release(_ flow: Flow, now: Timestamp) -> [NodeAction] {
        let release = guests[flow.guest]?.stream.release(
            for: flow.sender, rate: terms.byteRate, total: &total, totalRate: terms.byteRateTotal, now: now)
        switch release {
        case .now(let count): return tell(flow.sender, of: flow.guest, .credit(count))
        case .later(let time):
            waiting.append(flow)
            due(time)
            return []
        case .nothing, nil: return []
        }
    }

    /// A protocol violation. By a guest: its stream and link end. By a holder: its link ends.
    private mutating func violation(of link: LinkID) -> [NodeAction] {
        counted.violations += 1
        if guests[link] != nil { return closeStream(link, .violation) }
        return endHolder(link, .violation) + [.close(link)]
    }

    private mutating func closeStream(_ link: LinkID, _ reason: RelayCloseReason) -> [NodeAction] {
        tell(.holder, of: link, .close(reason)) + tell(.guest, of: link, .close(reason)) + endGuest(link)
    }

    private mutating func endGuest(_ link: LinkID) -> [NodeAction] {
        guard let guest = guests.removeValue(forKey: link) else { return [] }
        holders[guest.holder]?.guests[guest.number] = nil
        if let count = holders[guest.holder]?.reservations[guest.reservation] {
            holders[guest.holder]?.reservations[guest.reservation] = max(0, count - 1)
        }
        waiting.removeAll { $0.guest == link }
        return [.close(link)]
    }

    /// Ends a client's reservations. The caller closes or keeps the link.
    private mutating func endHolder(_ link: LinkID, _ reason: RelayCloseReason) -> [NodeAction] {
        guard let holder = holders.removeValue(forKey: link) else { return [] }
        for reservation in holder.reservations.keys { reservations[reservation] = nil }
        if holdersByKey[holder.key] == link { holdersByKey[holder.key] = nil }
        remember(holder)
        return holder.guests.values.sorted().flatMap { guest in
            tell(.guest, of: guest, .close(reason)) + endGuest(guest)
        }
    }

    private mutating func remember(_ holder: Holder) {
        if formerRates.count >= Limits.relaySourceCount {
            formerRates = formerRates.filter { !$0.value.isFull(now: holder.heardAt) }
        }
        // Beyond this many recent clients, rates are forgotten.
        if formerRates.count < Limits.relaySourceCount { formerRates[holder.key] = holder.rates }
    }

    package mutating func heard(_ link: LinkID, now: Timestamp) { holders[link]?.heardAt = now }

    package mutating func linkClosed(_ link: LinkID) -> [NodeAction] {
        dismissed.remove(link)
        if guests[link] != nil {
            let told = tell(.holder, of: link, .close(.closed))
            _ = endGuest(link)
            return told
        }
        return dismissing(endHolder(link, .unknownReservation))
    }

    package mutating func dismiss(in actions: [NodeAction]) {
        for case .close(let link) in actions { dismissed.insert(link) }
    }

    private mutating func dismissing(_ actions: [NodeAction]) -> [NodeAction] {
        dismiss(in: actions)
        return actions
    }

    package mutating func advance(now: Timestamp) -> [NodeAction] {
        guard let dueAt, dueAt <= now else { return [] }
        self.dueAt = nil
        var result: [NodeAction] = []
        let flows = waiting
        waiting = []
        for flow in flows { result += release(flow, now: now) }
        for link in guests.keys.sorted() {
            guard let end = guests[link].map({ $0.heardAt + terms.idle }) else { continue }
            if end <= now { result += closeStream(link, .idle) } else { due(end) }
        }
        for link in holders.keys.sorted() {
            guard let end = holders[link].map({ $0.heardAt + Limits.reservationSilence }) else { continue }
            if end <= now { result += endHolder(link, .unknownReservation) + [.close(link)] } else { due(end) }
        }
        return dismissing(result)
    }

    private mutating func due(_ time: Timestamp) { dueAt = earliest(dueAt, time) }
}
