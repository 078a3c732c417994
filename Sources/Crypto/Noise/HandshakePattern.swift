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
    /// Whether the other side knows the static key before the first message.
    let initiatorIsKnown: Bool
    let responderIsKnown: Bool
    /// The token lists of the messages, alternating, the initiator's first.
    let messages: [[Token]]

    /// XK: the initiator knows the responder's static key and sends its own, sealed, in the third message.
    ///
    ///     <- s
    ///     ...
    ///     -> e, es
    ///     <- e, ee
    ///     -> s, se
    package static let xk = HandshakePattern(
        name: "XK", initiatorIsKnown: false, responderIsKnown: true, messages: [[.e, .es], [.e, .ee], [.s, .se]])
}

package enum Role: Hashable, Sendable { case initiator, responder }
