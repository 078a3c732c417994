import Cryptography
import Messaging
import TestSupport

/// A mailbox node with its shell, and clients that send anything over several links.
struct FuzzMailbox {
    private static let client = ClientID(unchecked: [UInt8](repeating: 9, count: 16))
    private static let own = FuzzKeys.cid
    /// Two of them are named peers at first.
    private static let owners = [FuzzKeys.ann, FuzzKeys.bob, FuzzKeys.key(0x44)]
    private static let linkCount = 6
    private static let linkKeys = (0..<linkCount).map { FuzzKeys.key(0x51 + UInt8($0)).publicKey }
    private static let secrets = owners.map { MailboxSecret(mailbox: own.publicKey, owner: $0.publicKey, own: $0) }
    private static let proofs = secrets.map { secret in linkKeys.map { secret.proof(of: $0) } }
    private static let labels = (0..<8).map { BoxLabel(unchecked: [UInt8](repeating: UInt8($0), count: 16)) }
    private static let boxes = secrets.map { secret in labels.map { secret.box($0) } }
    private static let tags = (0..<24).map { SlotTag(unchecked: [UInt8](repeating: UInt8($0), count: 32)) }

    private var machine = MailboxServiceStateMachine()
    private var terms = MailboxTerms()
    private var now = Timestamp(milliseconds: 1_795_247_146_133)
    private var peers: Set<PublicKey> = Set(owners.prefix(2).map(\.publicKey))
    private var isLocked = false
    private var hasRoom = true
    private var isSilent = false
    private var kept: [BoxID: [SlotID: (slot: KeptSlot, byteCount: Int)]] = [:]
    private var closed: Set<LinkID> = []
    private var mostBoxes = 0

    init() {
        terms.isServing = true
        configure()
    }

    static var seeds: [[UInt8]] {
        let claim = FuzzScript().byte(0, 0, 0, 0, 1, 2)
        let put = FuzzScript(claim.bytes).byte(4, 1, 0, 1, 3, 1, 2, 0)
        let notice = FuzzScript(put.bytes).byte(4, 1, 0, 1, 4, 2, 5, 0)
        let taken = FuzzScript(notice.bytes).byte(5, 1, 0, 1, 2, 3, 4)
        let answered = FuzzScript(taken.bytes).byte(6, 2, 0, 1, 0, 4, 9)
        let rest = (0..<16).map { FuzzScript(answered.bytes).byte($0, 0, 0, 1, 2, 3, 4).bytes }
        return [claim.bytes, put.bytes, notice.bytes, taken.bytes, answered.bytes] + rest
    }

    mutating func act(_ input: inout FuzzInput) throws {
        let operation = input.index(below: 14)
        switch operation {
        case 0...6:
            let link = input.index(below: Self.linkCount)
            let request = request(operation, link, &input)
            let bytes = FrameCodec.encode(.mailboxRequest(request))
            guard case .mailboxRequest(let read)? = try? FrameCodec.decode(bytes) else { return }
            let turn = turn
            let (remote, id) = (Self.linkKeys[link], LinkID(UInt64(link)))
            closed.remove(id)
            try perform(machine.receive(read, from: remote, on: id, client: Self.client, own: Self.own, turn))
        case 7:
            let link = LinkID(UInt64(input.index(below: Self.linkCount)))
            machine.linkClosed(link)
            try expect(!machine.serves(link), "a link that is closed is served")
        case 8:
            now = now + input.one(of: [1, .second, .minute, .hour, .day, 61 * .day])
            try advance()
        case 9:
            let choice = input.byte()
            terms.isServing = choice & 1 == 0
            terms.boxCount = Int(choice >> 1 & 7)
            terms.slotCount = choice & 16 == 0 ? 256 : 2
            terms.boxByteCount = choice & 32 == 0 ? 4 << 20 : 5_000
            terms.memoryByteCount = choice & 64 == 0 ? 32 << 20 : 3_000
            terms.longest = choice & 128 == 0 ? 30 * .day : .hour
            try perform(configure())
        case 10:
            let choice = input.byte()
            let named = Self.owners.enumerated().filter { choice >> UInt8($0.offset) & 1 == 1 }
            peers = Set(named.map(\.element.publicKey))
            try perform(configure())
        case 11: restart()
        case 12:
            let choice = input.byte()
            (isLocked, hasRoom, isSilent) = (choice & 1 != 0, choice & 2 == 0, choice & 4 != 0)
        default:
            // The disk refused a change: the machine restarts with the saved records and the bodies in memory.
            isSilent = false
            machine = MailboxServiceStateMachine(machine.records)
            machine.count(kept.keys.sorted(), turn)
            try perform(configure())
        }
    }

