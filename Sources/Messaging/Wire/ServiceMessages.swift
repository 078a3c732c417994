import Cryptography

// MARK: Rendezvous

extension RelayRequest: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        switch self {
        case .open(let reservation): writer.put(2, reservation)
        case .stream(let id, let frame): writer.put(3) { frame.write(of: id, to: &$0) }
        case .reserve(let labels): writer.put(4) { $0.put(1, joined: labels) }
        case .withdraw(let labels): writer.put(5) { $0.put(1, joined: labels) }
        case .release: writer.put(6, true)
        }
    }

    init?(_ fields: ProtoFields) throws(WireError) {
        switch fields.last(of: [2, 3, 4, 5], numbers: [6]) {
        case 2: self = .open(try fields.id(2, "relay_request.open"))
        case 3:
            guard let (id, frame) = try RelayStreamFrame.read(fields.fields(3)) else { return nil }
            self = .stream(id, frame)
        case 4: self = .reserve(try Self.labels(fields.fields(4), "relay_request.reserve"))
        case 5: self = .withdraw(try Self.labels(fields.fields(5), "relay_request.withdraw"))
        case 6:
            guard fields.flag(6) else { throw .malformed("relay_request.release") }
            self = .release
        default: return nil
        }
    }

    private static func labels(_ fields: ProtoFields, _ name: String) throws(WireError) -> [RelayLabel] {
        try fields.ids(1, name, atMost: Limits.relayLabelCount)
    }
}

extension RelayAnswer: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        switch self {
        case .reserved(let grant):
            writer.put(1) {
                $0.put(2, UInt32(clamping: grant.streamCount))
                $0.put(3, UInt32(clamping: grant.byteRate))
                $0.put(4, UInt32(clamping: grant.reservationCount))
                $0.put(5, UInt32(clamping: grant.streamsPerReservation))
            }
        case .refused(let refusal): writer.put(2, refusal.rawValue, always: true)
        case .stream(let id, let frame): writer.put(4) { frame.write(of: id, to: &$0) }
        case .incoming(let id, let reservation):
            writer.put(5) {
                $0.put(1, id.number)
                $0.put(2, reservation)
            }
        }
    }

    init?(_ fields: ProtoFields) throws(WireError) {
        switch fields.last(of: [1, 4, 5], numbers: [2]) {
        case 1:
            let grant = try fields.fields(1)
            self = .reserved(
                RelayGrant(
                    reservationCount: Int(grant.uint32(4)), streamsPerReservation: Int(grant.uint32(5)),
                    streamCount: Int(grant.uint32(2)), byteRate: Int(grant.uint32(3))))
        case 2: self = .refused(RelayRefusal(rawValue: fields.uint32(2)) ?? .other)
        case 4:
            guard let (id, frame) = try RelayStreamFrame.read(fields.fields(4)) else { return nil }
            self = .stream(id, frame)
        case 5:
            let incoming = try fields.fields(5)
            self = .incoming(RelayStreamID(incoming.uint32(1)), try incoming.id(2, "relay_incoming.reservation"))
        default: return nil
        }
    }
}

extension RelayStreamFrame {
    fileprivate func write(of id: RelayStreamID, to writer: inout ProtoWriter) {
        writer.put(1, id.number)
        switch self {
        case .data(let bytes): writer.put(2, bytes, always: true)
        case .credit(let count): writer.put(3, UInt32(clamping: count), always: true)
        case .end: writer.put(4, true)
        case .close(let reason): writer.put(5, reason.rawValue, always: true)
        }
    }

    /// - Returns: `nil` for one of a later version.
    fileprivate static func read(_ fields: ProtoFields) throws(WireError) -> (RelayStreamID, RelayStreamFrame)? {
        let id = RelayStreamID(fields.uint32(1))
        switch fields.last(of: [2], numbers: [3, 4, 5]) {
        case 2:
            guard (1...Limits.relayPieceByteCount).contains(fields.slice(2).count) else {
                throw .malformed("relay_stream.data")
            }
            return (id, .data(fields.bytes(2)))
        case 3:
            let count = Int(fields.uint32(3))
            guard (1...Limits.relayWindow).contains(count) else { throw .malformed("relay_stream.credit") }
            return (id, .credit(count))
        case 4:
            guard fields.flag(4) else { throw .malformed("relay_stream.end") }
            return (id, .end)
        case 5: return (id, .close(RelayCloseReason(rawValue: fields.uint32(5)) ?? .closed))
        default: return nil
        }
    }
}

