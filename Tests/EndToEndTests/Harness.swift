import CLinux
import Dispatch
import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

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
        // Whole seconds are written without a fraction.
        let hasFraction = string?.contains(".") ?? false
        formatter.formatOptions = hasFraction ? [.withInternetDateTime, .withFractionalSeconds] : .withInternetDateTime
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

struct Answer: CustomStringConvertible {
    let command: [String]
    let code: Int32
    let output: String
    let errors: String

    /// Lines of `--json` output.
    var lines: [JSON] { output.split(separator: "\n").compactMap { JSON(line: $0) } }
    var json: JSON { lines.last ?? JSON(value: nil) }
    subscript(key: String) -> JSON { json[key] }
    var kind: String? { json["error"]["kind"].string }
    var message: String { json["error"]["message"].string ?? errors }

    var description: String {
        "mayfly \(command.map { $0.prefix(60) }.joined(separator: " ")) → \(code)\n"
            + "\(output.prefix(2_000))\(errors.prefix(2_000))"
    }
}

struct HarnessError: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

/// A child process. Foundation's crashes now and then when many threads start processes.
final class Child: Sendable {
    let pid: pid_t
    /// The exit code, or the negative number of the signal.
    private let end = Mutex<Int32?>(nil)

    /// - Parameters: descriptors for the standard streams, of the null device if `nil`. No other descriptor is inherited.
    init(_ arguments: [String], input: Descriptor? = nil, output: Descriptor? = nil, errors: Descriptor? = nil) throws {
        let null = try Descriptor("/dev/null", O_RDWR)
        let (input, output, errors) = (input ?? null, output ?? null, errors ?? null)
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for (standard, descriptor) in [(STDIN_FILENO, input), (STDOUT_FILENO, output), (STDERR_FILENO, errors)] {
            posix_spawn_file_actions_adddup2(&actions, descriptor.number, standard)
        }
        spawn_close_from(&actions, STDERR_FILENO + 1)
        // Threads of a pool block signals; a child must not.
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        // The caller of the tests may ignore some: a background job of a shell, nohup(1).
        var all = sigset_t()
        sigfillset(&all)
        posix_spawnattr_setsigdefault(&attributes, &all)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))
        var words: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
        var variables: [UnsafeMutablePointer<CChar>?] = Program.environment.map { strdup("\($0)=\($1)") } + [nil]
        defer { for word in words + variables { free(word) } }
        var pid: pid_t = 0
        let code = withExtendedLifetime((input, output, errors)) {
            posix_spawnp(&pid, arguments[0], &actions, &attributes, &words, &variables)
        }
        guard code == 0 else { throw HarnessError("\(arguments[0]): \(String(cString: strerror(code)))") }
        self.pid = pid
    }

    private func poll(_ options: Int32) -> Int32? {
        end.withLock { end in
            if end != nil { return end }
            var status: Int32 = 0
            guard waitpid(pid, &status, options) == pid else { return nil }
            end = status & 0x7F == 0 ? status >> 8 & 0xFF : -(status & 0x7F)
            return end
        }
    }

    var isRunning: Bool { poll(WNOHANG) == nil }

    func signal(_ number: Int32) { end.withLock { if $0 == nil { Glibc.kill(pid, number) } } }

    /// Waits at most this long for the end, then kills the child and returns `nil`.
    func wait(seconds: Int) -> Int32? {
        let isLate = Mutex(false)
        let pid = pid
        let alarm = DispatchSource.makeTimerSource(queue: .global())
        alarm.schedule(deadline: .now() + .seconds(seconds))
        alarm.setEventHandler {
            isLate.withLock { $0 = true }
            Glibc.kill(pid, SIGKILL)
        }
        alarm.resume()
        // Leaves it unreaped, so that the alarm cannot hit another process with its number.
        var information = siginfo_t()
        while waitid(P_PID, id_t(pid), &information, WEXITED | WNOWAIT) != 0, errno == EINTR {}
        alarm.cancel()
        let code = poll(0)
        return isLate.withLock { $0 } ? nil : code
    }
}

final class Descriptor {
    let number: Int32

    init(_ path: String, _ flags: Int32) throws {
        number = open(path, flags | O_CLOEXEC, 0o600)
        guard number >= 0 else { throw HarnessError("open \(path): \(String(cString: strerror(errno)))") }
    }

