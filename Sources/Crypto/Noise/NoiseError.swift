/// Errors of handshake and sealed messages. They reveal nothing that the other side may not know.
package enum NoiseError: Error, Equatable {
    /// The other side's turn, or the handshake is finished.
    case outOfTurn
    /// The message ends before its pattern does.
    case truncated
    /// A public key of the message is not a point of the curve.
    case invalidKey
    /// The sealed static key fails authentication.
    case staticKeyNotAuthentic
    /// The payload, or a message after the handshake, fails authentication.
    case notAuthentic
    /// The remote static key is our own: our message came back to us.
    case reflection
    /// 2^64 − 1 messages were sealed with one key (Noise, section 5.1).
    case nonceExhausted
    /// More than 65,535 bytes (Noise, section 3).
    case tooLong
}
