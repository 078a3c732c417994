import Crypto

/// Why the core does not do what the user asks.
package enum CommandError: Error, Hashable, Sendable {
    case unknownConversation
    /// The join has not ended yet.
    case notJoined
    /// Only the creator may do this.
    case notCreator
    /// Nobody else has joined yet.
    case noOtherMember
    /// The other member has no link to us now.
    case notConnected
    case textTooLong(byteCount: Int, limit: Int)
    case nameTooLong(byteCount: Int, limit: Int)
    case emptyText
    /// A name without a visible character, or with one that moves the cursor.
    case invalidName
    case outboxFull(limit: Int)
    case tooManyInvites(limit: Int)
    case unknownInvite
    case conversationLocked
    case lifetime(LifetimeStateMachine.Refusal)
    case inviteExpired(Timestamp)
    /// The invite is our own.
    case ownInvite
    /// This conversation has been entered with this invite before.
    case alreadyMember(ClientID)
    case unknownMessage
    /// A reaction without a visible character, with control characters, or too long.
    case invalidReaction(limit: Int)
    /// Not `authority/type:major.minor`, or too long.
    case invalidContentType(String)
    /// An authority whose types this program makes itself.
    case reservedContentType(String)
    case payloadTooLong(byteCount: Int, limit: Int)
    case fallbackTooLong(byteCount: Int, limit: Int)
    case fileTooLarge(limit: Int64)
    /// Without an agreement files stay in memory, where there is no more room.
    case fileTooLargeForMemory(limit: Int64)
    case fileMemoryFull(limit: Int64)
    /// The agreement changed while a file was handed over.
    case agreementChanged
    /// The creator has removed us from this conversation.
    case removed
    case unknownMember
    /// The inbox is not to be put to sleep now.
    case inboxProtected(InboxProtection)
}
