import Cryptography
import Messaging

/// The mailbox of all nodes. Its slots are unsealed for the oracle, and open while their slice's key would exist. The
/// simulation of whole nodes tests the seals and the mailbox's state machine.
struct SimulatedMailbox {
    enum Conduct: CaseIterable {
        case honest
        /// Loses slots that it has confirmed.
        case forgets
        /// Names a dwell of zero or of many days.
        case lies
        /// Keeps slots that were discarded, and lists them again, in any order.
        case repeats
    }

    /// A slot's name in its box; `nil` stands for the number of a notice.
    struct Name: Hashable {
        var sender: PublicKey
        var number: UInt64?
    }

    struct Slot {
        var name: Name
        var kind: SlotKind
        var agreement: AgreementID?
        var slice: UInt32
        var frames: [Frame]
        var messages: [MessageID] = []
        /// The body of a notice, or the answer in its place.
        var body: [UInt8] = []
        var isAnswer = false
        var putAt: Int64
        var until: Int64
        var isDiscarded = false
        /// How far the sender's clock was stepped forward since it received the owner's slices: it uses later ones.
        var stepped: Milliseconds = 0
    }

    var conduct = Conduct.honest
    var isUp = true
    let card: ContactCard
    var owners: [BoxID: Int] = [:]
    var boxes: [BoxID: [Slot]] = [:]

    init(_ random: inout Randomness) {
        // One draw in 2^127 is not a key.
        let key = IdentityKey(try! SecretKey(SecretBytes(copying: random.bytes(32))))
        card = ContactCard(
            key: key.publicKey, routingSecret: random.bytes(ContactCard.routingSecretByteCount),
            endpoints: [Endpoint(host: "m", port: 7440)])
    }

    mutating func forgetOld(_ time: Int64) {
        for box in boxes.keys.sorted() { boxes[box]?.removeAll { $0.until <= time } }
    }

    /// A restart loses the slots in memory.
    mutating func restart() { for box in boxes.keys.sorted() { boxes[box]?.removeAll { $0.kind == .memory } } }
}

/// The shell's mailbox part: orders, boxes, slice keys, notices.
extension Simulation {
    private func retryPause() -> Int64 { 1_000 + roll(15_000) }

    /// Sends the keys of one step, then the next step's. All keys are equal, because nothing is sealed here.
    func sendSlices(
        _ node: SimulatedNode, _ client: ClientID, _ agreement: AgreementID, above: UInt32?, on link: LinkID
    ) {
        guard !node.isLocked, let key = node.keys[client]?.publicKey,
            let terms = node.core.conversation(client)?.agreement, terms.id == agreement
        else { return }
        let schedule = SliceSchedule(terms.terms)
        let now = node.now(time)
        let present = schedule.slice(at: now)
        let final = schedule.last(at: now)
        let first = max(present, min(above ?? 0, final) + (above == nil ? 0 : 1))
        let last = min(final, first + UInt32(Limits.sliceStepCount - 1))
        let keys = SliceKeys(
            agreement: agreement, first: first, present: present, left: max(1, schedule.end(of: present) - now),
            keys: (first..<max(first, last + 1)).map { _ in key })
        count("frames of slice keys")
        put(.mailbox(.keys(keys)), on: link, node)
        guard !keys.keys.isEmpty, last < final else { return }
        plan(node, in: 20) { [self] in sendSlices(node, client, agreement, above: last, on: link) }
    }

    /// The slot numbers of an order are durable, so its slots go out whatever happens to the sender.
    func begin(_ order: MailOrder, _ client: ClientID, _ node: SimulatedNode) {
        let slots = node.isLocked ? [] : slots(of: order, client, node)
        let incarnation = node.incarnation
        plan(in: 1 + roll(500)) { [self] in
            let result = mail(order, slots, node)
            plan(node, incarnation: incarnation, in: 1 + roll(500)) { [self] in
                if !result.mailed.isEmpty { count("orders mailed") }
                step(node) { core, turn in core.step(client, &turn) { $0.mailed(order, result, &$1) } }
            }
        }
    }

