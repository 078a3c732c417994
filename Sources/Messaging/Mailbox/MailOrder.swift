import Cryptography

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
        (self.mailed, self.tooLarge, self.slotCount, self.isComplete) = (mailed, tooLarge, slotCount, isComplete)
    }
}

/// The explosion notice for a member that may be away. It suffices to put the notice into the member's reserved slot
/// and to read the answer after the conversation's keys are destroyed.
package struct MailNotice: Hashable, Sendable {
    package var member: PublicKey
    package var address: MailboxAddress
    package var tag: SlotTag
    /// Sealed for the slot.
    package var body: [UInt8]
    /// Opens the answer: 32 bytes.
    package var answerKey: [UInt8]

    /// - Parameters:
    ///   - notice: sealed, ``Limits/noticeByteCount`` bytes.
    ///   - address: the member's box.
    init(
        _ notice: [UInt8], to member: PublicKey, at address: MailboxAddress, conversation: ConversationID,
        key: IdentityKey, _ random: inout some RandomNumberGenerator
    ) {
        let secret = SlotSecret(
            sender: key.publicKey, owner: member, box: address.box, conversation: conversation, own: key)
        self.member = member
        self.address = address
        tag = secret.noticeTag
        body = SlotSealing.seal(
            notice: notice, secret, box: address.box, nonce: random.bytes(XChaChaPoly.nonceByteCount))
        answerKey = secret.noticeKey().withBytes { Array($0) }
    }
}
