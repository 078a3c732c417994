import Cryptography
import Messaging
import NodeRuntime
import Simulation

/// An additional machine that is a mailbox for the others and has no conversations.
final class WorldMailbox {
    let index: Int
    /// Machines that use this mailbox and are its named peers.
    let users: Set<Int>
    /// Its frames are forged: see ``HostileMailbox``.
    let isHostile: Bool
    let hostile: HostileMailbox
    private let clockOffset: Milliseconds

    /// Uses a random stream of its own, so that worlds without a mailbox do not change.
    init?(_ options: NodeSimulation.Options, machines: Int, _ journal: Journal) {
        var dice = Randomness.seeded(options.seed &* 0x9e37_79b9_7f4a_7c15 &+ 17)
        let isDrawn = dice.chance(33)
        guard options.hasMailbox ?? options.mistake?.needsMailbox ?? isDrawn else { return nil }
        index = machines
        // At least two users, so that two members can share the mailbox.
        users = Set((0..<machines).filter { $0 < 2 || dice.chance(85) })
        let drawnHostile = dice.chance(35)
        isHostile = options.isMailboxHostile ?? (options.mistake == nil && drawnHostile)
        clockOffset = dice.roll(4 * .hour) - 2 * .hour
        hostile = HostileMailbox(dice: .seeded(dice.next()), journal: journal)
    }

    func machine(in world: NodeSimulation) -> Machine {
        Machine(
            index, world: world, isHostile: false, clockOffset: clockOffset, capacity: Limits.inboxCapacity, grace: 0,
            policy: .ask, cap: .none)
    }

    func isAcquainted(_ machine: Int) -> Bool { machine == index || users.contains(machine) }

    func peers(of machine: Int) -> [Int] {
        if machine == index { return users.sorted() }
        return users.contains(machine) ? [index] : []
    }

    func isMailbox(_ other: Int, of machine: Int) -> Bool { other == index && users.contains(machine) }

    /// Checks a frame between a mailbox and its user on arrival. Returns the frames for the node; `nil` for other
    /// frames.
    func passed(_ bytes: [UInt8], from key: PublicKey, to machine: Machine, in world: NodeSimulation) -> [[UInt8]]? {
        if machine.index == index {
            guard case .mailboxRequest(let request)? = try? FrameCodec.decode(bytes) else { return nil }
            world.note("mailbox <- \("\(request)".prefix(100))")
            world.asked(request)
            if isHostile { hostile.hears(request) }
            if world.options.mistake == .earlyDiscard, case .take(let box, let tags) = request {
                return [bytes, FrameCodec.encode(.mailboxRequest(.discard(box, tags, answer: [])))]
            }
            return [bytes]
        }
        guard world.oracle.contacts[key] == index, !machine.isHostile else { return nil }
        if isHostile {
            let said = hostile.forge(bytes)
            for bytes in said { note(bytes, machine, world) }
            return said
        }
        note(bytes, machine, world)
        if world.options.mistake == .ignoredDwell,
            case .mailboxAnswer(.slot(let box, let id, _, let isAnswer, let body))? = try? FrameCodec.decode(bytes)
        {
            return [FrameCodec.encode(.mailboxAnswer(.slot(box, id, dwell: 0, isAnswer: isAnswer, body: body)))]
        }
        return [bytes]
    }

    private func note(_ bytes: [UInt8], _ machine: Machine, _ world: NodeSimulation) {
        guard let frame = try? FrameCodec.decode(bytes) else { return }
        world.note("machine \(machine.index) <- mailbox: \("\(frame)".prefix(100))")
        guard case .mailboxAnswer(let answer) = frame else { return }
        let name = "\(answer)".prefix { $0 != "(" }
        world.count("mailbox: \(name)")
        if case .put(_, _, let outcome) = answer { world.count("mailbox: put \(outcome)") }
    }
}

extension NodeSimulation {
    var people: [Machine] { machines.filter { $0.index != mailbox?.index } }

    /// Agreements known to be signed by all that permit the mailbox.
    private func agreements(with consent: MailboxConsent, for conversation: ConversationID) -> [Agreement] {
        oracle.agreements.values.filter { $0.proposal.conversation == conversation && $0.terms.mailbox >= consent }
    }

    /// A request needs an agreement that all members signed.
    func asked(_ request: MailboxRequest) {
        switch request {
        case .claim(let owner, _, let labels):
            count("claims")
            guard let index = oracle.contacts[owner] else { return count("claims of nobody") }
            for label in labels { claimed(label, machines[index]) }
        case .put(let box, let put):
            count("puts, \(put.kind)")
            checkPut(put, into: box)
        case .take: count("takes")
        case .discard(_, _, let answer): count(answer.isEmpty ? "discards" : "receipts left in a box")
        case .purge: count("purges")
        case .drop: count("drops of boxes")
        case .list: count("lists of boxes")
        }
    }

    private func claimed(_ label: BoxLabel, _ machine: Machine) {
        guard !machine.isHostile, let key = machines[mailbox!.index].contactCard?.key else { return }
        guard let conversation = learnBoxes(of: machine, label, key) else { return count("claims for what is gone") }
        // A command that failed on a full disk may have agreed all the same, and its inbox may be asleep.
        if agreements(with: .ram, for: conversation).isEmpty { learnAgreement(of: machine, conversation) }
        if agreements(with: .ram, for: conversation).isEmpty {
            violation("M1 machine \(machine.index) claims a box for a conversation that has not agreed to it")
        }
    }