    private mutating func request(_ operation: Int, _ link: Int, _ input: inout FuzzInput) -> MailboxRequest {
        let box = operation < 2 ? Self.boxes[0][0] : input.one(of: input.one(of: Self.boxes))
        func tags() -> [SlotTag] { (0..<Int(input.byte() % 35)).map { _ in input.one(of: Self.tags) } }
        switch operation {
        case 0:
            let owner = input.index(below: 3)
            let named = input.index(below: Self.linkCount + 1)
            // Its own proof, another link's, or none.
            let proof = named == 0 ? Self.proofs[owner][link] : named == 6 ? [] : Self.proofs[owner][named - 1]
            let labels = (0..<Int(input.byte() % 12)).map { _ in input.one(of: Self.labels) }
            return .claim(owner: Self.owners[owner].publicKey, proof: proof, labels)
        case 1: return .drop((0..<Int(input.byte() % 4)).map { _ in input.one(of: Self.labels) })
        case 2: return .list(box)
        case 3: return .purge(box, tags().map(SlotID.init))
        case 4:
            let id = SlotID(input.one(of: Self.tags))
            let kind = input.one(of: SlotKind.allCases)
            let keeping = input.one(of: SlotKeeping.allCases)
            let size = input.one(of: [1_024, 1_024, 1_024, 4_096, 16_384, 61_440, 0, 1_000])
            return .put(box, SlotPut(id: id, kind: kind, keeping: keeping, body: [UInt8](repeating: 4, count: size)))
        case 5: return .take(box, tags())
        default:
            let answer = [UInt8](repeating: 6, count: Int(input.byte()) + Int(input.byte() & 1))
            return .discard(box, tags(), answer: answer)
        }
    }

    private var turn: Turn {
        let (peers, kept, isSilent, now) = (peers, kept, isSilent, now)
        let turn = Turn(now: now, random: .seeded(1), isLocked: isLocked)
        turn.around.hasRoom = hasRoom
        turn.around.namedPeers = { peers.contains($0) }
        turn.around.sources = { $0.value.isMultiple(of: 2) ? 7 : nil }
        turn.around.slots = { box in
            isSilent ? nil : KeptSlots((kept[box] ?? [:]).values.map(\.slot).filter { $0.until > now })
        }
        return turn
    }

    @discardableResult private mutating func configure() -> [NodeAction] {
        mostBoxes = max(mostBoxes, terms.boxCount)
        let peers = peers
        return machine.configure(terms, Self.client) { peers.contains($0) }
    }

    /// Drops bodies held in memory; boxes and stored bodies remain.
    private mutating func restart() {
        machine = MailboxServiceStateMachine(machine.records)
        for box in kept.keys { kept[box] = kept[box]?.filter { $0.value.slot.kind != .memory } }
        configure()
    }

    private mutating func advance() throws {
        try perform(machine.advance(Self.client, turn))
        // The store destroys expired bodies by itself.
        for box in kept.keys { kept[box] = kept[box]?.filter { $0.value.slot.until > now } }
        // Otherwise its timer would fire forever.
        if let next = machine.nextDeadline { try expect(next > now, "it is due again at once") }
    }

    private mutating func perform(_ actions: [NodeAction]) throws {
        try expect(actions.count <= 2_048, "\(actions.count) actions")
        let known = Set(machine.records.map(\.box))
        for action in actions {
            switch action {
            case .mailbox(.keep(let box, let slot, let body)):
                try expect(known.contains(box), "a body of a box that is not there")
                try expect(slot.byteCount == body.count, "\(body.count) bytes kept as \(slot.byteCount)")
                try expect(kept[box]?[slot.id] == nil, "a body is kept over another")
                try expect(slot.until > now, "a body is kept that is over")
                kept[box, default: [:]][slot.id] = (slot, body.count)
            case .mailbox(.erase(let box, let ids)): for id in ids { kept[box]?[id] = nil }
            case .mailbox(.destroy(let box)):
                try expect(!known.contains(box), "a box is destroyed and known")
                kept[box] = nil
            case .mailbox(.give(_, let box, let slot, let dwell)):
                try expect(kept[box]?[slot.id]?.slot == slot, "a body is given that is not kept")
                try expect(dwell >= 0 && slot.until > now, "a body is given that is over")
            case .transmit(_, let frame), .forward(_, let frame):
                let read = try? FrameCodec.decode(FrameCodec.encode(frame))
                try expect(areAlike(read, frame), "\(frame) does not come back")
            case .close(let link):
                machine.linkClosed(link)
                closed.insert(link)
            case .save: break
            default: throw FuzzFailure("\(action) of a mailbox")
            }
        }
    }

    /// A negative grant is encoded as zero.
    private func areAlike(_ read: Frame?, _ said: Frame) -> Bool {
        guard case .mailboxAnswer(.granted(let grant)) = said, grant.boxCount < 0 else { return read == said }
        return true
    }

