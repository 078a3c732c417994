import Control

/// A message that is being answered. Nothing of its text is kept.
struct ReplyTarget: Hashable, Sendable {
    let message: HexID
    let expiresAt: Timestamp?
    /// The person is told before the text is sent.
    var isGone = false

    init(_ message: Message) {
        self.message = message.message
        expiresAt = message.expiresAt
    }
}
