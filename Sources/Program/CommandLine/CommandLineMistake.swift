import ArgumentParser
import Control
import Messaging

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
