import Control
import FoundationEssentials
import Glibc
import Messaging
import NIOCore
import NIOPosix
import NodeRuntime
import Synchronization

final class Metrics: Sendable {
    /// Cache time of the home's size, which takes one stat(2) per file.
    private static let homeSizeAge: Duration = .seconds(30)

    private let node: Node
    private let home: String
    private let hooks: HookRunner
    private let log: OutputQueue
    /// In seconds since 1970.
    private let startedAt: Double
    private let begin = ContinuousClock.now
    private let homeSize = Mutex<(byteCount: Int64, at: ContinuousClock.Instant)?>(nil)

    init(_ node: Node, home: String, hooks: HookRunner, log: OutputQueue) {
        self.node = node
        self.home = home
        self.hooks = hooks
        self.log = log
        startedAt = Double(wallClock().milliseconds) / 1_000
    }

    func text() -> EventLoopFuture<String> {
        size().map { [self] size in
            node.assumeIsolated { node in
                let figures = NodeFigures(node)
                var text = MetricsText()
                describeProcess(&text, node.options.version)
                describeStorage(&text, figures, size)
                describeMessages(&text, figures)
                describeLinks(&text, figures)
                describeOthers(&text, figures)
                describeMailboxes(&text, node.mailboxStanding, node.mailboxService)
                return text.text
            }
        }
    }

    private func size() -> EventLoopFuture<Int64> {
        let known = homeSize.withLock { $0 }
        if let known, ContinuousClock.now - known.at < Self.homeSizeAge {
            return node.loop.makeSucceededFuture(known.byteCount)
        }
        let thread = NIOThreadPool(numberOfThreads: 1)
        thread.start()
        let size = thread.runIfActive(eventLoop: node.loop) { [self] in
            let byteCount = HomeSize.measure(home)
            homeSize.withLock { $0 = (byteCount, ContinuousClock.now) }
            return byteCount
        }
        size.whenComplete { _ in thread.shutdownGracefully { _ in } }
        return size
    }

    private func describeProcess(_ text: inout MetricsText, _ version: String) {
        let process = ProcessFigures()
        let uptime = (ContinuousClock.now - begin) / .seconds(1)
        text.gauge("mayfly_build_info", "The version of the node.", [.init(1, ("version", version))])
        text.gauge("process_start_time_seconds", "When the node started, since 1970.", [.init(startedAt)])
        text.gauge("mayfly_uptime_seconds", "How long the node has run.", [.init(uptime)])
        text.gauge("process_resident_memory_bytes", "Memory of the process.", [.init(process.residentByteCount)])
        text.counter("process_cpu_seconds_total", "Processor time of the process.", [.init(process.seconds)])
        text.gauge("process_open_fds", "Open descriptors of the process.", [.init(process.fileCount)])
        text.gauge("process_threads", "Threads of the process.", [.init(process.threadCount)])
        text.counter(
            "mayfly_log_dropped_total", "Lines of the log that were dropped, since standard error was not read.",
            [.init(log.droppedCount)])
    }

    private func describeStorage(_ text: inout MetricsText, _ figures: NodeFigures, _ homeSize: Int64) {
        let (state, commits) = (figures.state, figures.commits)
        text.gauge("mayfly_locked", "Whether the storage waits for its passphrase.", [.init(state.isLocked ? 1 : 0)])
        text.gauge(
            "mayfly_storage_trouble", "Whether the disk has refused a write lately, or is read-only.",
            [.init(state.storageTrouble != nil || state.isReadOnly ? 1 : 0)])
        text.gauge("mayfly_storage_damaged", "Parts of the storage that are damaged.", [.init(state.damage.count)])
        text.gauge("mayfly_home_bytes", "Bytes of the home on its disk.", [.init(homeSize)])
        if let space = DiskSpace(of: home) {
            text.gauge("mayfly_disk_free_bytes", "Bytes free on the disk of the home.", [.init(space.available)])
        }
        text.counter(
            "mayfly_commits_total", "Group commits, by whether they are durable.",
            [.init(commits.count, ("outcome", "durable")), .init(commits.failureCount, ("outcome", "failed"))])
        text.counter(
            "mayfly_commit_seconds_total", "Time that group commits have taken.",
            [.init(Double(commits.nanoseconds) / 1e9)])
        text.gauge(
            "mayfly_commit_seconds_max", "Time of the longest group commit.",
            [.init(Double(commits.longestNanoseconds) / 1e9)])
    }

