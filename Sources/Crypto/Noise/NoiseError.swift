/// What can be wrong with a handshake message or a sealed one. None of it says more than the other side may know.
package enum NoiseError: Error, Equatable {
    /// A message was written or read when it was the other side's turn, or after the last one.
    case outOfTurn
    /// The message ends before its pattern does.
    case truncated
    /// A public key of the message is not a point of the curve.
    case invalidKey
    /// The sealed static key does not open.
    case staticKeyNotAuthentic
    /// The payload, or a message after the handshake, does not open.
    case notAuthentic
    /// The remote static key is our own: our message came back to us.
    case reflection
    /// 2^64 − 1 messages were sealed with one key (Noise, section 5.1).
    case nonceExhausted
    /// More than 65,535 bytes (Noise, section 3).
    case tooLong
}
