import Messaging

package struct PeerPresence: Sendable {
    /// When the peer was last heard; now, while a link is open.
    package var at: Timestamp
    /// A link is open to its contact inbox, or to a member that joined by an invite sent to the peer.
    package var isLinked: Bool
    package var rttMilliseconds: Double?
    package var path: LinkPath?
}

package struct ReceivedInvitation {
    package var id: Messaging.MessageID
    /// The peer's name; `nil` if the sender is not in `peers.json`.
    package var from: String?
    package var slug: String
    package var name: String?
    package var receivedAt: Timestamp
}

/// The last ping answered by a named peer.
package struct PeerSighting: Sendable {
    var at: Timestamp
    /// From ping to pong, over an open link.
    var rttMilliseconds: Double
    var path: LinkPath?
}
