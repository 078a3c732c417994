import Cryptography

extension RelayRequest: ProtoTabled {
    static let table = ProtoTable(oneOf: [
        ProtoCase(value: RelayRequest.open, { if case .open(let id) = $0 { id } else { nil } }, .id(2)),
        ProtoCase(
            3, { (id, frame: RelayStreamFrame?) in frame.map { .stream(RelayStreamID(id), $0) } },
            { if case .stream(let id, let frame) = $0 { (id.number, frame) } else { nil } }, .number(1), .inlineBody()),
        ProtoCase(
            4, RelayRequest.reserve, { if case .reserve(let labels) = $0 { labels } else { nil } },
            .ids(1, atMost: Limits.relayLabelCount)),
        ProtoCase(
            5, RelayRequest.withdraw, { if case .withdraw(let labels) = $0 { labels } else { nil } },
            .ids(1, atMost: Limits.relayLabelCount)), ProtoCase(flag: 6, .release),
    ])
}

extension RelayAnswer: ProtoTabled {
    static let table = ProtoTable(oneOf: [
        ProtoCase(
            1,
            {
                RelayAnswer.reserved(
                    RelayGrant(reservationCount: $2, streamsPerReservation: $3, streamCount: $0, byteRate: $1))
            },
            {
                guard case .reserved(let grant) = $0 else { return nil }
                return (grant.streamCount, grant.byteRate, grant.reservationCount, grant.streamsPerReservation)
            }, .count(2), .count(3), .count(4), .count(5)),
        ProtoCase(
            value: RelayAnswer.refused, { if case .refused(let why) = $0 { why } else { nil } }, .code(2, .other)),
        ProtoCase(
            4, { (id, frame: RelayStreamFrame?) in frame.map { .stream(RelayStreamID(id), $0) } },
            { if case .stream(let id, let frame) = $0 { (id.number, frame) } else { nil } }, .number(1), .inlineBody()),
        ProtoCase(
            5, { .incoming(RelayStreamID($0), $1) },
            { if case .incoming(let id, let reservation) = $0 { (id.number, reservation) } else { nil } }, .number(1),
            .id(2)),
    ])
}

extension RelayStreamFrame: ProtoTabled {
    static let table = ProtoTable(oneOf: [
        ProtoCase(
            value: { (bytes) throws(WireError) in
                guard (1...Limits.relayPieceByteCount).contains(bytes.count) else { throw .malformed("relay data") }
                return .data(bytes)
            }, { if case .data(let bytes) = $0 { bytes } else { nil } }, .bytes(2, always: true)),
        ProtoCase(
            value: { (count) throws(WireError) in
                guard (1...Limits.relayWindow).contains(count) else { throw .malformed("relay credit") }
                return .credit(count)
            }, { if case .credit(let count) = $0 { count } else { nil } }, .count(3, always: true)),
        ProtoCase(flag: 4, .end),
        ProtoCase(
            value: RelayStreamFrame.close, { if case .close(let why) = $0 { why } else { nil } }, .code(5, .closed)),
    ])
}

extension PunchMessage: ProtoTabled {
    static let table = ProtoTable<PunchMessage>(
        { (step: UInt32, nonce, candidates: [String]) throws(WireError) in
            let endpoints = candidates.compactMap { Endpoint($0) }.filter { $0.relay == nil }
            let nonce = try PunchNonce(nonce).known("punch.nonce")
            return UInt8(exactly: step).flatMap(Step.init(rawValue:)).map {
                PunchMessage(step: $0, nonce: nonce, candidates: endpoints)
            }
        }, { (UInt32($0.step.rawValue), $0.nonce.bytes, $0.candidates.map(\.description)) }, .number(1), .bytes(2),
        .texts(3, atMost: Limits.punchCandidateCount))
}

extension MailboxRequest: ProtoTabled {
    static let table = ProtoTable(oneOf: [
        ProtoCase(
            1, MailboxRequest.claim,
            { if case .claim(let owner, let proof, let labels) = $0 { (owner, proof, labels) } else { nil } }, .key(1),
            .bytes(2, count: 32), .ids(3, atMost: Limits.boxLabelCount)),
        ProtoCase(
            value: MailboxRequest.drop, { if case .drop(let labels) = $0 { labels } else { nil } },
            .ids(2, atMost: Limits.boxLabelCount, always: true)),
        ProtoCase(value: MailboxRequest.list, { if case .list(let box) = $0 { box } else { nil } }, .id(3)),
        ProtoCase(
            4, MailboxRequest.purge, { if case .purge(let box, let slots) = $0 { (box, slots) } else { nil } }, .id(1),
            .ids(2, atMost: Limits.slotListCount)),
        ProtoCase(
            5,
            { (box, id, kind, keeping, body) throws(WireError) in
                .put(box, SlotPut(id: id, kind: kind, keeping: keeping, body: try Self.body(body)))
            },
            {
                guard case .put(let box, let put) = $0 else { return nil }
                return (box, put.id, put.kind, put.keeping, put.body)
            }, .id(1), .id(2), .code(3), .code(4), .bytes(5)),
        ProtoCase(
            6, MailboxRequest.take, { if case .take(let box, let tags) = $0 { (box, tags) } else { nil } }, .id(1),
            .ids(2, atMost: Limits.slotTagCount)),
        ProtoCase(
            7, MailboxRequest.discard,
            { if case .discard(let box, let tags, let answer) = $0 { (box, tags, answer) } else { nil } }, .id(1),
            .ids(2, atMost: Limits.slotTagCount), .bytes(3, atMost: Limits.slotAnswerByteCount)),
    ])

