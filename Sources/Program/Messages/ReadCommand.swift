import ArgumentParser
import Control
import Glibc
import Messaging
import NodeRuntime

struct ReadParams: CodableRecord {
    var conversation = ""
    /// Only the newest messages, up to this count.
    var last: Int?
    /// Only the oldest messages, up to this count; not with `last` or `before`.
    var first: Int?
    /// Only messages after the one with this id.
    var since: String?
    /// Only messages before the one with this id.
    var before: String?
    /// Begin at the first unread message; not with `last`, `since` or `before`.
    var unread: Bool?
    /// False does not mark the messages as read, because no user sees them. Absent means true.
    var marksRead: Bool?
    /// Only messages with these words, in any case, in their text or file name; not with `first` or `unread`. The
    /// search goes back, and marks nothing as read.
    var containing: String?
}

struct ReadResult: CodableRecord {
    var messages: [Message] = []
    /// With `containing`, when older messages were not searched: ask again with it as `before`.
    var next: String?
    /// True when the answer was cut by its size. With `last` or `before` it has the newest messages: ask again with its
    /// first message as `before`. Otherwise ask again with its last message as `since`.
    var more: Bool?
}

extension MessageMethods {
    static let read = NodeMethod<ReadParams, ReadResult>("read", "Read messages, oldest first.") { params, node in
        for (name, count) in [("last", params.last), ("first", params.first)] {
            if let count, count < 1 {
                throw ControlError(.usage, "`\(name)` is \(count)", hint: "it is a number of messages, 1 or more")
            }
        }
        let isUnread = params.unread ?? false
        let goesBack = params.last != nil || params.before != nil || params.containing != nil
        guard !isUnread || !goesBack && params.since == nil, !goesBack || params.first == nil else {
            throw ControlError(
                .usage,
                "`last`, `before` and `containing` cannot be combined with `first`, nor `unread` with any but it",
                field: isUnread ? "unread" : "first")
        }
        if let words = params.containing { return try search(words.lowercased(), params, node) }
        var page = AnswerPage()
        var left = params.first ?? .max
        let (conversation, messages) = try node.read(
            params.conversation, last: params.last, after: params.since, before: params.before, isUnread: isUnread,
            marks: params.marksRead ?? true
        ) {
            left -= 1
            return left >= 0 && page.take(byteCount: AnswerPage.largestByteCount(of: $0, $1))
        }
        if params.marksRead ?? true { node.markRead(messages, client: conversation.client) }
        return .now(
            ReadResult(messages: messages.map { Message($0, conversation, node) }, more: page.isFull ? true : nil))
    }

    /// Searches as many messages as fit on a page.
    private static func search(_ words: String, _ params: ReadParams, _ node: isolated Node) throws -> Answer<
        ReadResult
    > {
        var (searched, page) = (AnswerPage(), AnswerPage())
        let (conversation, messages) = try node.read(
            params.conversation, last: .max, after: params.since, before: params.before, marks: false
        ) { read, _ in searched.take(byteCount: read.message.byteCount) }
        let found = messages.filter { $0.message.content.contains(words) }
        let shown = found.reversed().prefix(params.last ?? .max).prefix {
            page.take(byteCount: AnswerPage.largestByteCount(of: $0, conversation))
        }
        let next = shown.count < found.count ? shown.last : searched.isFull ? messages.first : nil
        return .now(
            ReadResult(
                messages: shown.reversed().map { Message($0, conversation, node) },
                next: next?.message.content.id.description, more: next == nil ? nil : true))
    }
}

extension Content {
    /// - Parameter words: in lower case.
    fileprivate func contains(_ words: String) -> Bool {
        type != .systemMessage && [displayText, attachment?.name ?? ""].contains { $0.lowercased().contains(words) }
    }
}

