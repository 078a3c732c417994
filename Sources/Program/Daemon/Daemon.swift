import CLinux
import Control
import Crypto
import Glibc
import Logging
import Messaging
import NIOCore
import NIOPosix
import NodeRuntime
import ServiceLifecycle
import Store
import Synchronization
import Transport
import UnixSignals

/// What `mayfly run` was given.
struct DaemonOptions: Sendable {
    let home: String
    /// Replaces the configured endpoints when not empty.
    let listen: [String]
    let passphraseFile: String?
    /// Typed at the terminal; `nil` when it was not asked.
    let passphrase: SecretBox?
    /// How long a lost link counts as the same session; `nil` for the configured value.
    let sessionGrace: Duration?
    /// How many inboxes are awake at a time; `nil` for the configured value.
    let capacity: Int?
    /// Whether links run over UDP, too; `nil` for the configured value.
    let datagrams: Bool?
    /// Whether peers look for each other on this network; `nil` for the configured value.
    let discover: DiscoverySetting?
    /// Whether this is a rendezvous node; `nil` for the configured value.
    let isRendezvous: Bool?
    /// Whether this is a mailbox; `nil` for the configured value.
    let isMailbox: Bool?
    /// Whether gateways are asked for port mappings; `nil` for the configured value.
    let mapPorts: Bool?
    /// Where the figures are served; `nil` for the configured place.
    let metrics: LoopbackEndpoint?
    /// `nil` for the configured one.
    let logLevel: String?
}