    private func learnAgreement(of machine: Machine, _ conversation: ConversationID) {
        count("claims of inboxes that slept")
        if let one = machine.conversation(conversation.description) { learnAgreements(of: one, machine) }
    }

    private func learnAgreements(of one: Conversation, _ machine: Machine) {
        for held in one.agreements + [one.agreement].compactMap({ $0 }) where held.terms.mailbox != .no {
            _ = oracle.agreement(held.id, of: one, machine, self)
        }
    }

    /// Records a machine's boxes and their agreements. Returns the label's conversation.
    @discardableResult private func learnBoxes(of machine: Machine, _ label: BoxLabel?, _ key: PublicKey)
        -> ConversationID?
    {
        machine.ask { [unowned self] node -> ConversationID? in
            var found: ConversationID?
            for listed in (try? node.conversations()) ?? [] {
                let (id, seeds): (ConversationID, [RelaySeed]) =
                    switch listed {
                    case .awake(let one): (one.conversation, one.relaySeeds)
                    case .asleep(let summary): (summary.conversation, summary.relaySeeds)
                    }
                let isMeant = label.map { label in seeds.contains { $0.boxLabel(at: key) == label } } ?? false
                if isMeant { found = id }
                guard case .awake(let one) = listed else { continue }
                if let box = one.record.own.mailbox?.box { oracle.boxes[box] = id }
                learnAgreements(of: one, machine)
            }
            return found
        }
    }

    private func checkPut(_ put: SlotPut, into box: BoxID) {
        guard let key = machines[mailbox!.index].contactCard?.key else { return }
        for machine in people where !machine.isHostile { learnBoxes(of: machine, nil, key) }
        guard let conversation = oracle.boxes[box] else { return count("puts into unknown boxes") }
        // A hostile member may put without an agreement.
        guard !machines.contains(where: \.isHostile) else { return }
        let needed: MailboxConsent = put.kind == .disk ? .disk : .ram
        let agreed = agreements(with: needed, for: conversation)
        guard !agreed.isEmpty else {
            return violation("M1 something is put into a box, for \(put.kind), that was not agreed to")
        }
        guard put.kind != .notice else { return }
        let longest = agreed.map { SlotKeeping.holding(SliceSchedule($0.terms).unread).milliseconds }.max() ?? 0
        if put.keeping.milliseconds > longest { violation("M1 a slot is to be kept for longer than was agreed") }
    }

    /// Checks a record on the mailbox's disk. Returns whether it is a slot.
    func inspect(slot payload: [UInt8], _ machine: Machine, _ now: Timestamp) -> Bool {
        guard payload.count > 18, let kind = SlotKind(rawValue: UInt32(payload[0])), payload[1] < 2 else {
            return false
        }
        let byteCount = payload.count - 18
        guard SlotSize.byteCounts.contains(byteCount) || payload[1] == 1 && byteCount <= Limits.slotAnswerByteCount
        else { return false }
        count("slots on a stolen disk")
        if kind == .memory { violation("M1 the disk of machine \(machine.index) has a slot that is for memory only") }
        let until = payload[10..<18].reduce(0) { $0 << 8 | Int64($1) }
        if until + 20 * .second < now.milliseconds {
            violation("M1 the disk of machine \(machine.index) has a slot \(now.milliseconds - until) ms after its end")
        }
        return true
    }

    /// `delivered` must come from the receiver itself.
    func checkDelivered(_ id: MessageID, _ machine: Machine) {
        guard options.mistake == nil, oracle.texts[id] != nil, !machines.contains(where: \.isHostile) else { return }
        count("deliveries checked")
        if oracle.arrived[id, default: []].subtracting([machine.index]).isEmpty {
            violation("M2 machine \(machine.index) says delivered of what has come to nobody")
        }
    }

    /// Greatest undetected age of a content from a box: the time an honest mailbox lost, plus one slice.
    func mailboxSlack(under agreement: AgreementID?) -> Milliseconds {
        guard let mailbox, let terms = agreement.flatMap({ oracle.agreements[$0]?.terms }), terms.mailbox != .no else {
            return 0
        }
        let width = SliceSchedule(terms).width
        return mailbox.isHostile ? width : min(width, machines[mailbox.index].lostTime)
    }

    /// A received content must end no later than its sending time plus the agreed lifetime.
    func checkEnd(of message: Message, _ sent: NodeOracle.Sent?, _ machine: Machine, _ now: Timestamp) {
        guard let sent, let end = message.expiresAt, let id = message.content.agreement,
            let terms = oracle.agreements[id]?.terms, terms.keepsSomething
        else { return }
        let excess = (end - now) + (time.milliseconds - sent.time) - terms.longest
        let lost = machines[sent.machine].lostTime + machine.lostTime
        if excess > NodeOracle.transit + lost + mailboxSlack(under: id) {
            violation("I3 machine \(machine.index) gives a message \(excess) ms more than was agreed")
        }
    }

    func drawnConsent(_ isKept: Bool) -> MailboxConsent {
        guard chance(65) else { return .no }
        return isKept && chance(70) ? .disk : .ram
    }
}