extension PunchMessage: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(1, step.rawValue)
        writer.put(2, nonce.bytes)
        writer.put(3, each: candidates.map(\.description))
    }

    /// `nil` for a step of a later version.
    init?(_ fields: ProtoFields) throws(WireError) {
        guard let nonce = PunchNonce(fields.bytes(2)) else { throw .malformed("punch.nonce") }
        let candidates = try fields.texts(3, "punch.candidates", atMost: Limits.punchCandidateCount)
        guard let step = UInt8(exactly: fields.uint32(1)).flatMap(Step.init(rawValue:)) else { return nil }
        self.init(
            step: step, nonce: nonce, candidates: candidates.compactMap { Endpoint($0) }.filter { $0.relay == nil })
    }
}

// MARK: To a mailbox

extension MailboxRequest: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        switch self {
        case .claim(let owner, let proof, let labels):
            writer.put(1) {
                $0.put(1, owner)
                $0.put(2, proof)
                $0.put(3, joined: labels)
            }
        case .drop(let labels): writer.put(2, joined: labels, always: true)
        case .list(let box): writer.put(3, box)
        case .purge(let box, let slots): writer.put(4, box, slots)
        case .put(let box, let put):
            writer.put(5) {
                $0.put(1, box)
                $0.put(2, put.id)
                $0.put(3, put.kind.rawValue)
                $0.put(4, put.keeping.rawValue)
                $0.put(5, put.body)
            }
        case .take(let box, let tags): writer.put(6, box, tags)
        case .discard(let box, let tags, let answer):
            writer.put(7) {
                $0.put(1, box)
                $0.put(2, joined: tags)
                $0.put(3, answer)
            }
        }
    }

    init?(_ fields: ProtoFields) throws(WireError) {
        switch fields.last(of: [1, 2, 3, 4, 5, 6, 7]) {
        case 1:
            let claim = try fields.fields(1)
            self = .claim(
                owner: try claim.key(1, "mailbox_claim.owner"),
                proof: try claim.bytes(2, "mailbox_claim.proof", count: 32),
                try claim.ids(3, "mailbox_claim.labels", atMost: Limits.boxLabelCount))
        case 2: self = .drop(try fields.ids(2, "mailbox_request.drop", atMost: Limits.boxLabelCount))
        case 3: self = .list(try fields.id(3, "mailbox_request.list"))
        case 4:
            let (box, slots) = try fields.fields(4).slots()
            self = .purge(box, slots)
        case 5:
            let put = try fields.fields(5)
            self = .put(try put.id(1, "mailbox_put.box"), try SlotPut(put))
        case 6:
            let list = try fields.fields(6)
            self = .take(
                try list.id(1, "mailbox_tags.box"), try list.ids(2, "mailbox_tags.tags", atMost: Limits.slotTagCount))
        case 7:
            let discard = try fields.fields(7)
            self = .discard(
                try discard.id(1, "mailbox_discard.box"),
                try discard.ids(2, "mailbox_discard.tags", atMost: Limits.slotTagCount),
                answer: try discard.bytes(3, "mailbox_discard.answer", atMost: Limits.slotAnswerByteCount))
        default: return nil
        }
    }
}

extension SlotPut {
    fileprivate init(_ fields: ProtoFields) throws(WireError) {
        guard let kind = SlotKind(rawValue: fields.uint32(3)) else { throw .malformed("mailbox_put.kind") }
        guard let keeping = SlotKeeping(rawValue: fields.uint32(4)) else { throw .malformed("mailbox_put.keeping") }
        guard SlotSize.byteCounts.contains(fields.slice(5).count) else { throw .malformed("mailbox_put.body") }
        self.init(id: try fields.id(2, "mailbox_put.slot"), kind: kind, keeping: keeping, body: fields.bytes(5))
    }
}

extension ProtoWriter {
    /// A box, and names in it.
    fileprivate mutating func put(_ field: Int, _ box: BoxID, _ names: [some FixedBytes]) {
        put(field) {
            $0.put(1, box)
            $0.put(2, joined: names)
        }
    }
}

extension ProtoFields {
    fileprivate func slots() throws(WireError) -> (BoxID, [SlotID]) {
        (try id(1, "mailbox_slots.box"), try ids(2, "mailbox_slots.slots", atMost: Limits.slotListCount))
    }
}

// MARK: From a mailbox

