import CLinux
import Control
import Glibc
import Logging
import Messaging
import NIOPosix
import NodeRuntime
import Synchronization

/// Starts programs when something happens, as `hooks` of `config.json` says. A program is told the event's name, the
/// inbox's clientId, the cursor and the time, and nothing else: it asks `mayfly read` for more, if it may.
///
/// Never waited for: at most ``runningCount`` run, at most ``queuedCount`` wait, and the rest is dropped and counted.
final class HookRunner: Sendable {
    static let runningCount = 4
    static let queuedCount = 256

    /// What a program is told.
    struct Occurrence: Sendable {
        var event: String
        /// The clientId; `nil` for events of the whole node.
        var inbox: String?
        var cursor: Int64
        var at: String
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
    /// Both ends of a pipe: closing the second tells the waiting threads that the node stops.
    private let stopPipe: (read: Int32, write: Int32)

    /// - Throws: when there is no pipe to be had.
    init(home: String, log: Logger) throws(ControlError) {
        var ends: [Int32] = [-1, -1]
        guard process_pipe(&ends) == 0 else { throw ControlError(.failed, "cannot make a pipe") }
        stopPipe = (ends[0], ends[1])
        self.home = home
        self.log = log
    }

    /// These are started from now on. What waits or runs goes on.
    func use(_ hooks: [NodeConfiguration.Hook]) {
        let isFirst = state.withLock { state in
            state.hooks = hooks
            defer { state.isStarted = state.isStarted || !hooks.isEmpty }
            return !state.isStarted && !hooks.isEmpty
        }
        // A node without hooks has no threads for them.
        if isFirst { pool.start() }
    }

    /// For `status`; `nil` when there are no hooks.
    var counts: HookCounts? { state.withLock { $0.hooks.isEmpty ? nil : $0.counts } }

    /// Whether there is anything to be started.
    var isIdle: Bool { state.withLock { $0.hooks.isEmpty } }

    /// Starts what is to be started for an event. Returns at once.
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
            ],
            input: JSONValue.object([
                "event": .string(occurrence.event), "inbox": occurrence.inbox.map { .string($0) } ?? .null,
                "cursor": .integer(occurrence.cursor), "at": .string(occurrence.at),
            ]).text + "\n")
        let end = program.run(stopped: stopPipe.read)
        state.withLock { state in
            state.counts.running -= 1
            if end == .exited(0) { state.counts.done += 1 } else { state.counts.failed += 1 }
        }
        let place: Logger.Metadata = ["hook": "\(number)", "event": "\(occurrence.event)"]
        switch end {
        case .exited(0): break
        case .exited(let code): log.warning("a hook failed with exit code \(code)", metadata: place)
        case .killed(let signal): log.warning("a hook was ended by signal \(signal)", metadata: place)
        case .timedOut: log.warning("a hook took too long and was ended", metadata: place)
        case .notStarted(let reason): log.warning("a hook was not started: \(reason)", metadata: place)
        }
    }

    /// Drops what waits, ends what runs, and returns when all of it has ended.
    func stop() async {
        state.withLock { $0.isStopped = true }
        close(stopPipe.write)
        try? await pool.shutdownGracefully()
        close(stopPipe.read)
    }
}

extension HookRunner {
    /// The names that a hook may wait for.
    static var events: [String] { EventKind.allCases.filter { $0 != .gap }.map(\.rawValue) }
}

extension HookRunner.Occurrence {
    /// Leaves out all that only members may know: conversation, text, addresses, names.
    init(_ entry: EventLog.Entry) {
        self.init(
            event: EventView.kind(of: entry.event).rawValue, inbox: entry.event.client?.description,
            cursor: entry.cursor, at: Control.Timestamp(entry.event.at).iso8601)
    }
}
