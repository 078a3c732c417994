import ArgumentParser
import Control
import DequeModule
import Dispatch
import Glibc
import Messaging
import Synchronization

struct SendCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "send", abstract: "Send a message.",
        discussion: """
            TEXT `-` reads standard input and drops one final line break. Put a text that starts with a dash after `--`.

            With --lines each line of standard input is one message; empty lines are skipped. A line ends with LF or \
            CRLF. Lines that are available at once are sent in one request. Each line has one result, in the order of \
            the lines. If a line fails, the lines after it are still sent. The exit code is that of the first failure.

            Examples:
              mayfly send room 'hello'
              journalctl -n 20 | mayfly send room
              mayfly send room 'are you there?' --wait delivered --timeout 30
              mayfly send room 'the log' --file /tmp/log.txt
              tail -f /var/log/syslog | mayfly send room --lines
              mayfly send room --reply-to @1 'yes'
              mayfly send room --type example.org/poll:1.0 --payload-file poll.bin --fallback 'A poll'
            """)

    private static let textByteLimit = Limits.textByteCount
    private static let payloadByteLimit = Limits.payloadByteCount

    @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
    @Argument(help: "The text; `-`, or nothing, reads standard input. With --file: the caption.") var text: String?
    @Option(help: "Wait for this state; mailed: delivered, or in the mailbox of each offline member.") var wait:
        DeliveryStage?
    @Option(time: "How long to wait; after that the exit code is 4. Default: 60 s, plus 1 s per MiB of a file.")
    var timeout: Interval?
    @Option(
        help: ArgumentHelp("The message to reply to: the start of its id, or @1 for the newest.", valueName: "message"))
    var replyTo: String?
    @Option(help: ArgumentHelp("Send this file, or `-`.", valueName: "path"), completion: .file()) var file: String?
    @Flag(help: "Send each line of standard input as a separate message.") var lines = false
    @Option(help: ArgumentHelp("Send content of another type.", valueName: "authority/type:1.0")) var type: String?
    @Option(help: ArgumentHelp("The file with the payload, or `-`.", valueName: "path"), completion: .file())
    var payloadFile: String?
    @Option(help: ArgumentHelp("The text shown by receivers that do not know the type.", valueName: "text"))
    var fallback: String?
    @OptionGroup var global: GlobalOptions

    /// A pipe or a file on standard input holds the text, when no other source is given.
    private static let isPiped: Bool = {
        var status = stat()
        return fstat(STDIN_FILENO, &status) == 0 && [S_IFIFO, S_IFREG].contains(status.st_mode & S_IFMT)
    }()

    func validate() throws {
        if file == "-", text == "-" { throw ValidationError("only one of TEXT and --file can be standard input") }
        if lines, text != nil || file != nil || type != nil || replyTo != nil {
            throw ValidationError("--lines cannot be combined with TEXT, --file, --type or --reply-to")
        }
        if text == nil, file == nil, type == nil, !lines, !Self.isPiped {
            throw ValidationError("there is nothing to send: give TEXT or --file")
        }
        if type != nil, text != nil || file != nil || replyTo != nil {
            throw ValidationError("--type can be combined with --payload-file and --fallback only")
        }
        if type == nil, payloadFile != nil || fallback != nil {
            throw ValidationError("--payload-file and --fallback require --type")
        }
    }

    func perform(_ terminal: Terminal) throws {
        if let file {
            try FileUpload(path: file, command: self).perform(terminal)
            return
        }
        if lines {
            try LinesUpload(command: self).perform(terminal)
            return
        }
        let deadline = timeout.map { ContinuousClock.now + $0.duration }
        let payload =
            try payloadFile.map { try InputFile.read($0, byteLimit: Self.payloadByteLimit, until: deadline) } ?? []
        let text = try body()
        let timeout = deadline.map { Interval(from: .now, to: $0) } ?? Interval(milliseconds: 60_000)
        let params = SendParams(
            conversation: conversation, text: text, wait: wait, timeout: wait == nil && deadline == nil ? nil : timeout,
            replyTo: replyTo, type: type, payload: type == nil ? nil : Base64.encode(payload), fallback: fallback)
        try call(Methods.send, params, timeout: timeout.withGrace, terminal) { Self.show($0.sent, terminal) }
    }

    static func show(_ sent: SentMessage, _ terminal: Terminal) {
        terminal.fields([
            ("message", short(sent.message.description)), ("state", sent.state.rawValue),
            ("kept", sent.stored ? "on disk" : "memory only"), ("expires", sent.expiresAt.map { shown($0) }),
        ])
    }

    func body() throws -> String? {
        guard text == "-" || text == nil && type == nil && file == nil else { return text }
        let bytes = try InputFile.read(
            "-", byteLimit: Self.textByteLimit + 2,
            cure: "send it as a file: `mayfly send \(quoted(conversation)) --file -`",
            until: timeout.map { .now + $0.duration })
        return try LineReader.text(LineReader.withoutLineEnd(bytes[...]))
    }
}

