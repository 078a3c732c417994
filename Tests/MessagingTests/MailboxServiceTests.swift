import Cryptography
import Messaging
import TestSupport
import Testing

private let start = Timestamp(milliseconds: 1_795_247_146_000)
private let client = ClientID(unchecked: [UInt8](repeating: 9, count: 16))

private let holder = 1
private let guest = 2

private func link(_ number: Int) -> LinkID { LinkID(UInt64(number)) }

private func told(_ number: Int, _ answer: MailboxAnswer) -> NodeAction {
    .transmit(link(number), .mailboxAnswer(answer))
}

private func refused(_ number: Int, _ refusal: MailboxRefusal) -> NodeAction {
    .forward(link(number), .mailboxAnswer(.refused(refusal)))
}

private func close(_ number: Int) -> NodeAction { .close(link(number)) }

private func overwritten(_ number: Int, _ box: BoxID, _ slot: Int) -> [NodeAction] {
    [.mailbox(.erase(box, [id(slot)])), told(number, .discarded(box, [id(slot)]))]
}

private func id(_ number: Int) -> SlotID { SlotID(tag(number)) }

private func label(_ number: Int) -> BoxLabel { numbered(number) }

private func tag(_ number: Int) -> SlotTag {
    SlotTag(unchecked: [UInt8](repeating: 5, count: 28) + (0..<4).map { UInt8(number >> (8 * $0) & 0xff) })
}

private func put(_ number: Int, _ kind: SlotKind = .disk, _ keeping: SlotKeeping? = nil, size: Int = 1_024) -> SlotPut {
    SlotPut(
        id: SlotID(tag(number)), kind: kind, keeping: keeping ?? (kind == .notice ? .fortyFiveDays : .oneDay),
        body: [UInt8](repeating: UInt8(number & 0xff), count: size))
}

/// A mailbox's machine, and a shell that keeps, erases and returns bodies.
private struct Mailbox {
    let key = IdentityKey(SecretKey.generate())
    let owner = IdentityKey(SecretKey.generate())
    let second = IdentityKey(SecretKey.generate())
    var machine = MailboxServiceStateMachine()
    var now = start
    var peers: Set<PublicKey> = []
    var isLocked = false
    var hasRoom = true
    var isSilent = false
    var refused: Set<SlotID> = []
    var sources: [Int: UInt64] = [:]
    var kept: [BoxID: [SlotID: (slot: KeptSlot, body: [UInt8])]] = [:]
    /// Keys of links; other links have random ones.
    private(set) var linkKeys: [Int: PublicKey] = [:]

    init(_ change: (inout MailboxTerms) -> Void = { _ in }) {
        peers = [owner.publicKey, second.publicKey]
        var terms = MailboxTerms()
        terms.isServing = true
        change(&terms)
        let actions = configure(terms)
        #expect(actions.isEmpty)
    }

    /// A mailbox whose owner has claimed its first box.
    static func claimed(_ change: (inout MailboxTerms) -> Void = { _ in }) -> Mailbox {
        var mailbox = Mailbox(change)
        #expect(mailbox.claim().last == mailbox.granted(boxes: mailbox.machine.terms.boxCount))
        return mailbox
    }

    /// A mailbox with slot 1 in that box.
    static func filled() -> Mailbox {
        var mailbox = claimed()
        #expect(mailbox.outcome(put(1)) == .stored)
        return mailbox
    }

    var turn: Turn {
        let (peers, kept, sources, isSilent) = (peers, kept, sources, isSilent)
        let refused = refused
        let turn = Turn(now: now, random: .seeded(1), isLocked: isLocked)
        turn.around.hasRoom = hasRoom
        turn.around.namedPeers = { peers.contains($0) }
        turn.around.sources = { sources[Int($0.value)] }
        turn.around.slots = {
            guard !isSilent else { return nil }
            let slots = kept[$0]?.values.map(\.slot) ?? []
            return KeptSlots(slots.filter { !refused.contains($0.id) }, isWhole: refused.isEmpty)
        }
        return turn
    }

    /// Whether the owner would get the first slot of its first box: over a new link, on a copy of the machine.
    func taken(_ id: SlotID, at now: Timestamp) -> Bool {
        var copy = self
        copy.now = now
        copy.claim([1], 99)
        return copy.say(.take(copy.box(), [tag(1)]), 99) != [told(99, .absent(copy.box(), id))]
    }

    @discardableResult mutating func configure(_ terms: MailboxTerms) -> [NodeAction] {
        let peers = peers
        let actions = machine.configure(terms, client) { peers.contains($0) }
        return perform(actions)
    }

    /// The machine starts with its records and terms.
    mutating func restart() {
        let terms = machine.terms
        machine = MailboxServiceStateMachine(machine.records)
        configure(terms)
    }

    @discardableResult mutating func say(_ request: MailboxRequest, _ number: Int) -> [NodeAction] {
        let (remote, turn) = (remote(number), turn)
        return perform(machine.receive(request, from: remote, on: link(number), client: client, own: key, turn))
    }

    /// The outcome that the sender is told. A stored body is kept; otherwise nothing else happens.
    mutating func outcome(_ slot: SlotPut, _ number: Int = guest, in box: BoxID? = nil) -> PutOutcome? {
        let box = box ?? self.box()
        let actions = say(.put(box, slot), number)
        let answer = actions.count > 1 ? actions[1] : actions.first
        guard case .transmit(link(number), .mailboxAnswer(.put(box, slot.id, let outcome)))? = answer else {
            return nil
        }
        if case .mailbox(.keep(box, let kept, _))? = actions.first {
            #expect(outcome == .stored && kept.id == slot.id)
        } else {
            #expect(outcome != .stored && actions.count == 1)
        }
        return outcome
    }

    private mutating func remote(_ number: Int) -> PublicKey {
        if let known = linkKeys[number] { return known }
        let key = SecretKey.generate().publicKey
        linkKeys[number] = key
        return key
    }

