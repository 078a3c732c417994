import Control

/// What the chat asks the node, and what for.
enum ChatRequest: Hashable, Sendable {
    case subscription
    case conversations
    case joins
    case messages(String)
    case conversation(String)
    case lifetime(String)
    case explosion(String)
    /// Something that a person wants: what is said when it is done.
    case action(Action)

    enum Action: Hashable, Sendable {
        /// With the text and what it answers, which are given back when it could not be sent.
        case send(String, text: String?, reply: ReplyTarget?)
        case invite(String)
        /// A code to say aloud.
        case code(String)
        /// With the room from which it was asked for, which is `nil` for the list.
        case join(from: String?)
        case create(from: String?)
        case decline
        case explode(String)
        case leave(String)
        /// Nothing more is said than this.
        case say(String)
    }
}

/// What the model wants done.
enum ChatEffect {
    case call(ChatRequest, method: String, params: JSONValue)
    /// Sends a file to a conversation, with a text.
    case upload(conversation: String, path: String, text: String?, replyTo: String?)
    /// Writes the file of a message into a directory or a file.
    case save(conversation: String, message: String, path: String?)
    /// Shows the image of a message, in as many columns and rows.
    case preview(conversation: String, message: String, title: String, size: Picture.Size)
    /// Remembers the person's name for conversations to come.
    case remember(name: String)
    case bell
    case quit
}

/// What happens to the model.
enum ChatInput {
    case key(Key)
    case event(JSONValue)
    case answer(ChatRequest, Result<JSONValue, ControlError>)
    /// The node sends no more events, because they came too fast: the subscription is to be made again.
    case dropped
    /// A file was sent or written, or was not.
    case said(String, isFailure: Bool)
    /// An image that was asked for, of a message in a room.
    case image(room: String, message: String, title: String, rows: [Row])
    case disconnected(String)
    case resized(Picture.Size)
    case tick
}
