import Dispatch
import Foundation
import Glibc
import Synchronization
import Testing

/// What a command line printed as JSON, easy to ask.
struct JSON: CustomStringConvertible {
    let value: Any?

    subscript(key: String) -> JSON { JSON(value: (value as? [String: Any])?[key]) }
    subscript(index: Int) -> JSON { JSON(value: list.indices.contains(index) ? list[index].value : nil) }

    var string: String? { value as? String }
    var integer: Int64? { (value as? NSNumber)?.int64Value }
    var double: Double? { (value as? NSNumber)?.doubleValue }
    var bool: Bool? { value as? Bool }
    var list: [JSON] { (value as? [Any] ?? []).map { JSON(value: $0) } }
    var isNull: Bool { value == nil || value is NSNull }
    var description: String { value.map { "\($0)" } ?? "nothing" }
    var keys: Set<String> { Set((value as? [String: Any] ?? [:]).keys) }

    /// An ISO 8601 time as milliseconds since the epoch.
    var time: Int64? {
        let formatter = ISO8601DateFormatter()
        formatter.formatOptions = [.withInternetDateTime, .withFractionalSeconds]
        return string.flatMap { formatter.date(from: $0) }.map { Int64(($0.timeIntervalSince1970 * 1_000).rounded()) }
    }

    init(value: Any?) { self.value = value }
    init?(line: some StringProtocol) {
        guard let value = try? JSONSerialization.jsonObject(with: Data(line.utf8), options: [.fragmentsAllowed]) else {
            return nil
        }
        self.value = value
    }
}

/// How a command ended.
struct Answer: CustomStringConvertible {
    let command: [String]
    let code: Int32
    let output: String
    let errors: String

    /// What was printed with `--json`, a line each.
    var lines: [JSON] { output.split(separator: "\n").compactMap { JSON(line: $0) } }
    /// The only line, or the last.
    var json: JSON { lines.last ?? JSON(value: nil) }
    subscript(key: String) -> JSON { json[key] }
    /// Of a failure.
    var kind: String? { json["error"]["kind"].string }
    var message: String { json["error"]["message"].string ?? errors }

    var description: String {
        "mayfly \(command.map { $0.prefix(60) }.joined(separator: " ")) → \(code)\n\(output.prefix(2_000))\(errors.prefix(2_000))"
    }
}

struct HarnessError: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

/// Programs that are run, one spawn at a time: no child inherits a descriptor that is being made for another.
enum Program {
    private static let spawning = Mutex(())

    /// The program under test, beside the test bundle in the build directory.
    static let mayfly: String = {
        if let named = ProcessInfo.processInfo.environment["MAYFLY"] { return named }
        let own =
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? CommandLine.arguments[0]
        var directory = URL(fileURLWithPath: own).deletingLastPathComponent()
        while directory.path != "/" {
            let candidate = directory.appendingPathComponent("mayfly").path
            if FileManager.default.isExecutableFile(atPath: candidate) { return candidate }
            directory.deleteLastPathComponent()
        }
        return "mayfly"
    }()

    /// Without what the machine of the test may have set for a node of its own.
    static let environment: [String: String] = {
        var result = ProcessInfo.processInfo.environment
        for name in ["MAYFLY_HOME", "MAYFLY_PASSPHRASE_FILE", "CREDENTIALS_DIRECTORY", "XDG_STATE_HOME"] {
            result[name] = nil
        }
        result["SWIFT_BACKTRACE"] = "enable=no"
        return result
    }()