    private func mail(_ order: MailOrder, _ slots: [SimulatedMailbox.Slot], _ node: SimulatedNode) -> MailResult {
        // Some of the slots may arrive, and the last answer may be lost.
        let lost = isParted || !chance(30) ? Int.max : Int(roll(Int64(slots.count) + 1))
        var result = MailResult(mailed: [], tooLarge: [], slotCount: 0, isComplete: false)
        guard mailbox.isUp, mailbox.owners[order.address.box] != nil, !slots.isEmpty else {
            count("orders refused")
            return result
        }
        result.isComplete = lost >= slots.count
        for (index, slot) in slots.enumerated() where index <= lost {
            result.slotCount += 1
            keep(slot, in: order.address.box, of: order, node)
            if index == lost { count("answers of a mailbox lost") } else { result.mailed += slot.messages }
        }
        return result
    }

    /// At most three messages per slot, so that orders need several.
    private func slots(of order: MailOrder, _ client: ClientID, _ node: SimulatedNode) -> [SimulatedMailbox.Slot] {
        guard let sender = node.keys[client]?.publicKey else { return [] }
        let contents = contents(of: order.messages, client, node)
        return (0..<min(max(1, (contents.count + 2) / 3), Limits.mailSlotCount)).map { index in
            let part = Array(contents.dropFirst(3 * index).prefix(3))
            let slot = SimulatedMailbox.Slot(
                name: SimulatedMailbox.Name(sender: sender, number: order.number + UInt64(index)), kind: order.kind,
                agreement: order.agreement, slice: order.slice,
                frames: (index == 0 ? order.frames : []) + (part.isEmpty ? [] : [.contents(part)]),
                messages: part.map(\.content.id), putAt: 0, until: 0,
                stepped: node.gained - (oracle.gainedAtKeys[client]?[order.member] ?? 0))
            for case .contents(let contents) in slot.frames { oracle.checkAges(contents, node) }
            return slot
        }
    }

    private func keep(_ slot: SimulatedMailbox.Slot, in box: BoxID, of order: MailOrder, _ node: SimulatedNode) {
        count("slots put")
        oracle.checkMailed(slot, in: box, of: order, node)
        if mailbox.conduct == .forgets, chance(50) { return count("slots lost by the mailbox") }
        var slot = slot
        (slot.putAt, slot.until) = (time, time + order.keeping.milliseconds)
        mailbox.boxes[box, default: []].append(slot)
        if let owner = mailbox.owners[box] { planVisit(nodes[owner], in: 1 + roll(500)) }
    }

    func planVisit(_ node: SimulatedNode, in wait: Int64) {
        guard hasMailbox, node.isUp else { return }
        if let planned = node.nextVisit, planned <= time + wait { return }
        node.nextVisit = time + wait
        plan(node, in: wait) { [self] in
            node.nextVisit = nil
            visit(node)
        }
    }

    /// A node claims its boxes and takes new slots.
    private func visit(_ node: SimulatedNode) {
        guard !node.isLocked else { return planVisit(node, in: retryPause()) }
        guard mailbox.isUp else {
            count("visits of a mailbox that is down")
            return planVisit(node, in: retryPause())
        }
        mailbox.forgetOld(time)
        claim(node)
        var isBlocked = false
        for (box, seed) in node.boxes.sorted(by: { $0.key < $1.key }) {
            guard let client = node.core.owner(of: seed) else { continue }
            if empty(box, client, node) { isBlocked = true }
        }
        if isBlocked { planVisit(node, in: retryPause()) }
    }

    private func claim(_ node: SimulatedNode) {
        guard node.core.takeMailboxChange() || node.boxes.isEmpty, let place = node.place else { return }
        let seeds = node.core.boxSeeds(now: node.now(time))
        node.boxes = Dictionary(seeds.map { (place.box(of: $0), $0) }) { first, _ in first }
        for (box, seed) in node.boxes.sorted(by: { $0.key < $1.key }) {
            if mailbox.owners[box] == nil { count("boxes claimed") }
            mailbox.owners[box] = node.index
            node.claimed[box] = node.core.owner(of: seed).flatMap { node.core.conversationID($0) }
        }
        for (box, conversation) in node.claimed.sorted(by: { $0.key < $1.key }) where node.boxes[box] == nil {
            // The box of an exploded conversation stays, with its notices and our answers.
            if node.core.tombstone(conversation) != nil { continue }
            count("boxes dropped")
            mailbox.owners[box] = nil
            mailbox.boxes[box] = nil
            node.claimed[box] = nil
        }
    }