    deinit { close(number) }
}

enum Program {
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

    /// Without variables that this machine sets for a node of its own.
    static let environment: [String: String] = {
        var result = ProcessInfo.processInfo.environment
        for name in [
            "MAYFLY_HOME", "MAYFLY_PASSPHRASE_FILE", "MAYFLY_NEW_PASSPHRASE_FILE", "CREDENTIALS_DIRECTORY",
            "XDG_STATE_HOME",
        ] { result[name] = nil }
        result["SWIFT_BACKTRACE"] = "enable=no"
        return result
    }()

    /// Runs a program to its end. Its output goes to files, so that a child that keeps a pipe open delays nothing.
    static func run(_ arguments: [String], input: String = "", in directory: String, seconds: Int = 150) throws
        -> Answer
    {
        let base = "\(directory)/.run-\(UUID().uuidString)"
        let paths = [base + ".in", base + ".out", base + ".err"]
        defer { for path in paths { unlink(path) } }
        var bytes = Array(input.utf8)[...]
        let source = try Descriptor(paths[0], O_RDWR | O_CREAT)
        while !bytes.isEmpty {
            bytes = bytes.dropFirst(bytes.withUnsafeBytes { write(source.number, $0.baseAddress, $0.count) })
        }
        lseek(source.number, 0, SEEK_SET)
        let output = try Descriptor(paths[1], O_WRONLY | O_CREAT)
        let errors = try Descriptor(paths[2], O_WRONLY | O_CREAT)
        let child = try Child(arguments, input: source, output: output, errors: errors)
        guard let code = child.wait(seconds: seconds) else {
            throw HarnessError("\(arguments.joined(separator: " ")) did not end in \(seconds) s")
        }
        return Answer(command: Array(arguments.dropFirst()), code: code, output: text(paths[1]), errors: text(paths[2]))
    }

    static func text(_ path: String) -> String {
        String(decoding: FileManager.default.contents(atPath: path) ?? Data(), as: UTF8.self)
    }

    @discardableResult static func tool(_ arguments: String...) throws -> String {
        let answer = try run(arguments, in: NSTemporaryDirectory())
        guard answer.code == 0 else { throw HarnessError("\(arguments.joined(separator: " ")): \(answer.errors)") }
        return answer.output
    }

}

/// Requirements that not every machine meets: the tests that need them are skipped elsewhere.
extension Program {
    /// With MAYFLY_TESTS_WHOLE=1 no test is skipped: a requirement that is missing, even for a moment, fails its tests.
    private static let isWhole = ProcessInfo.processInfo.environment["MAYFLY_TESTS_WHOLE"] == "1"

    /// Whether tests with a requirement are run.
    /// - Parameter attempt: whether the requirement is met.
    static func offers(_ attempt: () throws -> Bool) -> Bool { isWhole || ((try? attempt()) ?? false) }

    static let isRoot = offers { geteuid() == 0 }

    /// Whether this test may make network namespaces: tried, since root in a container often may not.
    static let canMakeNamespaces = offers {
        guard geteuid() == 0 else { return false }
        let name = "mf\(UUID().uuidString.prefix(6))"
        try tool("ip", "netns", "add", name)
        try tool("ip", "netns", "del", name)
        return true
    }

    static let canMount = offers {
        guard geteuid() == 0 else { return false }
        try withDirectory { directory in
            try tool("mount", "-t", "tmpfs", "-o", "size=64k", "mayfly-test", directory)
            try tool("umount", directory)
        }
        return true
    }
}

/// A real node with its own home: a daemon that is started, stopped and killed, and its command line.
final class TestNode {
    let name: String
    let home: String
    let log: String
    /// The address at which only this node listens.
    let host = Loopback.next()
    /// The last listener, reused after a restart.
    private(set) var listen: String?
    /// Words before the daemon's command, such as `ip netns exec`.
    var prefix: [String] = []
    private var process: Child?
    let directory: String

    /// - Parameter parent: the directory of the home, if not `directory`.
    init(name: String, directory: String, parent: String? = nil) {
        self.name = name
        self.directory = directory
        home = "\(parent ?? directory)/\(name)"
        log = "\(directory)/\(name).err"
    }

