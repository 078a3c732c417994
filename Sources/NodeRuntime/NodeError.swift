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
}