    func secret(of owner: IdentityKey? = nil) -> MailboxSecret {
        let owner = owner ?? self.owner
        return MailboxSecret(mailbox: key.publicKey, owner: owner.publicKey, own: owner)
    }

    func box(_ number: Int = 1, of owner: IdentityKey? = nil) -> BoxID { secret(of: owner).box(label(number)) }

    /// - Parameter proof: the link whose proof is shown.
    @discardableResult mutating func claim(
        _ numbers: [Int] = [1], _ number: Int = holder, as owner: IdentityKey? = nil, proof: PublicKey? = nil
    ) -> [NodeAction] {
        let owner = owner ?? self.owner
        let named = proof ?? remote(number)
        let proof = secret(of: owner).proof(of: named)
        return say(.claim(owner: owner.publicKey, proof: proof, numbers.map(label)), number)
    }

    @discardableResult mutating func perform(_ actions: [NodeAction]) -> [NodeAction] {
        for case .mailbox(let action) in actions {
            switch action {
            case .keep(let box, let slot, let body): kept[box, default: [:]][slot.id] = (slot, body)
            case .erase(let box, let ids): for id in ids { kept[box]?[id] = nil }
            case .destroy(let box): kept[box] = nil
            case .give: break
            }
        }
        return actions
    }

    @discardableResult mutating func advance(to time: Timestamp) -> [NodeAction] {
        now = time
        let actions = machine.advance(client, turn)
        return perform(actions)
    }

    func serves(_ number: Int) -> Bool { machine.serves(link(number)) }

    func granted(_ number: Int = holder, boxes: Int = Limits.boxCount) -> NodeAction {
        let terms = machine.terms
        return told(
            number,
            .granted(
                MailboxGrant(
                    boxCount: boxes, slotCount: terms.slotCount, byteCount: terms.boxByteCount, longest: terms.longest))
        )
    }

    func slot(_ put: SlotPut, at time: Timestamp? = nil) -> KeptSlot {
        let time = time ?? now
        let isNotice = put.kind == .notice
        let longest = isNotice ? put.keeping.milliseconds : min(put.keeping.milliseconds, machine.terms.longest)
        return KeptSlot(
            id: put.id, kind: put.kind, isAnswer: false, byteCount: put.body.count, keptAt: time, until: time + longest)
    }
}

@Suite("Mailbox: the node that stores") struct MailboxServiceTests {
    private typealias Row = (link: Int, request: MailboxRequest, actions: [NodeAction])

    private func check(_ rows: [Row], _ mailbox: inout Mailbox, _ name: String = "") {
        for (number, row) in rows.enumerated() {
            #expect(mailbox.say(row.request, row.link) == row.actions, "\(name) row \(number): \(row.request)")
        }
    }

    // MARK: Admission

    @Test func `a stranger, a claim without proof, and a locked or wiped node get no box`() {
        let stranger = IdentityKey(SecretKey.generate())
        var mailbox = Mailbox { $0.isServing = false }
        #expect(mailbox.claim() == [refused(holder, .notServing)])
        mailbox = Mailbox()
        #expect(mailbox.claim(as: stranger) == [refused(holder, .unknownPeer)])
        // A missing proof, or that of another link: a peer's key alone is not enough.
        #expect(mailbox.claim(proof: stranger.publicKey) == [refused(holder, .unknownPeer)])
        for count in [0, 31, 32, 33] {
            let proof = [UInt8](repeating: 0, count: count)
            let claim = MailboxRequest.claim(owner: mailbox.owner.publicKey, proof: proof, [label(1)])
            #expect(mailbox.say(claim, holder) == [refused(holder, .unknownPeer)])
        }
        mailbox.isLocked = true
        #expect(mailbox.claim() == [refused(holder, .unavailable)])
        mailbox.isLocked = false
        mailbox.key.wipe()
        #expect(mailbox.claim() == [refused(holder, .unavailable)])
        #expect(!mailbox.serves(holder) && mailbox.machine.records.isEmpty)
        #expect(mailbox.machine.counts.refused == 8 && mailbox.machine.nextDeadline == nil)
    }

    @Test func `an invalid proof does not replace the owner's link`() {
        var mailbox = Mailbox.filled()
        let stranger = SecretKey.generate().publicKey
        #expect(mailbox.claim([1, 2], 5, proof: stranger) == [refused(5, .unknownPeer)])
        #expect(mailbox.serves(holder) && !mailbox.serves(5) && mailbox.machine.records.map(\.box) == [mailbox.box()])
        // A holder that names another owner breaks the protocol, whatever the proof.
        #expect(mailbox.claim([1], holder, as: mailbox.second) == [close(holder)] && mailbox.machine.counts.owners == 1)
    }

    @Test func `a granted box is durable before its owner hears of it, and stays the same`() {
        var mailbox = Mailbox()
        let granted = mailbox.granted()
        #expect(mailbox.claim([1, 2]) == [.save(client), granted])
        #expect(mailbox.claim([1, 2]) == [granted], "nothing is new")
        mailbox.now = mailbox.now + .hour
        #expect(mailbox.claim() == [granted])
        mailbox.now = mailbox.now + 1
        #expect(mailbox.claim([2]) == [.save(client), granted], "a write once an hour")
        let records = mailbox.machine.records
        #expect(Set(records.map(\.box)) == [mailbox.box(1), mailbox.box(2)])
        #expect(records == records.sorted { $0.box < $1.box })
        #expect(records.allSatisfy { $0.owner == mailbox.owner.publicKey })
        mailbox.restart()
        #expect(mailbox.machine.records == records && mailbox.machine.counts.boxes == 2)
    }