    private func empty(_ box: BoxID, _ client: ClientID, _ node: SimulatedNode) -> Bool {
        var slots = (mailbox.boxes[box] ?? []).filter { !$0.isDiscarded || mailbox.conduct == .repeats && chance(30) }
        guard !slots.isEmpty else { return false }
        if mailbox.conduct == .repeats { slots.shuffle(using: &dice) }
        wake(node, client, .pushNotification)
        var isBlocked = false
        for slot in slots.filter({ $0.kind == .notice }) + slots.filter({ $0.kind != .notice }) {
            guard let machine = node.core.conversation(client), let key = node.keys[client] else { return true }
            guard machine.currentMembers.contains(where: { $0.key == slot.name.sender }) else { continue }
            if slot.kind == .notice {
                takeNotice(slot, in: box, machine.conversation, client, key, node)
                if node.core.conversation(client) == nil { return false }
            } else if take(slot, in: box, machine, client, node) {
                isBlocked = true
            }
        }
        return isBlocked
    }

    /// Returns whether the slot must be taken later.
    private func take(
        _ slot: SimulatedMailbox.Slot, in box: BoxID, _ machine: Conversation, _ client: ClientID, _ node: SimulatedNode
    ) -> Bool {
        guard let number = slot.name.number, let agreement = slot.agreement else { return false }
        if machine.hasTaken(number, of: slot.name.sender) {
            count("slots offered again")
            discard(slot, in: box, node)
            return false
        }
        let hint = SlotSealing.Hint(agreement: agreement, slice: slot.slice)
        guard let terms = machine.knownTerms(of: hint),
            SliceSchedule(terms).keyEnd(of: slot.slice) > node.latestNow(time)
        else {
            count("slots without a key")
            discard(slot, in: box, node)
            return false
        }
        let schedule = SliceSchedule(terms)
        var dwell = time - slot.putAt
        if mailbox.conduct == .lies { dwell = chance(70) ? 0 : dwell + roll(40 * .day) }
        var age = schedule.age(in: slot.slice, dwell: dwell, now: node.now(time))
        if options.bug == .trustDwell { age.least = 0 }
        if age.isDoubtful { count("slots of a doubtful age") }
        return receive(slot, in: box, age, schedule, client, node)
    }

    private func receive(
        _ slot: SimulatedMailbox.Slot, in box: BoxID, _ age: SlotAge, _ schedule: SliceSchedule, _ client: ClientID,
        _ node: SimulatedNode
    ) -> Bool {
        var unknown: [AgedContent] = []
        for frame in slot.frames {
            note("node \(node.index) <- box \("\(frame)".prefix(300)) dwell \(age.dwell) least \(age.least)")
            let other = self.client(of: slot.name.sender)
            if let other { oracle.receives(frame, client, from: other, node) }
            if case .acknowledgement = frame { count("acknowledgements by box") }
            guard case .contents(let contents) = frame else { continue }
            count("contents by box")
            for aged in contents where node.seen[client]?.contains(aged.content.id) != true {
                unknown.append(AgedContent(aged.content, age: max(aged.age + age.dwell, age.least)))
                if age.isDoubtful { oracle.doubtful.insert(aged.content.id) }
                if mailbox.conduct == .lies { oracle.lied[aged.content.id] = schedule.width + slot.stepped }
            }
        }
        var isTaken = true
        receive(unknown, client, node) { core, turn in
            let before = owed(to: slot.name.sender, core.conversation(client))
            isTaken = core.receiveMailed(
                slot.frames, number: slot.name.number, from: slot.name.sender, age: age, client: client, &turn)
            return owed(to: slot.name.sender, core.conversation(client)).subtracting(before)
        }
        guard isTaken else {
            count("slots without room")
            return true
        }
        count("slots taken")
        discard(slot, in: box, node)
        return false
    }

    /// Pending acknowledgements for a member, to go by its box.
    private func owed(to member: PublicKey, _ conversation: Conversation?) -> Set<MessageID> {
        let said = conversation?.record.mailbox.acknowledgements[member]
        return Set((said?.stored ?? []) + (said?.held ?? []) + (said?.expired ?? []))
    }

