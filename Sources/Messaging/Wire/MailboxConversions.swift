import Crypto
import FoundationEssentials

// MARK: To a mailbox

extension ProtoMailboxRequest {
    init(_ request: MailboxRequest) {
        switch request {
        case .claim(let owner, let proof, let labels):
            claim.owner = Data(owner.bytes)
            claim.proof = Data(proof)
            claim.labels = joined(labels)
        case .drop(let labels): drop = joined(labels)
        case .list(let box): list = Data(box.bytes)
        case .purge(let box, let slots): purge = ProtoMailboxSlots(box, slots)
        case .put(let box, let slot): put = ProtoMailboxPut(box, slot)
        case .take(let box, let tags):
            take.box = Data(box.bytes)
            take.tags = joined(tags)
        case .discard(let box, let tags, let answer):
            discard.box = Data(box.bytes)
            discard.tags = joined(tags)
            discard.answer = Data(answer)
        }
    }
}

extension MailboxRequest {
    private static let proofByteCount = 32

    /// - Returns: `nil` for one of a later version.
    static func read(_ proto: ProtoMailboxRequest) throws(WireError) -> MailboxRequest? {
        switch proto.body {
        case .claim(let claim):
            guard claim.proof.count == proofByteCount else { throw .malformed("mailbox_claim.proof") }
            return .claim(
                owner: try publicKey(claim.owner, "mailbox_claim.owner"), proof: Array(claim.proof),
                try identifiers(claim.labels, atMost: Limits.boxLabelCount, "mailbox_claim.labels"))
        case .drop(let labels):
            return .drop(try identifiers(labels, atMost: Limits.boxLabelCount, "mailbox_request.drop"))
        case .list(let box): return .list(try identifier(box, "mailbox_request.list"))
        case .purge(let list):
            let (box, slots) = try list.read()
            return .purge(box, slots)
        case .put(let put): return .put(try identifier(put.box, "mailbox_put.box"), try SlotPut(put))
        case .take(let list):
            return .take(
                try identifier(list.box, "mailbox_tags.box"),
                try identifiers(list.tags, atMost: Limits.slotTagCount, "mailbox_tags.tags"))
        case .discard(let discard):
            guard discard.answer.count <= Limits.slotAnswerByteCount else { throw .tooLong("mailbox_discard.answer") }
            return .discard(
                try identifier(discard.box, "mailbox_discard.box"),
                try identifiers(discard.tags, atMost: Limits.slotTagCount, "mailbox_discard.tags"),
                answer: Array(discard.answer))
        case nil: return nil
        }
    }
}

extension ProtoMailboxPut {
    fileprivate init(_ box: BoxID, _ put: SlotPut) {
        self.init()
        self.box = Data(box.bytes)
        slot = Data(put.id.bytes)
        kind = put.kind.rawValue
        keeping = put.keeping.rawValue
        body = Data(put.body)
    }
}

extension SlotPut {
    fileprivate init(_ proto: ProtoMailboxPut) throws(WireError) {
        guard let kind = SlotKind(rawValue: proto.kind) else { throw .malformed("mailbox_put.kind") }
        guard let keeping = SlotKeeping(rawValue: proto.keeping) else { throw .malformed("mailbox_put.keeping") }
        guard SlotSize.byteCounts.contains(proto.body.count) else { throw .malformed("mailbox_put.body") }
        self.init(
            id: try identifier(proto.slot, "mailbox_put.slot"), kind: kind, keeping: keeping, body: Array(proto.body))
    }
}

// MARK: From a mailbox

extension ProtoMailboxAnswer {
    init(_ answer: MailboxAnswer) {
        switch answer {
        case .granted(let grant):
            granted.boxes = UInt32(clamping: grant.boxCount)
            granted.slots = UInt32(clamping: grant.slotCount)
            granted.bytes = UInt32(clamping: grant.byteCount)
            granted.longest = grant.longest
        case .refused(let refusal): refused = refusal.rawValue
        case .waiting(let box): waiting = Data(box.bytes)
        case .slots(let box, let ids): slots = ProtoMailboxSlots(box, ids)
        case .put(let box, let id, let outcome):
            put.box = Data(box.bytes)
            put.slot = Data(id.bytes)
            put.outcome = outcome.rawValue
        case .slot(let box, let id, let dwell, let isAnswer, let body):
            slot.box = Data(box.bytes)
            slot.slot = Data(id.bytes)
            slot.dwell = dwell
            slot.isAnswer = isAnswer
            slot.body = Data(body)
        case .absent(let box, let id):
            absent.box = Data(box.bytes)
            absent.slot = Data(id.bytes)
        case .discarded(let box, let ids): discarded = ProtoMailboxSlots(box, ids)
        }
    }
}

