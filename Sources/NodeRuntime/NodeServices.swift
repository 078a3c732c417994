import Cryptography
import Glibc
import Logging
import Messaging
import NIOCore
import Store
import Transport

/// The services that every object of a node uses: event loop, disk, clock, log and settings. On the node's loop alone.
final class NodeServices {
    private static let editAttempts = 16
    /// A longer gap between clock readings means that the process or the machine was suspended.
    private static let longestPause: Milliseconds = 15 * .second

    let loop: any EventLoop
    let options: NodeOptions
    let environment: Environment
    let store: Store
    let log: Logger
    /// By the system's clock, which may differ from the node's.
    let startedAt: Timestamp
    let storage: StorageHealth
    private(set) var configuration: NodeConfiguration { didSet { readSettings() } }
    private(set) var defaultPolicy = LifetimePolicy.ask
    private(set) var defaultCap = LifetimeCap.none
    var counters = NodeCounters()
    let turns: TurnQueue
    private var clock: NodeClock
    private var lastReading: (at: Timestamp, boottime: Milliseconds)?
    /// Called when the node detects that it was suspended, with the machine or alone.
    var stoodStill: ((_ since: Timestamp) -> Void)?
    private var lastMark: Timestamp?
    /// After the stop no turn begins, and tasks on the loop do nothing.
    private(set) var isStopped = false
    private var saidAt: [String: Timestamp] = [:]

    init(
        _ options: NodeOptions, configuration: NodeConfiguration, environment: Environment, loop: any EventLoop,
        log: Logger
    ) throws {
        self.options = options
        self.configuration = configuration
        self.environment = environment
        self.loop = loop
        turns = TurnQueue(on: loop, pause: TransportLimits().turnPause)
        self.log = log
        let realtime = environment.realtime()
        startedAt = Timestamp(milliseconds: realtime)
        store = try Store.open(
            home: options.home, fileSystem: environment.disk, now: realtime, committingOn: environment.commitThread)
        storage = StorageHealth(
            room: StorageRoom(
                home: options.home, limits: configuration.storage ?? NodeConfiguration.Storage(),
                space: environment.space))
        clock = NodeClock(mark: store.clockMark(), realtime: realtime, boottime: environment.boottime())
        readSettings()
    }

    func stop() { isStopped = true }

    /// Saves the clock mark once a minute, during the reading: a forward step can complete the minute at once. Data
    /// hidden by that step must stay hidden after a power cut.
    func readClock() -> NodeClock.Reading {
        let boottime = environment.boottime()
        let reading = clock.read(realtime: environment.realtime(), boottime: boottime)
        let last = lastReading
        lastReading = (reading.confirmed, boottime)
        if let last, boottime - last.boottime > Self.longestPause { stoodStill?(last.at) }
        saveMark(reading.confirmed)
        return reading
    }

    private func saveMark(_ now: Timestamp) {
        guard lastMark.map({ now - $0 >= .minute }) ?? true, !isStopped, !store.isReadOnly else { return }
        lastMark = now
        do { try store.saveClockMark(now.milliseconds) } catch {
            log.error("the clock's high-water mark could not be saved", metadata: ["error": "\(error)"])
        }
    }

    var now: Timestamp { readClock().confirmed }

    /// Parses what every turn of the core is given.
    private func readSettings() {
        defaultPolicy = LifetimePolicy(configuration.policy) ?? .ask
        defaultCap = configuration.cap.flatMap { LifetimeCap($0) } ?? .none
    }

    var sendsReadReceipts: Bool { configuration.readReceipts ?? false }

    /// Largest file that is sent or accepted, in bytes.
    var attachmentByteCount: Int64 {
        min(max(0, configuration.attachmentByteCount ?? Limits.attachmentByteCount), Attachment.byteCountLimit)
    }

    /// The LAN discovery setting; `nil` if unset.
    var discovery: DiscoverySetting? { options.discover ?? configuration.discover.flatMap { DiscoverySetting($0) } }

    func take(_ configuration: NodeConfiguration) { self.configuration = configuration }

    /// Changes `config.json` and keeps other edits of the file. Edits of the file apply at the next start or reload. A
    /// change that cannot be saved does not apply.
    func configure(_ change: (inout NodeConfiguration) -> Void) throws(NodeError) {
        let path = "\(options.home)/\(NodeConfiguration.fileName)"
        do throws(HomeFileError) {
            for _ in 0..<Self.editAttempts {
                var file = configuration
                let bytes = try HomeFile.read(path, unless: .missing)
                if let bytes { file = try NodeConfiguration.parse(bytes, path: path) }
                change(&file)
                guard try file.save(home: options.home, over: bytes) else { continue }
                return change(&configuration)
            }
            throw HomeFileError(kind: .busy, path: path, reason: "another program changes it again and again")
        } catch { throw .homeFile(error) }
    }