    /// Starts a program.
    static func spawn(_ arguments: [String], output: FileHandle, errors: FileHandle, input: FileHandle? = nil) throws
        -> Process
    {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: arguments[0].hasPrefix("/") ? arguments[0] : "/usr/bin/env")
        process.arguments = arguments[0].hasPrefix("/") ? Array(arguments.dropFirst()) : arguments
        process.environment = environment
        process.standardOutput = output
        process.standardError = errors
        process.standardInput = input ?? FileHandle.nullDevice
        try spawning.withLock { _ in try process.run() }
        return process
    }

    /// Waits for the end of a program, at most this long.
    static func wait(for process: Process, seconds: Int) -> Int32? {
        let ended = DispatchSemaphore(value: 0)
        process.terminationHandler = { _ in ended.signal() }
        // It may have ended before anyone listened.
        if process.isRunning, ended.wait(timeout: .now() + .seconds(seconds)) == .timedOut {
            kill(process.processIdentifier, SIGKILL)
            process.waitUntilExit()
            return nil
        }
        return process.terminationReason == .exit ? process.terminationStatus : -process.terminationStatus
    }

    /// Runs a program to its end. Output goes through files, so that nobody waits for a pipe's other holders.
    static func run(_ arguments: [String], input: String? = nil, in directory: String, seconds: Int = 90) throws
        -> Answer
    {
        let base = "\(directory)/.run-\(UUID().uuidString)"
        let paths = [base + ".out", base + ".err", base + ".in"]
        defer { for path in paths { unlink(path) } }
        for path in paths { _ = FileManager.default.createFile(atPath: path, contents: nil) }
        if let input { try Data(input.utf8).write(to: URL(fileURLWithPath: paths[2])) }
        let output = try handle(paths[0], writing: true)
        let errors = try handle(paths[1], writing: true)
        let process = try spawn(arguments, output: output, errors: errors, input: try handle(paths[2], writing: false))
        guard let code = wait(for: process, seconds: seconds) else {
            throw HarnessError("\(arguments.joined(separator: " ")) did not end in \(seconds) s")
        }
        return Answer(command: Array(arguments.dropFirst()), code: code, output: text(paths[0]), errors: text(paths[1]))
    }

    static func handle(_ path: String, writing: Bool) throws -> FileHandle {
        let descriptor = open(path, (writing ? O_WRONLY | O_APPEND | O_CREAT : O_RDONLY) | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw HarnessError("open \(path): \(String(cString: strerror(errno)))") }
        return FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
    }

    static func text(_ path: String) -> String {
        String(decoding: FileManager.default.contents(atPath: path) ?? Data(), as: UTF8.self)
    }

    /// Runs a tool of the machine that must succeed.
    @discardableResult
    static func tool(_ arguments: String...) throws -> String {
        let answer = try run(arguments, in: NSTemporaryDirectory())
        guard answer.code == 0 else { throw HarnessError("\(arguments.joined(separator: " ")): \(answer.errors)") }
        return answer.output
    }

    static var isRoot: Bool { geteuid() == 0 }
}

/// A real node: a home of its own, a daemon that is started, stopped and killed, and its command line.
final class TestNode {
    let name: String
    let home: String
    let log: String
    /// Where it listened last; it comes back there.
    private(set) var listen: String?
    /// What stands before the daemon's command, such as `ip netns exec`.
    var prefix: [String] = []
    private var process: Process?

    init(name: String, directory: String) {
        self.name = name
        home = "\(directory)/\(name)"
        log = "\(directory)/\(name).err"
    }

    var isRunning: Bool { process?.isRunning ?? false }
    var pid: Int32 { process?.processIdentifier ?? 0 }
    private var directory: String { URL(fileURLWithPath: home).deletingLastPathComponent().path }

    // MARK: Commands

    /// Runs a command with `--json`.
    func run(_ arguments: [String], input: String? = nil) throws -> Answer {
        try Program.run([Program.mayfly] + arguments + ["--json", "--home", home], input: input, in: directory)
    }

