import Messaging
import Store
import Transport
import Wire

/// Why a request of the user is not carried out.
package enum NodeError: Error {
    case command(CommandError)
    case store(StoreError)
    case homeFile(HomeFileError)
    case invite(InviteSlug.Failure)
    /// The storage is locked.
    case locked
    case unknownConversation(String)
    case unknownJoin(String)
    case unknownInvite(String)
    /// The join has failed or was cancelled.
    case joinEnded(String)
    case unknownPeer(String)
    case unknownMessage(String)
    case unknownMember(String)
    case ambiguous(String, matches: [String])
    /// The conversation has exploded.
    case exploded(ConversationID)
    case joinFailed(JoinErrorType)
    case joinCancelled
    case invalidPeerName(String)
    case peerExists(String)
    case peerWithoutCard(String)
    case peerBlocked(String)
    case invalidCard(ContactCard.Failure)
    case timedOut(String)
    /// The peer did not answer.
    case unreachable(String)
    /// A second inbox with a clientId that is there already (seed 003).
    case clientIDMismatch(ClientID)
    case stopping
    case unknownInbox(String)
    /// Only inboxes of conversations sleep.
    case notAConversation(ClientID)
    /// No file is being handed over under this id on this connection.
    case unknownUpload(String)
    case tooManyUploads(limit: Int)
    /// The message has no file.
    case noAttachment(String)
    /// Its file is still on its way.
    case attachmentIncomplete(MessageID, count: Int, of: Int)
    /// Its file did not come, or is not kept any more.
    case attachmentLost(MessageID)
    /// As many rendezvous nodes as there may be are in use.
    case tooManyRendezvous
    /// This peer is the mailbox already: there is one.
    case otherMailbox(String)
    case alias(AliasRefusal)
    /// No standing policy accepts these terms.
    case notRenewable
    case code(CodeRefusal)
}
