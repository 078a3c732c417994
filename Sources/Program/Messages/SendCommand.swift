import ArgumentParser
import Control
import Glibc
import Messaging
import NodeRuntime

enum MessageMethods {
    static let all: [any ServedMethod] = [read, send, react]

    private typealias SendCall = MethodCall<SendParams, SendResult>

    static let send = NodeMethod<SendParams, SendResult>(
        RPCMethod.send.name, RPCMethod.send.summary, waits: .when(RPCMethod.send.waits), joins: SendParams.goTogether
    ) { call, node, service in
        if let texts = call.params.texts { return try send(texts, call, service.sends, node) }
        for calls in byConversation([call] + call.followers, node) {
            do { try send(calls, service.sends, node) } catch { for one in calls { service.fail(one, error) } }
        }
    }

    private static func send(_ texts: [String], _ call: SendCall, _ sends: PendingSends, _ node: isolated Node) throws {
        let params = call.params
        guard params.text == nil, params.type == nil, params.replyTo == nil, params.payload == nil,
            params.fallback == nil
        else { throw ControlError(.usage, "`texts` cannot be combined with other content", field: "texts") }
        guard !texts.isEmpty else { throw ControlError(.usage, "there is nothing to send", field: "texts") }
        guard texts.count <= ControlLimits.textsInRequest else {
            throw ControlError(
                .usage,
                "\(texts.count) texts are too many for one request, the limit is \(ControlLimits.textsInRequest)",
                hint: "send them in several requests", field: "texts")
        }
        let answer = PendingSend.Answer.all { call.succeed(SendResult(results: $0.map(TextOutcome.init))) }
        try sends.send(to: params.conversation, params, call.session, node, answer) { whenDurable in
            try node.send(params.conversation, texts: texts, whenDurable: whenDurable)
        }
    }

    /// Calls of each conversation, in order. An alias and an id may name the same one.
    private static func byConversation(_ calls: [SendCall], _ node: isolated Node) -> [[SendCall]] {
        guard calls.count > 1 else { return [calls] }
        var groups: [[SendCall]] = []
        var named: [String: Int] = [:]
        var places: [ClientID: Int] = [:]
        for call in calls {
            let name = call.params.conversation
            if named[name] == nil {
                // A name is looked for once, because the search for an unknown one is long.
                let client = try? node.resolve(name)
                named[name] = client.flatMap { places[$0] }
                if let client { places[client] = named[name] ?? groups.count }
            }
            let place = named[name] ?? groups.count
            named[name] = place
            if place == groups.count { groups.append([]) }
            groups[place].append(call)
        }
        return groups
    }

    /// The texts of several calls for one conversation are sent in one turn.
    private static func send(_ calls: [SendCall], _ sends: PendingSends, _ node: isolated Node) throws {
        let params = calls[0].params
        let answer = PendingSend.Answer.each { calls[$0].complete($1.result.map { SendResult($0) }) }
        try sends.send(to: params.conversation, params, calls[0].session, node, answer) { whenDurable in
            guard calls.count > 1 else { return try make(params, node, whenDurable) }
            return try node.send(params.conversation, texts: calls.compactMap(\.params.text), whenDurable: whenDurable)
        }
    }

    private static func make(_ params: SendParams, _ node: isolated Node, _ whenDurable: @escaping Node.WhenDurable)
        throws -> [Result<Node.Sent, NodeError>]
    {
        if let type = params.type {
            guard params.text == nil, params.replyTo == nil else {
                throw ControlError(.usage, "content of another type has a payload, and no text or reply")
            }
            guard let payload = Base64.decode(params.payload ?? "") else {
                throw ControlError(.usage, "`payload` is not Base64")
            }
            let sent = try node.send(
                params.conversation, type: ContentType(type), payload: payload, fallback: params.fallback ?? "",
                whenDurable: whenDurable)
            return [.success(sent)]
        }
        guard let text = params.text else {
            throw ControlError(.usage, "there is nothing to send", hint: "give a text, or a type with a payload")
        }
        if let replyTo = params.replyTo {
            return [.success(try node.reply(params.conversation, text: text, to: replyTo, whenDurable: whenDurable))]
        }
        return try node.send(params.conversation, texts: [text], whenDurable: whenDurable)
    }
}

