import ArgumentParser
import Control

/// A command of `mayfly`.
protocol NodeCommand: ParsableCommand {
    var global: GlobalOptions { get }

    /// Does it.
    /// - Throws: a `ControlError`, or what ArgumentParser throws for a wrong use.
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

    /// Connects to the node of the home directory.
    func connect() throws -> ControlClient { try ControlClient(home: try global.resolvedHome()) }

    /// Calls one method and shows its result: as the node sent it with `--json`, otherwise with `show`.
    func call<Method: ControlMethod>(
        _ method: Method.Type, _ params: Method.Params, timeout: Duration? = .seconds(30), _ terminal: Terminal,
        show: (Method.Result) -> Void
    ) throws {
        let value = try connect().call(method, params, timeout: timeout)
        if terminal.json { terminal.result(value) } else { show(try understand(value, as: Method.Result.self)) }
    }

    /// Calls a method whose result is a list, and shows it: one line an element with `--json`, otherwise with `show`.
    func callList<Method: ControlMethod>(
        _ method: Method.Type, _ params: Method.Params, _ list: String, _ terminal: Terminal,
        show: (Method.Result) -> Void
    ) throws {
        let value = try connect().call(method, params)
        if terminal.json {
            for element in value[list]?.arrayValue ?? [] { terminal.result(element) }
        } else {
            show(try understand(value, as: Method.Result.self))
        }
    }
}

extension ControlError {
    /// The same, its commands to paste made to meet the home that was named with `--home`.
    func naming(home: String?) -> ControlError {
        guard let hint else { return self }
        return ControlError(kind, message, hint: Program.naming(home: home, in: hint), field: field, code: code)
    }
}

/// A text, its commands to paste made to meet the home that was named with `--home`.
func naming(home: String?, in text: String) -> String {
    guard let home, !home.isEmpty else { return text }
    // Every second part is between backquotes.
    return text.split(separator: "`", omittingEmptySubsequences: false).enumerated().map { index, part in
        index % 2 == 1 && part.hasPrefix("mayfly ") && part != "mayfly help"
            ? "\(part) --home \(quoted(home))" : String(part)
    }.joined(separator: "`")
}

/// A word as a shell takes it. What ``safe(_:)`` would change is written in octal, as `$'…'` has it in sh of POSIX.1-2024,
/// bash, ksh and zsh: the word is safe to show, and still right when it is pasted.
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

/// Reads what the node answered.
func understand<Value: JSONConvertible>(_ value: JSONValue, as type: Value.Type) throws(ControlError) -> Value {
    do { return try value.decoded(as: type) } catch {
        throw ControlError(
            .failed, "the node's answer cannot be understood: `\(error.field)` \(error.message)",
            hint: "node and command line are of different versions; see `mayfly version` and `mayfly status`")
    }
}

extension Interval: ExpressibleByArgument {
    package init?(argument: String) { self.init(text: argument) }

    /// In seconds, as it is given.
    package var defaultValueDescription: String {
        let seconds = String(Double(milliseconds) / 1_000)
        return seconds.hasSuffix(".0") ? String(seconds.dropLast(2)) : seconds
    }
}

extension Timestamp: ExpressibleByArgument { package init?(argument: String) { self.init(iso8601: argument) } }

extension LifetimeValue: ExpressibleByArgument {}
extension LifetimeTimer: ExpressibleByArgument {}
extension LifetimeMailbox: ExpressibleByArgument {}

extension Interval {
    /// The time that is left; no less than a millisecond.
    init(from now: ContinuousClock.Instant, to end: ContinuousClock.Instant) {
        self.init(milliseconds: max(1, Int64(((end - now) / .milliseconds(1)).rounded(.up))))
    }

    /// How long the client waits for a node that itself waits this long.
    var withGrace: Duration { duration + max(.seconds(2), min(duration, .seconds(10))) }
}