    private func describeMessages(_ text: inout MetricsText, _ figures: NodeFigures) {
        let state = figures.state
        text.counter(
            "mayfly_messages_total", "Messages, by event.",
            NodeCounters.MessageEvent.allCases.map { .init(figures.counters.messages[$0] ?? 0, ("event", $0.rawValue)) }
        )
        text.gauge("mayfly_outbox_messages", "Messages that are not acknowledged.", [.init(state.outbox)])
        text.counter(
            "mayfly_conversation_events_total", "Joins, members, agreements and explosions.",
            NodeCounters.ConversationEvent.allCases.map {
                .init(figures.counters.conversations[$0] ?? 0, ("event", $0.rawValue))
            })
        text.gauge(
            "mayfly_inboxes", "Inboxes, by state.",
            [
                .init(state.awake, ("state", "awake")), .init(state.sleeping, ("state", "asleep")),
                .init(state.unused, ("state", "unused")),
            ])
        text.gauge(
            "mayfly_inbox_capacity", "How many inboxes the node keeps awake; protected ones do not count.",
            [.init(figures.capacity)])
    }

    private func describeLinks(_ text: inout MetricsText, _ figures: NodeFigures) {
        func byKind(_ counts: [NodeCounters.LinkKind: Int]) -> [MetricsText.Sample] {
            NodeCounters.LinkKind.all.map { kind in
                .init(counts[kind] ?? 0, ("carrier", kind.carrier.rawValue), ("path", kind.path.rawValue))
            }
        }
        let counters = figures.counters
        text.gauge("mayfly_links", "Open links, by carrier and path.", byKind(figures.links))
        text.counter("mayfly_links_opened_total", "Handshakes that opened a link.", byKind(counters.opened))
        text.counter(
            "mayfly_links_closed_total", "Links that have ended, by reason.", MetricsText.samples(counters.closed))
        text.counter(
            "mayfly_link_bytes_total", "Sealed bytes of all links.",
            [.init(figures.bytesIn, ("direction", "in")), .init(figures.bytesOut, ("direction", "out"))])
        text.counter("mayfly_dials_failed_total", "Failed dials, by reason.", MetricsText.samples(counters.failedDials))
        text.counter(
            "mayfly_handshakes_rejected_total", "Incoming connections and handshakes that failed, by reason.",
            MetricsText.samples(counters.rejections))
    }

    private func describeOthers(_ text: inout MetricsText, _ figures: NodeFigures) {
        if let counts = hooks.counts {
            text.gauge(
                "mayfly_hooks", "Hooks that run or wait.",
                [.init(counts.running, ("state", "running")), .init(counts.queued, ("state", "queued"))])
            text.counter(
                "mayfly_hooks_total", "Hooks that have ended, or were not started.",
                [
                    .init(counts.done, ("outcome", "done")), .init(counts.failed, ("outcome", "failed")),
                    .init(counts.dropped, ("outcome", "dropped")),
                ])
        }
        guard let relay = figures.relay else { return }
        text.gauge("mayfly_rendezvous_users", "Nodes served by the rendezvous service.", [.init(relay.users)])
        text.gauge(
            "mayfly_rendezvous_reservations", "Inboxes reserved by the served nodes.", [.init(relay.reservations)])
        text.gauge("mayfly_rendezvous_streams", "Relayed streams.", [.init(relay.streams)])
        text.counter("mayfly_rendezvous_opened_total", "Streams that were opened.", [.init(relay.opened)])
        text.counter("mayfly_rendezvous_bytes_total", "Relayed bytes.", [.init(relay.byteCount)])
        text.counter("mayfly_rendezvous_refused_total", "Requests that were refused.", [.init(relay.refused)])
    }

