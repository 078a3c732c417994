import ArgumentParser
import CLinux
import Control
import Glibc
import Messaging

package struct Mayfly: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "mayfly", abstract: "Messages between machines that leave nothing behind.",
        discussion: """
            Start a node:           mayfly init && mayfly run
            Start a conversation:   mayfly conversation create --name room
            Invite:                 mayfly invite create room
            Join it elsewhere:      mayfly join 'mayfly:join/…'
            Talk:                   mayfly send room 'hello'
            Destroy it everywhere:  mayfly explode room

            Results go to standard output, everything else to standard error. With --json every result is one \
            object a line, and a failure is {"error":{"kind","message","hint"}} on standard output.

            Exit codes: 0 done, 1 failed, 64 wrong usage, 2 refused by the other side, 3 expired or exploded, \
            4 timed out, 5 peer unreachable, 6 locked, 7 not found, 8 no node running here.
            """, version: ProgramVersion.text,
        groupedSubcommands: [
            CommandGroup(
                name: "Node",
                subcommands: [
                    InitCommand.self, RunCommand.self, StatusCommand.self, StopCommand.self, LockCommand.self,
                    UnlockCommand.self, PassphraseCommand.self, ConfigCommand.self, Call<MetricsCommand>.self,
                    ReapCommand.self, DoctorCommand.self, NetcheckCommand.self, MailboxCommand.self,
                ]),
            CommandGroup(
                name: "Conversation",
                subcommands: [ConversationCommand.self, InviteCommand.self, JoinCommand.self, PeerCommand.self]),
            CommandGroup(
                name: "Message",
                subcommands: [
                    ChatCommand.self, SendCommand.self, ReadCommand.self, WatchCommand.self, LifetimeCommand.self,
                    ExplodeCommand.self, OutboxCommand.self, InboxCommand.self, ReactCommand.self, SaveCommand.self,
                ]),
            CommandGroup(
                name: "Program",
                subcommands: [
                    RPCCommand.self, SchemaCommand.self, VersionCommand.self, GatewayHelperCommand.self,
                    ConfineCommand.self,
                ]),
        ])

    package init() {}

    package static func main() async {
        leaveNoCoreDump()
        holdStandardStreams()
        let arguments = Array(CommandLine.arguments.dropFirst())
        do {
            try checkText()
            if let unknown = CommandLineMistake.unknown(in: arguments) { throw unknown }
            var command = try parseAsRoot(arguments)
            if var command = command as? any AsyncParsableCommand { try await command.run() } else { try command.run() }
        } catch { finish(error, arguments) }
    }

    /// Passphrases, texts and keys pass through every command, so core dumps are off.
    private static func leaveNoCoreDump() {
        _ = process_set_undumpable()
        var none = rlimit(rlim_cur: 0, rlim_max: 0)
        setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &none)
    }

    /// Opens /dev/null on closed standard streams, so that a file or socket opened later cannot get descriptor 0, 1 or
    /// 2 and receive output for the user. The access mode makes their use fail as before.
    private static func holdStandardStreams() {
        for number in STDIN_FILENO...STDERR_FILENO where fcntl(number, F_GETFD) < 0 {
            _ = open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY)
        }
    }

    /// Swift would silently repair invalid UTF-8 in a text to send or in a file name.
    private static func checkText() throws(ControlError) {
        for index in 1..<max(1, Int(CommandLine.argc)) {
            if let argument = CommandLine.unsafeArgv[index], String(validatingCString: argument) == nil {
                throw ControlError(
                    .usage, "argument \(index) is not UTF-8 text",
                    hint: "give a text on standard input, or rename the file")
            }
        }
    }

    /// Exits with the error's code. Wrong usage is 64 and, with `--json`, an error object.
    private static func finish(_ error: any Error, _ arguments: [String]) -> Never {
        let terminal = Terminal(json: arguments.prefix { $0 != "--" }.contains("--json"))
        if let error = error as? ControlError {
            terminal.report(error)
            exit(withError: ExitCode(error.kind.exitCode))
        }
        guard !(error is ExitCode) else { exit(withError: error) }
        if exitCode(for: error) == .success {
            let text = fullMessage(for: error)
            if !text.isEmpty { terminal.result(text) }
            exit(withError: ExitCode.success)
        }
        guard exitCode(for: error) == .validationFailure else { exit(withError: error) }
        let help = CommandLineMistake.help(for: arguments)
        if let mistake = CommandLineMistake.mistake(in: arguments) {
            terminal.report(mistake)
        } else if terminal.json {
            terminal.report(ControlError(.usage, oneLine(message(for: error)), hint: help))
        } else {
            let full = fullMessage(for: error)
            terminal.warn(full.hasPrefix("Error: ") ? String(full.dropFirst("Error: ".count)) : full)
        }
        exit(withError: ExitCode.validationFailure)
    }

    /// The error message and the allowed values, without the usage text.
    private static func oneLine(_ message: String) -> String {
        let lines = message.split(separator: "\n").prefix { !$0.hasPrefix("Help:") && !$0.hasPrefix("Usage:") }
        var words = lines.filter { !$0.hasPrefix("  - ") }.map(String.init)
        let values = lines.filter { $0.hasPrefix("  - ") }.map { String($0.dropFirst("  - ".count)) }
        if !values.isEmpty { words.append(values.joined(separator: ", ")) }
        return words.isEmpty ? "wrong usage" : words.joined(separator: " ")
    }
}

