import Crypto
import Messaging

enum RouteTarget: Hashable {
    case inbox(ClientID, NodeAction.Route)
    case tombstone(ConversationID, Knocker)
}

enum Knocker: Hashable {
    case member(PublicKey)
    /// A holder of the tombstone's invite with this index.
    case invite(Int)
    /// The creator, at our earlier copy with this index.
    case earlierCopy(Int)
}
