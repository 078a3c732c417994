import CLinux
import Control
import Glibc
import Logging
import Messaging
import NIOPosix
import NodeRuntime
import Synchronization
import Transport

/// Runs programs on events, as `hooks` of `config.json` says. A program gets only the event's name, the inbox's
/// clientId, the cursor and the time. It calls `mayfly read` for more, if permitted.
///
/// Asynchronous: at most ``runningCount`` run and ``queuedCount`` wait; further events are dropped and counted.
final class HookRunner: Sendable {
    static let runningCount = 4
    static let queuedCount = 256
    /// Event names that `config.json` accepts for hooks.
    static var events: [String] { EventKind.allCases.filter { $0 != .gap }.map(\.rawValue) }

    struct Occurrence: CodableRecord {
        var event = ""
        /// The clientId; `nil` for events of the whole node.
        @OrNull var inbox: String?
        var cursor: Int64 = 0
        var at = ""
    }

    private struct State {
        var hooks: [NodeConfiguration.Hook] = []
        var isStarted = false
        var counts = HookCounts(running: 0, queued: 0, done: 0, failed: 0, dropped: 0)
        var isStopped = false
    }

    private let home: String
    private let log: Logger
    private let pool = NIOThreadPool(numberOfThreads: HookRunner.runningCount)
    private let state = Mutex(State())
    /// A pipe: closing the second end tells the waiting threads that the node stops.
    private let stopPipe: (read: Int32, write: Int32)

    init(home: String, log: Logger) throws(ControlError) {
        let ends = try pipeEnds()
        stopPipe = (ends[0], ends[1])
        self.home = home
        self.log = log
    }

    /// Replaces the hooks. Queued and running programs go on.
    func use(_ hooks: [NodeConfiguration.Hook]) {
        let isFirst = state.withLock { state in
            state.hooks = hooks
            defer { state.isStarted = state.isStarted || !hooks.isEmpty }
            return !state.isStarted && !hooks.isEmpty
        }
        // A node without hooks has no hook threads.
        if isFirst { pool.start() }
    }

    /// For `status`; `nil` without hooks.
    var counts: HookCounts? { state.withLock { $0.hooks.isEmpty ? nil : $0.counts } }

    var isIdle: Bool { state.withLock { $0.hooks.isEmpty } }

    /// Queues the hooks of an event. Returns at once.
    func happened(_ occurrence: Occurrence) {
        let hooks = state.withLock { $0.hooks }
        for (index, hook) in hooks.enumerated() where hook.events?.contains(occurrence.event) ?? true {
            let isTaken = state.withLock { state in
                guard !state.isStopped, state.counts.queued < Self.queuedCount else {
                    state.counts.dropped += 1
                    return false
                }
                state.counts.queued += 1
                return true
            }
            guard isTaken else { continue }
            pool.submit { [self] work in
                guard case .active = work else { return }
                run(hook, number: index, occurrence)
            }
        }
    }

    private func run(_ hook: NodeConfiguration.Hook, number: Int, _ occurrence: Occurrence) {
        let isStopped = state.withLock { state in
            state.counts.queued -= 1
            if !state.isStopped { state.counts.running += 1 }
            return state.isStopped
        }
        guard !isStopped else { return }
        let program = HookProgram(
            command: hook.command,
            environment: [
                "MAYFLY_HOME": home, "MAYFLY_EVENT": occurrence.event, "MAYFLY_INBOX": occurrence.inbox ?? "",
                "MAYFLY_CURSOR": String(occurrence.cursor), "MAYFLY_AT": occurrence.at,
            ], input: JSONValue(of: occurrence).text + "\n")
        let end = program.run(stopped: stopPipe.read)
        state.withLock { state in
            state.counts.running -= 1
            if end == .ended(.exited(0)) { state.counts.done += 1 } else { state.counts.failed += 1 }
        }
        let place: Logger.Metadata = ["hook": "\(number)", "event": "\(occurrence.event)"]
        switch end {
        case .ended(.exited(0)): break
        case .ended(.exited(let code)): log.warning("a hook failed with exit code \(code)", metadata: place)
        case .ended(.killed(let signal)): log.warning("a hook was ended by signal \(signal)", metadata: place)
        case .timedOut: log.warning("a hook timed out and was ended", metadata: place)
        case .notStarted(let reason): log.warning("a hook was not started: \(reason)", metadata: place)
        }
    }

