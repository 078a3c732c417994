import Cryptography
import FuzzTargets
import Messaging
import Testing

extension Samples {
    /// Frames of a mailbox with lists of the greatest length and `more` elements, and the refusals of longer ones.
    mutating func mailboxLists(beyond more: Int) -> [(frame: Frame, refusal: WireError)] {
        let (owner, proof) = (ann.publicKey, random.bytes(32))
        let (labels, tags, slots) = (
            Limits.boxLabelCount + more, Limits.slotTagCount + more, Limits.slotListCount + more
        )
        let answer = random.bytes(Limits.slotAnswerByteCount)
        return [
            (.mailboxRequest(.claim(owner: owner, proof: proof, some(labels))), .tooLong("MailboxRequest.1.3")),
            (.mailboxRequest(.drop(some(labels))), .tooLong("MailboxRequest.2")),
            (.mailboxRequest(.take(.random(&random), some(tags))), .tooLong("MailboxRequest.6.2")),
            (.mailboxRequest(.discard(.random(&random), some(tags), answer: answer)), .tooLong("MailboxRequest.7.2")),
            (.mailboxRequest(.purge(.random(&random), some(slots))), .tooLong("MailboxRequest.4.2")),
            (.mailboxAnswer(.slots(.random(&random), some(slots))), .tooLong("MailboxAnswer.4.2")),
            (.mailboxAnswer(.discarded(.random(&random), some(slots))), .tooLong("MailboxAnswer.8.2")),
            (.mailbox(.keys(slices(Limits.sliceKeyCount + more))), .tooLong("mailbox_keys.keys")),
        ]
    }

    fileprivate mutating func slices(_ count: Int) -> SliceKeys {
        let keys = (0..<count).map { [ann.publicKey, bob.publicKey][$0 % 2] }
        return SliceKeys(agreement: .random(&random), first: 41_556, present: 41_556, left: .hour, keys: keys)
    }
}

func varint(_ value: UInt64) -> [UInt8] {
    value < 0x80 ? [UInt8(value)] : [UInt8(value & 0x7f | 0x80)] + varint(value >> 7)
}

func field(_ number: UInt64, _ value: [UInt8]) -> [UInt8] {
    varint(number << 3 | 2) + varint(UInt64(value.count)) + value
}

func field(_ number: UInt64, _ value: UInt64) -> [UInt8] { varint(number << 3) + varint(value) }

/// Frames of a mailbox: each valid value is decoded unchanged, each beyond a limit is refused.
@Suite struct MailboxFrameTests {
    private var fixtures = Samples()

