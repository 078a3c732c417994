import Crypto

/// The notice of an explosion for a member that may be away: all that is needed to put it into the reserved slot of that
/// member's box, and to read the answer, when the keys of the conversation are gone.
package struct MailNotice: Hashable, Sendable {
    package var member: PublicKey
    package var address: MailboxAddress
    package var tag: SlotTag
    /// As it is put.
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
