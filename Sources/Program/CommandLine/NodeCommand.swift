import ArgumentParser
import Control
import Glibc
import Messaging

protocol NodeCommand: ParsableCommand {
    var global: GlobalOptions { get }

    /// Runs the command.
    /// - Throws: a `ControlError`, or an ArgumentParser error for wrong usage.
    func perform(_ terminal: Terminal) throws
}

extension NodeCommand {
    func run() throws { try global.reporting(perform) }

    func connect() throws -> ControlClient { try ControlClient(home: try global.resolvedHome()) }

    /// Calls one method and prints its result: with `--json` as the node sent it, otherwise with `show`.
    func call<Method: ControlMethod>(
        _ method: Method, _ params: Method.Params, timeout: Duration? = .seconds(30), _ terminal: Terminal,
        show: (Method.Result) -> Void
    ) throws {
        let value = try connect().call(method, params, timeout: timeout)
        if terminal.json { terminal.result(value) } else { show(try understand(value, as: Method.Result.self)) }
    }

    func call<Method: ControlMethod>(_ method: Method, _ params: Method.Params, _ terminal: Terminal) throws
    where Method.Result: ShownRecord { try call(method, params, terminal) { $0.show(terminal) } }

    /// Calls a method with a list result, and prints all elements: with `--json` one a line, otherwise as a table.
    /// - Parameter from: for a method that lists in pages.
    func callList<Method: ControlMethod, Element: CodableRecord & TableRecord>(
        _ method: Method, _ params: Method.Params, from: WritableKeyPath<Method.Params, String?>? = nil, _ list: String,
        of type: Element.Type, _ terminal: Terminal
    ) throws {
        var elements: [Element] = []
        try connect().visitList(method, params, from: from, list) { element in
            if terminal.json {
                terminal.result(element)
            } else {
                elements.append(try understand(element, as: Element.self))
            }
        }
        if !terminal.json { Element.table(elements, terminal) }
    }
}

extension Terminal {
    /// Prints a result that describes its own failure, if any; the exit code gives the kind.
    func result(_ value: JSONValue, failure: ControlError?) throws {
        result(value, exitCode: failure?.kind.exitCode ?? 0)
        if let failure { throw ExitCode(failure.kind.exitCode) }
    }
}

extension ControlClient {
    func result<Method: ControlMethod>(_ method: Method, _ params: Method.Params, timeout: Duration? = .seconds(30))
        throws(ControlError) -> Method.Result
    { try understand(try call(method, params, timeout: timeout), as: Method.Result.self) }

    /// Calls `body` for each element of a list result, on all its pages.
    func visitList<Method: ControlMethod>(
        _ method: Method, _ params: Method.Params, from: WritableKeyPath<Method.Params, String?>? = nil, _ list: String,
        timeout: Duration? = .seconds(30), _ body: (JSONValue) throws -> Void
    ) throws {
        var params = params
        while true {
            let page = try call(method, params, timeout: timeout)
            for element in page[list]?.arrayValue ?? [] { try body(element) }
            // Guards against an endless loop on a page that names itself as the next.
            guard let from, let next = page["next"]?.stringValue, next != params[keyPath: from] else { return }
            params[keyPath: from] = next
        }
    }
}

extension Nothing: OneArgument {
    struct Argument: ParsableArguments {}
    init(_ argument: Argument) { self.init() }
}

/// What the command of a method says about itself.
protocol MethodDescription: SendableMetatype {
    associatedtype Method: ControlMethod
    static var method: Method { get }
    static var discussion: String { get }
}

extension MethodDescription {
    static var discussion: String { "" }
    static var described: CommandConfiguration { CommandConfiguration(method, discussion: discussion) }
}

/// The command of a method that lists elements: all of them, one a line with `--json`.
struct ListCall<Action: ListAction>: NodeCommand {
    static var configuration: CommandConfiguration { Action.described }

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        try callList(Action.method, .init(), from: Action.from, Action.list, of: Action.Element.self, terminal)
    }
}

protocol ListAction: MethodDescription {
    associatedtype Element: CodableRecord & TableRecord
    /// The result's field with the elements.
    static var list: String { get }
    /// The parameter that takes the `next` of the previous page; `nil` for a method that answers with one page.
    static var from: WritableKeyPath<Method.Params, String?>? { get }
}

extension ListAction { static var from: WritableKeyPath<Method.Params, String?>? { nil } }

/// A result that people see as lines of fields.
protocol ShownRecord { func show(_ terminal: Terminal) }

/// A result that people see as a table.
protocol TableRecord { static func table(_ records: [Self], _ terminal: Terminal) }

/// A result that people see as a row of a table.
protocol RowRecord: TableRecord {
    static var head: [String] { get }
    var cells: [String] { get }
    /// A note in place of an empty table.
    static var none: String { get }
}