    @Test func `another link of an owner takes the place of its first`() {
        var mailbox = Mailbox.filled()
        let box = mailbox.box()
        #expect(mailbox.claim([1], 7) == [close(holder), mailbox.granted(7), told(7, .waiting(box))])
        #expect(!mailbox.serves(holder) && mailbox.serves(7) && mailbox.say(.list(box), holder) == [close(holder)])
        mailbox.machine.linkClosed(link(holder))
        #expect(mailbox.serves(7), "the end of the first says nothing of the second")
        #expect(mailbox.say(.put(box, put(2)), guest).last == told(guest, .put(box, id(2), .stored)), "it knows")
        mailbox.machine.linkClosed(link(7))
        #expect(!mailbox.serves(7))
        #expect(mailbox.say(.put(box, put(3)), guest).last == told(guest, .put(box, id(3), .stored)))
    }

    @Test func `a holder is notified once of waiting slots, and again after it has listed the box`() {
        var mailbox = Mailbox.claimed()
        let box = mailbox.box()
        let waiting = told(holder, .waiting(box))
        #expect(mailbox.say(.put(box, put(1)), guest).last == waiting)
        #expect(!mailbox.say(.put(box, put(2)), guest).contains(waiting))
        mailbox.say(.list(box), holder)
        #expect(mailbox.say(.put(box, put(3)), guest).last == waiting)
        #expect(!mailbox.say(.put(box, put(4)), guest).contains(waiting))
        mailbox.machine.linkClosed(link(holder))
        #expect(!mailbox.say(.put(box, put(6)), guest).contains(waiting))
        #expect(mailbox.claim([1], 7).last == told(7, .waiting(box)), "a new link is told at once")
    }