extension MailboxAnswer {
    /// - Returns: `nil` for one of a later version.
    static func read(_ proto: ProtoMailboxAnswer) throws(WireError) -> MailboxAnswer? {
        switch proto.body {
        case .granted(let grant):
            guard grant.longest >= 0 else { throw .malformed("mailbox_grant.longest") }
            return .granted(
                MailboxGrant(
                    boxCount: Int(grant.boxes), slotCount: Int(grant.slots), byteCount: Int(grant.bytes),
                    longest: grant.longest))
        case .refused(let reason): return .refused(MailboxRefusal(rawValue: reason) ?? .other)
        case .waiting(let box): return .waiting(try identifier(box, "mailbox_answer.waiting"))
        case .slots(let list):
            let (box, slots) = try list.read()
            return .slots(box, slots)
        case .put(let put):
            return .put(
                try identifier(put.box, "mailbox_outcome.box"), try identifier(put.slot, "mailbox_outcome.slot"),
                PutOutcome(rawValue: put.outcome) ?? .other)
        case .slot(let slot): return try read(slot)
        case .absent(let absence):
            return .absent(
                try identifier(absence.box, "mailbox_absence.box"), try identifier(absence.slot, "mailbox_absence.slot")
            )
        case .discarded(let list):
            let (box, slots) = try list.read()
            return .discarded(box, slots)
        case nil: return nil
        }
    }

    private static func read(_ slot: ProtoMailboxSlot) throws(WireError) -> MailboxAnswer {
        guard slot.dwell >= 0 else { throw .malformed("mailbox_slot.dwell") }
        let isBodySized =
            slot.isAnswer
            ? (1...Limits.slotAnswerByteCount).contains(slot.body.count) : SlotSize.byteCounts.contains(slot.body.count)
        guard isBodySized else { throw .malformed("mailbox_slot.body") }
        return .slot(
            try identifier(slot.box, "mailbox_slot.box"), try identifier(slot.slot, "mailbox_slot.slot"),
            dwell: slot.dwell, isAnswer: slot.isAnswer, body: Array(slot.body))
    }
}

extension ProtoMailboxSlots {
    fileprivate init(_ box: BoxID, _ slots: [SlotID]) {
        self.init()
        self.box = Data(box.bytes)
        self.slots = joined(slots)
    }

    fileprivate func read() throws(WireError) -> (BoxID, [SlotID]) {
        (
            try identifier(box, "mailbox_slots.box"),
            try identifiers(slots, atMost: Limits.slotListCount, "mailbox_slots.slots")
        )
    }
}

// MARK: Between members

extension ProtoMailboxMessage {
    init(_ message: MailboxMessage) {
        switch message {
        case .want(let agreement, let above):
            want.agreement = Data(agreement.bytes)
            if let above { want.above = above }
        case .keys(let slices):
            keys.agreement = Data(slices.agreement.bytes)
            keys.first = slices.first
            keys.present = slices.present
            keys.left = slices.left
            keys.keys = Data(slices.keys.flatMap(\.bytes))
        }
    }
}

extension MailboxMessage {
    /// - Returns: `nil` for one of a later version.
    static func read(_ proto: ProtoMailboxMessage) throws(WireError) -> MailboxMessage? {
        switch proto.body {
        case .want(let want):
            return .want(
                try identifier(want.agreement, "mailbox_want.agreement"), above: want.hasAbove ? want.above : nil)
        case .keys(let keys): return .keys(try SliceKeys(keys))
        case nil: return nil
        }
    }
}

extension SliceKeys {
    /// The widest slice.
    private static let longestLeft: Milliseconds = 12 * .hour

    fileprivate init(_ proto: ProtoMailboxKeys) throws(WireError) {
        guard (1...Self.longestLeft).contains(proto.left) else { throw .malformed("mailbox_keys.left") }
        let size = PublicKey.byteCount
        guard proto.keys.count.isMultiple(of: size) else { throw .malformed("mailbox_keys.keys") }
        let count = proto.keys.count / size
        guard count <= Limits.sliceKeyCount else { throw .tooLong("mailbox_keys.keys") }
        // The last slice's number must not overflow.
        guard UInt64(proto.first) + UInt64(count) <= UInt64(UInt32.max) else { throw .malformed("mailbox_keys.first") }
        var keys: [PublicKey] = []
        keys.reserveCapacity(count)
        var rest = proto.keys[...]
        while !rest.isEmpty {
            keys.append(try publicKey(rest.prefix(size), "mailbox_keys.keys"))
            rest = rest.dropFirst(size)
        }
        self.init(
            agreement: try identifier(proto.agreement, "mailbox_keys.agreement"), first: proto.first,
            present: proto.present, left: proto.left, keys: keys)
    }
}

// MARK: Lists

private func joined(_ identifiers: [some FixedBytes]) -> Data { Data(identifiers.flatMap(\.bytes)) }

private func identifiers<Identifier: FixedBytes>(_ bytes: Data, atMost limit: Int, _ field: String) throws(WireError)
    -> [Identifier]
{
    guard bytes.count <= limit * Identifier.byteCount else { throw .tooLong(field) }
    return try identifiers(bytes, field)
}
