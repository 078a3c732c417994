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
    let feed: EventFeed
    let storage: StorageHealth
    private(set) var configuration: NodeConfiguration
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
        feed = EventFeed(startedAt: clock.read(realtime: realtime, boottime: environment.boottime()).confirmed)
    }

    func stop() { isStopped = true }

    // MARK: Time

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

    // MARK: Settings

    var defaultPolicy: LifetimePolicy { LifetimePolicy(configuration.policy) ?? .ask }

    var defaultCap: LifetimeCap { configuration.cap.flatMap { LifetimeCap($0) } ?? .none }

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
                var bytes: [UInt8]?
                do throws(HomeFileError) { bytes = try HomeFile.read(path) } catch {
                    if error.kind != .missing { throw error }
                }
                if let bytes { file = try NodeConfiguration.parse(bytes, path: path) }
                change(&file)
                guard try file.save(home: options.home, over: bytes) else { continue }
                return change(&configuration)
            }
            throw HomeFileError(
                kind: .busy, path: path, line: nil, reason: "another program changes it again and again")
        } catch { throw .homeFile(error) }
    }

    // MARK: The log

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
