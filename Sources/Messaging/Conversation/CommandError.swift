/// Why the core refuses a command.
package enum CommandError: Error, Hashable, Sendable {
    case unknownConversation
    case notJoined
    case notCreator
    case noOtherMember
    /// A member that must answer has no link to us.
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
    case lifetime(LifetimeRefusal)
    case inviteExpired(Timestamp)
    case ownInvite
    /// This invite has already led into this conversation.
    case alreadyMember(ClientID)
    case unknownMessage
    /// A reaction without a visible character, with control characters, or too long.
    case invalidReaction(limit: Int)
    /// Not `authority/type:major.minor`, or too long.
    case invalidContentType(String)
    /// The authority is reserved for this program's own types.
    case reservedContentType(String)
    case payloadTooLong(byteCount: Int, limit: Int)
    case fallbackTooLong(byteCount: Int, limit: Int)
    case fileTooLarge(limit: Int64)
    /// Without an agreement a file stays in memory, and memory holds no larger one.
    case fileTooLargeForMemory(byteCount: Int64, limit: Int64)
    case fileMemoryFull(limit: Int64)
    /// The agreement changed during the upload of a file.
    case agreementChanged
    /// The creator has removed us from this conversation.
    case removed
    case unknownMember
    case inboxProtected(InboxProtection)
}

/// Why the core refuses a command about the lifetime.
package enum LifetimeRefusal: Error, Hashable, Sendable {
    /// No open proposal can be answered or withdrawn.
    case noProposal
    /// The open proposal is not the one that the user saw.
    case otherProposal
    /// Too many proposals; the next one is possible after this time.
    case tooSoon(Milliseconds)
    case alreadyAgreed(Lifetime)
    /// We have accepted a proposal and the others have not answered yet.
    case alreadyAccepted
    /// Nothing would be kept, or a time is out of its range.
    case invalidTerms
}
