import Crypto

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
            /// The highest number that was taken.
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
            forgetGaps()
        }

        private static func gaps(from first: UInt64, below number: UInt64) -> Range<UInt64> {
            max(first, number - min(number, UInt64(Limits.slotGapCount)))..<number
        }

        private mutating func forgetGaps() {
            var surplus = runs.reduce(0) { $0 + $1.gaps.count } - Limits.slotGapCount
            for index in runs.indices where surplus > 0 {
                let count = min(surplus, runs[index].gaps.count)
                runs[index].gaps.removeFirst(count)
                surplus -= count
            }
        }
    }

    package var outgoing: [PublicKey: Outgoing] = [:]
    package var incoming: [PublicKey: Incoming] = [:]
    /// Acknowledgements of contents from our box. Each leaves over a link or by the member's own box.
    package var acknowledgements: [PublicKey: Acknowledgement] = [:]

    package init() {}
}

/// Our side of a conversation's mailboxes: puts contents into the boxes of absent members.
///
///     idle ──content waits without a link──▶ waiting ──2 s──▶ putting ──mailbox holds it──▶ idle
///     putting ──not reached, refused──▶ waiting ──4 s … 15 min──▶ putting
///     waiting ──link──▶ idle
struct ConversationMailbox: Sendable {
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

    fileprivate struct Side: Hashable, Sendable {
        var state = State.idle
        var failures = 0
        var asked: Asked?
        /// The version of our profile that its mailbox has.
        var described: UInt64 = 0
        var requests = TokenBucket(Limits.sliceRequestRate)
        /// Rate limit of frames with keys: checking a key costs a curve operation.
        var keyFrames = TokenBucket(Limits.sliceFrameRate)
        var tooLarge: Set<MessageID> = []
    }

    fileprivate var sides: [PublicKey: Side] = [:]
    /// The agreement at the last call of ``ConversationStateMachine/mailAgreementIsNews()``.
    fileprivate var agreement: AgreementID?
}

extension ConversationStateMachine {
    /// All members have agreed to a mailbox.
    package var usesMailbox: Bool { !record.isRemoved && (agreement?.terms.mailbox ?? .no) != .no }

    /// When our mailbox ends; `nil`: none. Members that were away still use it under an ended agreement.
    package var boxUntil: Timestamp? {
        if usesMailbox { return .latest }
        guard !record.isRemoved else { return nil }
        let known = lifetimes.machine?.record.known ?? record.lifetime.known
        return known.filter { $0.terms.mailbox != .no }.map { ($0.endedAt ?? .latest) + Limits.sliceHorizon }.max()
    }

    private func mailboxAddress(of member: PublicKey, under agreement: Agreement?) -> MailboxAddress? {
        guard let agreement, agreement.terms.mailbox != .no else { return nil }
        return record.members.first { $0.key == member }?.mailbox
    }

    /// Whether contents for this member go to its mailbox while it has no link: we know its box and a key for the
    /// present slice.
    package func isMailable(_ member: PublicKey, now: Timestamp) -> Bool {
        guard let agreement, mailboxAddress(of: member, under: agreement) != nil,
            let slices = record.mailbox.outgoing[member]?.slices, slices.agreement == agreement.id
        else { return false }
        return slices.key(now: now, width: SliceSchedule(agreement.terms).width) != nil
    }

    /// - Returns: whether the agreement on mailboxes has changed since the last call.
    mutating func mailAgreementIsNews() -> Bool {
        let agreement = usesMailbox ? agreement?.id : nil
        defer { mail.agreement = agreement }
        return mail.agreement != agreement
    }

    mutating func forgetMail(of member: PublicKey) {
        mail.sides[member] = nil
        record.mailbox.outgoing[member] = nil
        record.mailbox.incoming[member] = nil
        record.mailbox.acknowledgements[member] = nil
    }

    // MARK: Keys

    /// Asks members for slice keys: with each session, at the start of an agreement, and when a member names a box.
    /// Asks again without an answer, since the member may have been locked, and after an eighth of the horizon.
    mutating func askForSlices(now: Timestamp) -> [NodeAction] {
        guard let agreement, agreement.terms.mailbox != .no else { return [] }
        return memberKeys.flatMap { askForSlices(of: $0, under: agreement, now: now) }
    }

    private mutating func askForSlices(of member: PublicKey, under agreement: Agreement?, now: Timestamp)
        -> [NodeAction]
    {
        guard let link = members[member]?.establishedLink, let agreement,
            mailboxAddress(of: member, under: agreement) != nil
        else {
            // A member without a box is asked when it names one.
            mail.sides[member]?.asked = nil
            return []
        }
        let asked = mail.sides[member]?.asked
        guard asked?.link != link || asked?.agreement != agreement.id || (asked?.again ?? now) <= now else { return [] }
        let known = record.mailbox.outgoing[member]?.slices.flatMap { $0.agreement == agreement.id ? $0 : nil }
        mail.sides[member, default: ConversationMailbox.Side()].asked = ConversationMailbox.Asked(
            link: link, agreement: agreement.id, again: now + Limits.sliceRequestPatience)
        return [.transmit(link, .mailbox(.want(agreement.id, above: known?.last)))]
    }