/// Usage errors that ArgumentParser misses or misreports.
enum CommandLineMistake {
    private typealias Command = any ParsableCommand.Type

    /// Words of other programs, and their commands here.
    private static let others: [String: [String]] = [
        "contacts": ["peer list"], "delete": ["explode", "conversation leave"], "exit": ["stop"],
        "list": ["conversation list"], "ls": ["conversation list"], "message": ["send"], "msg": ["send"],
        "quit": ["stop"], "receive": ["read"], "start": ["run"],
    ]

    /// ArgumentParser takes an unknown command for an argument, and reports the first option after it.
    /// - Returns: the error, when a word stands in place of a command.
    static func unknown(in arguments: [String]) -> ControlError? {
        let (command, path) = command(of: arguments)
        guard let word = arguments.dropFirst(path.count).first, !word.hasPrefix("-"), word != "help",
            !command.configuration.subcommands.isEmpty, command.configuration.defaultSubcommand == nil
        else { return nil }
        let meant = meant(by: word, of: command).map { "`\((["mayfly"] + path + [$0]).joined(separator: " "))`" }
        return ControlError(
            .usage, "no command `\((path + [word]).joined(separator: " "))`",
            hint: meant.isEmpty ? help(for: path) : "did you mean \(meant.joined(separator: " or "))?")
    }

    /// The nearest command below `command`; for a word of another program or of a command's own subcommands, all that
    /// it may mean.
    private static func meant(by word: String, of command: Command) -> [String] {
        func names(_ command: Command) -> [String] {
            command.configuration.subcommands.filter { $0.configuration.shouldDisplay }.map { $0._commandName }
        }
        let below = names(command)
        guard command == Mayfly.self else { return below.nearest(to: word).map { [$0] } ?? [] }
        var all: [String: [String]] = [:]
        for group in command.configuration.subcommands {
            for name in names(group) { all[name, default: []].append("\(group._commandName) \(name)") }
        }
        all.merge(others) { $1 }
        all.merge(below.map { ($0, [$0]) }) { $1 }
        return (below + all.keys.sorted()).nearest(to: word).flatMap { all[$0] } ?? []
    }

    static func help(for arguments: [String]) -> String {
        "see `\((["mayfly", "help"] + command(of: arguments).path).joined(separator: " "))`"
    }

    /// - Returns: the error with a hint, for the most frequent mistakes.
    static func mistake(in arguments: [String]) -> ControlError? {
        optionBeforeCommand(arguments) ?? unknownOption(arguments) ?? unquotedText(arguments)
    }