struct ReadCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "read", abstract: "Read messages, oldest first.",
        discussion: """
            On a terminal times are local, and each message begins with its short id, for `send --reply-to`, `react`, \
            `save` and `read --since`. @1 is the newest message, @2 the one before it.

            --follow prints new messages as they arrive, until Ctrl-C or until the conversation ends. A \
            node that does not answer for 15 s, as when it is stopped, ends it with 4.

            Examples:
              mayfly read room --last 20
              mayfly read room --last 20 --follow
              mayfly read room --since 4f1c --json
            """)

    @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
    @Option(
        .init("Show only the newest n messages.", valueName: "n"), expected: { _ in "a number, at least 1" },
        read: { Int($0).flatMap { $0 > 0 ? $0 : nil } }) var last: Int?
    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "Show only messages after this one: the start of its id, or @1 for the newest.", valueName: "message"))
    var since: String?
    @Flag(help: "Begin at the first unread message.") var unread = false
    @Flag(name: [.short, .long], help: "Print new messages as they arrive.") var follow = false
    @OptionGroup var global: GlobalOptions

    func validate() throws {
        if unread, last != nil || since != nil {
            throw ValidationError("--unread cannot be combined with --last or --since")
        }
    }

    func perform(_ terminal: Terminal) throws {
        let client = try connect()
        var history = History(conversation: conversation, terminal: terminal)
        guard follow else {
            try history.show(client, last: last, since: since, unread: unread)
            if history.isEmpty { terminal.note(unread ? "no unread messages" : "no messages") }
            return
        }
        endOnInterrupt()
        // Before the first page, so that no message is lost between the two.
        var cursor = try subscribe(client, since: nil)
        // Pinning marks all messages as read, so the unread ones come first.
        if !unread { try history.pin(client) }
        try history.show(client, last: last, since: since, unread: unread)
        if unread, history.isEmpty { try history.pin(client) }
        try follow(client, &history, &cursor)
    }

    private static let kinds: [EventKind] = [.message, .messageState, .exploded, .removed, .locked]

    /// - Parameter cursor: last event seen; `nil` for new events only.
    /// - Returns: the cursor of the newest event.
    private func subscribe(_ client: ControlClient, since cursor: Int64?) throws -> Int64? {
        let params = SubscribeParams(
            conversation: conversation, since: cursor, events: Self.kinds,
            // The `read` request marks them.
            marksRead: false)
        return try client.call(EventMethods.subscribe, params)["cursor"]?.integerValue
    }

    private func follow(_ client: ControlClient, _ history: inout History, _ cursor: inout Int64?) throws {
        while true {
            // Polls, because no event reports that the user left the conversation on this node.
            var step = try client.nextEvent(until: .now + Self.lookTime, for: STDOUT_FILENO)
            while case .event(let event) = step {
                cursor = event["cursor"]?.integerValue ?? cursor
                try checkEnd(event, history.terminal)
                history.happened(event)
                step = try client.nextEvent(until: .now, for: STDOUT_FILENO)
            }
            switch step {
            case .unread: return
            case .dropped: _ = try subscribe(client, since: cursor)
            case .event, .timedOut: break
            }
            try history.showNew(client)
        }
    }

    private static let lookTime = Duration.seconds(5)

    private func checkEnd(_ event: JSONValue, _ terminal: Terminal) throws(ControlError) {
        switch event["event"]?.stringValue {
        case EventKind.exploded.rawValue: throw ControlError(.expired, "the conversation has exploded")
        case EventKind.locked.rawValue:
            if outputIsTerminal, !terminal.json { terminal.result(Terminal.blank) }
            throw ControlError(.locked, "the node was locked", hint: "unlock it with `mayfly unlock`")
        case EventKind.removed.rawValue: throw ControlError(.refused, "the creator has removed you")
        default: return
        }
    }
}

/// The messages of a conversation that `mayfly read` has printed.
private struct History {
    /// Largest number of remembered ids, so that a member cannot fill the memory of `read --follow`.
    private static let memory = 10_000