    /// The frame comes back unchanged, or is refused.
    private func check(_ frame: Frame, _ refusal: WireError? = nil) throws {
        let bytes = FrameCodec.encode(frame)
        guard let refusal else { return #expect(try FrameCodec.decode(bytes) == frame) }
        #expect(throws: refusal) { try FrameCodec.decode(bytes) }
    }

    private mutating func name<Name: FixedBytes>() -> Name { .random(&fixtures.random) }

    private mutating func slot(_ body: [UInt8], dwell: Milliseconds = 1, isAnswer: Bool = false) -> Frame {
        .mailboxAnswer(.slot(name(), name(), dwell: dwell, isAnswer: isAnswer, body: body))
    }

    @Test mutating func `the greatest numbers, and every kind and time class, are read back unchanged`() throws {
        let most = Int(UInt32.max)
        try check(
            .mailboxAnswer(.granted(MailboxGrant(boxCount: most, slotCount: most, byteCount: most, longest: .max))))
        for kind in SlotKind.allCases {
            for keeping in SlotKeeping.allCases {
                let put = SlotPut(id: name(), kind: kind, keeping: keeping, body: [UInt8](repeating: 0, count: 1_024))
                try check(.mailboxRequest(.put(name(), put)))
            }
        }
    }

    @Test mutating func `a list of the greatest length is accepted, and a longer one is refused`() throws {
        for (frame, _) in fixtures.mailboxLists(beyond: 0) { try check(frame) }
        for (frame, refusal) in fixtures.mailboxLists(beyond: 1) { try check(frame, refusal) }
    }

    @Test mutating func `a slot body has one of the fixed sizes, an answer to a notice 1 to 256 bytes`() throws {
        for count in SlotSize.byteCounts.flatMap({ [$0 - 1, $0, $0 + 1] }) + [0] {
            let body = fixtures.random.bytes(count)
            let put = SlotPut(id: name(), kind: .memory, keeping: .oneHour, body: body)
            let isFixed = SlotSize.byteCounts.contains(count)
            try check(.mailboxRequest(.put(name(), put)), isFixed ? nil : .malformed("mailbox_put.body"))
            try check(slot(body), isFixed ? nil : .malformed("mailbox_slot.body"))
        }
        for count in [0, 1, 256, 257, 1_024] {
            let answer = fixtures.random.bytes(count)
            let isShort = (1...256).contains(count)
            try check(slot(answer, isAnswer: true), isShort ? nil : .malformed("mailbox_slot.body"))
            let discard = Frame.mailboxRequest(.discard(name(), [name()], answer: answer))
            try check(discard, count <= 256 ? nil : .tooLong("MailboxRequest.7.3"))
        }
    }

    @Test mutating func `a time, a slice number or a proof beyond its limits is refused`() throws {
        let body = fixtures.random.bytes(1_024)
        for dwell: Milliseconds in [0, .max, -1, .min] {
            try check(slot(body, dwell: dwell), dwell < 0 ? .malformed("mailbox_slot.dwell") : nil)
        }
        let grant = MailboxGrant(boxCount: 1, slotCount: 1, byteCount: 1, longest: -1)
        try check(.mailboxAnswer(.granted(grant)), .malformed("mailbox_grant.longest"))
        var slices = fixtures.slices(2)
        for left: Milliseconds in [1, 12 * .hour, .min, -1, 0, 12 * .hour + 1, .max] {
            slices.left = left
            try check(.mailbox(.keys(slices)), (1...12 * .hour).contains(left) ? nil : .malformed("mailbox_keys.left"))
        }
        slices.left = .hour
        slices.present = .max
        for first: UInt32 in [.max - 2, .max - 1] {
            slices.first = first
            try check(.mailbox(.keys(slices)), first == .max - 2 ? nil : .malformed("mailbox_keys.first"))
        }
        (slices.keys, slices.first) = ([], .max)
        try check(.mailbox(.keys(slices)))
        for count in [0, 31, 33, 64] {
            let claim = MailboxRequest.claim(owner: fixtures.ann.publicKey, proof: fixtures.random.bytes(count), [])
            try check(.mailboxRequest(claim), .malformed("MailboxRequest.1.2"))
        }
    }

    private static let box = field(1, [UInt8](repeating: 1, count: 16))
    private static let slot = field(2, [UInt8](repeating: 2, count: 16))

    /// - Parameter body: 40 for requests, 41 for answers, 42 for messages of members.
    private func read(_ body: UInt64, _ number: UInt64, _ fields: [UInt8]) throws -> Frame {
        try FrameCodec.decode(field(body, field(number, fields)))
    }

    private func put(kind: UInt64, keeping: UInt64) throws -> Frame {
        let body = field(5, [UInt8](repeating: 0, count: 1_024))
        return try read(40, 5, Self.box + Self.slot + field(3, kind) + field(4, keeping) + body)
    }

    @Test func `a slot kind or time class of a later version is refused`() throws {
        for kind: UInt64 in 1...3 {
            for keeping: UInt64 in 1...6 { #expect(throws: Never.self) { try put(kind: kind, keeping: keeping) } }
        }
        for wrong: UInt64 in [0, 4, 0xffff_ffff] {
            #expect(throws: WireError.malformed("MailboxRequest.5.3")) { try put(kind: wrong, keeping: 1) }
        }
        for wrong: UInt64 in [0, 7, 0xffff_ffff] {
            #expect(throws: WireError.malformed("MailboxRequest.5.4")) { try put(kind: 1, keeping: wrong) }
        }
    }

    @Test(arguments: [0, 7, 8, 0xffff_ffff] as [UInt64]) func `an outcome of a later version is read as other`(
        _ number: UInt64
    ) throws {
        guard case .mailboxAnswer(.put(_, _, let outcome)) = try read(41, 5, Self.box + Self.slot + field(3, number))
        else {
            Issue.record("no answer to a put")
            return
        }
        #expect(outcome == .other)
        let refused = try FrameCodec.decode(field(41, field(2, number)))
        #expect(refused == .mailboxAnswer(.refused(.other)))
    }

    @Test(arguments: 40...42 as ClosedRange<UInt64>) func `a mailbox message of a later version is read as unknown`(
        _ number: UInt64
    ) throws {
        #expect(try FrameCodec.decode(field(number, [])) == .unknown)
        #expect(try FrameCodec.decode(field(number, field(15, [1, 2, 3]))) == .unknown)
    }

    @Test(arguments: [0, 1, 15, 17, 32]) func `a box, a slot and a label have 16 bytes`(_ count: Int) {
        let name = [UInt8](repeating: 9, count: count)
        let (box, slot) = (field(1, name), field(2, name))
        let body = field(3, 1) + field(4, 1) + field(5, [UInt8](repeating: 0, count: 1_024))
        let answered = field(4, 1) + field(5, [1])
        let owner = field(1, fixtures.ann.publicKey.bytes) + field(2, [UInt8](repeating: 0, count: 32))
        let names: [(body: UInt64, number: UInt64, fields: [UInt8], String)] = [
            (40, 5, box + Self.slot + body, "MailboxRequest.5.1"),
            (40, 5, Self.box + slot + body, "MailboxRequest.5.2"), (40, 3, name, "MailboxRequest.3"),
            (40, 4, box, "MailboxRequest.4.1"), (40, 6, box, "MailboxRequest.6.1"), (40, 7, box, "MailboxRequest.7.1"),
            (41, 3, name, "MailboxAnswer.3"), (41, 5, box + Self.slot, "MailboxAnswer.5.1"),
            (41, 5, Self.box + slot, "MailboxAnswer.5.2"), (41, 6, box + Self.slot + answered, "MailboxAnswer.6.1"),
            (41, 6, Self.box + slot + answered, "MailboxAnswer.6.2"), (41, 7, box + Self.slot, "MailboxAnswer.7.1"),
            (41, 7, Self.box + slot, "MailboxAnswer.7.2"),
        ]
        // A list's element, which may be repeated or missing.
        let elements: [(body: UInt64, number: UInt64, fields: [UInt8], String)] = [
            (40, 1, owner + field(3, name), "MailboxRequest.1.3"), (40, 2, name, "MailboxRequest.2"),
            (41, 4, Self.box + slot, "MailboxAnswer.4.2"), (41, 8, Self.box + slot, "MailboxAnswer.8.2"),
            (40, 6, Self.box + slot, "MailboxRequest.6.2"), (40, 7, Self.box + slot, "MailboxRequest.7.2"),
        ]
        for (body, number, fields, field) in names + (count.isMultiple(of: 16) ? [] : elements) {
            #expect(throws: WireError.malformed(field), "\(body).\(number)") { try read(body, number, fields) }
        }
    }

    @Test func `an invalid key and an agreement of another length are refused`() throws {
        let key = fixtures.bob.publicKey.bytes
        // No curve point has this x.
        let wrong: [[UInt8]] = [
            [], Array(key.dropLast()), key + [0], [5] + key.dropFirst(), [2] + [UInt8](repeating: 0xff, count: 32),
        ]
        let rest = field(2, [UInt8](repeating: 0, count: 32))
        for owner in wrong {
            #expect(throws: WireError.malformed("MailboxRequest.1.1")) { try read(40, 1, field(1, owner) + rest) }
        }
        let agreement = field(1, [UInt8](repeating: 3, count: 32)) + field(4, 1)
        #expect(throws: Never.self) { try read(42, 2, agreement + field(5, key + key)) }
        for other in wrong.dropFirst() {
            #expect(throws: WireError.malformed("mailbox_keys.keys")) {
                try read(42, 2, agreement + field(5, key + other))
            }
        }
        for count in [0, 16, 31, 33] {
            let agreement = field(1, [UInt8](repeating: 3, count: count))
            #expect(throws: WireError.malformed("MailboxMessage.1.1")) { try read(42, 1, agreement) }
            #expect(throws: WireError.malformed("SliceKeys.1")) { try read(42, 2, agreement + field(4, 1)) }
        }
    }
}
