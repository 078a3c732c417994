import Crypto

/// What one who uses a mailbox says to it, over a link under a key of that link alone.
package enum MailboxRequest: Hashable, Sendable {
    /// From an owner: these boxes too. `owner` is a contact inbox among the mailbox's named peers, `proof` that of
    /// ``MailboxSecret/proof(of:)``. At most ``Limits/boxLabelCount`` labels.
    case claim(owner: PublicKey, proof: [UInt8], [BoxLabel])
    /// From an owner: these boxes no longer, with all that is in them.
    case drop([BoxLabel])
    /// From an owner: which slots are there?
    case list(BoxID)
    /// From an owner: what it cannot open.
    case purge(BoxID, [SlotID])
    /// From whoever knows the box.
    case put(BoxID, SlotPut)
    /// From whoever can make the tags: at most ``Limits/slotTagCount``.
    case take(BoxID, [SlotTag])
    /// The same: overwrite them. `answer` takes the place of a notice, at most ``Limits/slotAnswerByteCount`` bytes;
    /// otherwise it is empty.
    case discard(BoxID, [SlotTag], answer: [UInt8])
}

/// What is put into a slot.
package struct SlotPut: Hashable, Sendable {
    package var id: SlotID
    package var kind: SlotKind
    /// How long the mailbox may keep it.
    package var keeping: SlotKeeping
    /// As long as one of ``SlotSize``.
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
    /// To each `claim`: so much there may be.
    case granted(MailboxGrant)
    case refused(MailboxRefusal)
    /// To the owner: something is in this box.
    case waiting(BoxID)
    /// To `list`.
    case slots(BoxID, [SlotID])
    case put(BoxID, SlotID, PutOutcome)
    /// To `take`: what is there, how long it has been there, and whether it is the owner's answer to a notice.
    case slot(BoxID, SlotID, dwell: Milliseconds, isAnswer: Bool, body: [UInt8])
    /// To `take`: nothing is there, or no longer.
    case absent(BoxID, SlotID)
    /// To `discard` and `purge`: they are overwritten.
    case discarded(BoxID, [SlotID])
}

/// What became of a put. The mailbox's word, over a link that authenticates it.
package enum PutOutcome: UInt32, Hashable, Sendable, CaseIterable {
    /// It is there, on the disk if it was to be.
    case stored = 1
    /// The box has as many slots or bytes as it may, or the mailbox has.
    case full = 2
    /// Again a little later.
    case tooFast = 3
    /// No such box, or no longer.
    case unknownBox = 4
    /// The mailbox's storage is locked, or its disk refuses.
    case unavailable = 5
    /// It serves nobody.
    case notServing = 6
    /// For a reason of a later version.
    case other = 7
}

/// Why a mailbox serves an owner not.
package enum MailboxRefusal: UInt32, Hashable, Sendable, Codable, CaseIterable {
    case notServing = 1
    /// The owner is not among its named peers, or its proof does not hold.
    case unknownPeer = 2
    /// It has as many boxes as it may.
    case full = 3
    /// Its storage is locked.
    case unavailable = 4
    case other = 5
}

/// What a mailbox grants one owner.
package struct MailboxGrant: Hashable, Sendable, Codable {
    /// The boxes of this owner: the first that are named.
    package var boxCount: Int
    /// Of one box.
    package var slotCount: Int
    package var byteCount: Int
    /// It keeps nothing for longer, whatever the class.
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