    private func describeMailboxes(
        _ text: inout MetricsText, _ own: OwnMailboxStanding?, _ service: MailboxServiceStanding?
    ) {
        if let own {
            let isGranted = if case .granted = own.standing { true } else { false }
            text.gauge("mayfly_mailbox_granted", "Whether our mailbox keeps boxes for us.", [.init(isGranted ? 1 : 0)])
            text.counter("mayfly_mailbox_fetched_total", "Slots taken from our boxes.", [.init(own.takenCount)])
        }
        guard let counts = service?.counts else { return }
        text.gauge("mayfly_mailbox_owners", "Nodes for which boxes are kept.", [.init(counts.owners)])
        text.gauge("mayfly_mailbox_boxes", "Boxes kept for these nodes.", [.init(counts.boxes)])
        text.gauge("mayfly_mailbox_slots", "Slots that are used.", [.init(counts.slots)])
        text.gauge(
            "mayfly_mailbox_bytes", "Bytes that are kept for others.",
            [
                .init(counts.byteCount - counts.memoryByteCount, ("place", "disk")),
                .init(counts.memoryByteCount, ("place", "memory")),
            ])
        text.counter(
            "mayfly_mailbox_slots_total", "Slots, by event; refused counts requests.",
            [
                .init(counts.put, ("event", "put")), .init(counts.taken, ("event", "taken")),
                .init(counts.discarded, ("event", "discarded")), .init(counts.expired, ("event", "expired")),
                .init(counts.refused, ("event", "refused")),
            ])
    }
}

/// Metrics in Prometheus text format, version 0.0.4.
struct MetricsText {
    enum Kind: String { case counter, gauge }

    struct Sample {
        let labels: [(name: String, value: String)]
        let value: Double

        init(_ value: some BinaryInteger, _ labels: (name: String, value: String)...) {
            self.labels = labels
            self.value = Double(value)
        }

        init(_ value: Double, _ labels: (name: String, value: String)...) {
            self.labels = labels
            self.value = value
        }

        fileprivate var text: String {
            // Larger values exceed the exact integers of a `Double`; no metric reaches them in a node's life.
            value == value.rounded() && abs(value) < 9e15 ? String(Int64(value)) : String(value)
        }
    }

    private(set) var text = ""

    mutating func add(_ name: String, _ kind: Kind, _ help: String, _ samples: [Sample]) {
        guard !samples.isEmpty else { return }
        text += "# HELP \(name) \(help)\n# TYPE \(name) \(kind.rawValue)\n"
        for sample in samples {
            let labels = sample.labels.map { "\($0.name)=\"\(Self.escaped($0.value))\"" }.joined(separator: ",")
            text += "\(name)\(labels.isEmpty ? "" : "{\(labels)}") \(sample.text)\n"
        }
    }

    mutating func counter(_ name: String, _ help: String, _ samples: [Sample]) { add(name, .counter, help, samples) }
    mutating func gauge(_ name: String, _ help: String, _ samples: [Sample]) { add(name, .gauge, help, samples) }

    static func samples(_ counts: [String: Int]) -> [Sample] {
        counts.keys.sorted().map { Sample(counts[$0] ?? 0, ("reason", $0)) }
    }

    private static func escaped(_ value: String) -> String {
        value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("\n", with: "\\n")
    }
}

struct ProcessFigures {
    let residentByteCount: Int
    let threadCount: Int
    let fileCount: Int
    let seconds: Double

    init() {
        let status = (try? InputFile.read("/proc/self/status", byteLimit: 1 << 16)) ?? []
        let lines = String(decoding: status, as: UTF8.self).split(separator: "\n")
        func field(_ name: String) -> Int {
            lines.first { $0.hasPrefix("\(name):") }.flatMap { Int($0.filter(\.isNumber)) } ?? 0
        }
        residentByteCount = field("VmRSS") * 1_024
        threadCount = field("Threads")
        fileCount = names(in: "/proc/self/fd").count
        var usage = rusage()
        getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
        func seconds(_ time: timeval) -> Double { Double(time.tv_sec) + Double(time.tv_usec) / 1_000_000 }
        self.seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime)
    }
}

enum HomeSize {
    /// Deeper than the store's directories.
    private static let depthLimit = 3

    /// One stat(2) per file, so run it on a separate thread.
    static func measure(_ path: String, depth: Int = 0) -> Int64 {
        var status = stat()
        guard lstat(path, &status) == 0 else { return 0 }
        let own = Int64(status.st_blocks) * 512
        guard status.st_mode & S_IFMT == S_IFDIR, depth < depthLimit else { return own }
        return names(in: path).reduce(own) { $0 + measure("\(path)/\($1)", depth: depth + 1) }
    }
}

/// Empty for an unreadable directory.
private func names(in path: String) -> [String] { (try? FileManager.default.contentsOfDirectory(atPath: path)) ?? [] }