    let conversation: String
    let terminal: Terminal
    private var newest: String?
    private var shown: Set<String> = []
    private var order: [String] = []
    private let startedAt = wallClock()
    /// Announced by an event but not printed yet.
    private var announced: Set<String> = []
    /// Read but not printed: old messages, and messages without their event so far.
    private var leftOut: Set<String> = []
    private var starts: [Substring: [String]] = [:]
    /// Handles by message id, for messages printed with an incomplete file.
    private var incomplete: [String: String] = [:]
    private var lastDay: LocalTime?

    init(conversation: String, terminal: Terminal) {
        self.conversation = conversation
        self.terminal = terminal
    }

    var isEmpty: Bool { shown.isEmpty }

    /// Finds the newest message, for the case that the first page is empty. It is printed if an event announces it.
    mutating func pin(_ client: ControlClient) throws {
        let value = try client.call(MessageMethods.read, ReadParams(conversation: conversation, last: 1))
        newest = value["messages"]?.arrayValue?.last?["message"]?.stringValue
        if let newest { leftOut.insert(newest) }
    }

    mutating func show(_ client: ControlClient, last: Int?, since: String?, unread: Bool = false) throws {
        var params = ReadParams(conversation: conversation, last: last, since: since, unread: unread ? true : nil)
        var value = try client.call(MessageMethods.read, params)
        var isCut = value["more"] == true
        // A cut answer to `last` has the newest messages: goes back to the oldest wanted page, and prints from there.
        while value["more"] == true, let left = params.last, let page = value["messages"]?.arrayValue,
            left > page.count, let oldest = page.first?["message"]?.stringValue
        {
            (params.last, params.before) = (left - page.count, oldest)
            value = try client.call(MessageMethods.read, params)
        }
        while true {
            try print(value["messages"]?.arrayValue ?? [])
            // Guards against an endless loop on a page without messages.
            guard isCut, let end = newest, end != params.since else { return }
            params = ReadParams(conversation: conversation, since: end)
            value = try client.call(MessageMethods.read, params)
            isCut = value["more"] == true
        }
    }

    mutating func print(_ messages: [JSONValue]) throws {
        let now = wallClock()
        for value in messages {
            let message = try understand(value, as: Message.self)
            let id = message.message.description
            guard !shown.contains(id) else { continue }
            guard isNew(message) else {
                if leftOut.count < Self.memory { leftOut.insert(id) }
                continue
            }
            shown.insert(id)
            leftOut.remove(id)
            remember(id)
            if terminal.json { terminal.result(value) } else { show(message, now: now) }
        }
        newest = messages.last?["message"]?.stringValue ?? newest
    }

    private mutating func remember(_ id: String) {
        order.append(id)
        guard order.count > Self.memory else { return }
        for old in order.prefix(Self.memory / 2) {
            shown.remove(old)
            starts[old.prefix(Self.handleCount)] = nil
            incomplete[old] = nil
        }
        order.removeFirst(Self.memory / 2)
    }

    mutating func showNew(_ client: ControlClient) throws {
        if !announced.isDisjoint(with: leftOut) {
            newest = nil
            isSkippingOld = true
        }
        while true {
            do {
                try show(client, last: nil, since: newest)
                isSkippingOld = false
                // A message still unprinted has expired.
                announced = []
                return
            } catch let error as ControlError where error.kind == .notFound && newest != nil {
                // Throws if the whole conversation is gone.
                _ = try client.call(ConversationMethods.show, .init(conversation: conversation))
                // Only the newest message has expired, so try the one before.
                newest = order.popLast()
                isSkippingOld = newest == nil
            }
        }
    }

    /// True when all printed messages have expired. The next read starts at the oldest message, and older messages that
    /// were not requested are skipped.
    private var isSkippingOld = false

