import Crypto
import Messaging
import Testing

private let start = Timestamp(milliseconds: 1_795_247_146_000)
private let client = ClientID(unchecked: [UInt8](repeating: 9, count: 16))

private func told(_ link: Int, _ answer: MailboxAnswer) -> NodeAction {
    .transmit(LinkID(UInt64(link)), .mailboxAnswer(answer))
}

private func refused(_ link: Int, _ refusal: MailboxRefusal) -> NodeAction {
    .forward(LinkID(UInt64(link)), .mailboxAnswer(.refused(refusal)))
}

private func isKept(_ actions: [NodeAction]) -> Bool {
    guard case .mailbox(.keep(let box, let slot, _)) = actions.first, actions.count > 1,
        case .transmit(_, .mailboxAnswer(let answer)) = actions[1]
    else { return false }
    return answer == .put(box, slot.id, .stored)
}

private func close(_ link: Int) -> NodeAction { .close(LinkID(UInt64(link))) }

private func label(_ number: Int) -> BoxLabel {
    BoxLabel(unchecked: [UInt8](repeating: 0, count: 14) + [UInt8(number >> 8 & 0xff), UInt8(number & 0xff)])
}

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

    var turn: Turn {
        let (peers, kept, sources, hasRoom, isSilent) = (peers, kept, sources, hasRoom, isSilent)
        let refused = refused
        var turn = Turn(now: now, random: .seeded(1), isLocked: isLocked)
        turn.hasRoom = { _ in hasRoom }
        turn.isNamedPeer = { peers.contains($0) }
        turn.sourceOf = { sources[Int($0.value)] }
        turn.keptSlots = {
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

    mutating func configure(_ terms: MailboxTerms) -> [NodeAction] {
        let peers = peers
        let actions = machine.configure(terms, client) { peers.contains($0) }
        return perform(actions)
    }

    @discardableResult mutating func say(_ request: MailboxRequest, _ link: Int) -> [NodeAction] {
        let (remote, turn) = (remote(link), turn)
        return perform(machine.receive(request, from: remote, on: LinkID(UInt64(link)), client: client, own: key, turn))
    }

    private mutating func remote(_ link: Int) -> PublicKey {
        if let known = linkKeys[link] { return known }
        let key = SecretKey.generate().publicKey
        linkKeys[link] = key
        return key
    }

    func secret(of owner: IdentityKey? = nil) -> MailboxSecret {
        let owner = owner ?? self.owner
        return MailboxSecret(mailbox: key.publicKey, owner: owner.publicKey, own: owner)
    }

    func box(_ number: Int = 1, of owner: IdentityKey? = nil) -> BoxID { secret(of: owner).box(label(number)) }

    /// - Parameter proof: the link whose proof is shown.
    @discardableResult mutating func claim(
        _ numbers: [Int] = [1], _ link: Int = 1, as owner: IdentityKey? = nil, proof: PublicKey? = nil
    ) -> [NodeAction] {
        let owner = owner ?? self.owner
        let named = proof ?? remote(link)
        let proof = secret(of: owner).proof(of: named)
        return say(.claim(owner: owner.publicKey, proof: proof, numbers.map(label)), link)
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

    func grant(boxes: Int) -> MailboxGrant {
        MailboxGrant(
            boxCount: boxes, slotCount: machine.terms.slotCount, byteCount: machine.terms.boxByteCount,
            longest: machine.terms.longest)
    }

    func slot(_ put: SlotPut, at time: Timestamp? = nil) -> KeptSlot {
        let time = time ?? now
        let isNotice = put.kind == .notice
        let longest = isNotice ? put.keeping.milliseconds : min(put.keeping.milliseconds, machine.terms.longest)
        return KeptSlot(
            id: put.id, kind: put.kind, isAnswer: false, byteCount: put.body.count, keptAt: time, until: time + longest)
    }

    /// The machine's account and the shell's store agree.
    func expectAgreement(_ comment: Comment = "") {
        let counts = machine.counts
        let slots = kept.values.flatMap(\.values)
        #expect(counts.slots == slots.count, comment)
        #expect(counts.byteCount == slots.reduce(0) { $0 + $1.body.count }, comment)
        #expect(
            counts.memoryByteCount == slots.reduce(0) { $0 + ($1.slot.kind == .memory ? $1.body.count : 0) }, comment)
        #expect(counts.boxes == machine.records.count, comment)
        #expect(Set(kept.keys).isSubset(of: machine.records.map(\.box)), comment)
    }
}

@Suite("Mailbox: the node that stores") struct MailboxServiceTests {
    private let holder = 1
    private let guest = 2

    private func claimed(_ change: (inout MailboxTerms) -> Void = { _ in }) -> Mailbox {
        var mailbox = Mailbox(change)
        #expect(mailbox.claim().last == told(holder, .granted(mailbox.grant(boxes: mailbox.machine.terms.boxCount))))
        return mailbox
    }

    private func filled(_ change: (inout MailboxTerms) -> Void = { _ in }) -> Mailbox {
        var mailbox = claimed(change)
        let box = mailbox.box()
        #expect(mailbox.say(.put(box, put(1)), guest).contains(told(guest, .put(box, put(1).id, .stored))))
        return mailbox
    }

    // MARK: Admission

    @Test("a stranger, a claim without proof, and a locked or wiped node get no box") func refusals() {
        let stranger = IdentityKey(SecretKey.generate())
        var mailbox = Mailbox { $0.isServing = false }
        #expect(mailbox.claim() == [refused(1, .notServing)])
        mailbox = Mailbox()
        #expect(mailbox.claim(as: stranger) == [refused(1, .unknownPeer)])
        // A missing proof, or that of another link: a peer's key alone is not enough.
        #expect(mailbox.claim(proof: stranger.publicKey) == [refused(1, .unknownPeer)])
        for count in [0, 31, 32, 33] {
            let proof = [UInt8](repeating: 0, count: count)
            let claim = MailboxRequest.claim(owner: mailbox.owner.publicKey, proof: proof, [label(1)])
            #expect(mailbox.say(claim, 1) == [refused(1, .unknownPeer)])
        }
        mailbox.isLocked = true
        #expect(mailbox.claim() == [refused(1, .unavailable)])
        mailbox.isLocked = false
        mailbox.key.wipe()
        #expect(mailbox.claim() == [refused(1, .unavailable)])
        #expect(!mailbox.machine.serves(LinkID(1)) && mailbox.machine.records.isEmpty)
        #expect(mailbox.machine.counts.refused == 8 && mailbox.machine.nextDeadline == nil)
    }

    @Test("an invalid proof does not replace the owner's link") func wrongProof() {
        var mailbox = filled()
        let stranger = SecretKey.generate().publicKey
        #expect(mailbox.claim([1, 2], 5, proof: stranger) == [refused(5, .unknownPeer)])
        #expect(mailbox.machine.serves(LinkID(1)) && !mailbox.machine.serves(LinkID(5)))
        #expect(mailbox.machine.records.map(\.box) == [mailbox.box()])
        // A holder that names another owner breaks the protocol, whatever the proof.
        #expect(mailbox.claim([1], holder, as: mailbox.second) == [close(holder)])
        #expect(mailbox.machine.counts.owners == 1)
    }

    @Test("a granted box is durable before its owner hears of it, and stays the same") func durable() {
        var mailbox = Mailbox()
        let grant = mailbox.grant(boxes: Limits.boxCount)
        #expect(mailbox.claim([1, 2]) == [.save(client), told(1, .granted(grant))])
        #expect(mailbox.claim([1, 2]) == [told(1, .granted(grant))], "nothing is new")
        mailbox.now = mailbox.now + .hour
        #expect(mailbox.claim() == [told(1, .granted(grant))])
        mailbox.now = mailbox.now + 1
        #expect(mailbox.claim([2]) == [.save(client), told(1, .granted(grant))], "a write once an hour")
        let records = mailbox.machine.records
        #expect(Set(records.map(\.box)) == [mailbox.box(1), mailbox.box(2)])
        #expect(records == records.sorted { $0.box < $1.box })
        #expect(records.allSatisfy { $0.owner == mailbox.owner.publicKey })
        mailbox.machine = MailboxServiceStateMachine(records)
        #expect(mailbox.machine.records == records && mailbox.machine.counts.boxes == 2)
    }

    @Test("another link of an owner takes the place of its first") func moved() {
        var mailbox = filled()
        let box = mailbox.box()
        let actions = mailbox.claim([1], 7)
        #expect(
            actions == [close(1), told(7, .granted(mailbox.grant(boxes: Limits.boxCount))), told(7, .waiting(box))])
        #expect(!mailbox.machine.serves(LinkID(1)) && mailbox.machine.serves(LinkID(7)))
        #expect(mailbox.say(.list(box), holder) == [close(holder)])
        mailbox.machine.linkClosed(LinkID(1))
        #expect(mailbox.machine.serves(LinkID(7)), "the end of the first says nothing of the second")
        #expect(mailbox.say(.put(box, put(2)), guest).last == told(guest, .put(box, put(2).id, .stored)), "it knows")
        mailbox.machine.linkClosed(LinkID(7))
        #expect(!mailbox.machine.serves(LinkID(7)))
        #expect(mailbox.say(.put(box, put(3)), guest).last == told(guest, .put(box, put(3).id, .stored)))
        mailbox.expectAgreement()
    }

    @Test("a holder is notified once of waiting slots, and again after it has listed the box") func announced() {
        var mailbox = claimed()
        let box = mailbox.box()
        let waiting = told(holder, .waiting(box))
        #expect(mailbox.say(.put(box, put(1)), guest).last == waiting)
        #expect(!mailbox.say(.put(box, put(2)), guest).contains(waiting))
        _ = mailbox.say(.list(box), holder)
        #expect(mailbox.say(.put(box, put(3)), guest).last == waiting)
        #expect(!mailbox.say(.put(box, put(4)), guest).contains(waiting))
        mailbox.machine.linkClosed(LinkID(1))
        #expect(!mailbox.say(.put(box, put(6)), guest).contains(waiting))
        #expect(mailbox.claim([1], 7).last == told(7, .waiting(box)), "a new link is told at once")
    }

    @Test("the boxes of a linked owner are saved once a day, and exist after a restart 60 days later") func linked() {
        var mailbox = claimed()
        var saved = mailbox.machine.records
        let link = LinkID(UInt64(holder))
        for _ in 0..<(61 * 1_440) {
            mailbox.machine.heard(link, now: mailbox.now)
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
            other.machine.linkClosed(link)
            other.now = other.now + 50 * .minute
            if other.claim().contains(.save(client)) { count += 1 }
        }
        #expect(count == 5)
    }

    @Test("a notice is answered once: a second answer changes and writes nothing") func answeredOnce() {
        var mailbox = claimed()
        let box = mailbox.box()
        mailbox.say(.put(box, put(2, .notice)), guest)
        #expect(mailbox.say(.discard(box, [tag(2)], answer: [7]), guest).count == 3)
        let before = mailbox.machine.counts
        let again = mailbox.say(.discard(box, [tag(2)], answer: [8, 9]), guest)
        #expect(again == [told(guest, .discarded(box, [put(2).id]))] && mailbox.machine.counts == before)
    }

    @Test("a tag that is named twice is read once") func repeatedTag() {
        var mailbox = filled()
        #expect(mailbox.say(.take(mailbox.box(), [tag(1), tag(1), tag(1)]), guest).count == 1)
    }

    @Test("boxes are granted up to the mailbox's limit, in the order of the claim") func boxes() {
        var mailbox = Mailbox { $0.boxCount = 3 }
        #expect(mailbox.claim([1, 2]).last == told(1, .granted(mailbox.grant(boxes: 3))))
        #expect(mailbox.claim([1, 2], 5, as: mailbox.second).last == told(5, .granted(mailbox.grant(boxes: 1))))
        #expect(mailbox.machine.counts.boxes == 3 && mailbox.machine.counts.owners == 2)
        let missing = mailbox.box(2, of: mailbox.second)
        #expect(mailbox.say(.put(missing, put(1)), guest) == [told(guest, .put(missing, put(1).id, .unknownBox))])
        #expect(mailbox.claim([3]).last == told(1, .granted(mailbox.grant(boxes: 2))))
        #expect(mailbox.say(.drop([label(1)]), 1) == [.mailbox(.destroy(mailbox.box(1))), .save(client)])
        #expect(mailbox.claim([2], 5, as: mailbox.second).last == told(5, .granted(mailbox.grant(boxes: 2))))
        #expect(mailbox.machine.counts.boxes == 3)
    }

    @Test("lists are as long as the protocol allows, and no longer") func lists() {
        var mailbox = claimed()
        let box = mailbox.box()
        let labels = (0...Limits.boxLabelCount).map(label)
        let proof = mailbox.secret().proof(of: mailbox.linkKeys[1]!)
        let owner = mailbox.owner.publicKey
        #expect(mailbox.say(.claim(owner: owner, proof: proof, labels), 1) == [close(1)])
        #expect(mailbox.claim(Array(1...Limits.boxLabelCount)).count == 2)
        #expect(mailbox.machine.counts.boxes == Limits.boxLabelCount)
        let tags = (0...Limits.slotTagCount).map(tag)
        #expect(mailbox.say(.take(box, tags), guest) == [close(guest)])
        #expect(mailbox.say(.take(box, Array(tags.dropLast())), guest).count == Limits.slotTagCount)
        #expect(mailbox.say(.discard(box, tags, answer: []), guest) == [close(guest)])
        #expect(
            mailbox.say(.discard(box, Array(tags.dropLast()), answer: []), guest) == [told(guest, .discarded(box, []))])
        let ids = (0...Limits.slotListCount).map { put($0).id }
        #expect(mailbox.say(.purge(box, ids), holder) == [close(holder)])
        #expect(mailbox.say(.purge(box, Array(ids.dropLast())), holder) == [told(holder, .discarded(box, []))])
        #expect(mailbox.say(.put(box, put(1, .notice)), guest).count == 3)
        let answer = [UInt8](repeating: 1, count: Limits.slotAnswerByteCount + 1)
        #expect(mailbox.say(.discard(box, [tag(1)], answer: answer), guest) == [close(guest)])
        #expect(mailbox.say(.discard(box, [tag(1), tag(2)], answer: [1]), guest) == [close(guest)])
        #expect(mailbox.say(.discard(box, [], answer: [1]), guest) == [close(guest)])
        #expect(mailbox.say(.discard(box, [tag(1)], answer: Array(answer.dropLast())), guest).count == 3)
    }

    // MARK: Cells

    @Test("a guest that sends a holder's request loses its link; an owner may act only on its own boxes") func cells() {
        for isOther in [false, true] {
            var mailbox = filled()
            let box = mailbox.box()
            // A stranger's link, and that of another owner.
            if isOther { mailbox.claim([1], 3, as: mailbox.second) }
            let before = mailbox.machine.records
            #expect(mailbox.say(.list(box), 3) == [close(3)])
            #expect(mailbox.say(.purge(box, [put(1).id]), 3) == [close(3)])
            let dropped = mailbox.say(.drop([label(2)]), 3)
            #expect(dropped == (isOther ? [] : [close(3)]))
            #expect(mailbox.machine.records == before)
            #expect(isKept(mailbox.say(.put(box, put(2)), 3)))
            #expect(
                mailbox.say(.take(box, [tag(1)]), 3) == [told(3, .absent(box, put(1).id))], "a content is the owner's")
            mailbox.say(.put(box, put(3, .notice)), 3)
            #expect(
                mailbox.say(.take(box, [tag(3)]), 3) == [
                    .mailbox(.give(LinkID(3), box, mailbox.slot(put(3, .notice)), dwell: 0))
                ])
            #expect(
                mailbox.say(.discard(box, [tag(1)], answer: []), 3) == [
                    .mailbox(.erase(box, [put(1).id])), told(3, .discarded(box, [put(1).id])),
                ])
            #expect(mailbox.machine.serves(LinkID(3)) == isOther)
            mailbox.expectAgreement()
        }
        var mailbox = filled()
        let (box, missing) = (mailbox.box(), mailbox.box(9))
        #expect(mailbox.say(.list(box), holder) == [told(holder, .slots(box, [put(1).id]))])
        #expect(mailbox.say(.list(missing), holder) == [close(holder)])
        #expect(mailbox.say(.purge(missing, []), holder) == [close(holder)])
        #expect(mailbox.say(.take(missing, [tag(1)]), holder) == [told(holder, .absent(missing, put(1).id))])
        #expect(mailbox.say(.discard(missing, [tag(1)], answer: []), holder) == [close(holder)])
        #expect(mailbox.say(.drop([label(9)]), holder).isEmpty)
        #expect(
            mailbox.say(.purge(box, [put(1).id, put(2).id]), holder) == [
                .mailbox(.erase(box, [put(1).id])), told(holder, .discarded(box, [put(1).id])),
            ])
        #expect(mailbox.say(.list(box), holder) == [told(holder, .slots(box, []))])
        #expect(mailbox.say(.put(box, put(1)), holder).count == 3, "an owner may put into its own")
        mailbox.expectAgreement()
    }

    @Test("a put is answered with its outcome in each case, and only `stored` keeps something") func outcomes() {
        func outcome(_ mailbox: inout Mailbox, _ slot: SlotPut, _ box: BoxID? = nil) -> PutOutcome? {
            let actions = mailbox.say(.put(box ?? mailbox.box(), slot), guest)
            let outcomes = actions.compactMap { action -> PutOutcome? in
                if case .transmit(LinkID(2), .mailboxAnswer(.put(_, slot.id, let outcome))) = action {
                    outcome
                } else {
                    nil
                }
            }
            #expect(outcomes.count == 1)
            #expect(outcomes == [.stored] || actions.count == 1)
            mailbox.expectAgreement()
            return outcomes.first
        }
        var mailbox = claimed()
        #expect(outcome(&mailbox, put(1), mailbox.box(4)) == .unknownBox)
        mailbox.isLocked = true
        #expect(outcome(&mailbox, put(1)) == .unavailable)
        #expect(outcome(&mailbox, put(1, .notice)) == .unavailable)
        #expect(outcome(&mailbox, put(2, .memory)) == .stored, "memory needs no disk")
        mailbox.isLocked = false
        mailbox.hasRoom = false
        #expect(outcome(&mailbox, put(1)) == .unavailable && outcome(&mailbox, put(3, .memory)) == .stored)
        mailbox.hasRoom = true
        #expect(outcome(&mailbox, put(1)) == .stored && outcome(&mailbox, put(4, .notice)) == .stored)
        let terms = mailbox.machine.terms
        #expect(mailbox.configure(MailboxTerms()) == [refused(holder, .notServing), close(holder)])
        #expect(outcome(&mailbox, put(5)) == .notServing)
        #expect(mailbox.configure(terms).isEmpty && outcome(&mailbox, put(5)) == .stored)
        #expect(mailbox.machine.counts.put == 5 && mailbox.machine.counts.refused == 5)
    }

    @Test("a body of unknown size, or of the wrong class for its kind, ends the link") func shapes() {
        var mailbox = claimed()
        let box = mailbox.box()
        for size in SlotSize.byteCounts {
            for wrong in [size - 1, size + 1] {
                #expect(mailbox.say(.put(box, put(1, size: wrong)), guest) == [close(guest)])
            }
        }
        #expect(mailbox.say(.put(box, put(1, size: 0)), guest) == [close(guest)])
        for kind in SlotKind.allCases {
            for keeping in SlotKeeping.allCases where (kind == .notice) != (keeping == .fortyFiveDays) {
                #expect(mailbox.say(.put(box, put(1, kind, keeping)), guest) == [close(guest)])
            }
        }
        #expect(mailbox.say(.put(box, put(1, .notice, size: 4_096)), guest) == [close(guest)])
        #expect(mailbox.machine.counts.put == 0 && mailbox.machine.counts.slots == 0)
    }

    // MARK: Slots

    @Test("a repeated put is stored once") func repeated() {
        var mailbox = filled()
        let box = mailbox.box()
        mailbox.now = mailbox.now + .hour
        for other in [put(1), put(1, .memory), put(1, .notice), put(1, size: 4_096), put(1, .disk, .thirtyDays)] {
            #expect(mailbox.say(.put(box, other), 3) == [told(3, .put(box, put(1).id, .stored))])
        }
        #expect(mailbox.kept[box]?.values.map(\.slot) == [mailbox.slot(put(1), at: start)])
        #expect(mailbox.machine.counts.put == 1)
        mailbox.expectAgreement()
        mailbox.machine = MailboxServiceStateMachine(mailbox.machine.records)
        _ = mailbox.configure(filled().machine.terms)
        #expect(mailbox.say(.put(box, put(1)), 3) == [told(3, .put(box, put(1).id, .stored))])
    }

    @Test("the owner takes a slot by its tag; a guessed tag finds nothing and discards nothing") func takes() {
        var mailbox = filled()
        let box = mailbox.box()
        mailbox.now = mailbox.now + 1_234
        let slot = mailbox.slot(put(1), at: start)
        #expect(
            mailbox.say(.take(box, [tag(2), tag(1)]), holder) == [
                told(holder, .absent(box, put(2).id)), .mailbox(.give(LinkID(UInt64(holder)), box, slot, dwell: 1_234)),
            ])
        // The name of the slot, known from the put, is not its tag.
        let guess = SlotTag(unchecked: put(1).id.bytes + put(1).id.bytes)
        #expect(mailbox.say(.take(box, [guess]), holder) == [told(holder, .absent(box, SlotID(guess)))])
        #expect(mailbox.say(.discard(box, [guess], answer: []), 9) == [told(9, .discarded(box, []))])
        #expect(
            mailbox.say(.take(mailbox.box(2), [tag(1)]), holder) == [told(holder, .absent(mailbox.box(2), put(1).id))])
        // The clock was set back: the dwell time is not negative.
        var back = filled()
        back.now = start - .hour
        #expect(
            back.say(.take(back.box(), [tag(1)]), holder) == [
                .mailbox(.give(LinkID(UInt64(holder)), back.box(), back.slot(put(1), at: start), dwell: 0))
            ])
        #expect(mailbox.say(.take(box, [tag(1)]), holder).count == 1)
        #expect(mailbox.machine.counts.taken == 2)
        mailbox.expectAgreement()
        #expect(mailbox.say(.discard(box, [tag(1), tag(2)], answer: []), holder).count == 2)
        #expect(mailbox.say(.take(box, [tag(1)]), holder) == [told(holder, .absent(box, put(1).id))])
        #expect(mailbox.machine.counts.slots == 0 && mailbox.machine.counts.discarded == 1)
        mailbox.expectAgreement()
    }

    @Test("an answer replaces only a notice, and keeps its time") func answers() throws {
        var mailbox = filled()
        let box = mailbox.box()
        #expect(isKept(mailbox.say(.put(box, put(2, .notice)), guest)))
        let notice = mailbox.slot(put(2, .notice))
        mailbox.now = mailbox.now + .hour
        var answer = notice
        answer.isAnswer = true
        answer.byteCount = 3
        #expect(
            mailbox.say(.discard(box, [tag(2)], answer: [7, 8, 9]), holder) == [
                .mailbox(.erase(box, [put(2).id])), .mailbox(.keep(box, answer, [7, 8, 9])),
                told(holder, .discarded(box, [put(2).id])),
            ])
        mailbox.expectAgreement()
        // Its owner has nothing to fetch there; the notice's sender has.
        #expect(mailbox.say(.list(box), holder) == [told(holder, .slots(box, [put(1).id]))])
        #expect(mailbox.say(.take(box, [tag(2)]), 8) == [.mailbox(.give(LinkID(8), box, answer, dwell: .hour))])
        // An answer to contents is refused: they are gone.
        #expect(
            mailbox.say(.discard(box, [tag(1)], answer: [1]), holder) == [
                .mailbox(.erase(box, [put(1).id])), told(holder, .discarded(box, [put(1).id])),
            ])
        #expect(mailbox.say(.discard(box, [tag(5)], answer: [1]), holder) == [told(holder, .discarded(box, []))])
        mailbox.expectAgreement()
        #expect(mailbox.machine.nextDeadline == mailbox.now + Limits.mailboxSilence)
        mailbox.advance(to: answer.until - 1)
        #expect(mailbox.kept[box]?.count == 1)
        mailbox.advance(to: answer.until)
        #expect(mailbox.kept[box]?.isEmpty == true)
        mailbox.expectAgreement()
    }

    @Test("a locked mailbox does not confirm that a slot on its disk was overwritten", arguments: [false, true])
    func discardsLocked(isPurge: Bool) {
        var mailbox = filled()
        let box = mailbox.box()
        mailbox.isLocked = true
        let request: MailboxRequest = isPurge ? .purge(box, [put(1).id]) : .discard(box, [tag(1)], answer: [])
        #expect(mailbox.say(request, holder) == [close(holder)])
        #expect(mailbox.machine.counts.slots == 1)
    }

    @Test("a slot of each class lives until exactly its time; the mailbox's own bound shortens it, but no notice")
    func expiry() {
        for longest in [SlotKeeping.thirtyDays.milliseconds, 2 * .hour] {
            for keeping in SlotKeeping.allCases {
                var mailbox = claimed { $0.longest = longest }
                let box = mailbox.box()
                let kind: SlotKind = keeping == .fortyFiveDays ? .notice : .memory
                let slot = put(1, kind, keeping)
                #expect(mailbox.say(.put(box, slot), guest).count == 3)
                let time = kind == .notice ? 45 * .day : min(keeping.milliseconds, longest)
                let end = start + time
                mailbox.machine.linkClosed(LinkID(1))
                #expect(mailbox.machine.nextDeadline == min(end, start + Limits.boxSilence))
                mailbox.advance(to: end - 1)
                #expect(mailbox.taken(slot.id, at: end - 1))
                // The time has passed, and no timer has run yet.
                mailbox.now = end
                #expect(!mailbox.taken(slot.id, at: end))
                #expect(mailbox.advance(to: end) == [.mailbox(.erase(box, [slot.id]))])
                #expect(
                    mailbox.machine.counts.expired == 1 && mailbox.machine.nextDeadline == start + Limits.boxSilence)
                mailbox.expectAgreement()
            }
        }
    }

    @Test("slots of many boxes expire in order, each once") func expiries() {
        var mailbox = Mailbox()
        mailbox.claim([1, 2])
        mailbox.say(.put(mailbox.box(1), put(1, .disk, .oneHour)), guest)
        mailbox.now = mailbox.now + .minute
        mailbox.say(.put(mailbox.box(2), put(2, .memory, .oneHour)), guest)
        mailbox.say(.put(mailbox.box(1), put(3, .disk, .sixHours)), guest)
        mailbox.machine.linkClosed(LinkID(1))
        var ends: [Milliseconds] = []
        while let next = mailbox.machine.nextDeadline, next < start + .day {
            ends.append(next - start)
            mailbox.advance(to: next)
            mailbox.expectAgreement()
        }
        #expect(ends == [.hour, .hour + .minute, 6 * .hour + .minute])
        #expect(mailbox.machine.counts.expired == 3 && mailbox.machine.counts.slots == 0)
    }

    @Test("slots in memory count again and expire in time when the machine restarts with its record") func anew() {
        var mailbox = claimed()
        let box = mailbox.box()
        mailbox.say(.put(box, put(1, .memory, .oneHour)), guest)
        let (before, end) = (mailbox.machine.counts.memoryByteCount, mailbox.machine.nextDeadline)
        mailbox.machine = MailboxServiceStateMachine(mailbox.machine.records)
        #expect(mailbox.machine.counts.memoryByteCount == 0)
        mailbox.machine.count([box], mailbox.turn)
        #expect(mailbox.machine.counts.memoryByteCount == before && mailbox.machine.counts.slots == 1 && before > 0)
        #expect(mailbox.machine.nextDeadline == start + .hour && end != nil)
        mailbox.advance(to: start + .hour)
        #expect(mailbox.machine.counts.memoryByteCount == 0 && mailbox.machine.counts.slots == 0)
        mailbox.expectAgreement()
    }

    // MARK: Bounds

    @Test("slots, bytes, bytes in memory and notices of a box are limited, and notices have their own quota")
    func quotas() {
        var mailbox = claimed {
            $0.slotCount = 3
            $0.boxByteCount = 4_096 + 2_048
            $0.memoryByteCount = 2_048
        }
        let box = mailbox.box()
        func outcome(_ slot: SlotPut, _ other: BoxID? = nil) -> PutOutcome? {
            for case .transmit(_, .mailboxAnswer(.put(_, _, let outcome))) in mailbox.say(
                .put(other ?? box, slot), guest)
            { return outcome }
            return nil
        }
        #expect(outcome(put(1, size: 16_384)) == .full)
        #expect(outcome(put(1, size: 4_096)) == .stored && outcome(put(2, .memory)) == .stored)
        #expect(outcome(put(3, size: 4_096)) == .full && outcome(put(3, .memory)) == .stored)
        #expect(outcome(put(4)) == .full, "slots and bytes are full")
        #expect(mailbox.say(.discard(box, [tag(1)], answer: []), guest).count == 2)
        #expect(outcome(put(4, .memory)) == .full, "memory is full, of all boxes together")
        mailbox.claim([2])
        #expect(outcome(put(4, .memory), mailbox.box(2)) == .full)
        #expect(outcome(put(4)) == .stored && outcome(put(5)) == .full)
        // Notices have room, however full the box is.
        for number in 0..<Limits.noticeCount { #expect(outcome(put(100 + number, .notice)) == .stored) }
        #expect(outcome(put(99, .notice)) == .full)
        mailbox.expectAgreement()
        // They take no slot of contents.
        #expect(mailbox.say(.purge(box, [put(4).id, put(3).id, put(2).id]), holder).count == 2)
        #expect(mailbox.machine.counts.memoryByteCount == 0)
        mailbox.expectAgreement()
    }

    @Test("a slot named twice in one request counts once") func twice() {
        var mailbox = filled()
        let box = mailbox.box()
        mailbox.say(.put(box, put(2)), guest)
        mailbox.say(.discard(box, [tag(1), tag(1)], answer: []), guest)
        mailbox.say(.purge(box, [put(2).id, put(2).id]), holder)
        #expect(mailbox.machine.counts.discarded == 2 && mailbox.machine.counts.slots == 0)
        mailbox.expectAgreement()
    }

    @Test("the largest box holds as much as the limits say") func whole() {
        var mailbox = claimed()
        let box = mailbox.box()
        var stored = 0
        for number in 0..<(Limits.slotCount + 2) {
            mailbox.now = mailbox.now + Limits.putRate.interval + 1
            let actions = mailbox.say(.put(box, put(number)), number + 10)
            if isKept(actions) { stored += 1 }
        }
        #expect(stored == Limits.slotCount && mailbox.machine.counts.slots == Limits.slotCount)
        #expect(mailbox.say(.list(box), holder).count == 1)
        mailbox.expectAgreement()
        mailbox = claimed()
        stored = 0
        for number in 0..<100 {
            mailbox.now = mailbox.now + Limits.putRate.interval + 1
            if isKept(mailbox.say(.put(mailbox.box(), put(number, size: SlotSize.largest)), 10)) { stored += 1 }
        }
        #expect(stored == Limits.boxByteCount / SlotSize.largest)
    }

    @Test("bytes on the disk have a rate limit even if discarded; bytes in memory have none") func rateOfBytes() {
        var mailbox = claimed()
        let box = mailbox.box()
        func stored(_ kind: SlotKind, in count: Int) -> Int {
            var stored = 0
            for number in 0..<count {
                mailbox.now = mailbox.now + Limits.putRate.interval + 1
                let slot = put(number % 8, kind, size: SlotSize.largest)
                if isKept(mailbox.say(.put(box, slot), 10)) { stored += 1 }
                mailbox.say(.discard(box, [tag(number % 8)], answer: []), 10)
            }
            return stored
        }
        // One more than fits: a put is accepted when its first KiB has room.
        let passed = 1_000 * (Limits.putRate.interval + 1)
        let kibibytes = Limits.putKibibyteRate.burst + Int(passed / Limits.putKibibyteRate.interval)
        let most = kibibytes / (SlotSize.largest / 1_024) + 1
        let count = stored(.disk, in: 1_000)
        #expect(count <= most && count >= most - 2)
        #expect(stored(.memory, in: 100) == 100)
        #expect(isKept(mailbox.say(.put(box, put(99, .notice)), 10)), "a notice does not wait for contents")
        mailbox.now = mailbox.now + .day
        #expect(stored(.disk, in: 100) == 100)
        mailbox.expectAgreement()
    }

    @Test("puts have a rate limit: per box over all sources, and per network over all boxes") func rates() {
        func puts(_ mailbox: inout Mailbox, _ count: Int, _ box: (Int) -> BoxID, from source: (Int) -> UInt64?) -> Int {
            var taken = 0
            for index in 0..<count {
                mailbox.sources[index + 10] = source(index)
                let slot = put(7)
                let answer = told(index + 10, .put(box(index), slot.id, .tooFast))
                if !mailbox.say(.put(box(index), slot), index + 10).contains(answer) { taken += 1 }
            }
            return taken
        }
        var mailbox = claimed()
        let box = mailbox.box()
        #expect(puts(&mailbox, 2 * Limits.putRate.burst, { _ in box }, from: { UInt64($0) }) == Limits.putRate.burst)
        mailbox.now = mailbox.now + 3 * Limits.putRate.interval
        #expect(puts(&mailbox, 20, { _ in box }, from: { UInt64($0) }) == 3)

        mailbox = Mailbox()
        mailbox.claim(Array(1...8))
        let boxes = (1...8).map { mailbox.box($0) }
        let count = puts(&mailbox, 2 * Limits.putSourceRate.burst, { boxes[$0 % 8] }, from: { _ in 5 })
        #expect(count == Limits.putSourceRate.burst)
        #expect(puts(&mailbox, 5, { boxes[$0 % 8] }, from: { _ in 6 }) == 5, "another network is not concerned")
        // Guessed boxes do not count against existing ones.
        let missing = mailbox.box(77)
        mailbox = claimed()
        for _ in 0..<(2 * Limits.putRate.burst) { mailbox.say(.put(missing, put(1)), guest) }
        #expect(puts(&mailbox, 5, { _ in box }, from: { _ in nil }) == 5)

        // The list of networks is bounded; an unlisted one has to wait.
        mailbox = Mailbox { $0.boxCount = 64 }
        mailbox.claim(Array(1...64))
        let many = (1...64).map { mailbox.box($0) }
        #expect(
            puts(&mailbox, Limits.putSourceCount + 100, { many[$0 % 64] }, from: { UInt64($0) })
                == Limits.putSourceCount)
        #expect(puts(&mailbox, 5, { many[$0 % 64] }, from: { _ in 3 }) == 5, "one that is on the list")
        mailbox.now = mailbox.now + .minute
        #expect(puts(&mailbox, 5, { many[$0 % 64] }, from: { _ in .max }) == 5)
    }

    @Test("takes have a rate limit: bytes per owner, notices per network of guests") func ratesOfTakes() {
        func given(_ mailbox: inout Mailbox, _ count: Int, _ number: Int, on link: (Int) -> Int) -> Int {
            let box = mailbox.box()
            var given = 0
            for index in 0..<count {
                let actions = mailbox.say(.take(box, [tag(number)]), link(index))
                if case .mailbox(.give) = actions.first { given += 1 }
            }
            return given
        }
        var mailbox = claimed()
        mailbox.say(.put(mailbox.box(), put(1, size: SlotSize.largest)), 10)
        mailbox.say(.put(mailbox.box(), put(2, .notice)), 10)
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
        mailbox.say(.put(mailbox.box(2), put(5)), 10)
        #expect(
            mailbox.say(.take(mailbox.box(2), [tag(5)]), holder) == [told(holder, .absent(mailbox.box(2), put(5).id))])

        for link in 10..<10_000 { mailbox.sources[link] = UInt64(link % 2) }
        #expect(given(&mailbox, 4_000, 2, on: { 10 + 2 * $0 }) == Limits.takeSourceRate.burst)
        #expect(given(&mailbox, 10, 2, on: { 11 + 2 * $0 }) == 10, "another network is not concerned")
        mailbox.now = mailbox.now + 3 * Limits.takeSourceRate.interval
        #expect(given(&mailbox, 20, 2, on: { 10 + 2 * $0 }) == 3)

        // The list of networks is bounded; an unlisted one has to wait, and clients without a network share one entry.
        mailbox = claimed()
        mailbox.say(.put(mailbox.box(), put(2, .notice)), 9)
        for link in 10..<5_000 { mailbox.sources[link] = UInt64(link) }
        #expect(given(&mailbox, Limits.putSourceCount + 100, 2, on: { 10 + $0 }) == Limits.putSourceCount)
        // `absent` would say that the notice is gone.
        #expect(mailbox.say(.take(mailbox.box(), [tag(2)]), 9) == [close(9)])
        mailbox.now = mailbox.now + .minute
        #expect(given(&mailbox, 2 * Limits.takeSourceRate.burst, 2, on: { _ in 9 }) == Limits.takeSourceRate.burst)
        mailbox.expectAgreement()
    }

    @Test("new boxes of an owner have a rate limit, and existing boxes do not") func ratesOfBoxes() {
        var mailbox = claimed()
        var made = 0
        for _ in 0..<(2 * Limits.boxRate.burst) {
            mailbox.say(.drop([label(2)]), holder)
            let before = mailbox.machine.records.count
            mailbox.claim([1, 2], holder)
            made += mailbox.machine.records.count - before
        }
        #expect(made == Limits.boxRate.burst - 1)
        let grant = mailbox.claim([1, 2], holder)
        #expect(
            grant.contains(where: {
                if case .transmit(_, .mailboxAnswer(.granted(let grant))) = $0 { grant.boxCount == 1 } else { false }
            }))
        #expect(mailbox.machine.records.map(\.box) == [mailbox.box()], "the one that is there stays")
        let other = mailbox.claim([1], 3, as: mailbox.second)
        #expect(mailbox.machine.records.count == 2 && !other.isEmpty, "another owner is not concerned")
        mailbox.now = mailbox.now + Limits.boxRate.interval
        mailbox.claim([1, 2], holder)
        #expect(mailbox.machine.records.count == 3)
        mailbox.expectAgreement()
    }

    // MARK: Ends

    @Test("a peer that is removed loses its boxes with all contents") func revoked() {
        var mailbox = filled()
        mailbox.claim([1], 4, as: mailbox.second)
        let other = mailbox.box(1, of: mailbox.second)
        mailbox.say(.put(mailbox.box(), put(2, .memory)), guest)
        mailbox.say(.put(other, put(3, .memory)), guest)
        let terms = mailbox.machine.terms
        #expect(mailbox.configure(terms).isEmpty)
        mailbox.peers.remove(mailbox.owner.publicKey)
        #expect(
            mailbox.configure(terms) == [
                refused(holder, .unknownPeer), close(holder), .mailbox(.destroy(mailbox.box())), .save(client),
            ])
        #expect(mailbox.machine.records.map(\.box) == [other] && !mailbox.machine.serves(LinkID(1)))
        #expect(mailbox.machine.serves(LinkID(4)) && mailbox.machine.counts.memoryByteCount == 1_024)
        mailbox.expectAgreement()
        // A removed box keeps nothing.
        let box = mailbox.box()
        #expect(mailbox.say(.put(box, put(9)), guest) == [told(guest, .put(box, put(9).id, .unknownBox))])
        #expect(mailbox.say(.take(box, [tag(1)]), guest) == [told(guest, .absent(box, put(1).id))])
        #expect(mailbox.say(.list(box), holder) == [close(holder)])
        #expect(mailbox.kept[box] == nil)
        mailbox.advance(to: start + 2 * .day)
        mailbox.expectAgreement()
        // A node that stops serving keeps its boxes for later.
        #expect(mailbox.configure(MailboxTerms()).isEmpty)
        #expect(mailbox.machine.records.map(\.box) == [other])
    }

    @Test("a box that its owner drops is destroyed, and is empty when it is claimed again") func dropped() {
        var mailbox = filled()
        let box = mailbox.box()
        mailbox.say(.put(box, put(2, .memory)), guest)
        #expect(mailbox.say(.drop([label(1), label(5)]), holder) == [.mailbox(.destroy(box)), .save(client)])
        #expect(mailbox.machine.counts.boxes == 0 && mailbox.machine.counts.memoryByteCount == 0)
        mailbox.expectAgreement()
        #expect(mailbox.claim() == [.save(client), told(1, .granted(mailbox.grant(boxes: Limits.boxCount)))])
        #expect(mailbox.say(.list(box), holder) == [told(holder, .slots(box, []))])
    }

    @Test("silent holders are closed, and boxes of long absent owners are destroyed") func silence() {
        var mailbox = filled()
        mailbox.machine.heard(LinkID(1), now: start + .second)
        let silent = start + .second + Limits.mailboxSilence
        #expect(mailbox.machine.nextDeadline == silent)
        #expect(mailbox.advance(to: silent - 1).isEmpty && mailbox.advance(to: silent) == [close(1)])
        #expect(!mailbox.machine.serves(LinkID(1)))
        mailbox.machine.heard(LinkID(1), now: silent)
        #expect(!mailbox.machine.serves(LinkID(1)))
        mailbox.advance(to: start + 2 * .day)
        // The owner counts as present until it was last heard.
        let end = start + .second + Limits.boxSilence
        #expect(mailbox.machine.nextDeadline == end)
        #expect(mailbox.advance(to: end - 1).isEmpty)
        #expect(mailbox.advance(to: end) == [.mailbox(.destroy(mailbox.box())), .save(client)])
        #expect(mailbox.machine.records.isEmpty && mailbox.machine.nextDeadline == nil)
        mailbox.expectAgreement()
    }

    @Test("an owner whose link lasts longer than that limit keeps its box") func present() {
        var mailbox = claimed()
        let end = start + Limits.boxSilence + .day
        var now = start
        while now < end {
            now = now + .hour
            mailbox.machine.heard(LinkID(1), now: now)
            let actions = mailbox.advance(to: now)
            #expect(!actions.contains(.mailbox(.destroy(mailbox.box()))), "it is here")
            if !actions.filter({ $0 != .save(client) }).isEmpty { break }
        }
        #expect(mailbox.machine.serves(LinkID(1)) && mailbox.machine.counts.boxes == 1)
    }

    // MARK: After a start

    @Test("a box is read from the disk once, on the first request; a failed read is retried") func lazily() {
        var mailbox = filled()
        let box = mailbox.box()
        mailbox.say(.put(box, put(2)), guest)
        let (records, terms) = (mailbox.machine.records, mailbox.machine.terms)
        func restart() {
            mailbox.machine = MailboxServiceStateMachine(records)
            _ = mailbox.configure(terms)
        }
        restart()
        #expect(mailbox.machine.occupancy.map(\.slotCount) == [nil] && mailbox.machine.counts.slots == 0)
        #expect(mailbox.machine.counts.unreadBoxes == 1)
        mailbox.isSilent = true
        #expect(mailbox.say(.put(box, put(3)), guest) == [told(guest, .put(box, put(3).id, .unavailable))])
        #expect(mailbox.say(.put(box, put(3, .memory)), guest) == [told(guest, .put(box, put(3).id, .unavailable))])
        #expect(mailbox.say(.discard(box, [tag(1)], answer: []), guest) == [close(guest)])
        // The box exists, so it is granted; its waiting slots are not known yet.
        #expect(mailbox.claim() == [told(1, .granted(mailbox.grant(boxes: Limits.boxCount)))])
        #expect(mailbox.say(.list(box), holder) == [close(holder)])
        #expect(mailbox.say(.purge(box, [put(1).id]), holder) == [close(holder)])
        mailbox.isSilent = false
        // A moment ago the disk refused.
        mailbox.now = start + Limits.reread.first - 1
        #expect(mailbox.claim() == [told(1, .granted(mailbox.grant(boxes: Limits.boxCount)))])
        mailbox.now = start + Limits.reread.first
        #expect(mailbox.claim().last == told(1, .waiting(box)))
        mailbox.now = start
        #expect(mailbox.machine.occupancy.map(\.slotCount) == [2] && mailbox.machine.counts.unreadBoxes == 0)
        mailbox.expectAgreement()

        // Each request triggers the read.
        let requests: [MailboxRequest] = [.put(box, put(1)), .take(box, [tag(1)]), .discard(box, [tag(8)], answer: [])]
        for request in requests {
            restart()
            mailbox.say(request, guest)
            #expect(mailbox.machine.occupancy.map(\.slotCount) == [2])
            #expect(mailbox.machine.nextDeadline == start + .day, "and they end at their time")
            mailbox.expectAgreement()
        }
        // Expired slots are not returned, and count as expired.
        restart()
        mailbox.now = start + .day
        #expect(mailbox.say(.take(box, [tag(1)]), guest) == [told(guest, .absent(box, put(1).id))])
        mailbox.advance(to: mailbox.now)
        #expect(mailbox.machine.counts.expired == 2)
        mailbox.expectAgreement()
    }

    @Test("slots that the disk returns late are listed at once, and the owner is notified") func late() {
        for isSilent in [false, true] {
            var mailbox = claimed()
            let box = mailbox.box()
            for number in 1...3 { mailbox.say(.put(box, put(number)), 10) }
            // After a restart the disk returns nothing, or all but one slot.
            mailbox.machine = MailboxServiceStateMachine(mailbox.machine.records)
            var terms = MailboxTerms()
            terms.isServing = true
            _ = mailbox.configure(terms)
            mailbox.isSilent = isSilent
            mailbox.refused = [put(2).id]
            let granted = mailbox.claim([1], 5)
            #expect(granted.contains(told(5, .waiting(box))) == !isSilent)
            let first = [put(1).id, put(3).id].sorted()
            #expect(mailbox.say(.list(box), 5) == [isSilent ? close(5) : told(5, .slots(box, first))])
            #expect(mailbox.machine.nextDeadline == start + Limits.reread.first)
            // The read is retried for ever with growing waits; a locked storage is not asked.
            var asked = 0
            while let due = mailbox.machine.nextDeadline, due < start + 10 * .minute {
                #expect(mailbox.advance(to: due).isEmpty)
                mailbox.isLocked = asked % 2 == 0
                asked += 1
                mailbox.machine.heard(LinkID(5), now: due)
            }
            #expect((8...40).contains(asked))
            mailbox.isLocked = false
            mailbox.isSilent = false
            mailbox.refused = []
            let due = mailbox.machine.nextDeadline ?? start
            #expect(mailbox.advance(to: due) == [told(5, .waiting(box))])
            let all = [put(1).id, put(2).id, put(3).id].sorted()
            #expect(mailbox.say(.list(box), 5) == [told(5, .slots(box, all))])
            #expect(mailbox.machine.counts.byteCount == 3 * 1_024)
            mailbox.expectAgreement()
        }
    }

    @Test("an owner is notified once of slots that another client's request reveals") func lateForOthers() {
        for isTake in [false, true] {
            var mailbox = claimed()
            let box = mailbox.box()
            for number in 1...2 { mailbox.say(.put(box, put(number)), 10) }
            mailbox.machine = MailboxServiceStateMachine(mailbox.machine.records)
            var terms = MailboxTerms()
            terms.isServing = true
            _ = mailbox.configure(terms)
            mailbox.refused = [put(2).id]
            mailbox.claim([1], 5)
            #expect(mailbox.say(.list(box), 5) == [told(5, .slots(box, [put(1).id]))])
            mailbox.refused = []
            mailbox.now = start + Limits.reread.first
            mailbox.say(isTake ? .take(box, [tag(9)]) : .discard(box, [tag(9)], answer: []), 10)
            #expect(mailbox.machine.nextDeadline == mailbox.now)
            #expect(mailbox.advance(to: mailbox.now) == [told(5, .waiting(box))])
            #expect(mailbox.advance(to: mailbox.now).isEmpty && mailbox.machine.nextDeadline ?? start > mailbox.now)
            #expect(mailbox.say(.list(box), 5) == [told(5, .slots(box, [put(1).id, put(2).id].sorted()))])
            mailbox.expectAgreement()
        }
    }

    @Test("tens of thousands of random requests keep every bound and leave nothing behind") func flood() {
        var mailbox = Mailbox {
            $0.boxCount = 4
            $0.slotCount = 8
            $0.boxByteCount = 20_000
            $0.memoryByteCount = 10_000
        }
        let owners = [mailbox.owner, mailbox.second]
        let boxes = owners.flatMap { owner in (1...3).map { mailbox.box($0, of: owner) } }
        var random = Randomness.seeded(12)
        func pick(_ count: Int) -> Int { Int.random(in: 0..<count, using: &random) }
        let kinds = SlotKind.allCases
        for step in 0..<40_000 {
            let box = boxes[pick(6)]
            let link = pick(6) + 1
            switch pick(20) {
            case 0: mailbox.claim([pick(3) + 1, pick(3) + 1], link, as: owners[link % 2])
            case 1: mailbox.say(.drop([label(pick(3) + 1)]), link)
            case 2: mailbox.say(.list(box), link)
            case 3: mailbox.say(.purge(box, [put(pick(40)).id]), link)
            case 4...6: mailbox.say(.take(box, [tag(pick(40))]), link)
            case 7...9: mailbox.say(.discard(box, [tag(pick(40))], answer: pick(3) == 0 ? [1] : []), link)
            case 10: mailbox.machine.linkClosed(LinkID(UInt64(link)))
            case 11: mailbox.advance(to: mailbox.now + Milliseconds(pick(3_600_000)))
            case 12 where pick(50) == 0:
                let terms = mailbox.machine.terms
                mailbox.peers = pick(2) == 0 ? [owners[0].publicKey] : Set(owners.map(\.publicKey))
                _ = mailbox.configure(terms)
            default:
                let kind = kinds[pick(3)]
                let number = pick(40)
                mailbox.say(
                    .put(box, put(number, kind, size: kind == .notice ? 1_024 : [1_024, 4_096][pick(2)])), link)
            }
            mailbox.now = mailbox.now + Milliseconds(pick(500))
            guard step % 50 == 0 else { continue }
            let counts = mailbox.machine.counts
            if counts.boxes > 4 || counts.memoryByteCount > 10_000 || counts.slots > 4 * (8 + Limits.noticeCount) {
                Issue.record("\(counts)")
            }
            for one in mailbox.machine.occupancy where (one.slotCount ?? 0) > 8 + Limits.noticeCount {
                Issue.record("\(one)")
            }
            mailbox.expectAgreement()
        }
        #expect(mailbox.machine.counts.put > 1_000 && mailbox.machine.counts.taken > 100)
        mailbox.peers = []
        _ = mailbox.configure(mailbox.machine.terms)
        #expect(mailbox.machine.records.isEmpty && mailbox.kept.values.allSatisfy(\.isEmpty))
        for link in 1...6 { mailbox.machine.linkClosed(LinkID(UInt64(link))) }
        mailbox.advance(to: mailbox.now + 61 * .day)
        #expect(mailbox.machine.nextDeadline == nil)
    }
}
