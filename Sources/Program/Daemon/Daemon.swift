import CLinux
import Control
import Cryptography
import Glibc
import Logging
import Messaging
import NIOCore
import NIOPosix
import NodeRuntime
import Store
import Synchronization
import Transport
import UnixSignals

enum Daemon {
    /// Serves until SIGTERM, SIGINT, the end of its terminal or `stop`. Prints the ready line itself.
    /// - Parameters:
    ///   - passphrase: typed at the terminal; `nil` without a prompt.
    ///   - metrics: HTTP address of the metrics; `nil` for the configured one.
    ///   - logLevel: `nil` for the configured one.
    static func run(
        _ options: Node.Options, passphraseFile: String?, passphrase: SecretBox?, metrics: LoopbackEndpoint?,
        logLevel: Logger.Level?
    ) async throws {
        InheritedSockets.adopt()
        hardenProcess()
        // The parser of the command line.
        process_give_back()
        let threshold = LogThreshold(logLevel ?? .notice)
        let logOutput = OutputQueue(STDERR_FILENO) { output, count in
            StreamLogHandler(label: "mayfly", stream: output).log(
                event: LogEvent(
                    level: .warning, message: "lines of the log were dropped: standard error was not read",
                    metadata: ["count": "\(count)"], source: "mayfly", file: #fileID, function: #function, line: #line))
        }
        defer { logOutput.finish() }
        let logger = threshold.logger("mayfly", on: logOutput)
        // One thread for the node and its control socket: a request then wakes no other thread.
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let service = NodeService(
            options: options, passphraseFile: passphraseFile, passphrase: passphrase, loop: group.next(),
            metrics: metrics, threshold: logLevel == nil ? threshold : nil, reloads: reloadsAtHangup, log: logger,
            logOutput: logOutput)
        do { try await service.run() } catch {
            try? await group.shutdownGracefully()
            throw controlError(error)
        }
        try? await group.shutdownGracefully()
    }

    /// Whether SIGHUP cannot mean a closed terminal: under a service manager, without a terminal, under nohup(1).
    private static var reloadsAtHangup: Bool {
        if ServiceNotifier.isWanted || SilentPrompt.isIgnored(SIGHUP) { return true }
        let terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard terminal >= 0 else { return true }
        close(terminal)
        return false
    }

    /// Private files, and the highest possible descriptor limit.
    private static func hardenProcess() {
        umask(0o077)
        var files = rlimit()
        if getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files) == 0, files.rlim_cur < files.rlim_max {
            files.rlim_cur = files.rlim_max
            setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files)
        }
        signal(SIGPIPE, SIG_IGN)
    }
}

/// Carries a secret out of a closure that cannot return one. It is emptied on use, because a lock could not wipe a kept
/// passphrase.
final class SecretBox: Sendable {
    private let secret: Mutex<SecretBytes?>

    init(_ secret: consuming SecretBytes?) { self.secret = Mutex(secret) }

    func take() -> SecretBytes? { secret.withLock { $0.take() } }
}

private struct NodeService {
    let options: Node.Options
    let passphraseFile: String?
    let passphrase: SecretBox?
    let loop: any EventLoop
    /// HTTP address of the metrics; `nil` for the configured one.
    let metrics: LoopbackEndpoint?
    /// `nil` when the command line sets the log level.
    let threshold: LogThreshold?
    let reloads: Bool
    let log: Logger
    let logOutput: OutputQueue

