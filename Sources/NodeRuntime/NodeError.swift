import Messaging
import Store
import Transport

/// Why a request of the user fails.
package enum NodeError: Error {
    case command(CommandError)
    case store(StoreError)
    case homeFile(HomeFileError)
    case invite(InviteSlug.Failure)
    case locked
    /// - Parameter meant: the listed alias or name that is nearest to the text.
    case unknownConversation(String, meant: String? = nil)
    case unknownJoin(String)
    case unknownInvite(String)
    case joinEnded(String)
    case unknownPeer(String)
    case unknownMessage(String)
    case unknownMember(String)
    case ambiguous(String, matches: [String])
    /// - Parameter called: the user's alias.
    case exploded(ConversationID, called: String?)
    case joinFailed(JoinErrorType)
    case joinCancelled
    case invalidPeerName(String)
    case peerExists(String)
    case ownCard
    case peerWithoutCard(String)
    case peerBlocked(String)
    case invalidCard(ContactCard.Failure)
    case timedOut(String)
    case unreachable(String)
    /// Two inboxes have this clientId, or an inbox's state names another one (seed 003).
    case clientIDMismatch(ClientID)
    case stopping
    case unknownInbox(String)
    case notAConversation(ClientID)
    /// This connection has no upload with this id.
    case unknownUpload(String)
    case tooManyUploads(limit: Int)
    case noAttachment(String)
    case attachmentIncomplete(MessageID, count: Int, of: Int)
    /// The transfer failed, or the file was deleted.
    case attachmentLost(MessageID)
    case tooManyRendezvous
    /// This peer is already the mailbox; only one is allowed.
    case otherMailbox(String)
    case alias(AliasRefusal)
    case code(CodeRefusal)
}

/// Why a text cannot be the alias of a conversation.
package enum AliasRefusal: Error, Hashable {
    /// Held by another conversation, exactly or in a form that reads alike.
    case taken(ConversationID?)
    /// Could be the beginning of an id.
    case looksLikeID
    /// Not ordinary text of at most ``Messaging/Limits/nameByteCount`` bytes, or starts with `-` like a command line
    /// option.
    case notAnAlias
}

/// Why a code cannot be made, or led to no invite.
package enum CodeRefusal: Error, Hashable, Sendable {
    case text(SpokenCode.Failure)
    case tooMany(limit: Int)
    /// The code is neither open nor among the last closed ones.
    case unknown
    /// No node on this machine's networks answered.
    case nobody(slot: UInt16)
    case ambiguous(slot: UInt16)
    case discoveryOff
    case notReached(host: String, DialFailure)
    case exchange(CodeFailure, slot: UInt16)
}