    /// Logs a recurring error at most once a minute, so that a disk that keeps failing does not fill the log.
    func say(_ text: String, of error: any Error) {
        guard saidAt[text].map({ now - $0 >= .minute }) ?? true else { return }
        saidAt[text] = now
        log.error("\(text)", metadata: ["error": "\(error)"])
    }

    func note(_ occurrence: @autoclosure () -> Occurrence) {
        // Trace and debug lines are frequent: a line of a disabled level is not built.
        guard log.logLevel <= .notice else { return }
        let line = LogLine(occurrence())
        log.log(level: line.level, line.text, metadata: line.metadata)
    }
}

/// How a node is started. A setting that is not `nil` overrides the configuration.
package struct NodeOptions: Sendable {
    package var home: String
    package var version: String
    package var listen: [Messaging.Endpoint]?
    /// A link that returns within this time continues its session.
    package var sessionGrace: Milliseconds = Limits.sessionGrace
    package var capacity: Int?
    package var isRendezvous: Bool?
    package var isMailbox: Bool?
    package var datagrams: Bool?
    package var discover: DiscoverySetting?
    /// The command line gave the log level; a reload of the configuration leaves it.
    package var hasLogLevel = false
    /// The command line gave the address of the metrics; a reload of the configuration leaves it.
    package var hasMetrics = false
    package var mapPorts: Bool?
    /// UDP port of the LAN multicast group.
    package var lanPort = LanLimits.port

    package init(home: String, version: String) {
        self.home = home
        self.version = version
    }
}

/// The disk, clocks and network under a node: the operating system's, or a simulator's.
package struct Environment: Sendable {
    package var disk: any FileSystem = PosixFileSystem()
    package var commitThread = CommitThread.own
    package var network: any Network = Sockets()
    /// `nil` for TCP alone.
    package var datagrams: (any DatagramNetwork)? = Sockets()
    package var lan: (any LanNetwork)? = Sockets()
    package var gateways: (any GatewayNetwork)? = SystemGateways()
    package var encapsulation = KeyEncapsulationSource()
    package var realtime: @Sendable () -> Milliseconds = { NodeClock.realtime() }
    package var boottime: @Sendable () -> Milliseconds = { NodeClock.boottime() }
    package var space: @Sendable (_ home: String) -> DiskSpace? = { DiskSpace(of: $0) }

    package init() {}
}

/// The node's wall clock (Store.md, "clock"). It never goes back, even if the system clock does.
///
/// It advances at least as fast as `CLOCK_BOOTTIME`. A forward step of more than five minutes hides overdue content at
/// once. The node accepts the step only after it has lasted a minute, so that a time server's glitch destroys nothing.
package struct NodeClock: Sendable {
    private static let step: Milliseconds = 5 * .minute
    private static let confirmation: Milliseconds = .minute

    /// Two times of one moment; they differ while a forward step is unconfirmed.
    package struct Reading: Hashable, Sendable {
        /// Content that expires before this time is hidden.
        package var hide: Timestamp
        /// Content that expires before this time is destroyed. Also the time of all the node's work.
        package var confirmed: Timestamp

        package var isInDoubt: Bool { hide > confirmed }
    }

    private var anchor: Milliseconds
    private var anchorBoot: Milliseconds
    /// When the system clock was first seen far ahead, by `CLOCK_BOOTTIME`.
    private var aheadSince: Milliseconds?

    /// - Parameter mark: the latest time ever confirmed on this home; the clock starts no earlier.
    package init(mark: Milliseconds, realtime: Milliseconds, boottime: Milliseconds) {
        anchor = max(mark, realtime)
        anchorBoot = boottime
    }

    package mutating func read(realtime: Milliseconds, boottime: Milliseconds) -> Reading {
        let expected = anchor + max(0, boottime - anchorBoot)
        guard realtime > expected else {
            aheadSince = nil
            return Reading(hide: Timestamp(milliseconds: expected), confirmed: Timestamp(milliseconds: expected))
        }
        if realtime - expected > Self.step {
            let since = aheadSince ?? boottime
            aheadSince = since
            guard boottime - since >= Self.confirmation else {
                return Reading(hide: Timestamp(milliseconds: realtime), confirmed: Timestamp(milliseconds: expected))
            }
        }
        aheadSince = nil
        anchor = realtime
        anchorBoot = boottime
        return Reading(hide: Timestamp(milliseconds: realtime), confirmed: Timestamp(milliseconds: realtime))
    }

    package static func realtime() -> Milliseconds { milliseconds(CLOCK_REALTIME) }
    /// Includes the time that the machine is suspended.
    package static func boottime() -> Milliseconds { milliseconds(CLOCK_BOOTTIME) }

    private static func milliseconds(_ clock: clockid_t) -> Milliseconds {
        var time = timespec()
        clock_gettime(clock, &time)
        return Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000
    }
}