    /// A member's message is new if an event announced it, because the member's clock may be wrong. Our own messages go
    /// by our clock.
    private func isNew(_ message: Message) -> Bool {
        !isSkippingOld || announced.contains(message.message.description)
            || message.from == "me" && message.sentAt.milliseconds >= startedAt.milliseconds
    }

    private mutating func show(_ message: Message, now: Timestamp) {
        guard outputIsTerminal else { return terminal.result(line(message)) }
        let time = localTime(of: message.sentAt)
        if lastDay?.date != time.date || lastDay?.year != time.year {
            terminal.result("── \(time.date) \(time.year) ──")
        }
        lastDay = time
        let handle = handle(message.message.description)
        if message.file?.state == "receiving" { incomplete[message.message.description] = handle }
        let answers = message.replyTo.map { "↪ \(safe($0).prefix(Self.handleCount))  " } ?? ""
        let state = message.from == "me" ? "\(safe(message.state)), " : ""
        let kept =
            message.expiresAt.map { "\(Words.left($0.milliseconds - now.milliseconds)) left" }
            ?? (message.stored ? "kept" : "memory only")
        terminal.result(
            "\(handle)  \(time.clock)  \(safe(message.from))  \(answers)"
                + "\(text(message, indent: 13))\(reactions(message))  [\(state)\(kept)]")
    }

    private static let handleCount = 4

    /// An id prefix, longer where another printed message shares it.
    private mutating func handle(_ id: String) -> String {
        let others = starts[id.prefix(Self.handleCount), default: []]
        starts[id.prefix(Self.handleCount), default: []].append(id)
        var count = Self.handleCount
        while count < id.count, others.contains(where: { $0.hasPrefix(id.prefix(count)) }) { count += 1 }
        return String(id.prefix(count))
    }

    /// Notes a message to print. In follow mode it also reports when a file is complete or has failed.
    mutating func happened(_ event: JSONValue) {
        let isNew = event["event"]?.stringValue == EventKind.message.rawValue || event["state"]?.stringValue == "sent"
        if isNew, let id = event["message"]?.stringValue, !shown.contains(id), announced.count < Self.memory {
            announced.insert(id)
        }
        guard outputIsTerminal, !terminal.json, let id = event["message"]?.stringValue,
            let state = event["state"]?.stringValue, state != "receiving",
            let handle = incomplete.removeValue(forKey: id)
        else { return }
        terminal.result(
            state == "failed"
                ? "\(handle)  the file did not arrive"
                : "\(handle)  the file has arrived: mayfly save \(quoted(conversation)) \(handle)")
    }

    private func line(_ message: Message) -> String {
        let kept = message.expiresAt.map { "expires \(Program.shown($0))" } ?? (message.stored ? "kept" : "memory only")
        let state = message.from == "me" ? ", \(safe(message.state))" : ""
        let answers = message.replyTo.map { "↪ \(short(safe($0)))  " } ?? ""
        return "\(message.sentAt.exactISO8601)  \(safe(message.from))  \(answers)\(text(message, indent: 4))"
            + "\(reactions(message))  [\(kept)\(state)]"
    }

    private func reactions(_ message: Message) -> String {
        (message.reactions ?? []).map { "  (\(safe($0.reaction)) \(safe($0.from)))" }.joined()
    }

    /// Continuation lines are indented, so that none can pass for a message.
    private func text(_ message: Message, indent: Int) -> String {
        let lines = body(message).split(omittingEmptySubsequences: false, whereSeparator: \.isNewline).map {
            safe(String($0))
        }
        return lines.joined(separator: "\n" + String(repeating: " ", count: indent))
    }

    private func body(_ message: Message) -> String {
        guard let file = message.file else { return message.text ?? "[\(message.type)]" }
        let state =
            switch file.state {
            case "receiving": ", receiving \(file.percent) %"
            case "complete": ""
            default: ", \(file.state)"
            }
        let head = "[file \(file.name), \(sizeText(file.byteCount))\(state)]"
        return message.text.map { "\(head) \($0)" } ?? head
    }
}
