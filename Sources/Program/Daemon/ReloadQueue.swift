import Control
import Glibc
import Logging
import NIOCore
import NodeRuntime
import Transport

/// Serialised reload requests, from `config reload` and SIGHUP.
struct ReloadQueue: Sendable {
    /// `nil` for a signal: its outcome is logged.
    typealias Request = EventLoopPromise<ConfigReloadResult>?

    private static let limit = 8

    let requests: AsyncStream<Request>
    private let waiting: AsyncStream<Request>.Continuation

    init() { (requests, waiting) = AsyncStream.makeStream(bufferingPolicy: .bufferingOldest(Self.limit)) }

    func signal() { waiting.yield(nil) }

    func ask(on loop: any EventLoop) -> EventLoopFuture<ConfigReloadResult> {
        let promise = loop.makePromise(of: ConfigReloadResult.self)
        if case .enqueued = waiting.yield(promise) { return promise.futureResult }
        promise.fail(ControlError(.failed, "too many reloads wait already", hint: "try again"))
        return promise.futureResult
    }

    /// Ends the queue. Waiting requests are still answered.
    func end() { waiting.finish() }
}

struct ConfigReloadResult: CodableRecord {
    /// Settings of config.json in force now; `peers` stands for peers.json.
    var changed: [String] = []
    /// Settings that take effect at the next start.
    var pending: [String] = []
    /// Settings that a command line option of the node overrides.
    var overridden: [String] = []
}

/// Reloads the node's configuration, the hooks and the log level.
struct Reload: Sendable {
    let node: Node
    let home: String
    let hooks: HookRunner
    /// `nil` when the command line sets the level.
    let threshold: LogThreshold?
    let log: Logger

    func serve(_ queue: ReloadQueue) async {
        for await request in queue.requests {
            ServiceNotifier.tellReloading()
            do {
                let result = try await run()
                request?.succeed(result)
                log.notice("the configuration was reloaded", metadata: Self.metadata(result))
            } catch {
                let shown = (error as? HomeFileError).map { NodeError.homeFile($0) as any Error } ?? error
                let refusal = (error as? ListenFailure).map { listenFailure($0, "`mayfly config set listen`") }
                request?.fail(refusal ?? controlError(shown))
                log.error(
                    "the previous configuration stays in use; `mayfly doctor` says what is wrong",
                    metadata: Self.metadata(error))
            }
            ServiceNotifier.tell("READY=1", waits: true)
        }
    }

    private func run() async throws -> ConfigReloadResult {
        let home = home
        let report = try await ConfigurationReload.run(on: node) { configuration in
            try configuration.checkHooks(events: HookRunner.events, home: home)
        }
        hooks.use(report.configuration.hooks ?? [])
        threshold?.level = report.configuration.logLevel?.level ?? .notice
        return ConfigReloadResult(
            changed: report.changed.map(\.rawValue) + (report.arePeersChanged ? ["peers"] : []),
            pending: report.pending.map(\.rawValue), overridden: report.overridden.map(\.rawValue))
    }

    /// Omits the error text, which may quote names and addresses from the files.
    private static func metadata(_ error: any Error) -> Logger.Metadata {
        switch error {
        case NodeError.homeFile(let error): return metadata(error)
        case let error as HomeFileError:
            let file = error.path.split(separator: "/").last.map(String.init) ?? "-"
            return ["file": "\(file)", "line": error.line.map { "\($0)" } ?? "-"]
        case let failure as ListenFailure: return ["listen": "\(failure.reason)"]
        default: return [:]
        }
    }

    private static func metadata(_ result: ConfigReloadResult) -> Logger.Metadata {
        let lists = [("changed", result.changed), ("pending", result.pending), ("overridden", result.overridden)]
        var metadata = Logger.Metadata()
        for (name, settings) in lists where !settings.isEmpty { metadata[name] = "\(settings.joined(separator: ","))" }
        return metadata
    }
}
