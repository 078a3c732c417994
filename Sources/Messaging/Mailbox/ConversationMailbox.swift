import Cryptography

/// The slot numbers of one run of a node. The upper 44 bits start with the millisecond of the node's start, so a
/// restored old copy of a home reuses no number.
package enum SlotRun {
    private static let bitCount = 20
    /// Prevents overflow, whatever the clock says.
    private static let latest = UInt64(1) << 43
    /// Numbers that belong to a run, counted from its start: far more than it uses.
    private static let range = UInt64(1) << 32

    package static func of(_ number: UInt64) -> UInt64 { number >> bitCount }

    static func first(of run: UInt64) -> UInt64 { run << bitCount }

    /// - Parameter known: the next number that was saved, by this run of the node or an earlier one.
    package static func next(after known: UInt64, startedAt: Timestamp) -> UInt64 {
        let first = first(of: min(UInt64(max(0, startedAt.milliseconds)), latest))
        return known >= first && known - first < range ? known : first
    }
}

/// The durable mailbox state of a conversation: the next slot numbers and the slice keys.
package struct MailboxRecord: Hashable, Sendable, Codable {
    /// Another member's box, into which we put.
    package struct Outgoing: Hashable, Sendable, Codable {
        package var box: BoxID
        package var next: UInt64
        package var slices: KnownSlices?
    }

    /// The slots of one other member that we took from our box.
    package struct Incoming: Hashable, Sendable, Codable {
        /// One run of the member's node: ``SlotRun``.
        private struct Run: Hashable, Sendable, Codable {
            var run: UInt64
            var last: UInt64
            /// Lower numbers of the run that were not taken, the newest last.
            var gaps: [UInt64]
        }

        /// In order, at most ``Limits/slotRunCount``, with at most ``Limits/slotGapCount`` gaps in all.
        private var runs: [Run] = []

        package init() {}

        package func hasTaken(_ number: UInt64) -> Bool {
            let run = SlotRun.of(number)
            guard let known = runs.first(where: { $0.run == run }) else {
                // Runs older than all kept ones count as taken.
                return runs.count == Limits.slotRunCount && run < runs[0].run
            }
            return number <= known.last && !known.gaps.contains(number)
        }

        mutating func take(_ number: UInt64) {
            guard !hasTaken(number) else { return }
            let run = SlotRun.of(number)
            let index = runs.firstIndex { $0.run >= run } ?? runs.endIndex
            if index < runs.endIndex, runs[index].run == run {
                if number < runs[index].last {
                    runs[index].gaps.removeAll { $0 == number }
                } else {
                    runs[index].gaps += Self.gaps(from: runs[index].last + 1, below: number)
                    runs[index].last = number
                }
            } else {
                let gaps = Self.gaps(from: SlotRun.first(of: run), below: number)
                runs.insert(Run(run: run, last: number, gaps: Array(gaps)), at: index)
                runs.removeFirst(max(0, runs.count - Limits.slotRunCount))
            }
            var surplus = runs.reduce(0) { $0 + $1.gaps.count } - Limits.slotGapCount
            for index in runs.indices where surplus > 0 {
                let count = min(surplus, runs[index].gaps.count)
                runs[index].gaps.removeFirst(count)
                surplus -= count
            }
        }

        private static func gaps(from first: UInt64, below number: UInt64) -> Range<UInt64> {
            max(first, number - min(number, UInt64(Limits.slotGapCount)))..<number
        }
    }

    package var outgoing: [PublicKey: Outgoing] = [:]
    package var incoming: [PublicKey: Incoming] = [:]
    /// Acknowledgements of contents from our box. Each leaves over a link or by the member's own box.
    package var acknowledgements: [PublicKey: Acknowledgement] = [:]

    package init() {}
}

/// One member's mailbox: we put contents into its box while it is absent.
///
///     idle ──content waits without a link──▶ waiting ──2 s──▶ putting ──mailbox holds it──▶ idle
///     putting ──not reached, refused──▶ waiting ──4 s … 15 min──▶ putting
///     waiting ──link──▶ idle
struct PeerMail: Hashable, Sendable {
    fileprivate enum State: Hashable, Sendable {
        case idle
        case waiting(until: Timestamp)
        case putting
    }

