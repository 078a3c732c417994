import Logging
import Messaging
import NIOCore
import Store
import Transport

/// What every object of a node uses: the event loop, the disk, the clock, the log and the settings. On the node's loop alone.
final class NodeServices {
    private static let editAttempts = 16
    /// Longer than the timer leaves the node without a turn.
    private static let longestPause: Milliseconds = 15 * .second

    let loop: any EventLoop
    let options: NodeOptions
    let environment: Environment
    let store: Store
    let log: Logger
    /// By the system's clock, wherever the node's own is.
    let startedAt: Timestamp
    let feed: EventFeed
    let storage: StorageHealth
    private(set) var configuration: NodeConfiguration
    var counters = NodeCounters()
    /// Work that waits until the loop has asked its sockets.
    let turns: TurnQueue
    private var clock: NodeClock
    /// The last reading, and `CLOCK_BOOTTIME` then.
    private var lastReading: (at: Timestamp, boottime: Milliseconds)?
    /// Called when the node finds that it has not run since a moment, with the machine or alone.
    var stoodStill: ((_ since: Timestamp) -> Void)?
    /// When the clock's mark was last saved, or could not be.
    private var lastMark: Timestamp?
    /// The node has stopped: no turn begins, and no task of the loop does anything.
    private(set) var isStopped = false
    /// When ``say(_:of:)`` last wrote each of its texts.
    private var saidAt: [String: Timestamp] = [:]

    /// Opens the store.
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
        feed = EventFeed(startedAt: clock.read(realtime: realtime, boottime: environment.boottime()).confirmed)
    }

    func stop() { isStopped = true }

    // MARK: Time

    /// Saves the clock's mark when the last one is a minute old: at the reading itself, since a step forward may have made the
    /// minute pass at once, and what it hides stays hidden after a power cut.
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

    /// The time of everything the node does.
    var now: Timestamp { readClock().confirmed }

    // MARK: Settings

    var defaultPolicy: LifetimePolicy { LifetimePolicy(configuration.policy) ?? .ask }

    var defaultCap: LifetimeCap { configuration.cap.flatMap { LifetimeCap($0) } ?? .none }

    var sendsReadReceipts: Bool { configuration.readReceipts ?? false }

    /// Largest file that is sent or taken, in bytes.
    var attachmentByteCount: Int64 {
        min(max(0, configuration.attachmentByteCount ?? Limits.attachmentByteCount), Attachment.byteCountLimit)
    }

    /// What was said of looking for others on this machine's networks; `nil` if nothing was.
    var discovery: DiscoverySetting? { options.discover ?? configuration.discover.flatMap { DiscoverySetting($0) } }

    /// From now on this holds.
    func take(_ configuration: NodeConfiguration) { self.configuration = configuration }

    /// Changes `config.json`, of which everything else stays as it stands there now: what somebody has edited since it was
    /// read holds from the next start, or reload, on. What could not be saved does not hold.
    func configure(_ change: (inout NodeConfiguration) -> Void) throws(NodeError) {
        let path = "\(options.home)/\(NodeConfiguration.fileName)"
        do throws(HomeFileError) {
            for _ in 0..<Self.editAttempts {
                var file = configuration
                var bytes: [UInt8]?
                do throws(HomeFileError) { bytes = try HomeFile.read(path) } catch {
                    if error.kind != .missing { throw error }
                }
                if let bytes { file = try NodeConfiguration.parse(bytes, path: path) }
                change(&file)
                guard try file.save(home: options.home, over: bytes) else { continue }
                return change(&configuration)
            }
            throw HomeFileError(kind: .system, path: path, line: nil, reason: "another program writes it all the time")
        } catch { throw .homeFile(error) }
    }

    // MARK: The log

    /// Logs an error that is tried again all the time, at most once a minute: a disk that stays as it is must not be filled
    /// with lines.
    func say(_ text: String, of error: any Error) {
        guard saidAt[text].map({ now - $0 >= .minute }) ?? true else { return }
        saidAt[text] = now
        log.error("\(text)", metadata: ["error": "\(error)"])
    }

    /// Writes a line of the log, if its level is enabled.
    func note(_ occurrence: @autoclosure () -> Occurrence) {
        // Trace and debug lines are many: a line whose level is disabled is not made.
        guard log.logLevel <= .notice else { return }
        let line = LogLine(occurrence())
        log.log(level: line.level, line.text, metadata: line.metadata)
    }
}

/// An object of a node, on the node's loop alone. It reaches the services by their own names.
protocol NodePart: AnyObject { var services: NodeServices { get } }

extension NodePart {
    var loop: any EventLoop { services.loop }
    var options: NodeOptions { services.options }
    var environment: Environment { services.environment }
    var store: Store { services.store }
    var log: Logger { services.log }
    var storage: StorageHealth { services.storage }
    var configuration: NodeConfiguration { services.configuration }
    var isStopped: Bool { services.isStopped }
    /// The time of everything the node does.
    var now: Timestamp { services.now }

    func readClock() -> NodeClock.Reading { services.readClock() }
    func say(_ text: String, of error: any Error) { services.say(text, of: error) }
    func note(_ occurrence: @autoclosure () -> Occurrence) { services.note(occurrence()) }
}
