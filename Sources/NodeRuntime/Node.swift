import Crypto
import Logging
import Messaging
import NIOCore
import Store
import Transport

/// The shell: owns the protocol core, the store and the links, feeds the one with what happens on the others, and
/// performs its actions.
///
/// Everything runs on one event loop, which is the actor's executor: a frame is read, decided and answered without a
/// thread in between. Commits have a thread of their own; what the loop itself makes durable is bounded (Store.md, "What the
/// caller waits for").
///
/// The state is in the objects that ``NodeAssembly`` makes. The node starts and stops them, and hands requests on to them.
package actor Node {
    package typealias Options = NodeOptions

    /// The event loop on which everything runs; the executor of the actor.
    nonisolated package let loop: any EventLoop
    nonisolated package let options: NodeOptions
    nonisolated package var unownedExecutor: UnownedSerialExecutor { loop.executor.asUnownedSerialExecutor() }

    let core: ProtocolCore
    let directory: ConversationDirectory
    let uploads: Uploads
    let peers: Peers
    let network: NodeNetwork
    let storageLock: StorageLock
    let loading: InboxLoading
    let held: HeldEffects
    let timer: NodeTimer
    let codes: Codes
    let codeJoins: CodeJoins
    let mailboxes: Mailboxes

    var services: NodeServices { core.services }
    var store: Store { services.store }
    var storage: StorageHealth { services.storage }

    /// Work on the node's loop that waits until the loop has asked its sockets.
    package var turns: TurnQueue { services.turns }

    /// Called once when the home is found to be gone.
    package var homeGone: (() -> Void)? {
        get { timer.homeGone }
        set { timer.homeGone = newValue }
    }

    // MARK: Starting and stopping

    /// Opens the home and locks it to this process; destroys what is overdue before anything can be served.
    package static func open(_ options: NodeOptions, on loop: any EventLoop, log: Logger) throws -> Node {
        let configuration = try NodeConfiguration.load(home: options.home)
        let book = try PeerBook(home: options.home)
        let node = try Node(options, configuration: configuration, peers: book, loop: loop, log: log)
        node.assumeIsolated { node in
            node.services.feed.goOn(home: options.home, startedAt: node.services.now, logger: log)
        }
        return node
    }

    /// As ``open(_:on:log:)``, with what the files of the home would have said, and in an environment of the caller's.
    package init(
        _ options: NodeOptions, configuration: NodeConfiguration, peers file: PeersFile,
        environment: Environment = Environment(), loop: any EventLoop, log: Logger
    ) throws {
        try self.init(
            options, configuration: configuration, peers: PeerBook(file), environment: environment, loop: loop, log: log
        )
    }

    private init(
        _ options: NodeOptions, configuration: NodeConfiguration, peers book: PeerBook,
        environment: Environment = Environment(), loop: any EventLoop, log: Logger
    ) throws {
        self.options = options
        self.loop = loop
        let services = try NodeServices(
            options, configuration: configuration, environment: environment, loop: loop, log: log)
        let assembly = NodeAssembly(services, book)
        core = assembly.core
        directory = assembly.directory
        uploads = assembly.uploads
        peers = assembly.peers
        network = assembly.network
        storageLock = assembly.storageLock
        loading = assembly.loading
        held = assembly.held
        timer = assembly.timer
        codes = assembly.codes
        codeJoins = assembly.codeJoins
        mailboxes = assembly.mailboxes
    }

    /// Unlocks if no passphrase is needed or one is given, listens, and begins to dial.
    package func start(passphrase: consuming SecretBytes?) async throws {
        try prepare(passphrase: passphrase)
        try await network.listening.open(options.listen ?? services.configuration.listen)
        try begin()
    }

    /// ``start(passphrase:)`` as far as the listeners: destroys what is due and unlocks.
    @discardableResult package func prepare(passphrase: consuming SecretBytes?) throws -> LinkTransport {
        let now = services.now
        store.reap(hide: now.milliseconds, destroy: now.milliseconds)
        if store.protection == .keyFile || passphrase != nil { try store.unlock(passphrase: passphrase) }
        peers.join = { [weak self] slug in _ = try self?.assumeIsolated { node in try node.join(slug, profile: nil) } }
        return network.listening.makeTransport()
    }

    /// ``start(passphrase:)`` from the listeners on: takes up what is stored, and dials.
    /// - Parameter more: listeners that the caller has made.
    package func begin(listeners more: [TCPListener] = []) throws {
        network.listening.add(more)
        network.start()
        if !store.isLocked { try loading.load() }
        timer.tick()
    }

    /// Stops: makes durable what was said to be, closes the links, wipes the keys.
    package func stop() async { await withCheckedContinuation { continuation in stop { continuation.resume() } } }

    /// ``stop()`` for who cannot suspend.
    /// - Parameter whenStopped: on the node's loop.
    package func stop(_ whenStopped: @escaping @Sendable () -> Void) {
        guard !services.isStopped else { return whenStopped() }
        codes.stop()
        codeJoins.stop()
        held.writer.saveActivity()
        // What was asked for in this turn is answered.
        held.writer.commits.hurry()
        services.stop()
        timer.stop()
        held.writer.commits.stop()
        let ending = [network.stop(), storageLock.lastStretching].compactMap(\.self)
        let closed = EventLoopFuture.andAllComplete(network.listening.closeListeners() + ending, on: loop)
        try? store.saveClockMark(services.now.milliseconds)
        store.commit { [self] _ in
            loop.execute {
                self.assumeIsolated { node in node.close() }
                // Whoever waits for this may shut the loop down, of which a listener's thread still wants something.
                closed.whenComplete { _ in whenStopped() }
            }
        }
    }

    private func close() {
        for inbox in core.inboxes.all { held.drop(inbox, isDurable: false) }
        peers.book.pings.endAll(NodeError.stopping)
        loading.summaries.save()
        if peers.book.isFromFile, !store.isHomeGone, !store.isReadOnly {
            services.feed.saveMark(home: options.home, logger: services.log)
        }
        network.listening.transport?.close()
        store.close()
        for inbox in core.inboxes.all { inbox.key = nil }
    }
}