extension RowRecord {
    static func table(_ records: [Self], _ terminal: Terminal) {
        terminal.table(head, records.map(\.cells))
        if records.isEmpty { terminal.note(none) }
    }
}

extension ShownRecord where Self: TableRecord { func show(_ terminal: Terminal) { Self.table([self], terminal) } }

extension CommandConfiguration {
    /// A command with the name and the summary of its method.
    init(
        _ method: some ControlMethod, usage: String? = nil, discussion: String = "",
        subcommands: [any ParsableCommand.Type] = [], defaultSubcommand: (any ParsableCommand.Type)? = nil
    ) {
        self.init(
            commandName: method.name.split(separator: ".").last.map(String.init), abstract: method.summary,
            usage: usage, discussion: discussion, subcommands: subcommands, defaultSubcommand: defaultSubcommand)
    }
}

/// A command that calls one method and shows its result.
protocol MethodCommand: NodeCommand, MethodDescription {
    func params(_ terminal: Terminal) throws -> Method.Params
    func show(_ result: Method.Result, _ terminal: Terminal)
}

extension MethodCommand {
    static var configuration: CommandConfiguration { described }

    func perform(_ terminal: Terminal) throws {
        try call(Self.method, params(terminal), terminal) { show($0, terminal) }
    }
}

extension MethodCommand where Method.Params == Nothing { func params(_ terminal: Terminal) -> Nothing { .init() } }

extension MethodCommand where Method.Result: ShownRecord {
    func show(_ result: Method.Result, _ terminal: Terminal) { result.show(terminal) }
}

/// The command of a method whose parameters are one argument.
struct Call<Action: MethodAction>: NodeCommand {
    static var configuration: CommandConfiguration { Action.described }

    @OptionGroup var argument: Action.Method.Params.Argument
    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws { try call(Action.method, .init(argument), terminal) }
}

protocol MethodAction: MethodDescription where Method.Params: OneArgument, Method.Result: ShownRecord {}

/// Parameters with one field, which is an argument of the command line.
protocol OneArgument: MethodParams {
    associatedtype Argument: ParsableArguments
    init(_ argument: Argument)
}

extension ConversationParams: OneArgument {
    struct Argument: ParsableArguments {
        @ArgumentParser.Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
    }
    init(_ argument: Argument) { self.init(conversation: argument.conversation) }
}

extension ControlError {
    /// Completes the commands in the hint: the conversation in place of `C`, and the given `--home`.
    /// - Parameter inPlace: replaces a whole command first.
    func naming(home: String?, _ inPlace: (String) -> String = { $0 }) -> ControlError {
        guard let hint else { return self }
        let completed = replacingCommands(in: hint) { command in
            let words = inPlace(command).split(separator: " ", omittingEmptySubsequences: false).map { word in
                word == "C" ? conversation.map(quoted) ?? "C" : String(word)
            }
            return adding(home: home, to: words.joined(separator: " "))
        }
        return ControlError(kind, message, hint: completed, field: field, code: code)
    }
}

func naming(home: String?, in text: String) -> String { replacingCommands(in: text) { adding(home: home, to: $0) } }

private func adding(home: String?, to command: String) -> String {
    guard let home, !home.isEmpty, !command.hasPrefix("mayfly help") else { return command }
    return "\(command) --home \(quoted(home))"
}