    @Test func `the boxes of a linked owner are saved once a day, and exist after a restart 60 days later`() {
        var mailbox = Mailbox.claimed()
        var saved = mailbox.machine.records
        for _ in 0..<(61 * 1_440) {
            mailbox.machine.heard(link(holder), now: mailbox.now)
            let actions = mailbox.advance(to: mailbox.now + .minute)
            if actions == [.save(client)] { saved = mailbox.machine.records } else { #expect(actions.isEmpty) }
        }
        #expect(mailbox.now - saved[0].seenAt <= .day)
        mailbox.machine = MailboxServiceStateMachine(saved)
        #expect(mailbox.advance(to: mailbox.now + .minute).isEmpty && mailbox.machine.counts.boxes == saved.count)
        // The same for an owner that returns within the hour.
        var other = Mailbox()
        other.claim()
        var count = 0
        for _ in 0..<10 {
            other.machine.linkClosed(link(holder))
            other.now = other.now + 50 * .minute
            if other.claim().contains(.save(client)) { count += 1 }
        }
        #expect(count == 5)
    }

    @Test func `boxes are granted up to the mailbox's limit, in the order of the claim`() {
        var mailbox = Mailbox { $0.boxCount = 3 }
        #expect(mailbox.claim([1, 2]).last == mailbox.granted(boxes: 3))
        #expect(mailbox.claim([1, 2], 5, as: mailbox.second).last == mailbox.granted(5, boxes: 1))
        #expect(mailbox.machine.counts.boxes == 3 && mailbox.machine.counts.owners == 2)
        #expect(mailbox.outcome(put(1), in: mailbox.box(2, of: mailbox.second)) == .unknownBox)
        #expect(mailbox.claim([3]).last == mailbox.granted(boxes: 2))
        #expect(mailbox.say(.drop([label(1)]), holder) == [.mailbox(.destroy(mailbox.box(1))), .save(client)])
        #expect(mailbox.claim([2], 5, as: mailbox.second).last == mailbox.granted(5, boxes: 2))
        #expect(mailbox.machine.counts.boxes == 3)
    }

    // MARK: Cells

    @Test func `a guest that sends a holder's request loses its link; an owner may act only on its own boxes`() {
        for isOther in [false, true] {
            var mailbox = Mailbox.filled()
            let box = mailbox.box()
            // A stranger's link, and that of another owner.
            if isOther { mailbox.claim([1], 3, as: mailbox.second) }
            let before = mailbox.machine.records
            check(
                [
                    (3, .list(box), [close(3)]), (3, .purge(box, [id(1)]), [close(3)]),
                    (3, .drop([label(2)]), isOther ? [] : [close(3)]),
                ], &mailbox, "\(isOther)")
            #expect(mailbox.machine.records == before)
            #expect(mailbox.outcome(put(2), 3) == .stored && mailbox.outcome(put(3, .notice), 3) == .stored)
            let notice = mailbox.slot(put(3, .notice))
            check(
                [
                    // A content is the owner's.
                    (3, .take(box, [tag(1)]), [told(3, .absent(box, id(1)))]),
                    (3, .take(box, [tag(3)]), [.mailbox(.give(link(3), box, notice, dwell: 0))]),
                    (3, .discard(box, [tag(1)], answer: []), overwritten(3, box, 1)),
                ], &mailbox, "\(isOther)")
            #expect(mailbox.serves(3) == isOther)
        }
        var mailbox = Mailbox.filled()
        let (box, missing) = (mailbox.box(), mailbox.box(9))
        check(
            [
                (holder, .list(box), [told(holder, .slots(box, [id(1)]))]), (holder, .list(missing), [close(holder)]),
                (holder, .purge(missing, [id(1)]), [close(holder)]),
                // The owner of an exploded conversation may name a box that is gone; a guest may not ask.
                (holder, .purge(missing, []), [told(holder, .discarded(missing, []))]),
                (guest, .purge(missing, []), [close(guest)]),
                (holder, .take(missing, [tag(1)]), [told(holder, .absent(missing, id(1)))]),
                (holder, .discard(missing, [tag(1)], answer: []), [close(holder)]), (holder, .drop([label(9)]), []),
                (holder, .purge(box, [id(1), id(2)]), overwritten(holder, box, 1)),
                (holder, .list(box), [told(holder, .slots(box, []))]),
            ], &mailbox, "holder")
        #expect(mailbox.outcome(put(1), holder) == .stored, "an owner may put into its own")
    }

    @Test("a put is answered with its outcome in each case, and only `stored` keeps something") func outcomes() {
        var mailbox = Mailbox.claimed()
        #expect(mailbox.outcome(put(1), in: mailbox.box(4)) == .unknownBox)
        mailbox.isLocked = true
        #expect(mailbox.outcome(put(1)) == .unavailable && mailbox.outcome(put(1, .notice)) == .unavailable)
        #expect(mailbox.outcome(put(2, .memory)) == .stored, "memory needs no disk")
        mailbox.isLocked = false
        mailbox.hasRoom = false
        #expect(mailbox.outcome(put(1)) == .unavailable && mailbox.outcome(put(3, .memory)) == .stored)
        mailbox.hasRoom = true
        #expect(mailbox.outcome(put(1)) == .stored && mailbox.outcome(put(4, .notice)) == .stored)
        let terms = mailbox.machine.terms
        #expect(mailbox.configure(MailboxTerms()) == [refused(holder, .notServing), close(holder)])
        #expect(mailbox.outcome(put(5)) == .notServing)
        #expect(mailbox.configure(terms).isEmpty && mailbox.outcome(put(5)) == .stored)
        #expect(mailbox.machine.counts.put == 5 && mailbox.machine.counts.refused == 5)
    }

    @Test func `a body of the wrong size or class for its kind ends the link`() {
        var mailbox = Mailbox.claimed()
        var wrong = [put(1, size: 0), put(1, size: 1_025), put(1, .notice, size: 4_096)]
        for kind in SlotKind.allCases {
            let classes = SlotKeeping.allCases.filter { (kind == .notice) != ($0 == .fortyFiveDays) }
            wrong += classes.map { put(1, kind, $0) }
        }
        check(wrong.map { (guest, .put(mailbox.box(), $0), [close(guest)]) }, &mailbox)
        #expect(mailbox.machine.counts.put == 0 && mailbox.machine.counts.slots == 0)
    }

    // MARK: Slots

    @Test func `a repeated put is stored once`() {
        var mailbox = Mailbox.filled()
        let box = mailbox.box()
        mailbox.now = mailbox.now + .hour
        let others = [put(1), put(1, .memory), put(1, .notice), put(1, size: 4_096), put(1, .disk, .thirtyDays)]
        check(others.map { (3, .put(box, $0), [told(3, .put(box, id(1), .stored))]) }, &mailbox)
        #expect(mailbox.kept[box]?.values.map(\.slot) == [mailbox.slot(put(1), at: start)])
        #expect(mailbox.machine.counts.put == 1)
        mailbox.restart()
        #expect(mailbox.say(.put(box, put(1)), 3) == [told(3, .put(box, id(1), .stored))])
    }

    @Test func `the owner takes a slot by its tag; a guessed tag finds nothing and discards nothing`() {
        var mailbox = Mailbox.filled()
        let (box, other) = (mailbox.box(), mailbox.box(2))
        mailbox.now = mailbox.now + 1_234
        let given = NodeAction.mailbox(.give(link(holder), box, mailbox.slot(put(1), at: start), dwell: 1_234))
        // The name of the slot, known from the put, is not its tag.
        let guess = SlotTag(unchecked: id(1).bytes + id(1).bytes)
        check(
            [
                (holder, .take(box, [tag(2), tag(1)]), [told(holder, .absent(box, id(2))), given]),
                (holder, .take(box, [guess]), [told(holder, .absent(box, SlotID(guess)))]),
                (9, .discard(box, [guess], answer: []), [told(9, .discarded(box, []))]),
                (holder, .take(other, [tag(1)]), [told(holder, .absent(other, id(1)))]),
                (holder, .take(box, [tag(1)]), [given]),
            ], &mailbox)
        #expect(mailbox.machine.counts.taken == 2)
        #expect(mailbox.say(.discard(box, [tag(1), tag(2)], answer: []), holder).count == 2)
        #expect(mailbox.say(.take(box, [tag(1)]), holder) == [told(holder, .absent(box, id(1)))])
        #expect(mailbox.machine.counts.slots == 0 && mailbox.machine.counts.discarded == 1)
        // The clock was set back: the dwell time is not negative.
        var back = Mailbox.filled()
        back.now = start - .hour
        let backThen = NodeAction.mailbox(.give(link(holder), back.box(), back.slot(put(1), at: start), dwell: 0))
        #expect(back.say(.take(back.box(), [tag(1)]), holder) == [backThen])
    }

    @Test func `an answer replaces only a notice, and keeps its time; a second answer changes nothing`() throws {
        var mailbox = Mailbox.filled()
        let box = mailbox.box()
        #expect(mailbox.outcome(put(2, .notice)) == .stored)
        var answer = mailbox.slot(put(2, .notice))
        mailbox.now = mailbox.now + .hour
        (answer.isAnswer, answer.byteCount) = (true, 3)
        check(
            [
                (
                    holder, .discard(box, [tag(2)], answer: [7, 8, 9]),
                    [
                        .mailbox(.erase(box, [id(2)])), .mailbox(.keep(box, answer, [7, 8, 9])),
                        told(holder, .discarded(box, [id(2)])),
                    ]
                ),
                // Its owner has nothing to fetch there; the notice's sender has.
                (holder, .list(box), [told(holder, .slots(box, [id(1)]))]),
                (8, .take(box, [tag(2)]), [.mailbox(.give(link(8), box, answer, dwell: .hour))]),
                // An answer to contents is refused: they are gone.
                (holder, .discard(box, [tag(1)], answer: [1]), overwritten(holder, box, 1)),
                (holder, .discard(box, [tag(5)], answer: [1]), [told(holder, .discarded(box, []))]),
                (guest, .discard(box, [tag(2), tag(5)], answer: [1]), [close(guest)]),
                (guest, .discard(box, [], answer: [1]), [close(guest)]),
            ], &mailbox)
        let before = mailbox.machine.counts
        #expect(mailbox.say(.discard(box, [tag(2)], answer: [8, 9]), guest) == [told(guest, .discarded(box, [id(2)]))])
        #expect(mailbox.machine.counts == before)
        #expect(mailbox.machine.nextDeadline == mailbox.now + Limits.mailboxSilence)
        mailbox.advance(to: answer.until - 1)
        #expect(mailbox.kept[box]?.count == 1)
        mailbox.advance(to: answer.until)
        #expect(mailbox.kept[box]?.isEmpty == true)
    }

    @Test("a locked mailbox does not confirm that a slot on its disk was overwritten", arguments: [false, true])
    func discardsLocked(isPurge: Bool) {
        var mailbox = Mailbox.filled()
        let box = mailbox.box()
        mailbox.isLocked = true
        let request: MailboxRequest = isPurge ? .purge(box, [id(1)]) : .discard(box, [tag(1)], answer: [])
        #expect(mailbox.say(request, holder) == [close(holder)] && mailbox.machine.counts.slots == 1)
    }

    @Test("a slot of each class lives until exactly its time; the mailbox's own bound shortens it, but no notice")
    func expiry() {
        for longest in [SlotKeeping.thirtyDays.milliseconds, 2 * .hour] {
            for keeping in SlotKeeping.allCases {
                var mailbox = Mailbox.claimed { $0.longest = longest }
                let box = mailbox.box()
                let kind: SlotKind = keeping == .fortyFiveDays ? .notice : .memory
                #expect(mailbox.outcome(put(1, kind, keeping)) == .stored)
                let end = start + (kind == .notice ? 45 * .day : min(keeping.milliseconds, longest))
                mailbox.machine.linkClosed(link(holder))
                #expect(mailbox.machine.nextDeadline == min(end, start + Limits.boxSilence))
                mailbox.advance(to: end - 1)
                #expect(mailbox.taken(id(1), at: end - 1))
                // The time has passed, and no timer has run yet.
                mailbox.now = end
                #expect(!mailbox.taken(id(1), at: end) && mailbox.advance(to: end) == [.mailbox(.erase(box, [id(1)]))])
                #expect(mailbox.machine.counts.expired == 1)
                #expect(mailbox.machine.nextDeadline == start + Limits.boxSilence)
            }
        }
    }

    @Test func `slots of many boxes expire in order, each once`() {
        var mailbox = Mailbox()
        mailbox.claim([1, 2])
        mailbox.say(.put(mailbox.box(1), put(1, .disk, .oneHour)), guest)
        mailbox.now = mailbox.now + .minute
        mailbox.say(.put(mailbox.box(2), put(2, .memory, .oneHour)), guest)
        mailbox.say(.put(mailbox.box(1), put(3, .disk, .sixHours)), guest)
        mailbox.machine.linkClosed(link(holder))
        var ends: [Milliseconds] = []
        while let next = mailbox.machine.nextDeadline, next < start + .day {
            ends.append(next - start)
            mailbox.advance(to: next)
        }
        #expect(ends == [.hour, .hour + .minute, 6 * .hour + .minute])
        #expect(mailbox.machine.counts.expired == 3 && mailbox.machine.counts.slots == 0)
    }

    @Test func `slots in memory count again and expire in time when the machine restarts with its record`() {
        var mailbox = Mailbox.claimed()
        mailbox.say(.put(mailbox.box(), put(1, .memory, .oneHour)), guest)
        let (before, end) = (mailbox.machine.counts.memoryByteCount, mailbox.machine.nextDeadline)
        mailbox.machine = MailboxServiceStateMachine(mailbox.machine.records)
        #expect(mailbox.machine.counts.memoryByteCount == 0)
        mailbox.machine.count([mailbox.box()], mailbox.turn)
        #expect(mailbox.machine.counts.memoryByteCount == before && mailbox.machine.counts.slots == 1 && before > 0)
        #expect(mailbox.machine.nextDeadline == start + .hour && end != nil)
        mailbox.advance(to: start + .hour)
        #expect(mailbox.machine.counts.memoryByteCount == 0 && mailbox.machine.counts.slots == 0)
    }

    // MARK: Bounds

    @Test func `slots, bytes, bytes in memory and notices of a box are limited, and notices have their own quota`() {
        var mailbox = Mailbox.claimed { terms in
            (terms.slotCount, terms.boxByteCount, terms.memoryByteCount) = (3, 4_096 + 2_048, 2_048)
        }
        let box = mailbox.box()
        #expect(mailbox.outcome(put(1, size: 16_384)) == .full)
        #expect(mailbox.outcome(put(1, size: 4_096)) == .stored && mailbox.outcome(put(2, .memory)) == .stored)
        #expect(mailbox.outcome(put(3, size: 4_096)) == .full && mailbox.outcome(put(3, .memory)) == .stored)
        #expect(mailbox.outcome(put(4)) == .full, "slots and bytes are full")
        #expect(mailbox.say(.discard(box, [tag(1)], answer: []), guest).count == 2)
        #expect(mailbox.outcome(put(4, .memory)) == .full, "memory is full, of all boxes together")
        mailbox.claim([2])
        #expect(mailbox.outcome(put(4, .memory), in: mailbox.box(2)) == .full)
        #expect(mailbox.outcome(put(4)) == .stored && mailbox.outcome(put(5)) == .full)
        // Notices have room, however full the box is, and take no slot of contents.
        for number in 0..<Limits.noticeCount { #expect(mailbox.outcome(put(100 + number, .notice)) == .stored) }
        #expect(mailbox.outcome(put(99, .notice)) == .full)
        #expect(mailbox.say(.purge(box, [id(4), id(3), id(2)]), holder).count == 2)
        #expect(mailbox.machine.counts.memoryByteCount == 0)
    }

    @Test func `a purge without ids overwrites all contents and no notice, and a new link hears of unclaimed boxes`() {
        var mailbox = Mailbox.filled()
        let (box, waiting) = (mailbox.box(), told(7, .waiting(mailbox.box())))
        mailbox.say(.put(box, put(2, .memory)), guest)
        mailbox.say(.put(box, put(3, .notice)), guest)
        mailbox.say(.discard(box, [tag(3)], answer: [1]), guest)
        #expect(mailbox.claim([2], 7).contains(waiting) && !mailbox.claim([2], 7).contains(waiting))
        let gone = [id(1), id(2)].sorted()
        check([(7, .purge(box, []), [.mailbox(.erase(box, gone)), told(7, .discarded(box, gone))])], &mailbox)
        #expect(mailbox.machine.counts.slots == 1 && mailbox.machine.counts.memoryByteCount == 0)
        #expect(mailbox.say(.put(box, put(4)), guest).last == waiting, "a late content is announced")
        mailbox.say(.purge(box, []), 7)
        #expect(!mailbox.claim([2], 8).contains(told(8, .waiting(box))), "an answer waits for its guest")
    }

    @Test func `a slot or tag named twice in one request counts once`() {
        var mailbox = Mailbox.filled()
        let box = mailbox.box()
        #expect(mailbox.say(.take(box, [tag(1), tag(1), tag(1)]), guest).count == 1)
        mailbox.say(.put(box, put(2)), guest)
        mailbox.say(.discard(box, [tag(1), tag(1)], answer: []), guest)
        mailbox.say(.purge(box, [id(2), id(2)]), holder)
        #expect(mailbox.machine.counts.discarded == 2 && mailbox.machine.counts.slots == 0)
    }

    @Test func `bytes on the disk have a rate limit even if discarded; bytes in memory have none`() {
        var mailbox = Mailbox.claimed()
        let box = mailbox.box()
        func stored(_ kind: SlotKind, in count: Int) -> Int {
            (0..<count).count { number in
                mailbox.now = mailbox.now + Limits.putRate.interval + 1
                let outcome = mailbox.outcome(put(number % 8, kind, size: SlotSize.largest), 10)
                mailbox.say(.discard(box, [tag(number % 8)], answer: []), 10)
                return outcome == .stored
            }
        }
        // One more than fits: a put is accepted when its first KiB has room.
        let passed = 1_000 * (Limits.putRate.interval + 1)
        let kibibytes = Limits.putKibibyteRate.burst + Int(passed / Limits.putKibibyteRate.interval)
        let most = kibibytes / (SlotSize.largest / 1_024) + 1
        let count = stored(.disk, in: 1_000)
        #expect(count <= most && count >= most - 2)
        #expect(stored(.memory, in: 100) == 100)
        #expect(mailbox.outcome(put(99, .notice), 10) == .stored, "a notice does not wait for contents")
        mailbox.now = mailbox.now + .day
        #expect(stored(.disk, in: 100) == 100)
    }

    @Test func `puts have a rate limit: per box over all sources, and per network over all boxes`() {
        func puts(_ mailbox: inout Mailbox, _ count: Int, _ boxes: [BoxID], from source: (Int) -> UInt64?) -> Int {
            (0..<count).count { index in
                mailbox.sources[index + 10] = source(index)
                let box = boxes[index % boxes.count]
                let answer = told(index + 10, .put(box, id(7), .tooFast))
                return !mailbox.say(.put(box, put(7)), index + 10).contains(answer)
            }
        }
        var mailbox = Mailbox.claimed()
        var boxes = [mailbox.box()]
        #expect(puts(&mailbox, 2 * Limits.putRate.burst, boxes, from: { UInt64($0) }) == Limits.putRate.burst)
        mailbox.now = mailbox.now + 3 * Limits.putRate.interval
        #expect(puts(&mailbox, 20, boxes, from: { UInt64($0) }) == 3)

        mailbox = Mailbox()
        mailbox.claim(Array(1...8))
        boxes = (1...8).map { mailbox.box($0) }
        let count = puts(&mailbox, 2 * Limits.putSourceRate.burst, boxes, from: { _ in 5 })
        #expect(count == Limits.putSourceRate.burst)
        #expect(puts(&mailbox, 5, boxes, from: { _ in 6 }) == 5, "another network is not concerned")
        // Guessed boxes do not count against existing ones.
        let missing = mailbox.box(77)
        mailbox = Mailbox.claimed()
        for _ in 0..<(2 * Limits.putRate.burst) { mailbox.say(.put(missing, put(1)), guest) }
        #expect(puts(&mailbox, 5, [mailbox.box()], from: { _ in nil }) == 5)

        // The list of networks is bounded; an unlisted one has to wait.
        mailbox = Mailbox { $0.boxCount = 64 }
        mailbox.claim(Array(1...64))
        boxes = (1...64).map { mailbox.box($0) }
        let listed = puts(&mailbox, Limits.putSourceCount + 100, boxes, from: { UInt64($0) })
        #expect(listed == Limits.putSourceCount)
        #expect(puts(&mailbox, 5, boxes, from: { _ in 3 }) == 5, "one that is on the list")
        mailbox.now = mailbox.now + .minute
        #expect(puts(&mailbox, 5, boxes, from: { _ in .max }) == 5)
    }

    @Test func `takes have a rate limit: bytes per owner, notices per network of guests`() {
        func given(_ mailbox: inout Mailbox, _ count: Int, _ number: Int, on link: (Int) -> Int) -> Int {
            let box = mailbox.box()
            return (0..<count).count { index in
                if case .mailbox(.give) = mailbox.say(.take(box, [tag(number)]), link(index)).first {
                    true
                } else {
                    false
                }
            }
        }
        var mailbox = Mailbox.claimed()
        #expect(mailbox.outcome(put(1, size: SlotSize.largest), 10) == .stored)
        #expect(mailbox.outcome(put(2, .notice), 10) == .stored)
        let units = SlotSize.largest / Limits.takeUnit
        let whole = Limits.takeRate.burst / units
        // One more than fits: a body is given when its first unit has room.
        #expect([whole, whole + 1].contains(given(&mailbox, 2 * whole, 1, on: { _ in holder })))
        #expect(mailbox.say(.list(mailbox.box()), holder).count == 1)
        mailbox.now = mailbox.now + .second
        let more = given(&mailbox, 200, 1, on: { _ in holder })
        #expect(abs(more - 1_000 / units) <= 2, "\(more)")
        // Also from another box of this owner: the rate is per owner.
        mailbox.claim([1, 2], holder)
        let other = mailbox.box(2)
        #expect(mailbox.outcome(put(5), 10, in: other) == .stored)
        #expect(mailbox.say(.take(other, [tag(5)]), holder) == [told(holder, .absent(other, id(5)))])

        for link in 10..<10_000 { mailbox.sources[link] = UInt64(link % 2) }
        #expect(given(&mailbox, 4_000, 2, on: { 10 + 2 * $0 }) == Limits.takeSourceRate.burst)
        #expect(given(&mailbox, 10, 2, on: { 11 + 2 * $0 }) == 10, "another network is not concerned")
        mailbox.now = mailbox.now + 3 * Limits.takeSourceRate.interval
        #expect(given(&mailbox, 20, 2, on: { 10 + 2 * $0 }) == 3)

        // The list of networks is bounded; an unlisted one has to wait, and clients without a network share one entry.
        mailbox = Mailbox.claimed()
        #expect(mailbox.outcome(put(2, .notice), 9) == .stored)
        for link in 10..<5_000 { mailbox.sources[link] = UInt64(link) }
        #expect(given(&mailbox, Limits.putSourceCount + 100, 2, on: { 10 + $0 }) == Limits.putSourceCount)
        // `absent` would say that the notice is gone.
        #expect(mailbox.say(.take(mailbox.box(), [tag(2)]), 9) == [close(9)])
        mailbox.now = mailbox.now + .minute
        #expect(given(&mailbox, 2 * Limits.takeSourceRate.burst, 2, on: { _ in 9 }) == Limits.takeSourceRate.burst)
    }

    @Test func `new boxes of an owner have a rate limit, and existing boxes do not`() {
        var mailbox = Mailbox.claimed()
        var made = 0
        for _ in 0..<(2 * Limits.boxRate.burst) {
            mailbox.say(.drop([label(2)]), holder)
            let before = mailbox.machine.records.count
            mailbox.claim([1, 2], holder)
            made += mailbox.machine.records.count - before
        }
        #expect(made == Limits.boxRate.burst - 1)
        #expect(mailbox.claim([1, 2], holder).contains(mailbox.granted(boxes: 1)))
        #expect(mailbox.machine.records.map(\.box) == [mailbox.box()], "the one that is there stays")
        let other = mailbox.claim([1], 3, as: mailbox.second)
        #expect(mailbox.machine.records.count == 2 && !other.isEmpty, "another owner is not concerned")
        mailbox.now = mailbox.now + Limits.boxRate.interval
        mailbox.claim([1, 2], holder)
        #expect(mailbox.machine.records.count == 3)
    }

    // MARK: Ends

    @Test func `a peer that is removed loses its boxes with all contents`() {
        var mailbox = Mailbox.filled()
        mailbox.claim([1], 4, as: mailbox.second)
        let (box, other) = (mailbox.box(), mailbox.box(1, of: mailbox.second))
        mailbox.say(.put(box, put(2, .memory)), guest)
        mailbox.say(.put(other, put(3, .memory)), guest)
        let terms = mailbox.machine.terms
        #expect(mailbox.configure(terms).isEmpty)
        mailbox.peers.remove(mailbox.owner.publicKey)
        let ended = [refused(holder, .unknownPeer), close(holder), .mailbox(.destroy(box)), .save(client)]
        #expect(mailbox.configure(terms) == ended)
        #expect(mailbox.machine.records.map(\.box) == [other] && !mailbox.serves(holder))
        #expect(mailbox.serves(4) && mailbox.machine.counts.memoryByteCount == 1_024)
        // A removed box keeps nothing.
        check(
            [
                (guest, .put(box, put(9)), [told(guest, .put(box, id(9), .unknownBox))]),
                (guest, .take(box, [tag(1)]), [told(guest, .absent(box, id(1)))]),
                (holder, .list(box), [close(holder)]),
            ], &mailbox)
        #expect(mailbox.kept[box] == nil)
        mailbox.advance(to: start + 2 * .day)
        // A node that stops serving keeps its boxes for later.
        #expect(mailbox.configure(MailboxTerms()).isEmpty && mailbox.machine.records.map(\.box) == [other])
    }

    @Test func `a box that its owner drops is destroyed, and is empty when it is claimed again`() {
        var mailbox = Mailbox.filled()
        let box = mailbox.box()
        mailbox.say(.put(box, put(2, .memory)), guest)
        #expect(mailbox.say(.drop([label(1), label(5)]), holder) == [.mailbox(.destroy(box)), .save(client)])
        #expect(mailbox.machine.counts.boxes == 0 && mailbox.machine.counts.memoryByteCount == 0)
        #expect(mailbox.claim() == [.save(client), mailbox.granted()])
        #expect(mailbox.say(.list(box), holder) == [told(holder, .slots(box, []))])
    }

    @Test func `silent holders are closed, and boxes of long absent owners are destroyed`() {
        var mailbox = Mailbox.filled()
        mailbox.machine.heard(link(holder), now: start + .second)
        let silent = start + .second + Limits.mailboxSilence
        #expect(mailbox.machine.nextDeadline == silent)
        #expect(mailbox.advance(to: silent - 1).isEmpty && mailbox.advance(to: silent) == [close(holder)])
        #expect(!mailbox.serves(holder))
        mailbox.machine.heard(link(holder), now: silent)
        #expect(!mailbox.serves(holder))
        mailbox.advance(to: start + 2 * .day)
        // The owner counts as present until it was last heard.
        let end = start + .second + Limits.boxSilence
        #expect(mailbox.machine.nextDeadline == end && mailbox.advance(to: end - 1).isEmpty)
        #expect(mailbox.advance(to: end) == [.mailbox(.destroy(mailbox.box())), .save(client)])
        #expect(mailbox.machine.records.isEmpty && mailbox.machine.nextDeadline == nil)
    }

    // MARK: After a start

    @Test func `a box is read from the disk once, on the first request; a failed read is retried`() {
        var mailbox = Mailbox.filled()
        let box = mailbox.box()
        mailbox.say(.put(box, put(2)), guest)
        mailbox.restart()
        #expect(mailbox.machine.occupancy.map(\.slotCount) == [nil] && mailbox.machine.counts.slots == 0)
        #expect(mailbox.machine.counts.unreadBoxes == 1)
        mailbox.isSilent = true
        let unavailable = told(guest, .put(box, id(3), .unavailable))
        check(
            [
                (guest, .put(box, put(3)), [unavailable]), (guest, .put(box, put(3, .memory)), [unavailable]),
                (guest, .discard(box, [tag(1)], answer: []), [close(guest)]),
            ], &mailbox)
        // The box exists, so it is granted; its waiting slots are not known yet.
        #expect(mailbox.claim() == [mailbox.granted()])
        check([(holder, .list(box), [close(holder)]), (holder, .purge(box, [id(1)]), [close(holder)])], &mailbox)
        mailbox.isSilent = false
        // A moment ago the disk refused.
        mailbox.now = start + Limits.reread.first - 1
        #expect(mailbox.claim() == [mailbox.granted()])
        mailbox.now = start + Limits.reread.first
        #expect(mailbox.claim().last == told(holder, .waiting(box)))
        mailbox.now = start
        #expect(mailbox.machine.occupancy.map(\.slotCount) == [2] && mailbox.machine.counts.unreadBoxes == 0)

        let requests: [MailboxRequest] = [.put(box, put(1)), .take(box, [tag(1)]), .discard(box, [tag(8)], answer: [])]
        for request in requests {
            mailbox.restart()
            mailbox.say(request, guest)
            #expect(mailbox.machine.occupancy.map(\.slotCount) == [2], "\(request)")
            #expect(mailbox.machine.nextDeadline == start + .day, "and they end at their time")
        }
        // Expired slots are not returned, and count as expired.
        mailbox.restart()
        mailbox.now = start + .day
        #expect(mailbox.say(.take(box, [tag(1)]), guest) == [told(guest, .absent(box, id(1)))])
        mailbox.advance(to: mailbox.now)
        #expect(mailbox.machine.counts.expired == 2)
    }

    @Test func `slots that the disk returns late are listed at once, and the owner is notified`() {
        for isSilent in [false, true] {
            var mailbox = Mailbox.claimed()
            let box = mailbox.box()
            for number in 1...3 { #expect(mailbox.outcome(put(number), 10) == .stored) }
            // After a restart the disk returns nothing, or all but one slot.
            mailbox.restart()
            (mailbox.isSilent, mailbox.refused) = (isSilent, [id(2)])
            #expect(mailbox.claim([1], 5).contains(told(5, .waiting(box))) == !isSilent)
            let first = [id(1), id(3)].sorted()
            #expect(mailbox.say(.list(box), 5) == [isSilent ? close(5) : told(5, .slots(box, first))])
            #expect(mailbox.machine.nextDeadline == start + Limits.reread.first)
            // The read is retried for ever with growing waits; a locked storage is not asked.
            var asked = 0
            while let due = mailbox.machine.nextDeadline, due < start + 10 * .minute {
                #expect(mailbox.advance(to: due).isEmpty)
                mailbox.isLocked = asked % 2 == 0
                asked += 1
                mailbox.machine.heard(link(5), now: due)
            }
            #expect((8...40).contains(asked))
            (mailbox.isLocked, mailbox.isSilent, mailbox.refused) = (false, false, [])
            let due = mailbox.machine.nextDeadline ?? start
            #expect(mailbox.advance(to: due) == [told(5, .waiting(box))])
            #expect(mailbox.say(.list(box), 5) == [told(5, .slots(box, [id(1), id(2), id(3)].sorted()))])
            #expect(mailbox.machine.counts.byteCount == 3 * 1_024)
        }
    }

    @Test func `an owner is notified once of slots that another client's request reveals`() {
        for isTake in [false, true] {
            var mailbox = Mailbox.claimed()
            let box = mailbox.box()
            for number in 1...2 { #expect(mailbox.outcome(put(number), 10) == .stored) }
            mailbox.restart()
            mailbox.refused = [id(2)]
            mailbox.claim([1], 5)
            #expect(mailbox.say(.list(box), 5) == [told(5, .slots(box, [id(1)]))])
            mailbox.refused = []
            mailbox.now = start + Limits.reread.first
            mailbox.say(isTake ? .take(box, [tag(9)]) : .discard(box, [tag(9)], answer: []), 10)
            #expect(mailbox.machine.nextDeadline == mailbox.now)
            #expect(mailbox.advance(to: mailbox.now) == [told(5, .waiting(box))])
            #expect(mailbox.advance(to: mailbox.now).isEmpty && mailbox.machine.nextDeadline ?? start > mailbox.now)
            #expect(mailbox.say(.list(box), 5) == [told(5, .slots(box, [id(1), id(2)].sorted()))])
        }
    }
}
