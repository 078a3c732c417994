import Control

/// The message being answered, without its text.
struct ReplyTarget: Hashable, Sendable {
    let message: HexID
    let expiresAt: Timestamp?
    /// The user is told before the text is sent.
    var isGone = false

    init(_ message: Message) {
        self.message = message.message
        expiresAt = message.expiresAt
    }
}