struct ReactCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "react", abstract: "Add or remove an emoji reaction.",
        discussion: """
            Examples:
              mayfly react room @1 👍
              mayfly react room 4f1c 👍
              mayfly react room 4f1c 👍 --remove
            """)

    @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
    @Argument(help: "The message: the start of its id, or @1 for the newest.") var message: String
    @Argument(help: "An emoji, or its short name +1 or -1.") var emoji: String?
    @Flag(name: .customShort("1"), help: ArgumentHelp(visibility: .hidden)) var isMinusOne = false
    @Flag(help: "Remove the reaction.") var remove = false
    @Option(help: "Wait for this state.") var wait: DeliveryStage?
    @Option(time: "How long to wait; after that the exit code is 4. Default: 60 s.") var timeout: Interval?
    @OptionGroup var global: GlobalOptions

    private var reaction: String { isMinusOne ? "-1" : emoji ?? "" }

    func validate() throws {
        guard ChatModel.isEmoji(reaction) else {
            throw ValidationError("a reaction is one emoji, or its short name +1 or -1")
        }
    }

    func perform(_ terminal: Terminal) throws {
        let patience = timeout ?? Interval(milliseconds: 60_000)
        let params = ReactParams(
            conversation: conversation, message: message, reaction: reaction, remove: remove ? true : nil, wait: wait,
            timeout: wait == nil ? timeout : patience)
        try call(Methods.react, params, timeout: patience.withGrace, terminal) { SendCommand.show($0, terminal) }
    }
}

struct OutboxCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "outbox", abstract: "Messages that are not acknowledged yet.",
        discussion: """
            Examples:
              mayfly outbox list
              mayfly outbox cancel 4f1c
              mayfly outbox retry 4f1c
            """, subcommands: [List.self, Call<Cancel>.self, Call<Retry>.self])

    static func table(_ entries: [OutboxEntry], _ terminal: Terminal) {
        terminal.table(
            ["MESSAGE", "CONVERSATION", "TO", "STATE", "ATTEMPTS", "NEXT ATTEMPT", "EXPIRES"],
            entries.map { entry in
                [
                    short(entry.message), short(entry.conversation), entry.to, entry.state, String(entry.attempts),
                    shown(entry.nextAttempt), shown(entry.expiresAt),
                ]
            })
        if entries.isEmpty { terminal.note("the outbox is empty") }
    }
}

extension OutboxCommand {
    struct List: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "list", abstract: "List messages that are not acknowledged yet.")

        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try callList(Methods.outboxList, .init(), from: \.from, "messages", terminal) {
                OutboxCommand.table($0, terminal)
            }
        }
    }

    enum Cancel: MethodAction {
        static let configuration = CommandConfiguration(
            commandName: "cancel", abstract: "Cancel an unacknowledged message.")
        static let method = Methods.outboxCancel
    }

    enum Retry: MethodAction {
        static let configuration = CommandConfiguration(
            commandName: "retry", abstract: "Retry an unacknowledged message now.")
        static let method = Methods.outboxRetry
    }
}

extension OutboxEntry: ShownRecord { func show(_ terminal: Terminal) { OutboxCommand.table([self], terminal) } }
