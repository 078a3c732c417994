import Cryptography

package struct MailboxTerms: Hashable, Sendable {
    package var isServing = false
    package var boxCount = Limits.boxCount
    package var slotCount = Limits.slotCount
    package var boxByteCount = Limits.boxByteCount
    package var memoryByteCount = Limits.mailboxMemoryByteCount
    /// The longest time that contents are kept, in milliseconds. Notices have their own time.
    package var longest = SlotKeeping.thirtyDays.milliseconds

    package init() {}
}

/// Anonymous statistics of a mailbox for `status`.
package struct MailboxCounts: Hashable, Sendable {
    /// Now; byte counts in bytes.
    package var owners = 0
    package var boxes = 0
    /// Boxes without a request since the start. Their slots are not read yet, and not counted.
    package var unreadBoxes = 0
    package var slots = 0
    package var byteCount = 0
    package var memoryByteCount = 0
    /// Since the start.
    package var put: UInt64 = 0
    package var taken: UInt64 = 0
    package var discarded: UInt64 = 0
    package var expired: UInt64 = 0
    package var refused: UInt64 = 0
}

/// A box in the contact inbox's record.
package struct BoxRecord: Hashable, Sendable, Codable {
    package var box: BoxID
    package var owner: PublicKey
    /// When the owner's link was last heard, by our clock.
    package var seenAt: Timestamp
}

/// A slot without its body.
package struct KeptSlot: Hashable, Sendable {
    package var id: SlotID
    package var kind: SlotKind
    package var isAnswer: Bool
    package var byteCount: Int
    /// By the mailbox's clock.
    package var keptAt: Timestamp
    package var until: Timestamp

    package init(id: SlotID, kind: SlotKind, isAnswer: Bool, byteCount: Int, keptAt: Timestamp, until: Timestamp) {
        (self.id, self.kind, self.isAnswer, self.byteCount, self.keptAt) = (id, kind, isAnswer, byteCount, keptAt)
        self.until = until
    }
}

/// The slots of a box that the disk could read.
package struct KeptSlots: Hashable, Sendable {
    package var slots: [KeptSlot]
    /// The disk could read all slots.
    package var isWhole: Bool

    package init(_ slots: [KeptSlot], isWhole: Bool = true) { (self.slots, self.isWhole) = (slots, isWhole) }
}

package enum MailboxAction: Hashable, Sendable {
    /// Keeps a body: in memory, or on the disk under the box's row.
    case keep(BoxID, KeptSlot, [UInt8])
    case erase(BoxID, [SlotID])
    /// Destroys the box's row, and its slots in memory.
    case destroy(BoxID)
    /// Sends the body of a slot: ``MailboxAnswer/slot(_:_:dwell:isAnswer:body:)``, or that it is absent.
    case give(LinkID, BoxID, KeptSlot, dwell: Milliseconds)
}