    private static func body(_ bytes: [UInt8]) throws(WireError) -> [UInt8] {
        guard SlotSize.byteCounts.contains(bytes.count) else { throw .malformed("mailbox_put.body") }
        return bytes
    }
}

extension MailboxAnswer: ProtoTabled {
    static let table = ProtoTable(oneOf: [
        ProtoCase(
            1,
            { (boxes, slots, bytes, longest: Milliseconds) throws(WireError) in
                guard longest >= 0 else { throw .malformed("mailbox_grant.longest") }
                return .granted(MailboxGrant(boxCount: boxes, slotCount: slots, byteCount: bytes, longest: longest))
            },
            {
                guard case .granted(let grant) = $0 else { return nil }
                return (grant.boxCount, grant.slotCount, grant.byteCount, grant.longest)
            }, .count(1), .count(2), .count(3), .number(4)),
        ProtoCase(
            value: MailboxAnswer.refused, { if case .refused(let why) = $0 { why } else { nil } }, .code(2, .other)),
        ProtoCase(value: MailboxAnswer.waiting, { if case .waiting(let box) = $0 { box } else { nil } }, .id(3)),
        ProtoCase(
            4, MailboxAnswer.slots, { if case .slots(let box, let ids) = $0 { (box, ids) } else { nil } }, .id(1),
            .ids(2, atMost: Limits.slotListCount)),
        ProtoCase(
            5, MailboxAnswer.put,
            { if case .put(let box, let id, let outcome) = $0 { (box, id, outcome) } else { nil } }, .id(1), .id(2),
            .code(3, .other)),
        ProtoCase(
            6, Self.slot,
            {
                guard case .slot(let box, let id, let dwell, let isAnswer, let body) = $0 else { return nil }
                return (box, id, dwell, isAnswer, body)
            }, .id(1), .id(2), .number(3), .flag(4), .bytes(5)),
        ProtoCase(
            7, MailboxAnswer.absent, { if case .absent(let box, let id) = $0 { (box, id) } else { nil } }, .id(1),
            .id(2)),
        ProtoCase(
            8, MailboxAnswer.discarded, { if case .discarded(let box, let ids) = $0 { (box, ids) } else { nil } },
            .id(1), .ids(2, atMost: Limits.slotListCount)),
    ])

    @Sendable private static func slot(
        _ box: BoxID, _ id: SlotID, _ dwell: Milliseconds, _ isAnswer: Bool, _ body: [UInt8]
    ) throws(WireError) -> MailboxAnswer? {
        guard dwell >= 0 else { throw .malformed("mailbox_slot.dwell") }
        guard
            isAnswer ? (1...Limits.slotAnswerByteCount).contains(body.count) : SlotSize.byteCounts.contains(body.count)
        else { throw .malformed("mailbox_slot.body") }
        return .slot(box, id, dwell: dwell, isAnswer: isAnswer, body: body)
    }
}

extension MailboxMessage: ProtoTabled {
    static let table = ProtoTable(oneOf: [
        ProtoCase(
            1, MailboxMessage.want,
            { if case .want(let agreement, let above) = $0 { (agreement, above) } else { nil } }, .id(1),
            .optionalNumber(2)),
        ProtoCase(value: MailboxMessage.keys, { if case .keys(let slices) = $0 { slices } else { nil } }, .message(2)),
    ])
}

extension SliceKeys: ProtoTabled {
    /// The widest slice.
    private static let longestLeft: Milliseconds = 12 * .hour

    static let table = ProtoTable(
        { (agreement, first: UInt32, present, left: Milliseconds, bytes: [UInt8]) throws(WireError) in
            guard (1...longestLeft).contains(left) else { throw .malformed("mailbox_keys.left") }
            let (count, odd) = bytes.count.quotientAndRemainder(dividingBy: PublicKey.byteCount)
            guard odd == 0 else { throw .malformed("mailbox_keys.keys") }
            guard count <= Limits.sliceKeyCount else { throw .tooLong("mailbox_keys.keys") }
            // The last slice's number must not overflow.
            guard UInt64(first) + UInt64(count) <= UInt64(UInt32.max) else { throw .malformed("mailbox_keys.first") }
            var (rest, keys) = (bytes[...], [PublicKey]())
            keys.reserveCapacity(count)
            while !rest.isEmpty {
                keys.append(try ProtoFields.key(rest.prefix(PublicKey.byteCount), "mailbox_keys.keys"))
                rest = rest.dropFirst(PublicKey.byteCount)
            }
            return SliceKeys(agreement: agreement, first: first, present: present, left: left, keys: keys)
        }, { ($0.agreement, $0.first, $0.present, $0.left, $0.keys.flatMap(\.bytes)) }, .id(1), .number(2), .number(3),
        .number(4), .bytes(5))
}
