import Control
import Dispatch
import Glibc
import Logging
import NodeRuntime
import Synchronization

/// Writes to a descriptor on its own thread, so that a slow or stopped reader never blocks the node. Lines that exceed
/// the queue are dropped and counted.
final class OutputQueue: Sendable {
    private static let byteLimit = 256 << 10

    private struct State {
        var bytes: [UInt8] = []
        var droppedCount = 0
        /// The part of ``droppedCount`` already passed to `whenDropped`.
        var toldCount = 0
        var isWriting = false
    }

    /// An idle queue occupies no system thread.
    private let thread = DispatchQueue(label: "mayfly.output")
    private let descriptor: Int32
    private let whenDropped: @Sendable (OutputQueue, Int) -> Void
    private let state = Mutex(State())

    /// - Parameter whenDropped: gets the number of dropped lines, once there is room again. On the queue's thread.
    init(_ descriptor: Int32, whenDropped: @escaping @Sendable (OutputQueue, Int) -> Void = { _, _ in }) {
        self.descriptor = descriptor
        self.whenDropped = whenDropped
    }

    var droppedCount: Int { state.withLock { $0.droppedCount } }

    func write(_ line: String) {
        let startsThread = state.withLock { state in
            guard state.bytes.count + line.utf8.count <= Self.byteLimit else {
                state.droppedCount += 1
                return false
            }
            state.bytes += line.utf8
            defer { state.isWriting = true }
            return !state.isWriting
        }
        if startsThread { thread.async { self.drain() } }
    }

    private func drain() {
        while let bytes = take() {
            if let code = DescriptorOutput.write(bytes, to: descriptor), code != EBADF {
                state.withLock { $0.droppedCount += bytes.count { $0 == UInt8(ascii: "\n") } }
            } else if let count = takeUntold() {
                whenDropped(self, count)
            }
        }
    }

    /// - Returns: `nil` when the queue is empty, which ends the thread.
    private func take() -> [UInt8]? {
        state.withLock { state in
            guard !state.bytes.isEmpty else {
                state.isWriting = false
                return nil
            }
            defer { state.bytes = [] }
            return state.bytes
        }
    }

    /// - Returns: `nil` without new losses, or while their report might be dropped too.
    private func takeUntold() -> Int? {
        state.withLock { state in
            guard state.bytes.count <= Self.byteLimit / 2 else { return nil }
            defer { state.toldCount = state.droppedCount }
            let count = state.droppedCount - state.toldCount
            return count > 0 ? count : nil
        }
    }

    /// At program end: waits until the queue is empty, at most one second.
    func finish() { for _ in 0..<500 where state.withLock({ $0.isWriting }) { usleep(2_000) } }
}

extension OutputQueue: TextOutputStream {}

/// The log level, which can change at run time.
final class LogThreshold: Sendable {
    private let index: Atomic<Int>

    init(_ level: Logger.Level) { index = Atomic(Self.index(level)) }

    var level: Logger.Level {
        get { Logger.Level.allCases[index.load(ordering: .relaxed)] }
        set { index.store(Self.index(newValue), ordering: .relaxed) }
    }

    private static func index(_ level: Logger.Level) -> Int { Logger.Level.allCases.firstIndex(of: level) ?? 0 }

    func logger(_ label: String, on output: OutputQueue) -> Logger {
        Logger(label: label) { Handler(stream: StreamLogHandler(label: $0, stream: output), threshold: self) }
    }

    private struct Handler: LogHandler {
        var stream: StreamLogHandler
        let threshold: LogThreshold

        var logLevel: Logger.Level {
            get { threshold.level }
            set { threshold.level = newValue }
        }

        var metadata: Logger.Metadata {
            get { stream.metadata }
            set { stream.metadata = newValue }
        }

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { stream[metadataKey: key] }
            set { stream[metadataKey: key] = newValue }
        }

        func log(event: LogEvent) { stream.log(event: event) }
    }
}

extension NodeConfiguration.LogLevel { var level: Logger.Level { Logger.Level(rawValue: rawValue) ?? .notice } }
