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
        let terminal = Terminal(json: global.json)
        do {
            try perform(terminal)
        } catch let error as ControlError {
            terminal.report(error.naming(home: global.home))
            throw ExitCode(error.kind.exitCode)
        }
    }

    /// Connects to the node of the home directory.
    func connect() throws -> ControlClient {
        try ControlClient(home: try global.resolvedHome())
    }

    /// Calls one method and shows its result: as the node sent it with `--json`, otherwise with `show`.
    func call<Method: ControlMethod>(
        _ method: Method.Type,
        _ params: Method.Params,
        timeout: Duration? = .seconds(30),
        _ terminal: Terminal,
        show: (Method.Result) -> Void
    ) throws {
        let value = try connect().call(method, params, timeout: timeout)
        if terminal.json {
            terminal.result(value)
        } else {
            show(try understand(value, as: Method.Result.self))
        }
    }

    /// Calls a method whose result is a list, and shows it: one line an element with `--json`, otherwise with `show`.
    func callList<Method: ControlMethod>(
        _ method: Method.Type,
        _ params: Method.Params,
        _ list: String,
        _ terminal: Terminal,
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
        guard let home, !home.isEmpty, let hint else { return self }
        let isPlain = home.utf8.allSatisfy { byte in
            (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20) || "0123456789/._-".utf8.contains(byte)
        }
        let word =
            isPlain
            ? home : "'\(home.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''"))'"
        // Every second part is between backquotes.
        let parts = hint.split(separator: "`", omittingEmptySubsequences: false).enumerated().map { index, part in
            index % 2 == 1 && part.hasPrefix("mayfly ") && part != "mayfly help"
                ? "\(part) --home \(word)" : String(part)
        }
        return ControlError(kind, message, hint: parts.joined(separator: "`"), field: field, code: code)
    }
}

/// Reads what the node answered.
func understand<Value: Decodable>(_ value: JSONValue, as type: Value.Type) throws(ControlError) -> Value {
    do {
        return try value.decoded(as: type)
    } catch {
        throw ControlError(
            .failed,
            "the node's answer cannot be understood: `\(error.field)` \(error.message)",
            hint: "node and command line are of different versions; see `mayfly version` and `mayfly status`"
        )
    }
}

extension Interval: ExpressibleByArgument {
    package init?(argument: String) {
        self.init(text: argument)
    }

    /// In seconds, as it is given.
    package var defaultValueDescription: String {
        let seconds = String(Double(milliseconds) / 1_000)
        return seconds.hasSuffix(".0") ? String(seconds.dropLast(2)) : seconds
    }
}

extension Timestamp: ExpressibleByArgument {
    package init?(argument: String) {
        self.init(iso8601: argument)
    }
}

extension LifetimeValue: ExpressibleByArgument {}
extension LifetimeTimer: ExpressibleByArgument {}

extension Interval {
    /// How long the client waits for a node that itself waits this long.
    var withGrace: Duration { duration + .seconds(10) }
}