    /// ArgumentParser validates known arguments first, and then reports a consequence of the mistyped option.
    private static func unknownOption(_ arguments: [String]) -> ControlError? {
        let known = options(of: command(of: arguments).command)
        for word in arguments.prefix(while: { $0 != "--" }) where word.hasPrefix("--") {
            let name = String(word.prefix { $0 != "=" })
            guard known[name] == nil else { continue }
            let hint = known.keys.sorted().nearest(to: name).map { "did you mean `\($0)`?" }
            return ControlError(.usage, "unknown option `\(name)`", hint: hint ?? help(for: arguments))
        }
        return nil
    }

    private static func optionBeforeCommand(_ arguments: [String]) -> ControlError? {
        guard let first = arguments.first, first == "--json" || first == "--home" || first.hasPrefix("--home=") else {
            return nil
        }
        let option = arguments.prefix(first == "--home" ? 2 : 1)
        let rest = arguments.dropFirst(option.count)
        guard let name = rest.first, !name.hasPrefix("-") else { return nil }
        // Words after `--` are not options.
        let end = rest.firstIndex(of: "--") ?? rest.endIndex
        let words = (["mayfly"] + rest[..<end] + option + rest[end...]).map(quoted).joined(separator: " ")
        return ControlError(.usage, "`\(first)` goes after the command", hint: "write: \(words)")
    }

    /// `send room hi there`, and a text that starts with a dash, with options in any place.
    private static func unquotedText(_ arguments: [String]) -> ControlError? {
        guard arguments.first == "send" else { return nil }
        let known = options(of: SendCommand.self)
        var (words, given) = ([String](), [String]())
        var rest = arguments.dropFirst()
        while let word = rest.popFirst() {
            if word == "--" { break }
            guard word.hasPrefix("--") else {
                words.append(word)
                continue
            }
            given.append(word)
            if known[word] == true, let value = rest.popFirst() { given.append(value) }
        }
        words += rest
        guard words.count > 1, !words[0].hasPrefix("-") else { return nil }
        let isDashed = words[1].hasPrefix("-") && words[1] != "-"
        guard isDashed || words.count > 2 else { return nil }
        let text = words.dropFirst().joined(separator: " ")
        let end = isDashed ? given + ["--", text] : [text] + given
        let command = (["mayfly", "send", words[0]] + end).map(quoted).joined(separator: " ")
        return ControlError(
            .usage,
            words.count > 2
                ? "the text has several words and is not quoted" : "`\(words[1])` is not an option of `send`",
            hint: "\(isDashed ? "a text that starts with a dash goes after `--`" : "write"): \(command)")
    }

    private static func command(of arguments: [String]) -> (command: Command, path: [String]) {
        var (command, path) = (Mayfly.self as Command, [String]())
        for word in arguments {
            let below = command.configuration.subcommands
            guard let next = below.first(where: { $0._commandName == word }) else { break }
            command = next
            path.append(word)
        }
        return (command, path)
    }

    /// The options of a command, and whether each takes a value.
    private static func options(of command: Command) -> [String: Bool] {
        let command = command.configuration.defaultSubcommand ?? command
        let words = Mayfly.helpMessage(for: command, includeHidden: true).split {
            $0.isWhitespace || "[],/".contains($0)
        }
        let named = zip(words, words.dropFirst() + [""]).filter { $0.0.hasPrefix("--") }
        let found = named.map { (String($0.prefix { $0.isLetter || $0 == "-" }), $1.hasPrefix("<")) }
        return Dictionary(found + ["--help", "--help-hidden", "--version"].map { ($0, false) }) { $0 || $1 }
    }
}

struct SchemaCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "schema", abstract: "Print all commands and JSON-RPC methods, machine-readable.",
        discussion: """
            One JSON object, with and without --json: \
            {"version","commands","methods","events","eventFields","failures"}.

            Example:
              mayfly schema | jq -r '.methods[].name'
            """)

    /// Deep enough for ArgumentParser's description of nested commands.
    private static let depthLimit = 64

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let help = Mayfly._dumpHelp()
        guard let commands = try? JSONReader.read(Array(help.utf8), depthLimit: Self.depthLimit),
            case .object(var schema) = Methods.description
        else { throw ControlError.internalFailure("the description of the commands cannot be read") }
        schema["version"] = .string(ProgramVersion.text)
        schema["commands"] = commands["command"] ?? commands
        terminal.result(.object(schema))
    }
}
