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
    typealias Members = [PublicKey: ConversationMember]

    private enum State: Hashable, Sendable {
        case idle
        case waiting(until: Timestamp)
        case putting
    }

    /// The last request for a member's keys, and when it is repeated.
    private struct Asked: Hashable, Sendable {
        var link: LinkID
        var agreement: AgreementID
        var again: Timestamp
    }

    private struct Side: Hashable, Sendable {
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

    private let names: ConversationNames
    var record: MailboxRecord
    private var sides: [PublicKey: Side] = [:]
    /// The agreement at the last call of `isNews`.
    private var agreement: AgreementID?

    init(_ names: ConversationNames, record: MailboxRecord) {
        self.names = names
        self.record = record
    }

    struct Context {
        let members: [PublicKey: ConversationMember]
        let described: [Member]
        let own: Member
        let told: [PublicKey: UInt64]
        /// `nil`: no agreement is in force.
        let agreement: Agreement?

        var consent: MailboxConsent { agreement?.terms.mailbox ?? .no }

        func address(of member: PublicKey) -> MailboxAddress? {
            guard consent != .no else { return nil }
            return described.first { $0.key == member }?.mailbox
        }
    }

    /// Whether we know a member's box and a key for the present slice.
    func reaches(_ member: PublicKey, _ context: Context, now: Timestamp) -> Bool {
        guard context.address(of: member) != nil, let agreement = context.agreement,
            let slices = record.outgoing[member]?.slices, slices.agreement == agreement.id
        else { return false }
        return slices.key(now: now, width: SliceSchedule(agreement.terms).width) != nil
    }

    /// - Returns: whether the agreement has changed since the last call.
    mutating func isNews(_ agreement: AgreementID?) -> Bool {
        defer { self.agreement = agreement }
        return self.agreement != agreement
    }

    mutating func forget(_ member: PublicKey) {
        sides[member] = nil
        record.outgoing[member] = nil
        record.incoming[member] = nil
        record.acknowledgements[member] = nil
    }

    // MARK: Keys

    /// Asks members for slice keys: with each session, at the start of an agreement, and when a member names a box.
    /// Asks again without an answer, since the member may have been locked, and after an eighth of the horizon.
    mutating func askForSlices(_ context: Context, now: Timestamp) -> [NodeAction] {
        guard context.consent != .no else { return [] }
        return context.members.keys.sorted().flatMap { askForSlices(of: $0, context, now: now) }
    }

    private mutating func askForSlices(of member: PublicKey, _ context: Context, now: Timestamp) -> [NodeAction] {
        guard let link = context.members[member]?.establishedLink, context.address(of: member) != nil,
            let agreement = context.agreement
        else {
            // A member without a box is asked when it names one.
            sides[member]?.asked = nil
            return []
        }
        let asked = sides[member]?.asked
        guard asked?.link != link || asked?.agreement != agreement.id || (asked?.again ?? now) <= now else { return [] }
        let known = record.outgoing[member]?.slices.flatMap { $0.agreement == agreement.id ? $0 : nil }
        sides[member, default: Side()].asked = Asked(
            link: link, agreement: agreement.id, again: now + Limits.sliceRequestPatience)
        return [.transmit(link, .mailbox(.want(agreement.id, above: known?.last)))]
    }

    /// Answers a member's request for keys of our slices.
    mutating func wanted(
        _ agreement: AgreementID, above: UInt32?, by member: PublicKey, on link: LinkID, _ context: Context,
        _ tally: inout FrameTally, now: Timestamp
    ) -> [NodeAction] {
        guard context.consent != .no, context.agreement?.id == agreement, context.own.mailbox != nil,
            sides[member, default: Side()].requests.take(now: now) == nil
        else {
            tally.dropped += 1
            return []
        }
        return [.makeSlices(names.client, agreement, above: above, link)]
    }

    mutating func receive(
        _ keys: SliceKeys, from member: PublicKey, _ context: Context, _ tally: inout FrameTally, now: Timestamp
    ) -> [NodeAction] {
        guard let agreement = context.agreement, keys.agreement == agreement.id,
            let address = context.address(of: member), keys.keys.count <= Limits.sliceKeyCount,
            sides[member, default: Side()].keyFrames.take(now: now) == nil
        else {
            tally.dropped += 1
            return []
        }
        let width = SliceSchedule(agreement.terms).width
        guard keys.left > 0, keys.left <= width else {
            tally.dropped += 1
            return []
        }
        var known = outgoing(member, address.box)
        if known.slices == nil { known.slices = KnownSlices(keys, now: now) } else { known.slices?.add(keys, now: now) }
        // A message in the outbox is sealed to the slice in which it was sent.
        known.slices?.prune(now: now - min(SliceSchedule(agreement.terms).unread, Limits.outboxLifetime), width: width)
        record.outgoing[member] = known
        // A failing disk may answer without a key for now; then the request is repeated.
        if known.slices?.key(now: now, width: width) != nil {
            sides[member]?.asked?.again = now + SliceSchedule(agreement.terms).horizon / 8
        }
        return [.save(names.client)]
    }

    private func outgoing(_ member: PublicKey, _ box: BoxID) -> MailboxRecord.Outgoing {
        // Slot numbers continue across boxes, since an owner may return to an earlier box.
        guard let known = record.outgoing[member] else { return MailboxRecord.Outgoing(box: box, next: 0) }
        return known.box == box ? known : MailboxRecord.Outgoing(box: box, next: known.next, slices: known.slices)
    }

    // MARK: Putting

    /// Keeps the acknowledgement of contents from our box. Without a link it goes into the sender's box.
    mutating func acknowledge(_ said: Acknowledgement, to member: PublicKey) {
        if !record.acknowledgements[member, default: Acknowledgement()].merge(said) {
            record.acknowledgements[member] = said
        }
    }

    /// A link to the member is established, so nothing more goes into its box.
    /// - Returns: the acknowledgement that goes over the link in place of the member's box.
    mutating func linked(_ member: PublicKey) -> Acknowledgement {
        if case .waiting? = sides[member]?.state { sides[member]?.state = .idle }
        sides[member]?.failures = 0
        return record.acknowledgements.removeValue(forKey: member) ?? Acknowledgement()
    }

    func nextDeadline(_ members: Members) -> Timestamp? {
        var next: Timestamp?
        for (member, side) in sides {
            let isLinked = members[member]?.isEstablished ?? true
            if !isLinked, case .waiting(let until) = side.state { next = earliest(next, until) }
            if let asked = side.asked, members[member]?.establishedLink == asked.link {
                next = earliest(next, asked.again)
            }
        }
        return next
    }

    /// A content waits for a member without a link: it goes to the member's mailbox after ``Limits/mailDelay``.
    mutating func waits(for member: PublicKey, now: Timestamp) {
        var side = sides[member] ?? Side()
        if case .idle = side.state { side.state = .waiting(until: now + Limits.mailDelay) }
        sides[member] = side
    }

    /// Puts contents into the boxes of absent members, and asks the other members for keys.
    mutating func advance(_ context: Context, _ turn: Turn) -> [NodeAction] {
        guard context.consent != .no || !sides.isEmpty else { return [] }
        var result: [NodeAction] = []
        for member in sides.keys.sorted() {
            guard let state = context.members[member] else { continue }
            if state.isEstablished {
                if case .waiting? = sides[member]?.state { sides[member]?.state = .idle }
                result += askForSlices(of: member, context, now: turn.now)
            } else if case .waiting(let until)? = sides[member]?.state, until <= turn.now {
                result += put(to: member, state, context, turn)
            }
        }
        return result
    }

    private mutating func put(to member: PublicKey, _ state: ConversationMember, _ context: Context, _ turn: Turn)
        -> [NodeAction]
    {
        guard var side = sides[member] else { return [] }
        side.state = .idle
        defer { sides[member] = side }
        guard let agreement = context.agreement, let address = context.address(of: member), !turn.isLocked else {
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
        if let said = record.acknowledgements[member] { frames.append(.acknowledgement(said)) }
        if context.told[member] != context.own.version, side.described != context.own.version {
            frames.append(.profile(context.own))
        }
        guard !messages.isEmpty || !frames.isEmpty else { return [] }
        let order = MailOrder(
            member: member, address: address, kind: context.consent == .disk ? .disk : .memory,
            keeping: .holding(schedule.unread), slice: slice, key: key, agreement: agreement.id, number: known.next,
            messages: messages, frames: frames)
        // Slot numbers are durable before use: a crash skips some and repeats none.
        known.next += UInt64(Limits.mailSlotCount)
        record.outgoing[member] = known
        side.state = .putting
        return [.save(names.client), .mail(names.client, order)]
    }

    mutating func ended(_ order: MailOrder, _ result: MailResult, isMore: Bool, now: Timestamp) {
        guard var side = sides[order.member] else { return }
        side.state = .idle
        if var known = record.outgoing[order.member], known.box == order.address.box,
            known.next == order.number + UInt64(Limits.mailSlotCount)
        {
            known.next = order.number + UInt64(result.slotCount)
            record.outgoing[order.member] = known
        }
        side.tooLarge.formUnion(result.tooLarge)
        if result.isComplete {
            side.failures = 0
            for frame in order.frames {
                if case .profile(let member) = frame { side.described = member.version }
                if case .acknowledgement(let said) = frame, record.acknowledgements[order.member] == said {
                    record.acknowledgements[order.member] = nil
                }
            }
            let isProgress = !result.mailed.isEmpty || !result.tooLarge.isEmpty || !order.frames.isEmpty
            if isMore || owes(order.member) {
                side.state = .waiting(until: isProgress ? now : now + Limits.mailRetry.longest)
            }
        } else {
            if !result.mailed.isEmpty { side.failures = 0 }
            let wait = Limits.mailRetry.wait(after: side.failures)
            side.failures += 1
            side.state = .waiting(until: now + wait)
        }
        sides[order.member] = side
    }

    /// Whether a member waits for the acknowledgement of contents from our box.
    func owes(_ member: PublicKey) -> Bool { record.acknowledgements[member] != nil }

    // MARK: Taking

    /// Whether a slot was taken. Its contents may have expired here since.
    func hasTaken(_ number: UInt64, of member: PublicKey) -> Bool { record.incoming[member]?.hasTaken(number) ?? false }

    mutating func took(_ number: UInt64, of member: PublicKey) {
        record.incoming[member, default: MailboxRecord.Incoming()].take(number)
    }
}
