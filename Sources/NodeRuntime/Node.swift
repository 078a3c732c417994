import Cryptography
import Logging
import Messaging
import NIOCore
import Store
import Transport

/// A running node: feeds the protocol core events of links, store and timers, and performs its actions.
///
/// Everything runs on one event loop, the actor's executor. A frame is received, processed and answered without a
/// change of thread. Commits run on a thread of their own; blocking writes on the loop are bounded (Store.md, "What the
/// caller waits for").
///
/// The ``Shell`` owns the parts that hold the state. The node starts and stops them, and answers requests.
package actor Node {
    package typealias Options = NodeOptions

    nonisolated package let loop: any EventLoop
    nonisolated package let options: NodeOptions
    nonisolated package var unownedExecutor: UnownedSerialExecutor { loop.executor.asUnownedSerialExecutor() }

    let shell: Shell

    var core: ProtocolCore { shell.core }
    var inboxes: InboxTable { shell.inboxes }
    var services: NodeServices { shell.services }
    var store: Store { services.store }
    var storage: StorageHealth { services.storage }

    /// Work deferred until the loop has polled its sockets.
    package var turns: TurnQueue { services.turns }

    /// Called once when the home has disappeared.
    package var homeGone: (() -> Void)? {
        get { shell.timer.homeGone }
        set { shell.timer.homeGone = newValue }
    }

    /// Opens and locks the home. Destroys overdue data before it serves anything.
    package static func open(_ options: NodeOptions, on loop: any EventLoop, log: Logger) throws -> Node {
        let configuration = try NodeConfiguration.load(home: options.home)
        let book = try PeerBook(home: options.home)
        let services = try NodeServices(
            options, configuration: configuration, environment: Environment(), loop: loop, log: log)
        let node = Node(services, book)
        node.assumeIsolated { $0.shell.events.goOn() }
        return node
    }

    /// ``open(_:on:log:)`` with given configuration, peers and environment.
    package init(
        _ options: NodeOptions, configuration: NodeConfiguration, peers file: PeersFile,
        environment: Environment = Environment(), loop: any EventLoop, log: Logger
    ) throws {
        let services = try NodeServices(
            options, configuration: configuration, environment: environment, loop: loop, log: log)
        self.init(services, PeerBook(file))
    }

    private init(_ services: NodeServices, _ book: PeerBook) {
        options = services.options
        loop = services.loop
        shell = Shell(services, book)
    }

    /// Unlocks if no passphrase is needed or one is given, listens, and begins to dial.
    package func start(passphrase: consuming SecretBytes?) async throws {
        try prepare(passphrase: passphrase)
        try await shell.listening.open(options.listen ?? services.configuration.listen)
        try begin()
    }

    /// The first half of ``start(passphrase:)``: destroys overdue data and unlocks.
    @discardableResult package func prepare(passphrase: consuming SecretBytes?) throws -> LinkTransport {
        let now = services.now
        store.reap(hide: now.milliseconds, destroy: now.milliseconds)
        if store.protection == .keyFile || passphrase != nil { try store.unlock(passphrase: passphrase) }
        shell.peers.join = { [weak self] slug in
            _ = try self?.assumeIsolated { node in try node.join(slug, profile: nil) }
        }
        return shell.listening.makeTransport()
    }

    /// The second half of ``start(passphrase:)``: loads the stored state, and dials.
    /// - Parameter more: listeners that the caller has bound.
    package func begin(listeners more: [TCPListener] = []) throws {
        shell.listening.add(more)
        shell.network.start()
        if !store.isLocked { try shell.loading.load() }
        shell.timer.tick()
    }

    /// Stops the node: finishes pending commits, closes the links, wipes the keys.
    package func stop() async { await withCheckedContinuation { continuation in stop { continuation.resume() } } }

    /// ``stop()`` for callers that cannot suspend.
    /// - Parameter whenStopped: called on the node's loop.
    package func stop(_ whenStopped: @escaping @Sendable () -> Void) {
        guard !services.isStopped else { return whenStopped() }
        shell.codes.stop()
        shell.codeJoins.stop()
        shell.writer.saveActivity()
        // Sends the answers to requests of this turn.
        shell.commits.hurry()
        services.stop()
        shell.timer.stop()
        shell.commits.stop()
        let ending = [shell.network.stop(), shell.storageLock.lastStretching].compactMap(\.self)
        let closed = EventLoopFuture.andAllComplete(shell.listening.closeListeners() + ending, on: loop)
        try? store.saveClockMark(services.now.milliseconds)
        store.commit { [self] _ in
            loop.execute {
                self.assumeIsolated { node in node.close() }
                // The caller may shut the loop down, but a listener's thread still needs the loop.
                closed.whenComplete { _ in whenStopped() }
            }
        }
    }

    private func close() {
        for inbox in inboxes.all { shell.commits.drop(inbox, isDurable: false) }
        shell.book.pings.endAll(NodeError.stopping)
        core.turnEnded?()
        shell.summaries.save()
        if shell.book.isFromFile, !store.isHomeGone, !store.isReadOnly { shell.events.saveMark() }
        shell.listening.transport?.close()
        store.close()
        for inbox in inboxes.all { inbox.key = nil }
    }
}