    /// Drops the queue, ends running programs, and waits for their end.
    func stop() async {
        state.withLock { $0.isStopped = true }
        close(stopPipe.write)
        try? await pool.shutdownGracefully()
        close(stopPipe.read)
    }
}

/// Runs of hook programs.
struct HookCounts: CodableRecord {
    var running: Int = 0
    var queued: Int = 0
    /// Exit code 0.
    var done: Int = 0
    /// Another exit code, killed after a timeout, or not started.
    var failed: Int = 0
    /// Not started, because the queue was full.
    var dropped: Int = 0
}

extension HookRunner.Occurrence {
    /// Omits conversation, text, addresses and names, which only members may know.
    init(_ entry: EventLog.Entry) {
        self.init(
            event: EventKind(entry.event).rawValue, inbox: entry.event.client?.description, cursor: entry.cursor,
            at: entry.event.at.exactISO8601)
    }
}

/// One run of a hook program, without a shell, in its own process group. It inherits nothing but its input and
/// variables.
struct HookProgram {
    enum End: Hashable, Sendable {
        case ended(ChildProcess.End)
        /// It exceeded its timeout and was killed.
        case timedOut
        case notStarted(String)
    }

    /// Timeout before SIGTERM, and grace period before SIGKILL, in milliseconds.
    static let timeout: Int64 = 30_000
    static let grace: Int64 = 5_000

    let command: [String]
    /// Event variables; a few that programs need are added.
    let environment: [String: String]
    let input: String

    /// Why a program must not be started: missing, not executable, or writable by others. `nil` when it is fine.
    static func problem(_ path: String) -> String? {
        var status = stat()
        guard stat(path, &status) == 0 else { return "\(path): \(String(cString: strerror(errno)).lowercased())" }
        guard status.st_mode & S_IFMT == S_IFREG else { return "\(path) is not a file" }
        guard status.st_mode & 0o022 == 0 else {
            return "others can change \(path) (mode \(String(status.st_mode & 0o777, radix: 8)))"
        }
        guard status.st_uid == 0 || status.st_uid == geteuid() else { return "\(path) belongs to another user" }
        guard access(path, X_OK) == 0 else { return "\(path) is not executable" }
        return nil
    }

    /// Runs the program to its end. Blocking, for a hook thread.
    /// - Parameter stopped: becomes readable when the node stops, which ends the program.
    func run(stopped: Int32) -> End {
        if let problem = Self.problem(command[0]) { return .notStarted(problem) }
        var ends: [Int32] = [-1, -1]
        guard process_pipe(&ends) == 0 else { return .notStarted("pipe: \(String(cString: strerror(errno)))") }
        // Fits into the pipe's buffer, so the write does not wait for the program.
        let bytes = Array(input.utf8)
        _ = write(ends[1], bytes, bytes.count)
        close(ends[1])
        defer { close(ends[0]) }
        var variables = environment
        for name in ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ"] where getenv(name) != nil {
            variables[name] = String(cString: getenv(name))
        }
        do throws(ChildProcess.StartFailure) {
            // The output could contain texts, so it does not reach the log.
            return wait(
                try ChildProcess(command[0], arguments: command, environment: variables, input: ends[0]),
                stopped: stopped)
        } catch { return .notStarted(error.text) }
    }

    private func wait(_ child: consuming ChildProcess, stopped: Int32) -> End {
        let isLate = !child.hasEnded(within: Self.timeout, unless: stopped)
        if isLate {
            child.signal(SIGTERM)
            if !child.hasEnded(within: Self.grace) { child.signal(SIGKILL) }
        }
        let end = child.reap()
        return isLate ? .timedOut : .ended(end)
    }
}
