import Crypto

/// An order to put contents for an absent member into its mailbox.
package struct MailOrder: Hashable, Sendable {
    package var member: PublicKey
    package var address: MailboxAddress
    package var kind: SlotKind
    package var keeping: SlotKeeping
    /// The slice whose public key seals the contents.
    package var slice: UInt32
    package var key: PublicKey
    package var agreement: AgreementID
    /// The first slot's number. An order uses at most ``Limits/mailSlotCount`` slots.
    package var number: UInt64
    /// Messages from the archive, in the order of sending.
    package var messages: [NodeAction.AgedMessage]
    package var frames: [Frame]
}

package struct MailResult: Hashable, Sendable {
    package var mailed: [MessageID]
    /// Messages larger than a slot: they wait for a link.
    package var tooLarge: [MessageID]
    package var slotCount: Int
    package var isComplete: Bool

    package init(mailed: [MessageID], tooLarge: [MessageID], slotCount: Int, isComplete: Bool) {
        self.mailed = mailed
        self.tooLarge = tooLarge
        self.slotCount = slotCount
        self.isComplete = isComplete
    }
}