    mutating func receive(_ message: MailboxMessage, from member: PublicKey, on link: LinkID, _ turn: Turn)
        -> [NodeAction]
    {
        guard members[member]?.establishedLink == link else { return drop() }
        switch message {
        case .want(let named, let above):
            guard let agreement, agreement.terms.mailbox != .no, agreement.id == named, record.own.mailbox != nil,
                mail.sides[member, default: ConversationMailbox.Side()].requests.take(now: turn.now) == nil
            else { return drop() }
            return [.makeSlices(client, named, above: above, link)]
        case .keys(let keys): return receive(keys, from: member, now: turn.now)
        }
    }

    private mutating func receive(_ keys: SliceKeys, from member: PublicKey, now: Timestamp) -> [NodeAction] {
        guard let agreement, keys.agreement == agreement.id, let address = mailboxAddress(of: member, under: agreement),
            keys.keys.count <= Limits.sliceKeyCount,
            mail.sides[member, default: ConversationMailbox.Side()].keyFrames.take(now: now) == nil
        else { return drop() }
        let width = SliceSchedule(agreement.terms).width
        guard keys.left > 0, keys.left <= width else { return drop() }
        var known = outgoing(member, address.box)
        if known.slices == nil { known.slices = KnownSlices(keys, now: now) } else { known.slices?.add(keys, now: now) }
        // A message in the outbox is sealed to the slice in which it was sent.
        known.slices?.prune(now: now - min(SliceSchedule(agreement.terms).unread, Limits.outboxLifetime), width: width)
        record.mailbox.outgoing[member] = known
        // A failing disk may answer without a key for now; then the request is repeated.
        if known.slices?.key(now: now, width: width) != nil {
            mail.sides[member]?.asked?.again = now + SliceSchedule(agreement.terms).horizon / 8
        }
        return [.save(client)]
    }

    private func outgoing(_ member: PublicKey, _ box: BoxID) -> MailboxRecord.Outgoing {
        // Slot numbers continue across boxes, since an owner may return to an earlier box.
        guard let known = record.mailbox.outgoing[member] else { return MailboxRecord.Outgoing(box: box, next: 0) }
        return known.box == box ? known : MailboxRecord.Outgoing(box: box, next: known.next, slices: known.slices)
    }

    // MARK: Putting

    /// Keeps the acknowledgement of contents from our box. Without a link it goes into the sender's box.
    mutating func mailAcknowledgement(_ said: Acknowledgement, to member: PublicKey) {
        if !record.mailbox.acknowledgements[member, default: Acknowledgement()].merge(said) {
            record.mailbox.acknowledgements[member] = said
        }
    }

    /// A link to the member is established, so nothing more goes into its box.
    /// - Returns: the acknowledgement that goes over the link in place of the member's box.
    mutating func stopMail(to member: PublicKey) -> Acknowledgement {
        if case .waiting? = mail.sides[member]?.state { mail.sides[member]?.state = .idle }
        mail.sides[member]?.failures = 0
        return record.mailbox.acknowledgements.removeValue(forKey: member) ?? Acknowledgement()
    }

    var mailDeadline: Timestamp? {
        var next: Timestamp?
        for (member, side) in mail.sides {
            let isLinked = members[member]?.isEstablished ?? true
            if !isLinked, case .waiting(let until) = side.state { next = earliest(next, until) }
            if let asked = side.asked, members[member]?.establishedLink == asked.link {
                next = earliest(next, asked.again)
            }
        }
        return next
    }

    /// A content waits for a member without a link: it goes to the member's mailbox after ``Limits/mailDelay``.
    mutating func noteMail(for member: PublicKey, _ turn: Turn) {
        guard usesMailbox, isMailable(member, now: turn.now) else { return }
        if mail.sides[member, default: ConversationMailbox.Side()].state == .idle {
            mail.sides[member, default: ConversationMailbox.Side()].state = .waiting(until: turn.now + Limits.mailDelay)
        }
    }

    /// Puts contents into the boxes of absent members, and asks the other members for keys.
    mutating func advanceMail(_ turn: Turn) -> [NodeAction] {
        guard usesMailbox else { return [] }
        for member in memberKeys where members[member]!.establishedLink == nil {
            if members[member]!.outbox.hasUnmailed(now: turn.now) || owesMail(to: member) {
                noteMail(for: member, turn)
            }
        }
        let agreement = agreement
        var result: [NodeAction] = []
        for member in mail.sides.keys.sorted() {
            guard let state = members[member] else { continue }
            if state.isEstablished {
                if case .waiting? = mail.sides[member]?.state { mail.sides[member]?.state = .idle }
                result += askForSlices(of: member, under: agreement, now: turn.now)
            } else if case .waiting(let until)? = mail.sides[member]?.state, until <= turn.now {
                result += mail(to: member, state, under: agreement, turn)
            }
        }
        return result
    }

