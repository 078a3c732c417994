import Crypto

/// What one who uses a mailbox says to it, over a link under a key of that link alone.
package enum MailboxRequest: Hashable, Sendable {
    /// From an owner: claims these boxes, beside the boxes that it has claimed. `owner` is a contact inbox among the mailbox's named peers, `proof` that of
    /// ``MailboxSecret/proof(of:)``. At most ``Limits/boxLabelCount`` labels.
    case claim(owner: PublicKey, proof: [UInt8], [BoxLabel])
    /// From an owner: destroys these boxes with all slots.
    case drop([BoxLabel])
    /// From an owner: asks for the ids of the slots in a box.
    case list(BoxID)
    /// From an owner: destroys slots that the owner cannot open.
    case purge(BoxID, [SlotID])
    /// From anybody who knows the box: puts a slot into it.
    case put(BoxID, SlotPut)
    /// From anybody who can make the tags: asks for the bodies of at most ``Limits/slotTagCount`` slots.
    case take(BoxID, [SlotTag])
    /// From anybody who can make the tags: overwrites the slots. `answer` takes the place of a notice, at most ``Limits/slotAnswerByteCount`` bytes;
    /// otherwise it is empty.
    case discard(BoxID, [SlotTag], answer: [UInt8])
}

extension MailboxRequest {
    /// See ``Frame/elementCount``.
    var elementCount: Int {
        switch self {
        case .claim(_, _, let labels), .drop(let labels): labels.count
        case .purge(_, let ids): ids.count
        case .take(_, let tags), .discard(_, let tags, _): tags.count
        case .list, .put: 1
        }
    }
}

/// A slot that is put into a box.
package struct SlotPut: Hashable, Sendable {
    package var id: SlotID
    package var kind: SlotKind
    /// How long the mailbox may keep the slot.
    package var keeping: SlotKeeping
    /// Sealed; its length is one of ``SlotSize``.
    package var body: [UInt8]

    package init(id: SlotID, kind: SlotKind, keeping: SlotKeeping, body: [UInt8]) {
        self.id = id
        self.kind = kind
        self.keeping = keeping
        self.body = body
    }
}

/// What a slot is for, as far as its mailbox needs to know.
package enum SlotKind: UInt32, Hashable, Sendable, CaseIterable, Codable {
    /// Contents, in memory at the mailbox and nowhere else.
    case memory = 1
    /// Contents, on the mailbox's disk.
    case disk = 2
    /// The reserved slot of one member: the notice of an explosion, on the disk.
    case notice = 3
}

/// The time class of a slot: after it the mailbox destroys it.
package enum SlotKeeping: UInt32, Hashable, Sendable, CaseIterable, Codable {
    case oneHour = 1
    case sixHours = 2
    case oneDay = 3
    case sevenDays = 4
    case thirtyDays = 5
    /// Of notices alone.
    case fortyFiveDays = 6

    package var milliseconds: Milliseconds {
        switch self {
        case .oneHour: .hour
        case .sixHours: 6 * .hour
        case .oneDay: .day
        case .sevenDays: 7 * .day
        case .thirtyDays: 30 * .day
        case .fortyFiveDays: Limits.tombstoneLifetime
        }
    }

    /// The shortest class of contents that holds this long; the longest there is for what is longer.
    package static func holding(_ time: Milliseconds) -> SlotKeeping {
        allCases.first { $0 != .fortyFiveDays && $0.milliseconds >= time } ?? .thirtyDays
    }
}

/// The sizes of a slot's body, which is all that its mailbox learns of a length.
package enum SlotSize {
    package static let byteCounts = [1_024, 4_096, 16_384, 61_440]
    package static let largest = 61_440

    /// `nil` for what is larger than the largest.
    package static func holding(_ byteCount: Int) -> Int? { byteCounts.first { $0 >= byteCount } }
}

/// What a mailbox answers.
package enum MailboxAnswer: Hashable, Sendable {
    /// To each `claim`: the quotas of this owner.
    case granted(MailboxGrant)
    case refused(MailboxRefusal)
    /// To the owner: the box holds a slot. Once, until the owner lists the box.
    case waiting(BoxID)
    /// To `list`.
    case slots(BoxID, [SlotID])
    case put(BoxID, SlotID, PutOutcome)
    /// To `take`: the body of a slot, the time since it was put, and whether it is the owner's answer to a notice.
    case slot(BoxID, SlotID, dwell: Milliseconds, isAnswer: Bool, body: [UInt8])
    /// To `take`: the box has no such slot, or no longer.
    case absent(BoxID, SlotID)
    /// To `discard` and `purge`: these slots are overwritten.
    case discarded(BoxID, [SlotID])
}

/// What became of a put. The mailbox's word, over a link that authenticates it.
package enum PutOutcome: UInt32, Hashable, Sendable, CaseIterable {
    /// The slot is kept; it is durable, unless its kind is `memory`.
    case stored = 1
    /// The box, or the mailbox, has as many slots or bytes as its quota allows.
    case full = 2
    /// Puts come faster than the rate limit allows.
    case tooFast = 3
    /// The mailbox has no such box, or no longer.
    case unknownBox = 4
    /// The mailbox's storage is locked, or its disk refuses.
    case unavailable = 5
    /// This node serves nobody as a mailbox.
    case notServing = 6
    /// A reason that a later version of the protocol names.
    case other = 7
}

/// Why a mailbox serves an owner not.
package enum MailboxRefusal: UInt32, Hashable, Sendable, Codable, CaseIterable {
    case notServing = 1
    /// The owner is not among its named peers, or its proof does not hold.
    case unknownPeer = 2
    /// The mailbox has as many boxes as its quota allows.
    case full = 3
    /// The mailbox's storage is locked.
    case unavailable = 4
    case other = 5
}

/// What a mailbox grants one owner.
package struct MailboxGrant: Hashable, Sendable, Codable {
    /// Most boxes of this owner: the first that its claims name.
    package var boxCount: Int
    /// Most slots of one box.
    package var slotCount: Int
    package var byteCount: Int
    /// The longest time that the mailbox keeps a slot, whatever its class.
    package var longest: Milliseconds

    package init(boxCount: Int, slotCount: Int, byteCount: Int, longest: Milliseconds) {
        self.boxCount = boxCount
        self.slotCount = slotCount
        self.byteCount = byteCount
        self.longest = longest
    }
}

/// Between members, over their link: the public keys to which contents are sealed for one who is away.
package enum MailboxMessage: Hashable, Sendable {
    /// The sender would put contents into our box under this agreement, and has the keys of slices up to `above`.
    case want(AgreementID, above: UInt32?)
    case keys(SliceKeys)
}