    /// The last request for a member's keys, and when it is repeated.
    fileprivate struct Asked: Hashable, Sendable {
        var link: LinkID
        var agreement: AgreementID
        var again: Timestamp
    }

    fileprivate var state = State.idle
    fileprivate var failures = 0
    fileprivate var asked: Asked?
    /// The version of our profile that the mailbox has.
    fileprivate var described: UInt64 = 0
    fileprivate var requests = TokenBucket(Limits.sliceRequestRate)
    /// Rate limit of frames with keys: checking a key costs a curve operation.
    fileprivate var keyFrames = TokenBucket(Limits.sliceFrameRate)
    fileprivate var tooLarge: Set<MessageID> = []

    /// A link is established: nothing more goes into the box.
    fileprivate mutating func stop() { if case .waiting = state { state = .idle } }
}

extension Peer {
    fileprivate var mailbox: PeerMail {
        get { mail ?? PeerMail() }
        set { mail = newValue }
    }
}

extension Conversation {
    /// All members have agreed to a mailbox.
    package var usesMailbox: Bool { !record.isRemoved && (agreement?.terms.mailbox ?? .no) != .no }

    /// When our mailbox ends; `nil`: none. Members that were away still use it under an ended agreement.
    package var boxUntil: Timestamp? {
        if usesMailbox { return .latest }
        guard !record.isRemoved else { return nil }
        return record.lifetime.known.filter { $0.terms.mailbox != .no }.map {
            ($0.endedAt ?? .latest) + Limits.sliceHorizon
        }.max()
    }

    private func mailboxAddress(of member: PublicKey, under agreement: Agreement?) -> MailboxAddress? {
        guard let agreement, agreement.terms.mailbox != .no else { return nil }
        return profile(of: member)?.mailbox
    }

    /// Whether contents for this member go to its mailbox while it has no link: we know its box and a key for the
    /// present slice.
    package func isMailable(_ member: PublicKey, now: Timestamp) -> Bool {
        guard let agreement, mailboxAddress(of: member, under: agreement) != nil,
            let slices = record.mailbox.outgoing[member]?.slices, slices.agreement == agreement.id
        else { return false }
        return slices.key(now: now, width: SliceSchedule(agreement.terms).width) != nil
    }

    /// Asks members for slice keys: with each session, at the start of an agreement, and when a member names a box.
    /// Asks again without an answer, since the member may have been locked, and after an eighth of the horizon.
    func askForSlices(_ turn: inout Turn) {
        guard let agreement, agreement.terms.mailbox != .no else { return }
        for peer in peers { askForSlices(of: peer, under: agreement, &turn) }
    }

    private func askForSlices(of peer: Peer, under agreement: Agreement?, _ turn: inout Turn) {
        guard let link = peer.establishedLink, let agreement, mailboxAddress(of: peer.key, under: agreement) != nil
        else {
            // A member without a box is asked when it names one.
            peer.mail?.asked = nil
            return
        }
        let asked = peer.mail?.asked
        guard asked?.link != link || asked?.agreement != agreement.id || (asked?.again ?? turn.now) <= turn.now else {
            return
        }
        let known = record.mailbox.outgoing[peer.key]?.slices.flatMap { $0.agreement == agreement.id ? $0 : nil }
        peer.mailbox.asked = PeerMail.Asked(
            link: link, agreement: agreement.id, again: turn.now + Limits.sliceRequestPatience)
        turn.send(.mailbox(.want(agreement.id, above: known?.last)), on: link)
    }

    func receive(_ message: MailboxMessage, from peer: Peer, on link: LinkID, _ turn: inout Turn) {
        guard peer.establishedLink == link else { return drop() }
        switch message {
        case .want(let named, let above):
            guard let agreement, agreement.terms.mailbox != .no, agreement.id == named, record.own.mailbox != nil,
                peer.mailbox.requests.take(now: turn.now) == nil
            else { return drop() }
            turn.add(.makeSlices(client, named, above: above, link))
        case .keys(let keys): receive(keys, from: peer, &turn)
        }
    }