    var isRunning: Bool { process?.isRunning ?? false }
    var pid: pid_t { process?.pid ?? 0 }
    /// For `--listen`: the node's address and a port chosen by the system.
    var anyPort: String { "tcp://\(host):0" }
    var port: UInt16 { listen.flatMap { UInt16($0.split(separator: ":").last ?? "") } ?? 0 }

    func run(_ arguments: [String], input: String = "", seconds: Int = 150) throws -> Answer {
        // Arguments after `--` are no options.
        let end = arguments.firstIndex(of: "--") ?? arguments.count
        let command = arguments[..<end] + ["--json", "--home", home] + arguments[end...]
        return try Program.run([Program.mayfly] + command, input: input, in: directory, seconds: seconds)
    }

    /// Runs a command as a person does, without `--json`.
    func show(_ arguments: String...) throws -> Answer {
        try Program.run([Program.mayfly] + arguments + ["--home", home], in: directory)
    }

    @discardableResult func ok(
        _ arguments: String..., input: String = "", seconds: Int = 150, at location: SourceLocation = #_sourceLocation
    ) throws -> Answer {
        let answer = try run(arguments, input: input, seconds: seconds)
        if answer.code != 0 {
            Issue.record("\(answer)\nlog of \(name): \(Program.text(log).suffix(3_000))", sourceLocation: location)
            throw HarnessError("a command failed")
        }
        return answer
    }

    @discardableResult func fails(
        _ code: Int32, _ arguments: String..., input: String = "", at location: SourceLocation = #_sourceLocation
    ) throws -> Answer {
        let answer = try run(arguments, input: input)
        #expect(answer.code == code, "\(answer)", sourceLocation: location)
        return answer
    }

    /// Waits for an event since the daemon's start, or after an earlier event's cursor.
    @discardableResult func wait(
        _ event: String, in conversation: String? = nil, after cursor: Int64 = 0, seconds: Int = 90,
        at location: SourceLocation = #_sourceLocation
    ) throws -> JSON {
        let answer = try run(
            ["watch"] + (conversation.map { [$0] } ?? []) + [
                "--since", String(cursor), "--until", event, "--timeout", String(seconds),
            ])
        if answer.code != 0 {
            Issue.record(
                "\(name) waited for \(event): \(answer)\nlog of \(name): \(Program.text(log).suffix(3_000))",
                sourceLocation: location)
            throw HarnessError("\(event) did not happen")
        }
        return answer.json
    }

    /// The newest event's cursor, for ``wait(_:in:after:seconds:at:)``.
    func cursor() throws -> Int64 { try events().compactMap { $0["cursor"].integer }.max() ?? 0 }

    /// The past events after an earlier one's cursor.
    func events(after cursor: Int64 = 0) throws -> [JSON] {
        try run(["watch", "--since", String(cursor), "--timeout", "0.05"]).lines
    }

    func texts(_ conversation: String = "room", at location: SourceLocation = #_sourceLocation) throws -> [String] {
        try ok("read", conversation, at: location).lines.filter { $0["from"].string != "system" }.compactMap {
            $0["text"].string
        }
    }