    private mutating func mail(
        to member: PublicKey, _ state: ConversationMember, under agreement: Agreement?, _ turn: Turn
    ) -> [NodeAction] {
        guard var side = mail.sides[member] else { return [] }
        side.state = .idle
        defer { mail.sides[member] = side }
        guard let agreement, let address = mailboxAddress(of: member, under: agreement), !turn.isLocked else {
            return []
        }
        let schedule = SliceSchedule(agreement.terms)
        var known = outgoing(member, address.box)
        known.next = SlotRun.next(after: known.next, startedAt: turn.startedAt)
        guard let slices = known.slices, slices.agreement == agreement.id,
            slices.key(now: turn.now, width: schedule.width) != nil
        else { return [] }
        let waiting = state.outbox.unmailed(limit: Limits.mailOrderCount, now: turn.now, besides: side.tooLarge)
        // A key ends with the contents of its slice, so each message is sealed to the slice of its sending. Later
        // orders take the messages of other slices.
        guard let (slice, key) = slices.key(now: turn.now - (waiting.first?.age ?? 0), width: schedule.width) else {
            return []
        }
        let messages = waiting.filter { slices.key(now: turn.now - $0.age, width: schedule.width)?.slice == slice }
        var frames: [Frame] = []
        if let said = record.mailbox.acknowledgements[member] { frames.append(.acknowledgement(said)) }
        if record.told[member] != record.own.version, side.described != record.own.version {
            frames.append(.profile(record.own))
        }
        guard !messages.isEmpty || !frames.isEmpty else { return [] }
        let order = MailOrder(
            member: member, address: address, kind: agreement.terms.mailbox == .disk ? .disk : .memory,
            keeping: .holding(schedule.unread), slice: slice, key: key, agreement: agreement.id, number: known.next,
            messages: messages, frames: frames)
        // Slot numbers are durable before use: a crash skips some and repeats none.
        known.next += UInt64(Limits.mailSlotCount)
        record.mailbox.outgoing[member] = known
        side.state = .putting
        return [.save(client), .mail(client, order)]
    }

    mutating func mailed(_ order: MailOrder, _ result: MailResult, _ turn: inout Turn) -> [NodeAction] {
        let known = members[order.member]?.outbox.mailed(result.mailed) ?? []
        let isMore = members[order.member]?.outbox.hasUnmailed(now: turn.now) ?? false
        endMail(order, result, isMore: isMore, now: turn.now)
        return mailed(known, to: order.member, turn)
    }

    private mutating func endMail(_ order: MailOrder, _ result: MailResult, isMore: Bool, now: Timestamp) {
        guard var side = mail.sides[order.member] else { return }
        side.state = .idle
        if var known = record.mailbox.outgoing[order.member], known.box == order.address.box,
            known.next == order.number + UInt64(Limits.mailSlotCount)
        {
            known.next = order.number + UInt64(result.slotCount)
            record.mailbox.outgoing[order.member] = known
        }
        side.tooLarge.formUnion(result.tooLarge)
        if result.isComplete {
            side.failures = 0
            for frame in order.frames {
                if case .profile(let member) = frame { side.described = member.version }
                if case .acknowledgement(let said) = frame, record.mailbox.acknowledgements[order.member] == said {
                    record.mailbox.acknowledgements[order.member] = nil
                }
            }
            let isProgress = !result.mailed.isEmpty || !result.tooLarge.isEmpty || !order.frames.isEmpty
            if isMore || owesMail(to: order.member) {
                side.state = .waiting(until: isProgress ? now : now + Limits.mailRetry.longest)
            }
        } else {
            if !result.mailed.isEmpty { side.failures = 0 }
            let wait = Limits.mailRetry.wait(after: side.failures)
            side.failures += 1
            side.state = .waiting(until: now + wait)
        }
        mail.sides[order.member] = side
    }

    /// Whether a member waits for the acknowledgement of contents from our box.
    private func owesMail(to member: PublicKey) -> Bool { record.mailbox.acknowledgements[member] != nil }

    // MARK: Taking

    /// Whether a slot was taken. Its contents may have expired here since.
    package func hasTaken(_ number: UInt64, of member: PublicKey) -> Bool {
        record.mailbox.incoming[member]?.hasTaken(number) ?? false
    }

    mutating func took(_ number: UInt64, of member: PublicKey) -> [NodeAction] {
        record.mailbox.incoming[member, default: MailboxRecord.Incoming()].take(number)
        return [.save(client)]
    }

    /// The terms of the known agreement whose id begins with `hint`.
    package func knownTerms(of hint: SlotSealing.Hint) -> LifetimeTerms? {
        lifetimes.machine?.record.known.last { hint.names($0.id) }?.terms
    }
}