    private func receive(_ keys: SliceKeys, from peer: Peer, _ turn: inout Turn) {
        let now = turn.now
        guard let agreement, keys.agreement == agreement.id,
            let address = mailboxAddress(of: peer.key, under: agreement), keys.keys.count <= Limits.sliceKeyCount,
            peer.mailbox.keyFrames.take(now: now) == nil
        else { return drop() }
        let width = SliceSchedule(agreement.terms).width
        guard keys.left > 0, keys.left <= width else { return drop() }
        var known = outgoing(peer, address.box)
        if known.slices == nil { known.slices = KnownSlices(keys, now: now) } else { known.slices?.add(keys, now: now) }
        // A message in the outbox is sealed to the slice in which it was sent.
        known.slices?.prune(now: now - min(SliceSchedule(agreement.terms).unread, Limits.outboxLifetime), width: width)
        record.mailbox.outgoing[peer.key] = known
        // A failing disk may answer without a key for now; then the request is repeated.
        if known.slices?.key(now: now, width: width) != nil {
            peer.mail?.asked?.again = now + SliceSchedule(agreement.terms).horizon / 8
        }
        turn.save(client)
    }

    private func outgoing(_ peer: Peer, _ box: BoxID) -> MailboxRecord.Outgoing {
        // Slot numbers continue across boxes, since an owner may return to an earlier box.
        guard let known = record.mailbox.outgoing[peer.key] else { return MailboxRecord.Outgoing(box: box, next: 0) }
        return known.box == box ? known : MailboxRecord.Outgoing(box: box, next: known.next, slices: known.slices)
    }

    /// A link to the member is established, so nothing more goes into its box.
    /// - Returns: the acknowledgement that goes over the link in place of the member's box.
    func stopMail(to peer: Peer) -> Acknowledgement {
        peer.mail?.stop()
        peer.mail?.failures = 0
        return record.mailbox.acknowledgements.removeValue(forKey: peer.key) ?? Acknowledgement()
    }

    var mailDeadline: Timestamp? {
        var next: Timestamp?
        for peer in peers {
            guard let mail = peer.mail else { continue }
            if !peer.isEstablished, case .waiting(let until) = mail.state { next = earliest(next, until) }
            if let asked = mail.asked, peer.establishedLink == asked.link { next = earliest(next, asked.again) }
        }
        return next
    }

    /// A content waits for a member without a link: it goes to the member's mailbox after ``Limits/mailDelay``.
    func noteMail(for peer: Peer, _ turn: Turn) {
        guard usesMailbox, isMailable(peer.key, now: turn.now) else { return }
        if peer.mailbox.state == .idle { peer.mailbox.state = .waiting(until: turn.now + Limits.mailDelay) }
    }

    /// Puts contents into the boxes of absent members, and asks the other members for keys.
    func advanceMail(_ turn: inout Turn) {
        guard usesMailbox else { return }
        for peer in peers where peer.establishedLink == nil {
            if peer.outbox.hasUnmailed(now: turn.now) || owesMail(to: peer) { noteMail(for: peer, turn) }
        }
        let agreement = agreement
        for peer in peers {
            guard let state = peer.mail?.state else { continue }
            if peer.isEstablished {
                peer.mail?.stop()
                askForSlices(of: peer, under: agreement, &turn)
            } else if case .waiting(let until) = state, until <= turn.now {
                mail(to: peer, under: agreement, &turn)
            }
        }
    }

