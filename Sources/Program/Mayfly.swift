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
                    UnlockCommand.self, PassphraseCommand.self, ConfigCommand.self, MetricsCommand.self,
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
            if let unknown = CommandLineMistake.unknown(in: arguments, of: Mayfly.self) { throw unknown }
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
        if let mistake = CommandLineMistake.mistake(in: arguments) {
            terminal.report(mistake)
            exit(withError: ExitCode.validationFailure)
        }
        if let unknown = CommandLineMistake.unknownOption(in: arguments, of: Mayfly.self) {
            terminal.report(unknown)
            exit(withError: ExitCode.validationFailure)
        }
        if terminal.json {
            terminal.report(ControlError(.usage, oneLine(message(for: error)), hint: "see `mayfly help`"))
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
    /// ArgumentParser takes an unknown command for an argument, and reports the first option after it.
    /// - Returns: the error, when a word stands in place of a command.
    static func unknown(in arguments: [String], of root: any ParsableCommand.Type) -> ControlError? {
        var command = root
        var path = [root._commandName]
        for word in arguments {
            let below = command.configuration.subcommands
            guard !below.isEmpty, !word.hasPrefix("-"), word != "help" else { return nil }
            if let next = below.first(where: { $0._commandName == word || $0.configuration.aliases.contains(word) }) {
                command = next
                path.append(word)
                continue
            }
            guard command.configuration.defaultSubcommand == nil else { return nil }
            let names = below.filter { $0.configuration.shouldDisplay }.map { $0._commandName }
            let hint: String
            if let meant = names.nearest(to: word) {
                hint = "did you mean `\((path + [meant]).joined(separator: " "))`?"
            } else {
                hint = "see `\((["mayfly", "help"] + path.dropFirst()).joined(separator: " "))`"
            }
            let name = (path.dropFirst() + [word]).joined(separator: " ")
            return ControlError(.usage, "no command `\(name)`", hint: hint)
        }
        return nil
    }

    /// ArgumentParser validates known arguments first, and then reports a consequence of the mistyped option.
    /// - Returns: the error for an option that the command does not have.
    static func unknownOption(in arguments: [String], of root: any ParsableCommand.Type) -> ControlError? {
        let command = command(of: arguments, in: root)
        let known = options(of: command, in: root)
        for word in arguments.prefix(while: { $0 != "--" }) where word.hasPrefix("--") {
            let name = String(word.prefix { $0 != "=" })
            guard !known.contains(name) else { continue }
            let hint = known.sorted().nearest(to: name).map { "did you mean `\($0)`?" }
            return ControlError(.usage, "unknown option `\(name)`", hint: hint ?? "see `mayfly help`")
        }
        return nil
    }

    /// - Returns: the error with a hint, for the most frequent mistakes.
    static func mistake(in arguments: [String]) -> ControlError? {
        optionBeforeCommand(arguments) ?? unquotedText(arguments)
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

    /// `send room hi there`, and a text that starts with a dash.
    private static func unquotedText(_ arguments: [String]) -> ControlError? {
        guard arguments.count > 2, arguments[0] == "send", !arguments[1].hasPrefix("-") else { return nil }
        let words = arguments.dropFirst(2)
        let text = words.prefix { !$0.hasPrefix("-") }
        if text.count > 1 {
            return ControlError(
                .usage, "the text has several words and is not quoted",
                hint: "write: mayfly send \(quoted(arguments[1])) \(quoted(text.joined(separator: " ")))")
        }
        guard let first = words.first, first.hasPrefix("-"), first != "-", !first.hasPrefix("--") else { return nil }
        let dashed = words.prefix { !$0.hasPrefix("--") }
        let options = words.dropFirst(dashed.count).map { " \(quoted($0))" }.joined()
        return ControlError(
            .usage, "`\(first)` is not an option of `send`",
            hint: "a text that starts with a dash goes after `--`: mayfly send \(quoted(arguments[1]))\(options) -- "
                + quoted(dashed.joined(separator: " ")))
    }

    private static func command(of arguments: [String], in root: any ParsableCommand.Type) -> any ParsableCommand.Type {
        var command = root
        for word in arguments {
            guard let next = command.configuration.subcommands.first(where: { $0._commandName == word }) else { break }
            command = next
        }
        return command.configuration.defaultSubcommand ?? command
    }

    private static func options(of command: any ParsableCommand.Type, in root: any ParsableCommand.Type) -> Set<String>
    {
        let help = root.helpMessage(for: command, includeHidden: true)
        let words = help.split { !($0.isLetter || $0.isNumber || $0 == "-") }
        return Set(words.filter { $0.hasPrefix("--") }.map(String.init)).union(["--help", "--help-hidden", "--version"])
    }
}