    /// A discard reaches the mailbox after the taken content is durable. An answer replaces a notice.
    private func discard(_ slot: SimulatedMailbox.Slot, in box: BoxID, answer: [UInt8]? = nil, _ node: SimulatedNode) {
        put(node) { [self] in
            plan(in: 1 + roll(300)) { [self] in
                guard mailbox.isUp, let index = mailbox.boxes[box]?.firstIndex(where: { $0.name == slot.name }) else {
                    return
                }
                if let answer {
                    mailbox.boxes[box]?[index].body = answer
                    mailbox.boxes[box]?[index].isAnswer = true
                } else {
                    mailbox.boxes[box]?[index].isDiscarded = true
                    if mailbox.conduct != .repeats { mailbox.boxes[box]?.remove(at: index) }
                }
            }
        }
    }

    private func takeNotice(
        _ slot: SimulatedMailbox.Slot, in box: BoxID, _ conversation: ConversationID, _ client: ClientID,
        _ key: IdentityKey, _ node: SimulatedNode
    ) {
        guard !slot.isAnswer else { return }
        let sender = slot.name.sender
        let secret = SlotSecret(sender: sender, owner: key.publicKey, box: box, conversation: conversation, own: key)
        guard let notice = SlotSealing.notice(in: slot.body, secret, box: box) else {
            return violation("a notice in a box does not open")
        }
        step(node) { core, turn in
            core.receiveMailed(
                [.explosion(notice)], number: nil, from: sender, age: SlotAge(dwell: 0), client: client, &turn)
        }
        guard node.core.conversation(client) == nil else { return }
        count("explosions by box")
        if let receipt = node.core.tombstone(conversation)?.receipt { discard(slot, in: box, answer: receipt, node) }
    }

    /// Stores the notices before the explosion that follows in the same actions.
    func keep(
        _ notices: [MailNotice], of conversation: ConversationID, among actions: [NodeAction], _ node: SimulatedNode
    ) {
        for case .explode(let client, let record, _) in actions where record.conversation == conversation {
            guard let sender = node.keys[client]?.publicKey else { continue }
            write(notices, of: conversation, by: sender, node)
            planNotices(conversation, node, in: 5_000)
        }
    }

    /// The mailbox goes off for a time and loses the slots in memory.
    func mailboxFails() {
        guard mailbox.isUp else { return }
        count("mailbox failures")
        note("mailbox: off")
        mailbox.isUp = false
        mailbox.restart()
        plan(in: 1 + roll(chance(70) ? 10_000 : 90_000)) { [self] in mailbox.isUp = true }
    }

    func planNotices(_ conversation: ConversationID, _ node: SimulatedNode, in wait: Int64) {
        plan(node, in: wait) { [self] in putNotices(conversation, node) }
    }

    private func write(
        _ notices: [MailNotice], of conversation: ConversationID, by sender: PublicKey, _ node: SimulatedNode
    ) {
        let left = notices.isEmpty ? nil : Disk.MailNotices(sender: sender, notices: notices)
        write(node) { $0.mailNotices[conversation] = left }
    }

    private func putNotices(_ conversation: ConversationID, _ node: SimulatedNode) {
        guard let list = node.disk.mailNotices[conversation] else { return }
        guard let tombstone = node.core.tombstone(conversation) else {
            return write([], of: conversation, by: list.sender, node)
        }
        var left: [MailNotice] = []
        for notice in list.notices where tombstone.confirmed[notice.member] == nil {
            left.append(notice)
            let box = notice.address.box
            guard mailbox.isUp, let owner = mailbox.owners[box] else { continue }
            let name = SimulatedMailbox.Name(sender: list.sender, number: nil)
            guard let slot = mailbox.boxes[box]?.first(where: { $0.name == name }) else {
                count("notices put")
                let kept = SimulatedMailbox.Slot(
                    name: name, kind: .notice, slice: 0, frames: [], body: notice.body, putAt: time,
                    until: time + SlotKeeping.fortyFiveDays.milliseconds)
                if mailbox.conduct != .forgets || !chance(30) { mailbox.boxes[box, default: []].append(kept) }
                planVisit(nodes[owner], in: 1 + roll(500))
                if tombstone.role != .creator { left.removeLast() }
                continue
            }
            guard slot.isAnswer else { continue }
            count("receipts by box")
            let body = slot.body
            step(node) { core, turn in core.receiveReceipt(body, for: conversation, &turn) }
        }
        if left.count != list.notices.count { write(left, of: conversation, by: list.sender, node) }
        if !left.isEmpty { planNotices(conversation, node, in: isParted ? 30_000 : 4_000 + roll(600_000)) }
    }
}
