import Crypto
import Messaging

/// Where an incoming token leads.
enum RouteTarget: Hashable {
    case inbox(ClientID, NodeAction.Route)
    case tombstone(ConversationID, Knocker)
}

/// Who may knock at a tombstone.
enum Knocker: Hashable {
    case member(PublicKey)
    /// A holder of this one of its invites.
    case invite(Int)
    /// The creator, at this one of our earlier copies.
    case earlierCopy(Int)
}