    func run() async throws {
        // Trapped first: an unhandled signal would end the process at once.
        let ends = await UnixSignalsSequence(trapping: [.sigterm, .sigint] + (reloads ? [] : [.sighup]))
        let hangups = await UnixSignalsSequence(trapping: reloads ? [.sighup] : [])
        let configuration = try NodeConfiguration.load(home: options.home)
        try configuration.checkHooks(events: HookRunner.events, home: options.home)
        threshold?.level = configuration.logLevel?.level ?? .notice
        let node = try await loop.submit { [options, loop, log] in try Node.open(options, on: loop, log: log) }.get()
        let stop = loop.makePromise(of: Void.self)
        let queue = ReloadQueue()
        let hooks: HookRunner
        do { hooks = try HookRunner(home: options.home, log: log) } catch {
            await node.stop()
            throw error
        }
        hooks.use(configuration.hooks ?? [])
        let server: ControlServer
        var figures: MetricsServer?
        do {
            await follow(node, hooks)
            try await start(node)
            let metrics = Metrics(node, home: options.home, hooks: hooks, log: logOutput)
            if let endpoint = self.metrics ?? configuration.metrics?.listen {
                figures = try await MetricsServer.start(endpoint, on: loop, metrics)
            }
            let stack = StackWiper(loop)
            await follow(node, stack)
            let turns = await node.turns
            server = try await ControlServer.start(
                home: options.home, on: loop, later: { turns.add($0) },
                service: Methods.router(
                    MethodService(
                        node: node, log: log, logOutput: logOutput, stop: stop, hooks: hooks, reload: queue,
                        metrics: metrics, metricsEndpoint: figures?.endpoint, sends: PendingSends(node)), stack)
            ).get()
        } catch {
            await figures?.close()
            await node.stop()
            await hooks.stop()
            stop.fail(CancellationError())
            throw error
        }
        await watchHome(node, stop)
        // The service goes on when no reader takes the line.
        let output = OutputQueue(STDOUT_FILENO)
        defer { output.finish() }
        await announce(node, figures, output)
        startWatchdogPings()
        let reload = Reload(node: node, home: options.home, hooks: hooks, threshold: threshold, log: log)
        await withTaskGroup { group in
            group.addTask { for await _ in hangups { queue.signal() } }
            group.addTask { for await _ in ends { stop.succeed(()) } }
            group.addTask {
                try? await stop.futureResult.get()
                queue.end()
            }
            await reload.serve(queue)
            group.cancelAll()
        }
        ServiceNotifier.tell("STOPPING=1")
        await figures?.close()
        try? await server.close().get()
        await node.stop()
        await hooks.stop()
    }

    /// Stops the node when its home is deleted: without its control socket no client can reach it.
    private func watchHome(_ node: isolated Node, _ stop: EventLoopPromise<Void>) {
        node.homeGone = { stop.succeed(()) }
    }

    /// Pings are missing when the loop hangs. They continue until it ends, because the watchdog also covers shutdown.
    private func startWatchdogPings() {
        guard let interval = ServiceNotifier.watchdogInterval else { return }
        loop.scheduleRepeatedTask(initialDelay: .zero, delay: .microseconds(interval)) { _ in
            ServiceNotifier.tell("WATCHDOG=1")
        }
    }

    private func follow(_ node: isolated Node, _ hooks: HookRunner) {
        _ = node.watch { entry in if !hooks.isIdle { hooks.happened(HookRunner.Occurrence(entry)) } }
    }

    private func follow(_ node: isolated Node, _ stack: StackWiper) {
        // The first ticks run code that an idle node does not run again.
        stack.wipeSoon()
        _ = node.watch { _ in stack.wipeSoon() }
    }

    private func start(_ node: Node) async throws {
        let given = try passphraseFile.map { file in
            try Passphrase.withBytes(option: file, Terminal(json: false)) { SecretBox(SecretBytes(copying: $0)) }
        }
        try await node.start(passphrase: (given ?? passphrase)?.take())
    }

    private func announce(_ node: Node, _ figures: MetricsServer?, _ output: OutputQueue) async {
        let listen = await node.listening.map(\.description)
        var line: [String: JSONValue] = [
            "event": "ready", "listen": .array(listen.map { .string($0) }), "pid": .integer(Int64(getpid())),
        ]
        if let figures { line["metrics"] = .string(figures.endpoint) }
        output.write(JSONValue.object(line).text + "\n")
        ServiceNotifier.tell("READY=1\nMAINPID=\(getpid())", waits: true)
        let status = await node.status()
        if status.isLocked { log.notice("the node is locked; unlock it with `mayfly unlock`") }
        let unused = InheritedSockets.closeRest()
        if !unused.isEmpty {
            log.warning(
                """
                closed \(unused.count) socket\(unused.count == 1 ? "" : "s") of the service manager: \
                config.json listens at another address
                """)
        }
        if await node.discovery == nil, let note = NetworkView.linkLocalNote(await node.reachable) {
            log.warning("\(note)")
        }
        if status.erasure.erasure != .inPlace {
            log.warning("erasure on this file system is \(status.erasure.erasure.rawValue): \(status.erasure.reason)")
        }
        process_give_back()
    }
}