func replacingCommands(in text: String, _ replacement: (String) -> String) -> String {
    text.split(separator: "`", omittingEmptySubsequences: false).enumerated().map { index, part in
        index % 2 == 1 && part.contains("mayfly ") ? replacement(String(part)) : String(part)
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

extension Option {
    /// An option with its own format. ArgumentParser itself would refuse a value without a reason.
    /// - Parameter expected: describes the format, with an example.
    init<T>(
        name: NameSpecification = .long, _ help: ArgumentHelp, expected: @escaping @Sendable (String) -> String,
        read: @escaping @Sendable (String) -> T?
    ) where Value == T? {
        self.init(name: name, parsing: .unconditional, help: help) { text in
            guard let value = read(text) else { throw ValidationError("expected \(expected(text))") }
            return value
        }
    }
}

extension Option<Interval?> {
    init(time help: String, valueName: String = "seconds") {
        self.init(.init(help, valueName: valueName), expected: { _ in Interval.format }, read: Interval.init(text:))
    }
}

extension Option<Int?> {
    init(capacity help: String) {
        let range = 1...Limits.inboxCapacityMaximum
        self.init(
            .init(help, valueName: "number"), expected: { _ in "a number from 1 to \(range.upperBound)" },
            read: { Int($0).flatMap { range.contains($0) ? $0 : nil } })
    }
}

extension DeliveryStage: ExpressibleByArgument {
    package init?(argument: String) {
        guard Self.allValueStrings.contains(argument) else { return nil }
        self.init(rawValue: argument)
    }

    /// Every message is queued, so no command waits for that.
    package static var allValueStrings: [String] { allCases.filter { $0 != .queued }.map(\.rawValue) }
}

extension Lifetime: ExpressibleByArgument {
    /// `1d`; `memory only` for `ephemeral`.
    var shown: String { self == .ephemeral ? Words.lifetime(self) : rawValue }
}
extension LifetimeTimer: ExpressibleByArgument {}
extension MailboxConsent: ExpressibleByArgument {}

extension Interval {
    init(from now: ContinuousClock.Instant, to end: ContinuousClock.Instant) {
        self.init(milliseconds: max(1, Int64(((end - now) / .milliseconds(1)).rounded(.up))))
    }

    /// The client's timeout for a request with this timeout on the node.
    var withGrace: Duration { duration + max(.seconds(2), min(duration, .seconds(10))) }
}

struct GlobalOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The node's directory (or MAYFLY_HOME).", valueName: "dir"), completion: .directory)
    var home: String?

    @Flag(help: "One JSON object a line on standard output, errors included.") var json = false

    /// Reports a failure of `body`, and exits with its code.
    func reporting(_ body: (Terminal) throws -> Void) throws {
        let terminal = Terminal(json: json, home: home)
        do { try body(terminal) } catch let error as ControlError {
            terminal.report(error.naming(home: home))
            throw ExitCode(error.kind.exitCode)
        }
    }

    /// The home of the packaged service, owned by its user.
    private static let serviceHome = "/var/lib/mayfly"

    /// The node's home: `--home`, MAYFLY_HOME, /var/lib/mayfly for its owner, $XDG_STATE_HOME/mayfly,
    /// ~/.local/state/mayfly.
    func resolvedHome() throws -> String {
        if let home {
            // Empty from an unset variable: the default home could belong to another node.
            guard !home.isEmpty else {
                throw ControlError(.usage, "--home is empty", hint: "name a directory, or leave the option out")
            }
            return Self.absolute(home)
        }
        if let home = try environment("MAYFLY_HOME") { return Self.absolute(home) }
        var status = stat()
        if geteuid() != 0, stat(Self.serviceHome, &status) == 0, status.st_uid == geteuid() { return Self.serviceHome }
        // The XDG specification says to ignore a relative path.
        if let state = try environment("XDG_STATE_HOME"), state.hasPrefix("/") { return "\(state)/mayfly" }
        if let user = try environment("HOME") { return "\(user)/.local/state/mayfly" }
        throw ControlError(.usage, "no home directory is known", hint: "give --home DIR or set MAYFLY_HOME")
    }

    private static func absolute(_ path: String) -> String {
        guard !path.hasPrefix("/"), let working = getcwd(nil, 0) else { return path }
        defer { free(working) }
        return "\(String(cString: working))/\(path)"
    }
}

/// `nil` for an unset or empty variable.
func environment(_ name: String) throws(ControlError) -> String? {
    guard let value = getenv(name), value.pointee != 0 else { return nil }
    guard let text = String(validatingCString: value) else {
        throw ControlError(.usage, "\(name) is not UTF-8 text", hint: "set it to a path that is")
    }
    return text
}

enum EndpointOption {
    static func endpoints(_ texts: [String], option: String) throws(ControlError) -> [Endpoint] {
        try texts.map { text throws(ControlError) in
            guard let endpoint = Endpoint(text) else {
                throw ControlError(
                    .usage, "\(option): `\(text)` is not an endpoint", hint: "write tcp://HOST:PORT, IPv6 in brackets")
            }
            return endpoint
        }
    }

    static let defaultPort: UInt16 = 7440

    /// Parses HOST, HOST:PORT, [IPV6]:PORT, an IPv6 address or a whole endpoint.
    static func place(_ text: String, option: String) throws(ControlError) -> Endpoint {
        let isAddress = text.filter { $0 == ":" }.count > 1 && !text.hasPrefix("[") && !text.contains("/")
        let hasPort = isAddress ? false : text.hasPrefix("[") ? !text.hasSuffix("]") : text.contains(":")
        let whole = isAddress ? "tcp://[\(text)]" : text.contains("://") ? text : "tcp://\(text)"
        guard let endpoint = Endpoint(hasPort ? whole : "\(whole):\(defaultPort)"), endpoint.relay == nil,
            endpoint.port > 0
        else {
            throw ControlError(
                .usage, "\(option): `\(text)` is not a host",
                hint: "write HOST or HOST:PORT, an address of IPv6 with a port in brackets")
        }
        return endpoint
    }

    /// The inverse of ``place(_:option:)``.
    static func place(of endpoint: Endpoint) -> String {
        guard endpoint.port != defaultPort else { return endpoint.host }
        return endpoint.host.contains(":") ? "[\(endpoint.host)]:\(endpoint.port)" : "\(endpoint.host):\(endpoint.port)"
    }
}
