import ArgumentParser
import Control
import Messaging
import NodeRuntime

/// An unacknowledged message to one member.
struct OutboxEntry: CodableRecord {
    var message = ""
    var conversation = ""
    /// Name as in ``Message/from``.
    var to = ""
    /// Prefix of the member's id.
    var member: String?
    var attempts: Int = 0
    @OrNull var nextAttempt: Timestamp?
    @OrNull var expiresAt: Timestamp?
    var state = ""
}

struct OutboxListParams: CodableRecord {
    var conversation: String?
    /// The `next` of the previous answer.
    var from: String?
}

struct OutboxListResult: CodableRecord {
    var messages: [OutboxEntry] = []
    /// Present when the answer was cut; pass it as `from`.
    var next: String?
}

extension OutboxEntry: ShownRecord, RowRecord {
    init(_ item: OutboxItem, _ node: isolated Node) {
        self.init(
            message: item.entry.message.description, conversation: item.conversation.conversation.description,
            to: MemberName.shown(item.member, item.conversation, node), member: MemberName.id(item.member),
            attempts: item.entry.attempts, nextAttempt: item.entry.nextAttempt,
            expiresAt: min(item.entry.deadline, item.conversation.record.schedule?.expiresAt ?? .latest),
            state: item.entry.state.rawValue)
    }

    static let head = ["MESSAGE", "CONVERSATION", "TO", "STATE", "ATTEMPTS", "NEXT ATTEMPT", "EXPIRES"]
    static let none = "the outbox is empty"
    var cells: [String] {
        [short(message), short(conversation), to, state, String(attempts), shown(nextAttempt), shown(expiresAt)]
    }
}

enum OutboxMethods {
    static let all: [any ServedMethod] = [list, cancel, retry]

    static let list = NodeMethod<OutboxListParams, OutboxListResult>(
        "outbox.list", "List messages that are not acknowledged yet."
    ) { params, node in
        let only = try params.conversation.map { try node.resolve($0) }
        let from = try params.from.map { text in
            guard let place = OutboxPlace(text) else {
                throw ControlError(
                    .usage, "`from` is not a position in the outbox", hint: "give the `next` of an answer")
            }
            return place
        }
        var page = AnswerPage()
        var messages: [OutboxEntry] = []
        var last: OutboxPlace?
        try node.visitOutbox(of: only, after: from) { item, place in
            let entry = OutboxEntry(item, node)
            guard page.take(byteCount: AnswerPage.largestByteCount(of: entry)) else { return false }
            messages.append(entry)
            last = place
            return true
        }
        return .now(OutboxListResult(messages: messages, next: page.isFull ? last?.description : nil))
    }

    static let cancel = NodeMethod<MessageParams, OutboxEntry>("outbox.cancel", "Cancel an unacknowledged message.") {
        params, node in
        var entry = OutboxEntry(try node.cancelMessage(params.message), node)
        entry.state = "cancelled"
        return .durable(entry, node)
    }

    static let retry = NodeMethod<MessageParams, OutboxEntry>("outbox.retry", "Retry an unacknowledged message now.") {
        params, node in .now(OutboxEntry(try node.retryMessage(params.message), node))
    }
}

struct MessageParams: CodableRecord {
    /// Id, or a prefix of it.
    var message = ""
}

extension MessageParams: OneArgument {
    struct Argument: ParsableArguments { @ArgumentParser.Argument var message: String }
    init(_ argument: Argument) { self.init(message: argument.message) }
}

struct OutboxCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "outbox", abstract: "Messages that are not acknowledged yet.",
        discussion: """
            Examples:
              mayfly outbox list
              mayfly outbox cancel 4f1c
              mayfly outbox retry 4f1c
            """, subcommands: [ListCall<List>.self, Call<Cancel>.self, Call<Retry>.self])

    enum List: ListAction {
        typealias Element = OutboxEntry
        static let method = OutboxMethods.list
        static let list = "messages"
        static var from: WritableKeyPath<OutboxListParams, String?>? { \.from }
    }

    enum Cancel: MethodAction { static let method = OutboxMethods.cancel }
    enum Retry: MethodAction { static let method = OutboxMethods.retry }
}