    /// A command that must succeed.
    @discardableResult
    func ok(_ arguments: String..., input: String? = nil, at location: SourceLocation = #_sourceLocation) throws
        -> Answer
    {
        let answer = try run(arguments, input: input)
        if answer.code != 0 {
            Issue.record("\(answer)\nlog of \(name): \(Program.text(log).suffix(3_000))", sourceLocation: location)
            throw HarnessError("a command failed")
        }
        return answer
    }

    /// A command that must fail with this exit code.
    @discardableResult
    func fails(
        _ code: Int32,
        _ arguments: String...,
        input: String? = nil,
        at location: SourceLocation = #_sourceLocation
    )
        throws -> Answer
    {
        let answer = try run(arguments, input: input)
        #expect(answer.code == code, "\(answer)", sourceLocation: location)
        return answer
    }

    /// Waits until an event has happened since the daemon started, or after an earlier event's cursor.
    @discardableResult
    func wait(
        _ event: String,
        in conversation: String? = nil,
        after cursor: Int64 = 0,
        seconds: Int = 20,
        at location: SourceLocation = #_sourceLocation
    ) throws -> JSON {
        let answer = try run(
            ["watch"] + (conversation.map { [$0] } ?? [])
                + ["--since", String(cursor), "--until", event, "--timeout", String(seconds)]
        )
        if answer.code != 0 {
            Issue.record(
                "\(name) waited for \(event): \(answer)\nlog of \(name): \(Program.text(log).suffix(3_000))",
                sourceLocation: location
            )
            throw HarnessError("\(event) did not happen")
        }
        return answer.json
    }

    /// The newest event's cursor, for ``wait(_:in:after:seconds:at:)``.
    func cursor() throws -> Int64 {
        try run(["watch", "--since", "0", "--timeout", "0.05"]).lines.compactMap { $0["cursor"].integer }.max() ?? 0
    }

    /// The texts of a conversation, system messages left out.
    func texts(_ conversation: String = "room", at location: SourceLocation = #_sourceLocation) throws -> [String] {
        try ok("read", conversation, at: location).lines.filter { $0["from"].string != "system" }.compactMap {
            $0["text"].string
        }
    }

    // MARK: The daemon

    func initialise(_ arguments: [String] = [], at location: SourceLocation = #_sourceLocation) throws {
        let answer = try run(["init", "--name", name, "--listen", "tcp://127.0.0.1:0"] + arguments)
        #expect(answer.code == 0, "\(answer)", sourceLocation: location)
    }

    /// Starts the daemon and waits until it serves.
    func start(_ arguments: [String] = [], at location: SourceLocation = #_sourceLocation) throws {
        let failure = try tryStart(arguments)
        if let failure {
            Issue.record("\(name) does not start: \(failure)", sourceLocation: location)
            throw HarnessError("\(name) does not start")
        }
    }

    /// - Returns: how it ended, if it did instead of serving.
    func tryStart(_ arguments: [String] = []) throws -> Answer? {
        precondition(process == nil, "\(name) runs")
        let listening = arguments.contains("--listen") ? [] : listen.map { ["--listen", $0] } ?? []
        let command = prefix + [Program.mayfly, "run", "--json", "--home", home] + listening + arguments
        let ready = "\(directory)/\(name).ready"
        unlink(ready)
        guard mkfifo(ready, 0o600) == 0 else { throw HarnessError("mkfifo: \(errno)") }
        defer { unlink(ready) }
        // Opened for reading and writing, so that neither end waits for the other.
        let descriptor = open(ready, O_RDWR | O_CLOEXEC | O_NONBLOCK)
        defer { close(descriptor) }
        let logSize = Program.text(log).utf8.count
        let process = try Program.spawn(
            command,
            output: try Program.handle(ready, writing: true),
            errors: try Program.handle(log, writing: true)
        )
        var text: [UInt8] = []
        for _ in 0..<300 {
            var polled = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            let isRunning = process.isRunning
            poll(&polled, 1, 100)
            var chunk = [UInt8](repeating: 0, count: 4_096)
            let count = read(descriptor, &chunk, chunk.count)
            if count > 0 { text += chunk[..<count] }
            guard let line = text.split(separator: 0x0A, omittingEmptySubsequences: false).first,
                line.count < text.count
            else {
                if isRunning { continue }
                process.waitUntilExit()
                return Answer(
                    command: command,
                    code: process.terminationStatus,
                    output: String(decoding: text, as: UTF8.self),
                    errors: String(decoding: Program.text(log).utf8.dropFirst(logSize), as: UTF8.self)
                )
            }
            let json = JSON(line: String(decoding: line, as: UTF8.self)) ?? JSON(value: nil)
            guard json["event"].string == "ready" else {
                process.waitUntilExit()
                return Answer(
                    command: command,
                    code: process.terminationStatus,
                    output: String(decoding: text, as: UTF8.self),
                    errors: String(decoding: Program.text(log).utf8.dropFirst(logSize), as: UTF8.self)
                )
            }
            if !arguments.contains("--listen") { listen = json["listen"][0].string }
            self.process = process
            return nil
        }
        kill(process.processIdentifier, SIGKILL)
        throw HarnessError("\(name) neither serves nor ends")
    }

    /// SIGTERM; it must end cleanly.
    func stop(at location: SourceLocation = #_sourceLocation) throws {
        guard let process else { return }
        kill(process.processIdentifier, SIGTERM)
        let code = Program.wait(for: process, seconds: 20)
        #expect(code == 0, "\(name) stops cleanly", sourceLocation: location)
        self.process = nil
    }

    /// kill -9.
    func crash() {
        guard let process else { return }
        kill(process.processIdentifier, SIGKILL)
        process.waitUntilExit()
        self.process = nil
    }

    // MARK: Its disk

    /// Every file of the home, relative.
    func files(_ suffix: String = "") -> [String] {
        let all = FileManager.default.enumerator(atPath: home)?.compactMap { $0 as? String } ?? []
        return all.filter { path in
            var status = stat()
            return lstat("\(home)/\(path)", &status) == 0 && status.st_mode & S_IFMT == S_IFREG
                && path.hasSuffix(suffix)
        }.sorted()
    }

    func contents(_ file: String) -> [UInt8] {
        Array(FileManager.default.contents(atPath: "\(home)/\(file)") ?? Data())
    }

    /// The files that hold a text.
    func files(holding text: String) -> [String] {
        let needle = Data(text.utf8)
        return files().filter { Data(contents($0)).range(of: needle) != nil }
    }

    func replace(_ file: String, with bytes: [UInt8]) throws {
        let descriptor = open("\(home)/\(file)", O_WRONLY | O_TRUNC | O_CLOEXEC)
        guard descriptor >= 0 else { throw HarnessError("open \(file): \(errno)") }
        defer { close(descriptor) }
        guard write(descriptor, bytes, bytes.count) == bytes.count else {
            throw HarnessError("write \(file): \(errno)")
        }
    }

    func replace(_ file: String, with text: String) throws { try replace(file, with: Array(text.utf8)) }
}

/// A temporary directory for the length of a test. Short: the path of a Unix socket has 107 bytes.
func withDirectory<Result>(_ body: (String) throws -> Result) throws -> Result {
    let directory = "/tmp/mf-\(UUID().uuidString.prefix(8))"
    guard mkdir(directory, 0o700) == 0 else { throw HarnessError("mkdir \(directory): \(errno)") }
    defer { try? FileManager.default.removeItem(atPath: directory) }
    return try body(directory)
}

/// Initialised nodes that do not run yet, and are gone when `body` ends.
func withHomes(_ names: String..., body: ([TestNode]) throws -> Void) throws {
    try withDirectory { directory in
        let nodes = names.map { TestNode(name: $0, directory: directory) }
        defer { for node in nodes { node.crash() } }
        for node in nodes { try node.initialise() }
        try body(nodes)
    }
}

/// Two running nodes.
func withPair(_ arguments: [String] = [], body: (_ ann: TestNode, _ bob: TestNode) throws -> Void) throws {
    try withHomes("ann", "bob") { nodes in
        for node in nodes { try node.start(arguments) }
        try body(nodes[0], nodes[1])
        // What has been tested ends well, too.
        for node in nodes { try node.stop() }
    }
}

/// Two running nodes that share the conversation `room`; `id` is its id.
func withRoom(
    _ arguments: [String] = [],
    lifetime: String? = nil,
    body: (_ ann: TestNode, _ bob: TestNode, _ id: String) throws -> Void
) throws {
    try withPair(arguments) { ann, bob in
        let id = try meet(ann, bob)
        if let lifetime { try agree(ann, bob, lifetime) }
        try body(ann, bob, id)
    }
}

/// `ann` makes the conversation `room` and `bob` joins it.
@discardableResult
func meet(_ ann: TestNode, _ bob: TestNode, at location: SourceLocation = #_sourceLocation) throws -> String {
    let created = try ann.ok("conversation", "create", "--name", "room", "--as", ann.name, at: location)
    let slug = try ann.ok("invite", "create", "room", at: location)["slug"].string ?? ""
    let joined = try bob.ok("join", slug, "--as", bob.name, "--timeout", "20", at: location)
    #expect(joined["state"].string == "ready", sourceLocation: location)
    #expect(joined["conversation"].string == created["conversation"].string, sourceLocation: location)
    try bob.wait("peerOnline", at: location)
    try ann.wait("peerOnline", at: location)
    return created["conversation"].string ?? ""
}

/// Both agree on a lifetime.
func agree(_ ann: TestNode, _ bob: TestNode, _ lifetime: String, at location: SourceLocation = #_sourceLocation) throws
{
    let cursors = (try ann.cursor(), try bob.cursor())
    try ann.ok("lifetime", "propose", "room", lifetime, at: location)
    try bob.wait("lifetimeProposed:ours=false,lifetime=\(lifetime)", after: cursors.1, at: location)
    try bob.ok("lifetime", "accept", "room", at: location)
    try ann.wait("lifetimeAgreed:lifetime=\(lifetime)", after: cursors.0, at: location)
}

/// Sends, and waits until it is delivered.
@discardableResult
func say(_ text: String, _ node: TestNode, at location: SourceLocation = #_sourceLocation) throws -> Answer {
    let sent = try node.ok("send", "room", text, "--wait", "delivered", "--timeout", "20", at: location)
    #expect(sent["state"].string == "delivered", sourceLocation: location)
    return sent
}

/// A message of a conversation by its text.
func message(_ text: String, at node: TestNode, location: SourceLocation = #_sourceLocation) throws -> JSON {
    try node.ok("read", "room", at: location).lines.first { $0["text"].string == text } ?? JSON(value: nil)
}
