/// A handshake pattern as data (Noise, section 7).
package struct HandshakePattern: Hashable, Sendable {
    package enum Token: Hashable, Sendable {
        /// The sender's ephemeral key, in the clear.
        case e
        /// The sender's static key, sealed once there is a key.
        case s
        /// DH of the initiator's (first letter) and the responder's (second letter) keys.
        case ee, es, se, ss
    }

    package let name: String
    /// Whether a side's static key is known to the other before the first message.
    let initiatorIsKnown: Bool
    let responderIsKnown: Bool
    /// One list of tokens per message, the initiator's first, then by turns.
    let messages: [[Token]]

    /// XK: the initiator knows the responder's static key and shows its own in the third message, sealed.
    ///
    ///     <- s
    ///     ...
    ///     -> e, es
    ///     <- e, ee
    ///     -> s, se
    package static let xk = HandshakePattern(
        name: "XK", initiatorIsKnown: false, responderIsKnown: true, messages: [[.e, .es], [.e, .ee], [.s, .se]])
}

/// A side of a handshake.
package enum Role: Hashable, Sendable { case initiator, responder }
