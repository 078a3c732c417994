import Messaging

/// What is known of the way to a named peer.
package struct PeerPresence: Sendable {
    /// When it was last heard; now, while there is a link.
    package var at: Timestamp
    /// There is a link to its contact inbox, or to a member that came by an invite that was sent to it.
    package var isLinked: Bool
    /// As the transport or a ping has measured it.
    package var rttMilliseconds: Double?
    package var path: LinkPath?
}

/// An invitation that waits for the user's answer.
package struct ReceivedInvitation {
    package var id: Messaging.MessageID
    /// The peer's name; `nil` for a sender that is not in `peers.json`.
    package var from: String?
    package var slug: String
    package var name: String?
    package var receivedAt: Timestamp
}

/// When and how a named peer was last heard.
package struct PeerSighting: Sendable {
    var at: Timestamp
    /// From the ping to its pong, over an open link.
    var rttMilliseconds: Double
    /// How it was reached then.
    var path: LinkPath?
}