    func initialise(_ arguments: [String] = [], at location: SourceLocation = #_sourceLocation) throws {
        let answer = try run(["init", "--name", name, "--listen", anyPort] + arguments)
        #expect(answer.code == 0, "\(answer)", sourceLocation: location)
    }

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
        // Opened for reading and writing, so that neither end blocks.
        let descriptor = try Descriptor(ready, O_RDWR | O_NONBLOCK)
        let logSize = Program.text(log).utf8.count
        var text: [UInt8] = []
        let process = try Child(command, output: descriptor, errors: try Descriptor(log, O_WRONLY | O_APPEND | O_CREAT))
        func ending() -> Answer {
            Answer(
                command: command, code: process.wait(seconds: 60) ?? -1, output: String(decoding: text, as: UTF8.self),
                errors: String(decoding: Program.text(log).utf8.dropFirst(logSize), as: UTF8.self))
        }
        for _ in 0..<900 {
            var polled = pollfd(fd: descriptor.number, events: Int16(POLLIN), revents: 0)
            let isRunning = process.isRunning
            poll(&polled, 1, 100)
            var chunk = [UInt8](repeating: 0, count: 4_096)
            let count = read(descriptor.number, &chunk, chunk.count)
            if count > 0 { text += chunk[..<count] }
            guard let line = text.split(separator: 0x0A, omittingEmptySubsequences: false).first,
                line.count < text.count
            else {
                if isRunning { continue }
                return ending()
            }
            let json = JSON(line: String(decoding: line, as: UTF8.self)) ?? JSON(value: nil)
            guard json["event"].string == "ready" else { return ending() }
            if !arguments.contains("--listen") { listen = json["listen"][0].string }
            self.process = process
            return nil
        }
        process.signal(SIGKILL)
        throw HarnessError("\(name) neither serves nor ends")
    }

    /// SIGTERM; the node must end cleanly.
    func stop(at location: SourceLocation = #_sourceLocation) throws {
        guard let process else { return }
        process.signal(SIGTERM)
        let code = process.wait(seconds: 60)
        #expect(code == 0, "\(name) stops cleanly", sourceLocation: location)
        self.process = nil
    }

    func crash() {
        guard let process else { return }
        process.signal(SIGKILL)
        _ = process.wait(seconds: 60)
        self.process = nil
    }

    func restart(_ arguments: [String] = [], kills: Bool = false, at location: SourceLocation = #_sourceLocation) throws
    {
        if kills { crash() } else { try stop(at: location) }
        try start(arguments, at: location)
    }

    /// - Returns: the other node's cursor from before the stop.
    @discardableResult func stop(seenBy other: TestNode, kills: Bool = false) throws -> Int64 {
        let cursor = try other.cursor()
        if kills { crash() } else { try stop() }
        try other.wait("peerOffline", after: cursor)
        return cursor
    }

    /// Waits until commits are in the inbox files and the journal holds only its last marker: some seconds after the
    /// first commit.
    func writtenOut() throws {
        try eventually("\(name) writes its journal out", seconds: 30) {
            let count = try Program.tool("sh", "-c", "tr -d '\\000' <'\(home)/journal' | wc -c")
            return Int(count.trimmingCharacters(in: .whitespacesAndNewlines)).map { $0 <= 128 } ?? false
        }
    }

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

    var residentByteCount: Int {
        let line = Program.text("/proc/\(pid)/status").split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
        return (line.flatMap { Int($0.filter(\.isNumber)) } ?? 0) << 10
    }

    /// Gives the stopped node hooks that run shell scripts. The `$1` of each is the path of ``told``.
    func setHooks(_ hooks: [(events: [String]?, script: String)]) throws {
        var list: [[String: Any]] = []
        for (index, hook) in hooks.enumerated() {
            let path = "\(directory)/\(name)-hook-\(index)"
            let descriptor = try Descriptor(path, O_WRONLY | O_CREAT | O_TRUNC)
            let text = Array("#!/bin/sh\n\(hook.script)\n".utf8)
            #expect(write(descriptor.number, text, text.count) == text.count)
            chmod(path, 0o700)
            var entry: [String: Any] = ["command": [path, "\(directory)/\(name).told", "a b;$HOME"]]
            if let events = hook.events { entry["events"] = events }
            list.append(entry)
        }
        try configure(["hooks": list])
    }

    /// Changes settings in `config.json`; `nil` removes one.
    func configure(_ changes: [String: Any?]) throws {
        let file = try JSONSerialization.jsonObject(with: Data(contents("config.json")))
        var settings = try #require(file as? [String: Any])
        for (name, value) in changes { settings[name] = value }
        let options: JSONSerialization.WritingOptions = [.prettyPrinted, .withoutEscapingSlashes]
        try replace("config.json", with: Array(try JSONSerialization.data(withJSONObject: settings, options: options)))
    }

    /// Writes a file beside the home that only its owner can read.
    /// - Returns: its path.
    func secret(_ text: String, _ name: String) throws -> String {
        let path = "\(directory)/\(name)"
        let attributes: [FileAttributeKey: Any] = [.posixPermissions: 0o600]
        try #require(FileManager.default.createFile(atPath: path, contents: Data(text.utf8), attributes: attributes))
        return path
    }

    func card() throws -> String { try ok("peer", "card")["contact"].string ?? "" }

    /// Adds the other node to the peers, under its name.
    func add(_ other: TestNode) throws { try ok("peer", "add", other.name, try other.card()) }

    func invite(_ conversation: String = "room", _ options: String...) throws -> String {
        let answer = try run(["invite", "create", conversation] + options)
        #expect(answer.code == 0, "\(answer)")
        return answer["slug"].string ?? ""
    }

    func members() throws -> JSON { try ok("conversation", "members", "room")["members"] }

    /// The line of `mayfly doctor` with this name.
    func check(_ name: String) throws -> JSON {
        try run(["doctor"]).lines.first { $0["name"].string == name } ?? JSON(value: nil)
    }

    /// The answers of one connected program to these requests, in their order.
    func rpc(_ requests: [(method: String, params: [String: Any])], at location: SourceLocation = #_sourceLocation)
        throws -> [JSON]
    {
        let lines = try requests.enumerated().map { id, request in
            let object: [String: Any] = [
                "jsonrpc": "2.0", "id": id, "method": request.method, "params": request.params,
            ]
            return String(decoding: try JSONSerialization.data(withJSONObject: object), as: UTF8.self) + "\n"
        }
        let answers = try ok("rpc", input: lines.joined(), at: location).lines
        #expect(answers.count == requests.count, sourceLocation: location)
        return answers.sorted { $0["id"].integer ?? 0 < $1["id"].integer ?? 0 }
    }

    var told: String { Program.text("\(directory)/\(name).told") }
}

final class Background {
    private let child: Child
    private let output: String

    init(_ node: TestNode, _ arguments: [String], input: String = "") throws {
        let name = "\(node.directory)/\(UUID().uuidString.prefix(8))"
        output = "\(name).out"
        try Data(input.utf8).write(to: URL(filePath: "\(name).in"))
        child = try Child(
            [Program.mayfly] + arguments + ["--json", "--home", node.home],
            input: try Descriptor("\(name).in", O_RDONLY), output: try Descriptor(output, O_WRONLY | O_CREAT))
    }

    deinit { stop() }

    func stop() {
        guard child.isRunning else { return }
        child.signal(SIGKILL)
        _ = child.wait(seconds: 10)
    }

    var lines: [JSON] { Program.text(output).split(separator: "\n").compactMap { JSON(line: $0) } }

    func line(_ index: Int = 0) throws -> JSON {
        try eventually("a line") { lines.count > index || !child.isRunning && lines.count <= index }
        guard lines.indices.contains(index) else { throw HarnessError("it ended without line \(index)") }
        return lines[index]
    }

    func signal(_ number: Int32) { child.signal(number) }

    /// - Returns: the exit code; `nil` after the timeout.
    func end(seconds: Int = 90) -> Int32? { child.wait(seconds: seconds) }
}

/// A temporary directory for one test. Its path is short, because a Unix socket's path has at most 107 bytes.
func withDirectory<Result>(_ body: (String) throws -> Result) throws -> Result {
    let directory = "/tmp/mf-\(UUID().uuidString.prefix(8))"
    guard mkdir(directory, 0o700) == 0 else { throw HarnessError("mkdir \(directory): \(errno)") }
    defer { try? FileManager.default.removeItem(atPath: directory) }
    return try body(directory)
}

/// Nodes without a home, which are removed after `body`.
func withNodes(_ names: [String], body: ([TestNode]) throws -> Void) throws {
    try withDirectory { directory in
        let nodes = names.map { TestNode(name: $0, directory: directory) }
        defer { for node in nodes { node.crash() } }
        try body(nodes)
    }
}

/// Initialised nodes, not yet running, that are removed after `body`.
func withHomes(_ names: String..., body: ([TestNode]) throws -> Void) throws {
    try withNodes(names) { nodes in
        for node in nodes { try node.initialise() }
        try body(nodes)
    }
}

func withHomes(_ body: (_ ann: TestNode, _ bob: TestNode) throws -> Void) throws {
    try withHomes("ann", "bob") { try body($0[0], $0[1]) }
}

func withHome(_ body: (_ ann: TestNode) throws -> Void) throws { try withHomes("ann") { try body($0[0]) } }

func withNode(_ body: (_ ann: TestNode) throws -> Void) throws {
    try withHome { ann in
        try ann.start()
        try body(ann)
    }
}

func withPair(_ arguments: [String] = [], body: (_ ann: TestNode, _ bob: TestNode) throws -> Void) throws {
    try withHomes("ann", "bob") { nodes in
        for node in nodes { try node.start(arguments) }
        try body(nodes[0], nodes[1])
        // The nodes must also end cleanly.
        for node in nodes { try node.stop() }
    }
}

/// Two running nodes that share the conversation `room`; `id` is its id.
func withRoom(
    _ arguments: [String] = [], lifetime: String? = nil,
    body: (_ ann: TestNode, _ bob: TestNode, _ id: String) throws -> Void
) throws {
    try withPair(arguments) { ann, bob in
        let id = try meet(ann, bob)
        if let lifetime { try agree(ann, bob, lifetime) }
        try body(ann, bob, id)
    }
}

/// - Returns: an invite to the new conversation `room`.
func inviteToRoom(_ ann: TestNode) throws -> String {
    try ann.ok("conversation", "create", "--name", "room")
    return try ann.invite()
}

/// `ann` makes the conversation `room` and `bob` joins it.
@discardableResult func meet(_ ann: TestNode, _ bob: TestNode, at location: SourceLocation = #_sourceLocation) throws
    -> String
{
    let created = try ann.ok("conversation", "create", "--name", "room", "--as", ann.name, at: location)
    let slug = try ann.ok("invite", "create", "room", at: location)["slug"].string ?? ""
    let joined = try bob.ok("join", slug, "--as", bob.name, "--timeout", "90", at: location)
    #expect(joined["state"].string == "ready", sourceLocation: location)
    #expect(joined["conversation"].string == created["conversation"].string, sourceLocation: location)
    try bob.wait("peerOnline", at: location)
    try ann.wait("peerOnline", at: location)
    return created["conversation"].string ?? ""
}

func agree(_ ann: TestNode, _ bob: TestNode, _ lifetime: String, at location: SourceLocation = #_sourceLocation) throws
{
    let cursors = (try ann.cursor(), try bob.cursor())
    try ann.ok("lifetime", "propose", "room", lifetime, at: location)
    try bob.wait("lifetimeProposed:ours=false,lifetime=\(lifetime)", after: cursors.1, at: location)
    try bob.ok("lifetime", "accept", "room", at: location)
    try ann.wait("lifetimeAgreed:lifetime=\(lifetime)", after: cursors.0, at: location)
}

@discardableResult func say(_ text: String, _ node: TestNode, at location: SourceLocation = #_sourceLocation) throws
    -> Answer
{
    let sent = try node.ok("send", "room", text, "--wait", "delivered", "--timeout", "90", at: location)
    #expect(sent["state"].string == "delivered", sourceLocation: location)
    return sent
}

func message(_ text: String, at node: TestNode, location: SourceLocation = #_sourceLocation) throws -> JSON {
    try node.ok("read", "room", at: location).lines.first { $0["text"].string == text } ?? JSON(value: nil)
}

func explosionReaches(_ bob: TestNode, _ ann: TestNode) throws {
    try bob.wait("exploded")
    try ann.wait("deletionReceipt")
}

/// Polls for a condition without an event, at most this long.
func eventually(_ what: String, seconds: Int = 90, _ condition: () throws -> Bool) throws {
    let end = ContinuousClock.now + .seconds(seconds)
    while try !condition() {
        guard ContinuousClock.now < end else { throw HarnessError("\(what) did not happen in \(seconds) s") }
        usleep(20_000)
    }
}

/// `nodes[0]` invites the other running nodes to `room`; each is linked to each.
func gather(_ nodes: [TestNode]) throws {
    try nodes[0].ok("conversation", "create", "--name", "room", "--as", nodes[0].name)
    for count in 2...nodes.count {
        let slug = try nodes[0].invite("room", "--single-use")
        try nodes[count - 1].ok("join", slug, "--as", nodes[count - 1].name, "--timeout", "90")
        for node in nodes[..<count] {
            try eventually("\(node.name) is linked to all") {
                let members = try node.members().list
                return members.count == count - 1 && members.allSatisfy { $0["online"].bool == true }
            }
        }
    }
}

/// The first of the running nodes invites all others to `room`; each is linked to each.
func withGroup(_ names: String..., body: ([TestNode]) throws -> Void) throws {
    try withNodes(names) { nodes in
        for node in nodes {
            try node.initialise()
            try node.start()
        }
        try gather(nodes)
        try body(nodes)
    }
}