extension SendParams {
    /// One text, and nothing besides.
    fileprivate var isText: Bool {
        text != nil && texts == nil && replyTo == nil && type == nil && payload == nil && fallback == nil
    }

    @Sendable fileprivate static func goTogether(_ first: SendParams, _ next: SendParams) -> Bool {
        first.isText && next.isText && first.wait == next.wait && first.timeout == next.timeout
    }
}

extension PendingSend.Outcome {
    var result: Result<SentMessage, any Error> {
        switch self {
        case .done(let sent): .success(sent)
        case .failed(let error, _): .failure(error)
        case .waiting: .failure(ControlError.internalFailure("a message has no outcome"))
        }
    }
}

extension TextOutcome {
    init(_ outcome: PendingSend.Outcome) {
        switch outcome {
        case .done(let sent): self.init(sent)
        case .failed(let error, let message): self.init(error, message: message.map { HexID($0) })
        case .waiting(let sent, _):
            self.init(.internalFailure("a message has no outcome"), message: HexID(sent.message))
        }
    }
}

struct SendCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        MessageMethods.send,
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
        if let file { return try FileUpload(path: file, command: self).perform(terminal) }
        if lines { return try LinesUpload(command: self).perform(terminal) }
        let deadline = timeout.map { ContinuousClock.now + $0.duration }
        let payload =
            try payloadFile.map { try InputFile.read($0, byteLimit: Limits.payloadByteCount, until: deadline) } ?? []
        let text = try body()
        let timeout = deadline.map { Interval(from: .now, to: $0) } ?? Interval(milliseconds: 60_000)
        let params = SendParams(
            conversation: conversation, text: text, wait: wait, timeout: wait == nil && deadline == nil ? nil : timeout,
            replyTo: replyTo, type: type, payload: type == nil ? nil : Base64.encode(payload), fallback: fallback)
        try call(MessageMethods.send, params, timeout: timeout.withGrace, terminal) { Self.show($0.sent, terminal) }
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
            "-", byteLimit: Limits.textByteCount + 2,
            cure: "send it as a file: `mayfly send \(quoted(conversation)) --file -`",
            until: timeout.map { .now + $0.duration })
        return try LineReader.text(LineReader.withoutLineEnd(bytes[...]))
    }
}

struct ReactParams: CodableRecord, WaitingParams {
    var conversation = ""
    /// Id of the message, or a prefix of it.
    var message = ""
    /// An emoji, or a short text.
    var reaction = ""
    var remove: Bool?
    /// Answer only after this delivery stage.
    var wait: DeliveryStage?
    var timeout: Interval?
}

extension MessageMethods {
    static let react = NodeMethod<ReactParams, SentMessage>(
        "react", "Add or remove an emoji reaction.", waits: .when { $0.wait != nil }
    ) { call, node, service in
        let params = call.params
        let answer = PendingSend.Answer.each { call.complete($1.result) }
        try service.sends.send(to: params.conversation, params, call.session, node, answer) { whenDurable in
            let sent = try node.react(
                params.conversation, to: params.message, emoji: params.reaction, isRemoved: params.remove ?? false,
                whenDurable: whenDurable)
            return [.success(sent)]
        }
    }
}

struct ReactCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        MessageMethods.react,
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
        guard Words.isEmoji(reaction) else {
            throw ValidationError("a reaction is one emoji, or its short name +1 or -1")
        }
    }

    func perform(_ terminal: Terminal) throws {
        let patience = timeout ?? Interval(milliseconds: 60_000)
        let params = ReactParams(
            conversation: conversation, message: message, reaction: reaction, remove: remove ? true : nil, wait: wait,
            timeout: wait == nil ? timeout : patience)
        try call(MessageMethods.react, params, timeout: patience.withGrace, terminal) { SendCommand.show($0, terminal) }
    }
}
