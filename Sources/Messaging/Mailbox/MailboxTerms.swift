import Crypto

/// What a mailbox does for others: from its configuration.
package struct MailboxTerms: Hashable, Sendable {
    package var isServing = false
    package var boxCount = Limits.boxCount
    package var slotCount = Limits.slotCount
    package var boxByteCount = Limits.boxByteCount
    package var memoryByteCount = Limits.mailboxMemoryByteCount
    /// Its own bound on how long contents are kept; notices have theirs.
    package var longest = SlotKeeping.thirtyDays.milliseconds

    package init() {}
}

/// What a mailbox holds and has done, without a name, for `status`.
package struct MailboxCounts: Hashable, Sendable {
    /// Now.
    package var owners = 0
    package var boxes = 0
    package var slots = 0
    package var byteCount = 0
    package var memoryByteCount = 0
    /// Since the start.
    package var put: UInt64 = 0
    package var taken: UInt64 = 0
    package var discarded: UInt64 = 0
    package var expired: UInt64 = 0
    package var refused: UInt64 = 0

    package init() {}
}

/// A box that survives a restart of its mailbox: in the contact inbox's record.
package struct BoxRecord: Hashable, Sendable, Codable {
    package var box: BoxID
    /// Its owner's contact inbox.
    package var owner: PublicKey
    /// When the owner last came, by our clock.
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
    /// When it was put, and when it is destroyed, by the mailbox's clock.
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

/// What the mailbox's shell does with boxes.
package enum MailboxAction: Hashable, Sendable {
    /// Keep a body: in memory, or on the disk under the box's row.
    case keep(BoxID, KeptSlot, [UInt8])
    /// Overwrite these.
    case erase(BoxID, [SlotID])
    /// Destroy the box's row, and what is in memory.
    case destroy(BoxID)
    /// Send what is in a slot: ``MailboxAnswer/slot(_:_:dwell:isAnswer:body:)``, or that it is absent.
    case give(LinkID, BoxID, KeptSlot, dwell: Milliseconds)
}