    func check() throws {
        let counts = machine.counts
        let records = machine.records
        try expect(records.count <= mostBoxes, "\(records.count) boxes of \(mostBoxes)")
        try expect(Set(records.map(\.box)).isSuperset(of: kept.keys), "bodies of boxes that are not there")
        for record in records { try expect(peers.contains(record.owner), "a box of nobody's") }
        for one in machine.occupancy {
            guard let slotCount = one.slotCount else { continue }
            let slots = (kept[one.record.box] ?? [:]).values
            try expect(slotCount == slots.count, "\(slotCount) slots, and \(slots.count) are kept")
            let byteCount = slots.reduce(0) { $0 + $1.byteCount }
            try expect(one.byteCount == byteCount, "\(one.byteCount) bytes, and \(byteCount) are kept")
        }
        let memory = kept.values.flatMap(\.values).reduce(0) { $0 + ($1.slot.kind == .memory ? $1.byteCount : 0) }
        try expect(counts.memoryByteCount == memory, "\(counts.memoryByteCount) bytes in memory, not \(memory)")
        for link in closed { try expect(!machine.serves(link), "a link that was closed is served") }
    }

    /// Half a year later nothing may remain.
    mutating func end() throws {
        now = now + 180 * .day
        try advance()
        try check()
        try expect(machine.records.isEmpty && kept.isEmpty, "\(machine.records.count) boxes of nobody's are left")
    }
}

/// The owner's side, fed with anything from its network and mailbox.
struct FuzzMailboxOwner {
    private var now = Timestamp(milliseconds: 1_795_247_146_133)
    private var machine = MailboxOwnerStateMachine(now: Timestamp(milliseconds: 1_795_247_146_133))
    private var wanted: [BoxLabel] = []
    private var isDialling = false
    private var nextLink: UInt64 = 1
    private var open: Set<LinkID> = []

    static var seeds: [[UInt8]] {
        let granted = FuzzScript().byte(0, 3, 0, 1, 0, 5, 0)
        let after = (0..<10).map { FuzzScript(granted.bytes).byte($0, 0, 1, 2, 8, 3, 8, 4).bytes }
        return after + [FuzzScript().byte(0, 200, 2, 8, 2, 9).bytes]
    }

    mutating func act(_ input: inout FuzzInput) throws {
        switch input.index(below: 10) {
        case 0:
            let first = Int(input.byte())
            let count = Int(input.byte() % 140)
            wanted = (0..<count).map { Self.label(first + $0) }
            let kept = Set((0..<Int(input.byte() % 4)).map { Self.label(first - 1 - $0) })
            wanted = Array(wanted.prefix(Limits.boxLabelCount))
            try perform(machine.want(wanted, keeping: kept, now: now))
        case 1:
            let link = LinkID(nextLink)
            nextLink += 1
            open.insert(link)
            isDialling = false
            try perform(machine.opened(link, now: now))
        case 2:
            isDialling = false
            machine.dialFailed(now: now)
        case 3:
            let link = link(&input)
            open.remove(link)
            machine.closed(link, now: now)
            try expect(machine.link != link, "a link that is closed is in use")
        case 4: machine.heard(link(&input), now: now)
        case 5:
            let grant = MailboxGrant(
                boxCount: Int(truncatingIfNeeded: input.number()), slotCount: 0, byteCount: .max,
                longest: input.signed())
            machine.granted(grant, on: link(&input), now: now)
        case 6:
            let refusal = input.one(of: MailboxRefusal.allCases)
            try perform(machine.refused(refusal, on: link(&input), now: now))
        default:
            now = now + input.one(of: [1, .second, 10 * .second, .minute, 5 * .minute, .day])
            for _ in 0..<2 { try perform(machine.advance(now: now)) }
            if let next = machine.nextDeadline { try expect(next > now, "it is due again at once") }
        }
        _ = machine.standing
        if machine.isGranted { try expect(machine.link != nil, "granted over no link") }
    }

    private static func label(_ number: Int) -> BoxLabel {
        BoxLabel(unchecked: [UInt8](repeating: 0, count: 14) + [UInt8(number >> 8 & 0xff), UInt8(number & 0xff)])
    }

    private func link(_ input: inout FuzzInput) -> LinkID {
        let choice = input.byte()
        if choice & 3 == 0, let link = machine.link { return link }
        return LinkID(UInt64(choice >> 2))
    }

    private mutating func perform(_ actions: [MailboxOwnerStateMachine.Action]) throws {
        for action in actions {
            switch action {
            case .dial:
                try expect(!isDialling, "it dials while it dials")
                try expect(!wanted.isEmpty, "it dials for nothing")
                isDialling = true
            case .claim(let link, let labels):
                try expect(open.contains(link), "it claims over a link that is closed")
                try expect(labels.count <= Limits.boxLabelCount, "\(labels.count) labels")
                try expect(Set(labels).isSubset(of: wanted), "it claims what nobody wants")
            case .drop(let link, let labels):
                try expect(open.contains(link), "it drops over a link that is closed")
                try expect(!labels.isEmpty && Set(labels).isDisjoint(with: wanted), "it drops what is wanted")
            case .ping(let link): try expect(open.contains(link), "it asks over a link that is closed")
            case .close(let link):
                try expect(machine.link != link, "a link that it closes is in use")
                open.remove(link)
            }
        }
    }
}
