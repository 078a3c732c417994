import Crypto

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
