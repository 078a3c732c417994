import Control
import Messaging

extension JoinStatus {
    /// Waits for the user's answer.
    var isAsking: Bool { [.invited, .validated].contains(state) }
}

extension LifetimeAgreement {
    /// `kept 1 day on disk, agreed with ann, bob`
    var words: String {
        let length = terms.lifetime == .ephemeral ? "memory only" : "kept \(Words.lifetime(terms.lifetime)) on disk"
        let others = members.filter { $0.name != "me" }.map { safe($0.name) }.joined(separator: ", ")
        return ([length] + ChatModel.terms(terms) + ["agreed with \(others)"]).joined(separator: ", ")
    }
}

enum ChatRequest: Hashable, Sendable {
    case subscription
    case conversations
    case joins
    case messages(String)
    case firstNew(String)
    case search(String)
    case conversation(String)
    case lifetime(String)
    case explosion(String)
    /// An action of the user; the case decides the notice after success.
    case action(Action)

    enum Action: Hashable, Sendable {
        /// Text and reply target are restored when the send fails.
        case send(String, text: String?, reply: ReplyTarget?)
        case invite(String)
        case code(String)
        /// The room where the user asked; `nil` for the list.
        case join(from: String?)
        case create(from: String?)
        case decline
        case explode(String)
        case leave(String)
        /// A home with a key file needs no passphrase.
        case unlock(hasPassphrase: Bool)
        /// On success, shows this text.
        case say(String)
    }
}

enum ChatEffect {
    case call(ChatRequest, method: String, params: JSONValue)
    case upload(conversation: String, path: String, text: String?, replyTo: String?)
    /// `path` is a directory or a file.
    case save(conversation: String, message: String, path: String?)
    case preview(conversation: String, message: String, title: String, size: Picture.Size)
    /// Saves the user's name in `config.json` for future conversations. A name not valid there holds in this chat only.
    case remember(name: String)
    case bell
    case quit

    static func call<Method: ControlMethod>(_ request: ChatRequest, _ method: Method, _ params: Method.Params)
        -> ChatEffect
    { .call(request, method: method.name, params: JSONValue(of: params)) }
}

enum ChatInput {
    case key(Key)
    case event(JSONValue)
    case answer(ChatRequest, Result<JSONValue, ControlError>)
    /// The node ended the subscription of a slow reader; subscribe again.
    case dropped
    /// Outcome of a file transfer.
    case said(String)
    case failed(ControlError)
    case image(room: String, message: String, title: String, rows: [Row])
    case disconnected(String)
    case resized(Picture.Size)
    case tick

    /// `nil` for an answer without a request, and for a notification of a newer node.
    init?(_ response: ControlResponse, _ requests: inout [RequestID: ChatRequest]) {
        switch response {
        case .success(let id, let result):
            guard let request = requests.removeValue(forKey: id) else { return nil }
            self = .answer(request, .success(result))
        case .failure(let id, let error):
            guard let request = requests.removeValue(forKey: id) else { return nil }
            self = .answer(request, .failure(error))
        case .notification(ControlResponse.eventMethod, let event): self = .event(event)
        case .notification(ControlResponse.droppedMethod, _): self = .dropped
        case .notification: return nil
        }
    }
}
