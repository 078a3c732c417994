import ArgumentParser
import Control

struct ReadCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "read",
        abstract: "Read messages, oldest first.",
        discussion: """
            Examples:
              mayfly read room --last 20
              mayfly read room --since 4f1c --json
            """
    )

    @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
    @Option(parsing: .unconditional, help: ArgumentHelp("At most this many, the newest.", valueName: "n")) var last:
        Int?
    @Option(parsing: .unconditional, help: ArgumentHelp("Only those after this message.", valueName: "message"))
    var since: String?
    @OptionGroup var global: GlobalOptions

    func validate() throws {
        if let last, last < 1 { throw ValidationError("--last must be at least 1") }
    }

    func perform(_ terminal: Terminal) throws {
        let client = try connect()
        var since = since
        var isFirst = true
        while true {
            let params = ReadMethod.Params(conversation: conversation, last: isFirst ? last : nil, since: since)
            let value = try client.call(ReadMethod.self, params)
            let messages = value["messages"]?.arrayValue ?? []
            if isFirst, messages.isEmpty { terminal.note("no messages") }
            if terminal.json {
                for message in messages { terminal.result(message) }
            } else {
                let now = wallClock()
                for message in messages { show(try understand(message, as: Message.self), now: now, terminal) }
            }
            // A page without messages would never end.
            guard value["more"] == true, let newest = messages.last?["message"]?.stringValue, newest != since else {
                return
            }
            since = newest
            isFirst = false
        }
    }

    private func show(_ message: Message, now: Timestamp, _ terminal: Terminal) {
        let kept = message.expiresAt.map { "expires \(shown($0, now: now))" } ?? (message.stored ? "kept" : "ephemeral")
        let state = message.from == "me" ? ", \(safe(message.state))" : ""
        let answers = message.replyTo.map { "↪ \(short(safe($0)))  " } ?? ""
        // A text of several lines keeps them, indented, so that none can pass for a message of its own.
        let lines = body(message).split(separator: "\n", omittingEmptySubsequences: false).map { safe(String($0)) }
        let text = lines.joined(separator: "\n    ")
        let reactions = (message.reactions ?? []).map { "  (\(safe($0.reaction)) \(safe($0.from)))" }.joined()
        terminal.result(
            "\(message.sentAt.iso8601)  \(safe(message.from))  \(answers)\(text)\(reactions)  [\(kept)\(state)]"
        )
    }

    private func body(_ message: Message) -> String {
        guard let file = message.file else { return message.text ?? "[\(message.type)]" }
        let state =
            switch file.state {
            case "receiving": ", receiving \(file.percent) %"
            case "complete": ""
            default: ", \(file.state)"
            }
        let head = "[file \(file.name), \(FileUpload.size(file.byteCount))\(state)]"
        return message.text.map { "\(head) \($0)" } ?? head
    }
}