/// `mayfly run`: the node, its control socket and the signals.
enum Daemon {
    /// Serves until SIGTERM, SIGINT, the end of its terminal or `stop`; prints the ready line itself.
    static func run(_ options: DaemonOptions) async throws {
        InheritedSockets.adopt()
        hardenProcess()
        let threshold = LogThreshold(options.logLevel.flatMap { Logger.Level(rawValue: $0) } ?? .notice)
        let logOutput = OutputQueue(STDERR_FILENO) { output, count in
            StreamLogHandler(label: "mayfly", stream: output).log(
                event: LogEvent(
                    level: .warning, message: "lines of the log were dropped: standard error was not read",
                    metadata: ["count": "\(count)"], source: "mayfly", file: #fileID, function: #function, line: #line))
        }
        // On every way out.
        defer { logOutput.finish() }
        let logger = threshold.logger("mayfly", on: logOutput)
        var nodeOptions = Node.Options(home: options.home, version: ProgramVersion.text)
        if !options.listen.isEmpty {
            nodeOptions.listen = try EndpointOption.endpoints(options.listen, option: "--listen")
        }
        if let grace = options.sessionGrace {
            nodeOptions.sessionGrace =
                Milliseconds(grace.components.seconds) * 1_000
                + Milliseconds(grace.components.attoseconds / 1_000_000_000_000_000)
        }
        nodeOptions.capacity = options.capacity
        nodeOptions.datagrams = options.datagrams
        nodeOptions.discover = options.discover
        nodeOptions.isRendezvous = options.isRendezvous
        nodeOptions.isMailbox = options.isMailbox
        nodeOptions.mapPorts = options.mapPorts
        nodeOptions.hasLogLevel = options.logLevel != nil
        nodeOptions.hasMetrics = options.metrics != nil
        let hangup = Hangup.ofThisProcess
        // One thread for the node, one for the lines of the control socket.
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let service = NodeService(
            options: nodeOptions, passphraseFile: options.passphraseFile, passphrase: options.passphrase,
            loop: group.next(), controlLoop: group.next(), metrics: options.metrics,
            threshold: options.logLevel == nil ? threshold : nil, reloads: hangup == .reloads, log: logger,
            logOutput: logOutput)
        // The group's own notes ("Starting service lifecycle…") say nothing to the person who runs a node.
        var lifecycleLogger = Logger(label: "mayfly", factory: { StreamLogHandler(label: $0, stream: logOutput) })
        lifecycleLogger.logLevel = max(.warning, logger.logLevel)
        let services = ServiceGroup(
            configuration: .init(
                services: [.init(service: service, successTerminationBehavior: .gracefullyShutdownGroup)],
                gracefulShutdownSignals: [.sigterm, .sigint] + (hangup == .stops ? [.sighup] : []),
                logger: lifecycleLogger))
        do { try await services.run() } catch {
            try? await group.shutdownGracefully()
            throw controlError(error)
        }
        try? await group.shutdownGracefully()
    }

    /// What SIGHUP does.
    private enum Hangup {
        /// The terminal from which the node was started has ended.
        case stops
        case reloads

        /// It reloads where it cannot mean the end of a terminal: under a service manager, without a terminal, and under
        /// nohup(1), which asks to outlive the terminal.
        static var ofThisProcess: Hangup {
            if ServiceNotifier.isWanted || SilentPrompt.isIgnored(SIGHUP) { return .reloads }
            let terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
            guard terminal >= 0 else { return .reloads }
            close(terminal)
            return .stops
        }
    }

    /// Files for us alone, as many descriptors as we may have.
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

/// Carries a secret out of a closure that cannot return one, until it is taken. Nothing keeps a passphrase that has opened
/// the storage: a lock could not wipe it.
final class SecretBox: Sendable {
    private let secret: Mutex<SecretBytes?>

    init(_ secret: consuming SecretBytes?) { self.secret = Mutex(secret) }

    /// The box is empty afterwards.
    func take() -> SecretBytes? { secret.withLock { $0.take() } }
}

/// The node as a service: started, announced, stopped.
private struct NodeService: Service {
    let options: Node.Options
    let passphraseFile: String?
    let passphrase: SecretBox?
    let loop: any EventLoop
    /// Of the control socket.
    let controlLoop: any EventLoop
    /// Where the figures are served; `nil` for the configured place.
    let metrics: LoopbackEndpoint?
    /// `nil` when the level of the log was given on the command line.
    let threshold: LogThreshold?
    /// Whether SIGHUP reloads.
    let reloads: Bool
    let log: Logger
    let logOutput: OutputQueue

    func run() async throws {
        // From the start on: unhandled, it would end the process.
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
                figures = try await MetricsServer.start(endpoint, on: controlLoop, metrics)
            }
            let stack = StackWiper(loop)
            let controlStack = StackWiper(controlLoop)
            await follow(node, stack)
            let turns = await node.turns
            server = try await ControlServer.start(
                home: options.home, on: controlLoop, for: loop, later: { turns.add($0) },
                whenRead: { controlStack.wipeSoon() },
                service: ControlHandlers.router(
                    node,
                    NodeHandlers(
                        stop: stop, hooks: hooks, log: logOutput, reload: queue, metrics: metrics,
                        metricsEndpoint: figures?.endpoint), stack: stack, log: log)
            ).get()
        } catch {
            await figures?.close()
            await node.stop()
            await hooks.stop()
            stop.fail(CancellationError())
            throw error
        }
        await watchHome(node, stop)
        // The service goes on if the line is not read.
        let output = OutputQueue(STDOUT_FILENO)
        defer { output.finish() }
        await announce(node, figures, output)
        startWatchdogPings()
        let reload = Reload(node: node, home: options.home, hooks: hooks, threshold: threshold, log: log)
        await withTaskGroup { group in
            group.addTask { for await _ in hangups { queue.signal() } }
            group.addTask {
                await withGracefulShutdownHandler {
                    try? await stop.futureResult.get()
                } onGracefulShutdown: {
                    stop.succeed(())
                }
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

    /// Nobody reaches a node whose control socket is gone with its home.
    private func watchHome(_ node: isolated Node, _ stop: EventLoopPromise<Void>) {
        node.homeGone = { stop.succeed(()) }
    }

    /// Each ping passes both event loops, so it is missing when one of them hangs. The pings go on until the loops end: the
    /// watchdog also watches the stop.
    private func startWatchdogPings() {
        guard let interval = ServiceNotifier.watchdogInterval else { return }
        controlLoop.scheduleRepeatedTask(initialDelay: .zero, delay: .microseconds(interval)) { [loop] _ in
            loop.execute { ServiceNotifier.tell("WATCHDOG=1") }
        }
    }

    private func follow(_ node: isolated Node, _ hooks: HookRunner) {
        _ = node.watch { entry in if !hooks.isIdle { hooks.happened(HookRunner.Occurrence(entry)) } }
    }

    private func follow(_ node: isolated Node, _ stack: StackWiper) { _ = node.watch { _ in stack.wipeSoon() } }

    private func start(_ node: Node) async throws {
        if let passphraseFile {
            let passphrase = try Passphrase.withBytes(option: passphraseFile, Terminal(json: false)) {
                SecretBox(SecretBytes(copying: $0))
            }
            try await node.start(passphrase: passphrase.take())
        } else {
            try await node.start(passphrase: passphrase?.take())
        }
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
        ProgramText.giveBack()
    }
}
