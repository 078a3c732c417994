import ArgumentParser
import Control
import Messaging
import NodeRuntime

struct Inbox: CodableRecord {
    /// Client id.
    var inbox = ""
    /// `awake`, `sleeping` or `unused`.
    var state = ""
    @OrNull var wakeReason: String?
    @OrNull var lastActivity: Timestamp?
    /// Never put to sleep to make room.
    var protected = false
    var conversation: String?
}

extension Inbox: ShownRecord, RowRecord {
    init(_ state: InboxState) {
        self.init(
            inbox: state.client.description, state: state.state.rawValue, wakeReason: state.wakeReason?.rawValue,
            lastActivity: state.lastActivity, protected: !state.protection.isEmpty,
            conversation: state.conversation?.description)
    }

    static let head = ["INBOX", "STATE", "WOKEN BY", "LAST ACTIVITY", "PROTECTED"]
    static let none = "no inboxes"
    var cells: [String] { [short(inbox), state, wakeReason ?? "-", shown(lastActivity), protected ? "yes" : "no"] }
}

struct InboxParams: CodableRecord {
    /// Client id, or a prefix of it.
    var inbox = ""
}

extension InboxParams: OneArgument {
    struct Argument: ParsableArguments { @ArgumentParser.Argument var inbox: String }
    init(_ argument: Argument) { self.init(inbox: argument.inbox) }
}

struct InboxListResult: CodableRecord { var inboxes: [Inbox] = [] }

struct InboxRebalanceResult: CodableRecord, ShownRecord {
    /// Inboxes being woken.
    var woken: Int = 0
    /// Inboxes put to sleep.
    var slept: Int = 0
    /// Target number of awake inboxes.
    var capacity: Int = 0

    func show(_ terminal: Terminal) {
        terminal.fields([("woken", "\(woken)"), ("put to sleep", "\(slept)"), ("capacity", "\(capacity)")])
    }
}

enum InboxMethods {
    static let all: [any ServedMethod] = [list, wake, sleep, rebalance]

    static let list = NodeMethod<Nothing, InboxListResult>("inbox.list", "List the inboxes.") { _, node in
        .now(InboxListResult(inboxes: try node.inboxStates().map { Inbox($0) }))
    }

    static let wake = NodeMethod<InboxParams, Inbox>("inbox.wake", "Wake an inbox.") { params, node in
        .durable(Inbox(try node.wakeInbox(params.inbox)), node)
    }

    static let sleep = NodeMethod<InboxParams, Inbox>("inbox.sleep", "Put an inbox to sleep.") { params, node in
        .durable(Inbox(try node.sleepInbox(params.inbox)), node)
    }

    static let rebalance = NodeMethod<Nothing, InboxRebalanceResult>(
        "inbox.rebalance", "Wake the most recently active inboxes, put the others to sleep."
    ) { _, node in
        let (slept, woken) = try node.rebalance()
        return .durable(InboxRebalanceResult(woken: woken, slept: slept, capacity: node.capacity), node)
    }
}

struct InboxCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "inbox", abstract: "Inboxes: one for each conversation.",
        discussion: """
            Examples:
              mayfly inbox list
              mayfly inbox sleep 0c9a
              mayfly inbox rebalance
            """, subcommands: [ListCall<List>.self, Call<Wake>.self, Call<Sleep>.self, Call<Rebalance>.self])

    enum List: ListAction {
        typealias Element = Inbox
        static let method = InboxMethods.list
        static let list = "inboxes"
    }

    enum Wake: MethodAction { static let method = InboxMethods.wake }
    enum Sleep: MethodAction { static let method = InboxMethods.sleep }
    enum Rebalance: MethodAction { static let method = InboxMethods.rebalance }
}
