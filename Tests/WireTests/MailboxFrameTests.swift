import Crypto
import FuzzTargets
import Messaging
import Testing

/// Frames of a mailbox: each valid value is decoded unchanged, each beyond a limit is refused.
@Suite struct MailboxFrameTests {
    private var fixtures: Samples

    init() throws { fixtures = Samples() }

    private func decoded(_ frame: Frame) throws -> Frame { try FrameCodec.decode(FrameCodec.encode(frame)) }

    private func comesBack(_ frame: Frame) throws { #expect(try decoded(frame) == frame) }

    private func isRefused(_ frame: Frame, _ error: WireError) { #expect(throws: error) { try decoded(frame) } }

    // MARK: Values

    private mutating func count(upTo limit: Int) -> Int { Int(fixtures.random.next(upperBound: UInt64(limit + 1))) }

    private mutating func one<Value>(of values: [Value]) -> Value { values[count(upTo: values.count - 1)] }

    private mutating func names<Name: FixedBytes>(upTo limit: Int) -> [Name] { fixtures.some(count(upTo: limit)) }

    private mutating func name<Name: FixedBytes>() -> Name { .random(&fixtures.random) }

    private mutating func body() -> [UInt8] { fixtures.random.bytes(one(of: SlotSize.byteCounts)) }

    private mutating func requests() -> [MailboxRequest] {
        let put = SlotPut(
            id: name(), kind: one(of: SlotKind.allCases), keeping: one(of: SlotKeeping.allCases), body: body())
        let owner = one(of: [fixtures.ann.publicKey, fixtures.bob.publicKey])
        return [
            .claim(owner: owner, proof: fixtures.random.bytes(32), names(upTo: Limits.boxLabelCount)),
            .drop(names(upTo: Limits.boxLabelCount)), .list(name()), .purge(name(), names(upTo: Limits.slotListCount)),
            .put(name(), put), .take(name(), names(upTo: Limits.slotTagCount)),
            .discard(
                name(), names(upTo: Limits.slotTagCount),
                answer: fixtures.random.bytes(count(upTo: Limits.slotAnswerByteCount))),
        ]
    }

    private mutating func answers() -> [MailboxAnswer] {
        let grant = MailboxGrant(
            boxCount: count(upTo: Int(UInt32.max)), slotCount: count(upTo: Int(UInt32.max)),
            byteCount: count(upTo: Int(UInt32.max)), longest: Int64(count(upTo: .max - 1)))
        let answer = fixtures.random.bytes(1 + count(upTo: Limits.slotAnswerByteCount - 1))
        return [
            .granted(grant), .refused(one(of: MailboxRefusal.allCases)), .waiting(name()),
            .slots(name(), names(upTo: Limits.slotListCount)), .put(name(), name(), one(of: PutOutcome.allCases)),
            .slot(name(), name(), dwell: Int64(count(upTo: .max - 1)), isAnswer: false, body: body()),
            .slot(name(), name(), dwell: Int64(count(upTo: 9)), isAnswer: true, body: answer), .absent(name(), name()),
            .discarded(name(), names(upTo: Limits.slotListCount)),
        ]
    }

    private mutating func slices(_ count: Int) -> SliceKeys {
        let keys = (0..<count).map { _ in one(of: [fixtures.ann.publicKey, fixtures.bob.publicKey]) }
        return SliceKeys(agreement: name(), first: 41_556, present: 41_556, left: .hour, keys: keys)
    }

    private mutating func messages() -> [MailboxMessage] {
        var slices = slices(count(upTo: 20))
        slices.first = UInt32(count(upTo: Int(UInt32.max) - 20))
        slices.present = UInt32(count(upTo: Int(UInt32.max)))
        slices.left = 1 + Int64(count(upTo: Int(12 * Milliseconds.hour) - 1))
        let above = UInt32(count(upTo: Int(UInt32.max)))
        return [.want(name(), above: nil), .want(name(), above: above), .keys(slices)]
    }

    @Test mutating func `mailbox frames of every kind are read back unchanged`() throws {
        for _ in 0..<40 {
            for request in requests() { try comesBack(.mailboxRequest(request)) }
            for answer in answers() { try comesBack(.mailboxAnswer(answer)) }
            for message in messages() { try comesBack(.mailbox(message)) }
        }
    }

    @Test mutating func `the largest mailbox frame of each kind fits a link`() throws {
        let body = fixtures.random.bytes(SlotSize.largest)
        let put = SlotPut(id: name(), kind: .notice, keeping: .fortyFiveDays, body: body)
        let largest: [Frame] = [
            .mailboxRequest(.put(name(), put)),
            .mailboxAnswer(.slot(name(), name(), dwell: .max, isAnswer: false, body: body)),
            .mailboxRequest(
                .claim(owner: fixtures.ann.publicKey, proof: body.suffix(32), fixtures.some(Limits.boxLabelCount))),
            .mailboxRequest(.take(name(), fixtures.some(Limits.slotTagCount))),
            .mailboxRequest(.discard(name(), fixtures.some(Limits.slotTagCount), answer: body.suffix(256))),
            .mailboxAnswer(.slots(name(), fixtures.some(Limits.slotListCount))),
            .mailbox(.keys(slices(Limits.sliceKeyCount))),
        ]
        for frame in largest {
            // The link's seal adds a tag of 16 bytes.
            #expect(FrameCodec.encode(frame).count + 16 <= TransportState.maximumFrameByteCount)
            try comesBack(frame)
        }
    }

    @Test mutating func `a mailbox frame cut at any byte is refused`() throws {
        var frames: [Frame] = requests().map { .mailboxRequest($0) } + answers().map { .mailboxAnswer($0) }
        frames += messages().map { .mailbox($0) }
        for frame in frames {
            let bytes = FrameCodec.encode(frame)
            // All bytes of a body are alike, so a few cuts are enough.
            let cuts =
                bytes.count < 2_000 ? Array(1..<bytes.count) : Array(1..<200) + Array(bytes.count - 200..<bytes.count)
            for count in cuts { #expect(throws: WireError.self) { try FrameCodec.decode(Array(bytes[..<count])) } }
        }
    }

    // MARK: Limits

    @Test mutating func `a list of the greatest length is accepted, and a longer one is refused`() throws {
        let owner = fixtures.ann.publicKey
        let proof = fixtures.random.bytes(32)
        let labels = Limits.boxLabelCount
        try comesBack(.mailboxRequest(.claim(owner: owner, proof: proof, fixtures.some(labels))))
        isRefused(
            .mailboxRequest(.claim(owner: owner, proof: proof, fixtures.some(labels + 1))),
            .tooLong("mailbox_claim.labels"))
        try comesBack(.mailboxRequest(.drop(fixtures.some(labels))))
        isRefused(.mailboxRequest(.drop(fixtures.some(labels + 1))), .tooLong("mailbox_request.drop"))
        let tags = Limits.slotTagCount
        try comesBack(.mailboxRequest(.take(name(), fixtures.some(tags))))
        isRefused(.mailboxRequest(.take(name(), fixtures.some(tags + 1))), .tooLong("mailbox_tags.tags"))
        try comesBack(.mailboxRequest(.discard(name(), fixtures.some(tags), answer: [])))
        isRefused(
            .mailboxRequest(.discard(name(), fixtures.some(tags + 1), answer: [])), .tooLong("mailbox_discard.tags"))
        let slots = Limits.slotListCount
        try comesBack(.mailboxRequest(.purge(name(), fixtures.some(slots))))
        isRefused(.mailboxRequest(.purge(name(), fixtures.some(slots + 1))), .tooLong("mailbox_slots.slots"))
        try comesBack(.mailboxAnswer(.slots(name(), fixtures.some(slots))))
        isRefused(.mailboxAnswer(.slots(name(), fixtures.some(slots + 1))), .tooLong("mailbox_slots.slots"))
        try comesBack(.mailboxAnswer(.discarded(name(), fixtures.some(slots))))
        isRefused(.mailboxAnswer(.discarded(name(), fixtures.some(slots + 1))), .tooLong("mailbox_slots.slots"))
        try comesBack(.mailbox(.keys(slices(Limits.sliceKeyCount))))
        isRefused(.mailbox(.keys(slices(Limits.sliceKeyCount + 1))), .tooLong("mailbox_keys.keys"))
    }

    @Test mutating func `a slot body has one of the fixed sizes`() throws {
        for size in SlotSize.byteCounts {
            for count in [size - 1, size, size + 1] {
                let body = fixtures.random.bytes(count)
                let put = SlotPut(id: name(), kind: .memory, keeping: .oneHour, body: body)
                let frames: [(Frame, WireError)] = [
                    (.mailboxRequest(.put(name(), put)), .malformed("mailbox_put.body")),
                    (
                        .mailboxAnswer(.slot(name(), name(), dwell: 1, isAnswer: false, body: body)),
                        .malformed("mailbox_slot.body")
                    ),
                ]
                for (frame, error) in frames {
                    if count == size { try comesBack(frame) } else { isRefused(frame, error) }
                }
            }
        }
        let empty = SlotPut(id: name(), kind: .memory, keeping: .oneHour, body: [])
        isRefused(.mailboxRequest(.put(name(), empty)), .malformed("mailbox_put.body"))
    }

    @Test(arguments: [0, 1, 256, 257, 1_024]) mutating func `an answer to a notice has 1 to 256 bytes`(_ count: Int)
        throws
    {
        let answer = fixtures.random.bytes(count)
        let slot = Frame.mailboxAnswer(.slot(name(), name(), dwell: 0, isAnswer: true, body: answer))
        if (1...256).contains(count) { try comesBack(slot) } else { isRefused(slot, .malformed("mailbox_slot.body")) }
        let discard = Frame.mailboxRequest(.discard(name(), [name()], answer: answer))
        if count <= 256 { try comesBack(discard) } else { isRefused(discard, .tooLong("mailbox_discard.answer")) }
    }

    @Test mutating func `a time beyond its limits is refused`() throws {
        let body = fixtures.random.bytes(1_024)
        for dwell: Milliseconds in [0, .max] {
            try comesBack(.mailboxAnswer(.slot(name(), name(), dwell: dwell, isAnswer: false, body: body)))
        }
        for dwell: Milliseconds in [-1, .min] {
            isRefused(
                .mailboxAnswer(.slot(name(), name(), dwell: dwell, isAnswer: false, body: body)),
                .malformed("mailbox_slot.dwell"))
        }
        let grant = MailboxGrant(boxCount: 1, slotCount: 1, byteCount: 1, longest: -1)
        isRefused(.mailboxAnswer(.granted(grant)), .malformed("mailbox_grant.longest"))
        var slices = slices(2)
        for left: Milliseconds in [1, 12 * .hour] {
            slices.left = left
            try comesBack(.mailbox(.keys(slices)))
        }
        for left: Milliseconds in [.min, -1, 0, 12 * .hour + 1, .max] {
            slices.left = left
            isRefused(.mailbox(.keys(slices)), .malformed("mailbox_keys.left"))
        }
    }

    @Test mutating func `a slice number beyond the last is refused`() throws {
        var slices = slices(2)
        slices.first = .max - 2
        try comesBack(.mailbox(.keys(slices)))
        slices.first = .max - 1
        isRefused(.mailbox(.keys(slices)), .malformed("mailbox_keys.first"))
        slices.keys = []
        slices.first = .max
        try comesBack(.mailbox(.keys(slices)))
    }

    @Test(arguments: [0, 31, 33, 64]) mutating func `a proof has 32 bytes`(_ count: Int) {
        let proof = fixtures.random.bytes(count)
        let claim = Frame.mailboxRequest(.claim(owner: fixtures.ann.publicKey, proof: proof, []))
        isRefused(claim, .malformed("mailbox_claim.proof"))
    }

    // MARK: Bytes

    private static func varint(_ value: UInt64) -> [UInt8] {
        value < 0x80 ? [UInt8(value)] : [UInt8(value & 0x7f | 0x80)] + varint(value >> 7)
    }

    private static func field(_ number: UInt64, _ value: [UInt8]) -> [UInt8] {
        varint(number << 3 | 2) + varint(UInt64(value.count)) + value
    }

    private static func field(_ number: UInt64, _ value: UInt64) -> [UInt8] { varint(number << 3) + varint(value) }

    private static let box = field(1, [UInt8](repeating: 1, count: 16))
    private static let slot = field(2, [UInt8](repeating: 2, count: 16))

    private func request(_ number: UInt64, _ fields: [UInt8]) throws -> Frame {
        try FrameCodec.decode(Self.field(40, Self.field(number, fields)))
    }

    private func answer(_ number: UInt64, _ fields: [UInt8]) throws -> Frame {
        try FrameCodec.decode(Self.field(41, Self.field(number, fields)))
    }

    private func message(_ number: UInt64, _ fields: [UInt8]) throws -> Frame {
        try FrameCodec.decode(Self.field(42, Self.field(number, fields)))
    }

    private func put(kind: UInt64, keeping: UInt64) throws -> Frame {
        let body = Self.field(5, [UInt8](repeating: 0, count: 1_024))
        return try request(5, Self.box + Self.slot + Self.field(3, kind) + Self.field(4, keeping) + body)
    }

    @Test func `a slot kind or time class of a later version is refused`() throws {
        for kind: UInt64 in 1...3 {
            for keeping: UInt64 in 1...6 { #expect(throws: Never.self) { try put(kind: kind, keeping: keeping) } }
        }
        for wrong: UInt64 in [0, 4, 0xffff_ffff] {
            #expect(throws: WireError.malformed("mailbox_put.kind")) { try put(kind: wrong, keeping: 1) }
        }
        for wrong: UInt64 in [0, 7, 0xffff_ffff] {
            #expect(throws: WireError.malformed("mailbox_put.keeping")) { try put(kind: 1, keeping: wrong) }
        }
    }

    @Test(arguments: [0, 7, 8, 0xffff_ffff] as [UInt64]) func `an outcome of a later version is read as other`(
        _ number: UInt64
    ) throws {
        guard case .mailboxAnswer(.put(_, _, let outcome)) = try answer(5, Self.box + Self.slot + Self.field(3, number))
        else {
            Issue.record("no answer to a put")
            return
        }
        #expect(outcome == .other)
        let refused = try FrameCodec.decode(Self.field(41, Self.field(2, number)))
        #expect(refused == .mailboxAnswer(.refused(.other)))
    }

    @Test(arguments: 40...42 as ClosedRange<UInt64>) func `a mailbox message of a later version is read as unknown`(
        _ number: UInt64
    ) throws {
        #expect(try FrameCodec.decode(Self.field(number, [])) == .unknown)
        #expect(try FrameCodec.decode(Self.field(number, Self.field(15, [1, 2, 3]))) == .unknown)
    }

    @Test(arguments: [0, 1, 15, 17, 32]) func `a box, a slot and a label have 16 bytes`(_ count: Int) {
        let name = [UInt8](repeating: 9, count: count)
        let (box, slot) = (Self.field(1, name), Self.field(2, name))
        let body = Self.field(3, 1) + Self.field(4, 1) + Self.field(5, [UInt8](repeating: 0, count: 1_024))
        #expect(throws: WireError.malformed("mailbox_put.box")) { try request(5, box + Self.slot + body) }
        #expect(throws: WireError.malformed("mailbox_put.slot")) { try request(5, Self.box + slot + body) }
        #expect(throws: WireError.malformed("mailbox_request.list")) { try request(3, name) }
        #expect(throws: WireError.malformed("mailbox_slots.box")) { try request(4, box) }
        #expect(throws: WireError.malformed("mailbox_tags.box")) { try request(6, box) }
        #expect(throws: WireError.malformed("mailbox_discard.box")) { try request(7, box) }
        #expect(throws: WireError.malformed("mailbox_answer.waiting")) { try answer(3, name) }
        #expect(throws: WireError.malformed("mailbox_outcome.box")) { try answer(5, box + Self.slot) }
        #expect(throws: WireError.malformed("mailbox_outcome.slot")) { try answer(5, Self.box + slot) }
        let answered = Self.field(4, 1) + Self.field(5, [1])
        #expect(throws: WireError.malformed("mailbox_slot.box")) { try answer(6, box + Self.slot + answered) }
        #expect(throws: WireError.malformed("mailbox_slot.slot")) { try answer(6, Self.box + slot + answered) }
        #expect(throws: WireError.malformed("mailbox_absence.box")) { try answer(7, box + Self.slot) }
        #expect(throws: WireError.malformed("mailbox_absence.slot")) { try answer(7, Self.box + slot) }
        guard !count.isMultiple(of: 16) else { return }
        let owner = Self.field(1, fixtures.ann.publicKey.bytes) + Self.field(2, [UInt8](repeating: 0, count: 32))
        #expect(throws: WireError.malformed("mailbox_claim.labels")) { try request(1, owner + Self.field(3, name)) }
        #expect(throws: WireError.malformed("mailbox_request.drop")) { try request(2, name) }
        #expect(throws: WireError.malformed("mailbox_slots.slots")) { try answer(4, Self.box + slot) }
        #expect(throws: WireError.malformed("mailbox_slots.slots")) { try answer(8, Self.box + slot) }
        #expect(throws: WireError.malformed("mailbox_tags.tags")) { try request(6, Self.box + slot) }
        #expect(throws: WireError.malformed("mailbox_discard.tags")) { try request(7, Self.box + slot) }
    }

    @Test func `an invalid key and an agreement of another length are refused`() throws {
        let key = fixtures.bob.publicKey.bytes
        // No curve point has this x.
        let wrong: [[UInt8]] = [
            [], Array(key.dropLast()), key + [0], [5] + key.dropFirst(), [2] + [UInt8](repeating: 0xff, count: 32),
        ]
        let rest = Self.field(2, [UInt8](repeating: 0, count: 32))
        for owner in wrong {
            #expect(throws: WireError.malformed("mailbox_claim.owner")) { try request(1, Self.field(1, owner) + rest) }
        }
        let agreement = Self.field(1, [UInt8](repeating: 3, count: 32)) + Self.field(4, 1)
        #expect(throws: Never.self) { try message(2, agreement + Self.field(5, key + key)) }
        for other in wrong.dropFirst() {
            #expect(throws: WireError.malformed("mailbox_keys.keys")) {
                try message(2, agreement + Self.field(5, key + other))
            }
        }
        for count in [0, 16, 31, 33] {
            let agreement = Self.field(1, [UInt8](repeating: 3, count: count))
            #expect(throws: WireError.malformed("mailbox_want.agreement")) { try message(1, agreement) }
            #expect(throws: WireError.malformed("mailbox_keys.agreement")) {
                try message(2, agreement + Self.field(4, 1))
            }
        }
    }
}
