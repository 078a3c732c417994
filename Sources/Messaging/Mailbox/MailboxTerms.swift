import Crypto

/// Quotas of a mailbox, and whether it serves: from its configuration.
package struct MailboxTerms: Hashable, Sendable {
    package var isServing = false
    package var boxCount = Limits.boxCount
    package var slotCount = Limits.slotCount
    package var boxByteCount = Limits.boxByteCount
    package var memoryByteCount = Limits.mailboxMemoryByteCount
    /// The longest time that contents are kept, in milliseconds; notices have a time of their own.
    package var longest = SlotKeeping.thirtyDays.milliseconds

    package init() {}
}

/// Counts of a mailbox for `status`. They name nobody.
package struct MailboxCounts: Hashable, Sendable {
    /// Counts of the present moment; byte counts in bytes.
    package var owners = 0
    package var boxes = 0
    /// Boxes for which nobody has asked since the start of the process: their slots are not read yet, and not counted.
    package var unreadBoxes = 0
    package var slots = 0
    package var byteCount = 0
    package var memoryByteCount = 0
    /// Counts since the start of the process.
    package var put: UInt64 = 0
    package var taken: UInt64 = 0
    package var discarded: UInt64 = 0
    package var expired: UInt64 = 0
    package var refused: UInt64 = 0

    package init() {}
}

/// A box as it is saved in the contact inbox's record: it survives a restart of the mailbox.
package struct BoxRecord: Hashable, Sendable, Codable {
    package var box: BoxID
    /// The key of the owner's contact inbox.
    package var owner: PublicKey
    /// When the owner's link was last heard, by our clock.
    package var seenAt: Timestamp

    package init(box: BoxID, owner: PublicKey, seenAt: Timestamp) {
        self.box = box
        self.owner = owner
        self.seenAt = seenAt
    }
}

/// A slot as its mailbox keeps it, without its body.
package struct KeptSlot: Hashable, Sendable {
    package var id: SlotID
    package var kind: SlotKind
    /// The owner's answer has taken the place of the notice.
    package var isAnswer: Bool
    package var byteCount: Int
    /// When the slot was put, and when it is destroyed, by the mailbox's clock.
    package var keptAt: Timestamp
    package var until: Timestamp

    package init(id: SlotID, kind: SlotKind, isAnswer: Bool, byteCount: Int, keptAt: Timestamp, until: Timestamp) {
        self.id = id
        self.kind = kind
        self.isAnswer = isAnswer
        self.byteCount = byteCount
        self.keptAt = keptAt
        self.until = until
    }
}

/// Slots of a box, as far as the disk gives them.
package struct KeptSlots: Hashable, Sendable {
    package var slots: [KeptSlot]
    /// The disk has refused none.
    package var isWhole: Bool

    package init(_ slots: [KeptSlot], isWhole: Bool = true) { (self.slots, self.isWhole) = (slots, isWhole) }
}

/// Actions of the shell on the boxes of this mailbox.
package enum MailboxAction: Hashable, Sendable {
    /// Keeps a body: in memory, or on the disk under the box's row.
    case keep(BoxID, KeptSlot, [UInt8])
    /// Overwrites these slots.
    case erase(BoxID, [SlotID])
    /// Destroys the box's row, and its slots in memory.
    case destroy(BoxID)
    /// Sends the body of a slot: ``MailboxAnswer/slot(_:_:dwell:isAnswer:body:)``, or that it is absent.
    case give(LinkID, BoxID, KeptSlot, dwell: Milliseconds)
}
