import Cryptography

/// From a user of a mailbox, over a link under a key of that link only.
package enum MailboxRequest: Hashable, Sendable {
    /// From an owner: claims these boxes in addition to those claimed before. At most ``Limits/boxLabelCount`` labels.
    /// `owner` is a contact inbox among the mailbox's named peers; `proof` is ``MailboxSecret/proof(of:)``.
    case claim(owner: PublicKey, proof: [UInt8], [BoxLabel])
    /// From an owner: destroys these boxes with all slots.
    case drop([BoxLabel])
    /// From an owner: asks for the ids of the slots in a box.
    case list(BoxID)
    /// From an owner: destroys slots that the owner cannot open; without ids all contents of the box, but no notice.
    case purge(BoxID, [SlotID])
    /// From any link that names the box.
    case put(BoxID, SlotPut)
    /// From any link that shows the tags: asks for the bodies of at most ``Limits/slotTagCount`` slots.
    case take(BoxID, [SlotTag])
    /// From any link that shows the tags: overwrites the slots. `answer` replaces a notice, at most
    /// ``Limits/slotAnswerByteCount`` bytes; otherwise it is empty.
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

package struct SlotPut: Hashable, Sendable {
    package var id: SlotID
    package var kind: SlotKind
    package var keeping: SlotKeeping
    /// Sealed; its length is one of ``SlotSize``.
    package var body: [UInt8]

    package init(id: SlotID, kind: SlotKind, keeping: SlotKeeping, body: [UInt8]) {
        (self.id, self.kind, self.keeping, self.body) = (id, kind, keeping, body)
    }
}

package enum SlotKind: UInt32, Hashable, Sendable, CaseIterable, Codable {
    /// Contents, only in the mailbox's memory.
    case memory = 1
    /// Contents, on the mailbox's disk.
    case disk = 2
    /// The reserved slot of one member: the notice of an explosion, on the disk.
    case notice = 3
}

/// The time class after which the mailbox destroys a slot.
package enum SlotKeeping: UInt32, Hashable, Sendable, CaseIterable, Codable {
    case oneHour = 1
    case sixHours = 2
    case oneDay = 3
    case sevenDays = 4
    case thirtyDays = 5
    /// For notices only.
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

    /// The shortest class of contents that holds this long, or the longest class.
    package static func holding(_ time: Milliseconds) -> SlotKeeping {
        allCases.first { $0 != .fortyFiveDays && $0.milliseconds >= time } ?? .thirtyDays
    }
}

/// The padded sizes of a slot's body, so that the mailbox learns no exact length.
package enum SlotSize {
    package static let byteCounts = [1_024, 4_096, 16_384, 61_440]
    package static let largest = 61_440

    /// `nil` above the largest size.
    package static func holding(_ byteCount: Int) -> Int? { byteCounts.first { $0 >= byteCount } }
}

package enum MailboxAnswer: Hashable, Sendable {
    /// To each `claim`: the quotas of this owner.
    case granted(MailboxGrant)
    case refused(MailboxRefusal)
    /// To the owner: the box holds a slot. Sent once, until the owner lists or empties the box.
    case waiting(BoxID)
    /// To `list`.
    case slots(BoxID, [SlotID])
    case put(BoxID, SlotID, PutOutcome)
    /// To `take`: the body of a slot, the time since it was put, and whether it is the owner's answer to a notice.
    case slot(BoxID, SlotID, dwell: Milliseconds, isAnswer: Bool, body: [UInt8])
    /// To `take`: the box has no such slot.
    case absent(BoxID, SlotID)
    /// To `discard` and `purge`: these slots are overwritten.
    case discarded(BoxID, [SlotID])
}

/// The result of a put, as reported by the mailbox over an authenticated link.
package enum PutOutcome: UInt32, Hashable, Sendable, CaseIterable {
    /// Durable, unless the slot's kind is `memory`.
    case stored = 1
    /// The box or the mailbox has reached its quota of slots or bytes.
    case full = 2
    case tooFast = 3
    case unknownBox = 4
    /// The mailbox's storage is locked, or its disk fails.
    case unavailable = 5
    /// This node is not configured as a mailbox.
    case notServing = 6
    /// A reason of a later version.
    case other = 7
}

package enum MailboxRefusal: UInt32, Hashable, Sendable, Codable, CaseIterable {
    case notServing = 1
    /// The owner is not among its named peers, or its proof is wrong.
    case unknownPeer = 2
    /// The mailbox has reached its quota of boxes.
    case full = 3
    /// The mailbox's storage is locked.
    case unavailable = 4
    case other = 5
}

package struct MailboxGrant: Hashable, Sendable, Codable {
    /// Most boxes of this owner: the first that its claims name.
    package var boxCount: Int
    package var slotCount: Int
    package var byteCount: Int
    /// The longest time that the mailbox keeps a slot, whatever its class.
    package var longest: Milliseconds

    package init(boxCount: Int, slotCount: Int, byteCount: Int, longest: Milliseconds) {
        (self.boxCount, self.slotCount, self.byteCount, self.longest) = (boxCount, slotCount, byteCount, longest)
    }
}

/// Between members, over their link: the public keys that seal contents for an absent member.
package enum MailboxMessage: Hashable, Sendable {
    /// Asks for slice keys under this agreement; the sender has the keys up to `above`.
    case want(AgreementID, above: UInt32?)
    case keys(SliceKeys)
}
