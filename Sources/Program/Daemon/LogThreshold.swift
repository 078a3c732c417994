import Logging
import NodeRuntime
import Synchronization

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