    private func mail(to peer: Peer, under agreement: Agreement?, _ turn: inout Turn) {
        peer.mailbox.state = .idle
        guard let agreement, let address = mailboxAddress(of: peer.key, under: agreement), !turn.isLocked else {
            return
        }
        let schedule = SliceSchedule(agreement.terms)
        var known = outgoing(peer, address.box)
        known.next = SlotRun.next(after: known.next, startedAt: turn.startedAt)
        guard let slices = known.slices, slices.agreement == agreement.id,
            slices.key(now: turn.now, width: schedule.width) != nil
        else { return }
        let waiting = peer.outbox.unmailed(limit: Limits.mailOrderCount, now: turn.now, besides: peer.mailbox.tooLarge)
        // A key ends with the contents of its slice, so each message is sealed to the slice of its sending. Later
        // orders take the messages of other slices.
        guard let (slice, key) = slices.key(now: turn.now - (waiting.first?.age ?? 0), width: schedule.width) else {
            return
        }
        let messages = waiting.filter { slices.key(now: turn.now - $0.age, width: schedule.width)?.slice == slice }
        var frames: [Frame] = []
        if let said = record.mailbox.acknowledgements[peer.key] { frames.append(.acknowledgement(said)) }
        if record.told[peer.key] != record.own.version, peer.mailbox.described != record.own.version {
            frames.append(.profile(record.own))
        }
        guard !messages.isEmpty || !frames.isEmpty else { return }
        let order = MailOrder(
            member: peer.key, address: address, kind: agreement.terms.mailbox == .disk ? .disk : .memory,
            keeping: .holding(schedule.unread), slice: slice, key: key, agreement: agreement.id, number: known.next,
            messages: messages, frames: frames)
        // Slot numbers are durable before use: a crash skips some and repeats none.
        known.next += UInt64(Limits.mailSlotCount)
        record.mailbox.outgoing[peer.key] = known
        peer.mailbox.state = .putting
        turn.save(client)
        turn.add(.mail(client, order))
    }

    package func mailed(_ order: MailOrder, _ result: MailResult, _ turn: inout Turn) {
        guard let peer = peer(order.member) else { return }
        let known = peer.outbox.mailed(result.mailed)
        endMail(order, result, to: peer, now: turn.now)
        mailed(known, to: peer, &turn)
    }

    private func endMail(_ order: MailOrder, _ result: MailResult, to peer: Peer, now: Timestamp) {
        guard var mail = peer.mail else { return }
        mail.state = .idle
        if var known = record.mailbox.outgoing[peer.key], known.box == order.address.box,
            known.next == order.number + UInt64(Limits.mailSlotCount)
        {
            known.next = order.number + UInt64(result.slotCount)
            record.mailbox.outgoing[peer.key] = known
        }
        mail.tooLarge.formUnion(result.tooLarge)
        if result.isComplete {
            mail.failures = 0
            for frame in order.frames {
                if case .profile(let member) = frame { mail.described = member.version }
                if case .acknowledgement(let said) = frame, record.mailbox.acknowledgements[peer.key] == said {
                    record.mailbox.acknowledgements[peer.key] = nil
                }
            }
            let isProgress = !result.mailed.isEmpty || !result.tooLarge.isEmpty || !order.frames.isEmpty
            if peer.outbox.hasUnmailed(now: now) || owesMail(to: peer) {
                mail.state = .waiting(until: isProgress ? now : now + Limits.mailRetry.longest)
            }
        } else {
            if !result.mailed.isEmpty { mail.failures = 0 }
            let wait = Limits.mailRetry.wait(after: mail.failures)
            mail.failures += 1
            mail.state = .waiting(until: now + wait)
        }
        peer.mail = mail
    }

    /// Whether a member waits for the acknowledgement of contents from our box.
    private func owesMail(to peer: Peer) -> Bool { record.mailbox.acknowledgements[peer.key] != nil }

    /// Whether a slot was taken. Its contents may have expired here since.
    package func hasTaken(_ number: UInt64, of member: PublicKey) -> Bool {
        record.mailbox.incoming[member]?.hasTaken(number) ?? false
    }

    func took(_ number: UInt64, of member: PublicKey, _ turn: inout Turn) {
        record.mailbox.incoming[member, default: MailboxRecord.Incoming()].take(number)
        turn.save(client)
    }

    /// The terms of the known agreement whose id begins with `hint`.
    package func knownTerms(of hint: SlotSealing.Hint) -> LifetimeTerms? {
        lifetimes.machine?.record.known.last { hint.names($0.id) }?.terms
    }
}
