import Crypto

/// An order to put contents for a member that is away into its mailbox.
package struct MailOrder: Hashable, Sendable {
    package var member: PublicKey
    package var address: MailboxAddress
    package var kind: SlotKind
    package var keeping: SlotKeeping
    /// Slice whose public key seals the contents.
    package var slice: UInt32
    package var key: PublicKey
    package var agreement: AgreementID
    /// Number of the first slot. An order uses at most ``Limits/mailSlotCount`` slots.
    package var number: UInt64
    /// Messages from the archive, in the order of their sending.
    package var messages: [NodeAction.AgedMessage]
    /// Frames that follow the messages.
    package var frames: [Frame]
}

/// The outcome of a ``MailOrder``.
package struct MailResult: Hashable, Sendable {
    /// Messages that the mailbox has.
    package var mailed: [MessageID]
    /// Messages that no slot holds: they wait for a link.
    package var tooLarge: [MessageID]
    /// Number of slots that were used.
    package var slotCount: Int
    /// Whether the mailbox holds each message and frame of the order.
    package var isComplete: Bool

    package init(mailed: [MessageID], tooLarge: [MessageID], slotCount: Int, isComplete: Bool) {
        self.mailed = mailed
        self.tooLarge = tooLarge
        self.slotCount = slotCount
        self.isComplete = isComplete
    }
}