extension MailboxAnswer: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        switch self {
        case .granted(let grant):
            writer.put(1) {
                $0.put(1, UInt32(clamping: grant.boxCount))
                $0.put(2, UInt32(clamping: grant.slotCount))
                $0.put(3, UInt32(clamping: grant.byteCount))
                $0.put(4, grant.longest)
            }
        case .refused(let refusal): writer.put(2, refusal.rawValue, always: true)
        case .waiting(let box): writer.put(3, box)
        case .slots(let box, let ids): writer.put(4, box, ids)
        case .put(let box, let id, let outcome):
            writer.put(5) {
                $0.put(1, box)
                $0.put(2, id)
                $0.put(3, outcome.rawValue)
            }
        case .slot(let box, let id, let dwell, let isAnswer, let body):
            writer.put(6) {
                $0.put(1, box)
                $0.put(2, id)
                $0.put(3, dwell)
                $0.put(4, isAnswer)
                $0.put(5, body)
            }
        case .absent(let box, let id):
            writer.put(7) {
                $0.put(1, box)
                $0.put(2, id)
            }
        case .discarded(let box, let ids): writer.put(8, box, ids)
        }
    }

    init?(_ fields: ProtoFields) throws(WireError) {
        switch fields.last(of: [1, 3, 4, 5, 6, 7, 8], numbers: [2]) {
        case 1:
            let grant = try fields.fields(1)
            guard grant.int64(4) >= 0 else { throw .malformed("mailbox_grant.longest") }
            self = .granted(
                MailboxGrant(
                    boxCount: Int(grant.uint32(1)), slotCount: Int(grant.uint32(2)), byteCount: Int(grant.uint32(3)),
                    longest: grant.int64(4)))
        case 2: self = .refused(MailboxRefusal(rawValue: fields.uint32(2)) ?? .other)
        case 3: self = .waiting(try fields.id(3, "mailbox_answer.waiting"))
        case 4:
            let (box, slots) = try fields.fields(4).slots()
            self = .slots(box, slots)
        case 5:
            let put = try fields.fields(5)
            self = .put(
                try put.id(1, "mailbox_outcome.box"), try put.id(2, "mailbox_outcome.slot"),
                PutOutcome(rawValue: put.uint32(3)) ?? .other)
        case 6: self = try Self.slot(fields.fields(6))
        case 7:
            let absence = try fields.fields(7)
            self = .absent(try absence.id(1, "mailbox_absence.box"), try absence.id(2, "mailbox_absence.slot"))
        case 8:
            let (box, slots) = try fields.fields(8).slots()
            self = .discarded(box, slots)
        default: return nil
        }
    }

    private static func slot(_ fields: ProtoFields) throws(WireError) -> MailboxAnswer {
        let (dwell, isAnswer, byteCount) = (fields.int64(3), fields.flag(4), fields.slice(5).count)
        guard dwell >= 0 else { throw .malformed("mailbox_slot.dwell") }
        guard isAnswer ? (1...Limits.slotAnswerByteCount).contains(byteCount) : SlotSize.byteCounts.contains(byteCount)
        else { throw .malformed("mailbox_slot.body") }
        return .slot(
            try fields.id(1, "mailbox_slot.box"), try fields.id(2, "mailbox_slot.slot"), dwell: dwell,
            isAnswer: isAnswer, body: fields.bytes(5))
    }
}

// MARK: Between members

extension MailboxMessage: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        switch self {
        case .want(let agreement, let above):
            writer.put(1) {
                $0.put(1, agreement)
                if let above { $0.put(2, above, always: true) }
            }
        case .keys(let slices): writer.put(2, slices)
        }
    }

    init?(_ fields: ProtoFields) throws(WireError) {
        switch fields.last(of: [1, 2]) {
        case 1:
            let want = try fields.fields(1)
            self = .want(
                try want.id(1, "mailbox_want.agreement"),
                above: want.optionalNumber(2).map { UInt32(truncatingIfNeeded: $0) })
        case 2: self = .keys(try SliceKeys(fields.fields(2)))
        default: return nil
        }
    }
}

extension SliceKeys: ProtoMessage {
    /// The widest slice.
    private static let longestLeft: Milliseconds = 12 * .hour

    func write(to writer: inout ProtoWriter) {
        writer.put(1, agreement)
        writer.put(2, first)
        writer.put(3, present)
        writer.put(4, left)
        writer.put(5, keys.flatMap(\.bytes))
    }

    init(_ fields: ProtoFields) throws(WireError) {
        let (first, left) = (fields.uint32(2), fields.int64(4))
        guard (1...Self.longestLeft).contains(left) else { throw .malformed("mailbox_keys.left") }
        var rest = fields.slice(5)
        let (count, odd) = rest.count.quotientAndRemainder(dividingBy: PublicKey.byteCount)
        guard odd == 0 else { throw .malformed("mailbox_keys.keys") }
        guard count <= Limits.sliceKeyCount else { throw .tooLong("mailbox_keys.keys") }
        // The last slice's number must not overflow.
        guard UInt64(first) + UInt64(count) <= UInt64(UInt32.max) else { throw .malformed("mailbox_keys.first") }
        var keys: [PublicKey] = []
        keys.reserveCapacity(count)
        while !rest.isEmpty {
            keys.append(try ProtoFields.key(rest.prefix(PublicKey.byteCount), "mailbox_keys.keys"))
            rest = rest.dropFirst(PublicKey.byteCount)
        }
        self.init(
            agreement: try fields.id(1, "mailbox_keys.agreement"), first: first, present: fields.uint32(3), left: left,
            keys: keys)
    }
}
