import ArgumentParser
import Control
import Messaging

protocol NodeCommand: ParsableCommand {
    var global: GlobalOptions { get }

    /// Runs the command.
    /// - Throws: a `ControlError`, or an ArgumentParser error for wrong usage.
    func perform(_ terminal: Terminal) throws
}

extension NodeCommand {
    func run() throws {
        let terminal = Terminal(json: global.json, home: global.home)
        do { try perform(terminal) } catch let error as ControlError {
            terminal.report(error.naming(home: global.home))
            throw ExitCode(error.kind.exitCode)
        }
    }

    func connect() throws -> ControlClient { try ControlClient(home: try global.resolvedHome()) }

    /// Calls one method and prints its result: with `--json` as the node sent it, otherwise with `show`.
    func call<Params: MethodParams, Output: MethodResult>(
        _ method: RPCMethod<Params, Output>, _ params: Params, timeout: Duration? = .seconds(30), _ terminal: Terminal,
        show: (Output) -> Void
    ) throws {
        let value = try connect().call(method, params, timeout: timeout)
        if terminal.json { terminal.result(value) } else { show(try understand(value, as: Output.self)) }
    }

    /// Calls a method with a list result and prints it: with `--json` one element per line, otherwise with `show`.
    func callList<Params: MethodParams, Output: MethodResult>(
        _ method: RPCMethod<Params, Output>, _ params: Params, _ list: String, _ terminal: Terminal,
        show: (Output) -> Void
    ) throws {
        let value = try connect().call(method, params)
        if terminal.json {
            for element in value[list]?.arrayValue ?? [] { terminal.result(element) }
        } else {
            show(try understand(value, as: Output.self))
        }
    }
}

extension ControlError {
    /// Adds the given `--home` to the commands in the hint.
    func naming(home: String?) -> ControlError {
        guard let hint else { return self }
        return ControlError(kind, message, hint: Program.naming(home: home, in: hint), field: field, code: code)
    }
}

func naming(home: String?, in text: String) -> String {
    guard let home, !home.isEmpty else { return text }
    // Every second part is between backquotes.
    return text.split(separator: "`", omittingEmptySubsequences: false).enumerated().map { index, part in
        index % 2 == 1 && part.hasPrefix("mayfly ") && part != "mayfly help"
            ? "\(part) --home \(quoted(home))" : String(part)
    }.joined(separator: "`")
}

/// Quotes a word for a shell. Characters that ``safe(_:)`` would change become octal in `$'…'` (sh of POSIX.1-2024,
/// bash, ksh, zsh): the word is safe to display and stays correct when pasted.
func quoted(_ word: String) -> String {
    if safe(word) != word { return escaped(word) }
    let isPlain = word.utf8.allSatisfy { byte in
        (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20) || "0123456789/._-".utf8.contains(byte)
    }
    guard !isPlain || word.isEmpty else { return word }
    return "'\(word.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''"))'"
}

private func escaped(_ word: String) -> String {
    let parts = word.unicodeScalars.map { scalar in
        switch scalar {
        case "'", "\\": "\\\(scalar)"
        case _ where safe(String(scalar)) == String(scalar): String(scalar)
        default:
            String(scalar).utf8.map { byte in
                let digits = String(byte, radix: 8)
                return "\\" + String(repeating: "0", count: 3 - digits.count) + digits
            }.joined()
        }
    }
    return "$'\(parts.joined())'"
}

func understand<Value: JSONConvertible>(_ value: JSONValue, as type: Value.Type) throws(ControlError) -> Value {
    do { return try value.decoded(as: type) } catch {
        throw ControlError(
            .failed, "the node's answer cannot be understood: `\(error.field)` \(error.message)",
            hint: "node and command line are of different versions; see `mayfly version` and `mayfly status`")
    }
}

extension Interval: ExpressibleByArgument {
    package init?(argument: String) { self.init(text: argument) }

    /// In seconds, the input format.
    package var defaultValueDescription: String {
        let seconds = String(Double(milliseconds) / 1_000)
        return seconds.hasSuffix(".0") ? String(seconds.dropLast(2)) : seconds
    }
}

extension Timestamp: ExpressibleByArgument { package init?(argument: String) { self.init(iso8601: argument) } }

extension Lifetime: ExpressibleByArgument {}
extension LifetimeTimer: ExpressibleByArgument {}
extension MailboxConsent: ExpressibleByArgument {}

extension Interval {
    /// The remaining time, at least one millisecond.
    init(from now: ContinuousClock.Instant, to end: ContinuousClock.Instant) {
        self.init(milliseconds: max(1, Int64(((end - now) / .milliseconds(1)).rounded(.up))))
    }

    /// The client's timeout for a request with this timeout on the node.
    var withGrace: Duration { duration + max(.seconds(2), min(duration, .seconds(10))) }
}
