import Discovery
import Logging
import Messaging
import NIOCore
import Primitives
import Store
import Transport

/// The shell: owns the protocol core, the store and the links, feeds the one with what happens on the others, and
/// performs its actions.
///
/// Everything runs on one event loop, which is the actor's executor: a frame is read, decided and answered without a
/// thread in between. Only the disk's fdatasync has a thread of its own.
package actor Node {
    /// How a node is started.
    package struct Options: Sendable {
        package var home: String
        package var version: String
        /// Overrides the configuration's addresses.
        package var listen: [Messaging.Endpoint]?
        /// How long a lost link counts as the same session, in milliseconds.
        package var sessionGrace: Milliseconds = Limits.sessionGrace
        /// How many inboxes are to be awake; overrides the configuration's number.
        package var capacity: Int?
        /// Whether this is a rendezvous node; overrides the configuration's word.
        package var isRendezvous: Bool?
        /// Whether links run over UDP, too; overrides the configuration's word.
        package var datagrams: Bool?
        /// Overrides the configuration's.
        package var discover: DiscoverySetting?
        /// Whether gateways are asked for port mappings; overrides the configuration's word.
        package var mapPorts: Bool?
        /// UDP port of the LAN's group.
        package var lanPort = LanLimits.port

        package init(home: String, version: String) {
            self.home = home
            self.version = version
        }
    }

    /// The event loop on which everything runs; the executor of the actor.
    nonisolated package let loop: any EventLoop
    nonisolated package let options: Options
    let environment: Environment
    nonisolated package var unownedExecutor: UnownedSerialExecutor { loop.executor.asUnownedSerialExecutor() }

    var core = NodeStateMachine()
    var configuration: NodeConfiguration
    let peers: PeerBook
    let memory = MessageMemory()
    let store: Store
    let log: Logger
    var transport: LinkTransport?
    /// How often holders of invites wake what sleeps.
    var guestWakes = TokenBucket(interval: Limits.guestWakeInterval, burst: Limits.guestWakeBurst)
    var listeners: [TCPListener] = []
    let addresses = OwnAddresses()
    var clock: NodeClock
    /// Messages that are over only if a step of the clock forward is true.
    var withheld: [(inbox: Inbox, message: Messaging.MessageID)] = []
    /// When it was last said that something could not be destroyed.
    var failuresToldAt: Timestamp?
    /// When each of what is tried again was said last.
    var saidAt: [String: Timestamp] = [:]
    /// Called once when the home is found to be gone.
    package var homeGone: (() -> Void)?
    var lastMark: Timestamp?

    // Inboxes
    var inboxes = InboxTable()
    /// When the summaries of sleeping inboxes were last written.
    var summarizedAt: Timestamp?
    /// Of conversations that have exploded, or are to at a time.
    var endings = EndingTable()
    var hasLoaded = false
    var unlocks = PendingUnlocks()
    static let storagePause: Milliseconds = 2 * .second
    /// Routes whose tokens are made for a new day in one turn, and the pause between two turns.
    static let rollBatchCount = 64
    static let rollPause: Milliseconds = 10
    var storage: StorageHealth
    /// Inboxes that could not be loaded, and why.
    var skipped: [String] = []
    /// Inboxes that the disk did not give, and that are read again.
    var unread: [RowID: UnreadInbox] = [:]

    // Links
    var routing: RoutingTable
    var routeTargets: [UInt64: RouteTarget] = [:]
    var nextRoute: UInt64 = 1
    /// Writes for the sake of tokens that were shown.
    var counterSaves = TokenBucket(interval: Limits.counterSaveInterval, burst: Limits.counterSaveBurst)
    /// Some inbox waits for the next tick to write its counters.
    var owesCounters = false
    var dials: [UInt64: ActiveDial] = [:]
    var groups: [UInt64: DialGroup] = [:]
    var nextGroup: UInt64 = 1
    /// Dials of rendezvous nodes, by the transport's numbers, and the links that came of them.
    var guestDials: [UInt64: RelayGuestDial] = [:]
    var relayGuests: [LinkID: RelayGuestLink] = [:]
    /// Relayed streams that end here.
    var relayEnds: [RelayEndName: RelayEnd] = [:]
    var relaySending: [LinkID: RelaySending] = [:]
    var links: [LinkID: ActiveLink] = [:]
    var closingGuests = ClosingGuests()
    var knocking: Set<KnockName> = []
    /// How many knocks of others may cost us something.
    var forgedKnocks = KnockAllowance.forged
    var answeredKnocks = KnockAllowance.answered
    /// Why there are no links over UDP where there should be some.
    package private(set) var withoutDatagrams: [ListenFailure] = []
    /// `nil` unless peers look for each other on this network.
    var lan: LanSearch?
    /// `nil` unless gateways are asked for port mappings.
    var portMapper: PortMapper?

    // Effects that wait for the disk
    lazy var commits = makeCommits()
    /// Inboxes of which something was learned that the next commit writes.
    var owingStatuses: [Inbox] = []
    var touchedLinks: Set<LinkID> = []

    // The log
    /// Inboxes whose acknowledgements the log has yet to tell of.
    var acknowledged: [Inbox] = []
    var rendezvousNoted: [RendezvousNote] = []

    let feed: EventFeed

    // Contents
    /// Links with chunks to send.
    var servedLinks: Set<LinkID> = []
    var isServing = false
    /// Files that users of this node are handing over.
    var uploads: [UploadID: Upload] = [:]
    /// Files whose hash is being computed.
    var verifications: [FileName: Verification] = [:]

    var timer: Scheduled<Void>?
    var timerDeadline: Timestamp?
    var pace = Pace()
    var isStopped = false

    // MARK: Starting and stopping

    /// Opens the home and locks it to this process; destroys what is overdue before anything can be served.
    package static func open(
        _ options: Options,
        on loop: any EventLoop,
        log: Logger
    ) throws -> Node {
        let configuration = try NodeConfiguration.load(home: options.home)
        // Before the file is read: an edit in between is noticed later.
        let stamp = PeersFile.stamp(home: options.home)
        let peers = try PeersFile.load(home: options.home)
        let node = try Node(options, configuration: configuration, peers: peers, loop: loop, log: log)
        node.assumeIsolated { node in
            node.peers.stamp = stamp
            node.feed.goOn(home: options.home, startedAt: node.now, logger: log)
        }
        return node
    }

    /// As ``open(_:on:log:)``, with what the files of the home would have said, and in an environment of the caller's.
    package init(
        _ options: Options,
        configuration: NodeConfiguration,
        peers: PeersFile,
        environment: Environment = Environment(),
        loop: any EventLoop,
        log: Logger
    ) throws {
        self.options = options
        self.environment = environment
        self.configuration = configuration
        self.peers = PeerBook(peers)
        self.loop = loop
        self.log = log
        let realtime = environment.realtime()
        let store = try Store.open(
            home: options.home,
            fileSystem: environment.disk,
            now: realtime,
            committingOn: environment.commitThread
        )
        self.store = store
        storage = StorageHealth(
            room: StorageRoom(
                home: options.home,
                limits: configuration.storage ?? NodeConfiguration.Storage(),
                space: environment.space
            )
        )
        core = NodeStateMachine(capacity: options.capacity ?? configuration.capacity ?? Limits.inboxCapacity)
        clock = NodeClock(mark: store.clockMark(), realtime: realtime, boottime: environment.boottime())
        routing = RoutingTable(day: Timestamp(milliseconds: realtime).day)
        feed = EventFeed(startedAt: clock.read(realtime: realtime, boottime: environment.boottime()).confirmed)
    }

    /// Unlocks if no passphrase is needed or one is given, listens, and begins to dial.
    package func start(passphrase: consuming SecretBytes?) async throws {
        let transport = try prepare(passphrase: passphrase)
        for endpoint in options.listen ?? configuration.listen {
            let listening = try await transport.listen(host: endpoint.host, port: Int(endpoint.port)).get()
            listeners.append(listening.tcp)
            if let failure = listening.withoutDatagrams {
                withoutDatagrams.append(failure)
                log.warning("links over TCP alone", metadata: ["reason": "\(failure.reason)"])
            }
        }
        try begin()
    }

    /// ``start(passphrase:)`` as far as the listeners: destroys what is due and unlocks.
    package func prepare(passphrase: consuming SecretBytes?) throws -> LinkTransport {
        store.reap(hide: now.milliseconds, destroy: now.milliseconds)
        if store.protection == .keyFile || passphrase != nil { try store.unlock(passphrase: passphrase) }
        let transport = LinkTransport(
            loop: loop,
            network: environment.network,
            datagrams: (options.datagrams ?? configuration.datagrams ?? true) ? environment.datagrams : nil
        )
        self.transport = transport
        connectEvents(of: transport)
        return transport
    }

    /// ``start(passphrase:)`` from the listeners on: takes up what is stored, and dials.
    /// - Parameter more: listeners that the caller has made.
    package func begin(listeners more: [TCPListener] = []) throws {
        listeners += more
        watchAddresses()
        startDiscovery()
        if !store.isLocked { try load() }
        tick()
    }

    /// Where the node listens, with the ports that the system chose.
    package var listening: [Messaging.Endpoint] {
        listeners.compactMap { listener in
            guard let host = listener.address.ipAddress, let port = listener.address.port else { return nil }
            return Messaging.Endpoint(host: host, port: UInt16(clamping: port))
        }
    }

    /// Stops: makes durable what was said to be, closes the links, wipes the keys.
    package func stop() async {
        await withCheckedContinuation { continuation in stop { continuation.resume() } }
    }

    /// ``stop()`` for who cannot suspend.
    /// - Parameter whenStopped: on the node's loop.
    package func stop(_ whenStopped: @escaping @Sendable () -> Void) {
        guard !isStopped else { return whenStopped() }
        saveActivity()
        // What was asked for in this turn is answered.
        commits.hurry()
        isStopped = true
        timer?.cancel()
        commits.stop()
        let ending = [portMapper?.stop(), unlocks.last].compactMap(\.self)
        let closed = EventLoopFuture.andAllComplete(listeners.map { $0.close() } + ending, on: loop)
        lan?.stop()
        lan = nil
        addresses.stopWatching()
        try? store.saveClockMark(readClock().confirmed.milliseconds)
        store.commit { [self] _ in
            loop.execute {
                self.assumeIsolated { node in node.close() }
                // Whoever waits for this may shut the loop down, of which a listener's thread still wants something.
                closed.whenComplete { _ in whenStopped() }
            }
        }
    }

    private func close() {
        for inbox in inboxes.all {
            for effect in commits.drop(inbox.effects) { release(effect, isDurable: false) }
        }
        peers.pings.endAll(NodeError.stopping)
        saveSummaries()
        if peers.isFromFile, !store.isHomeGone, !store.isReadOnly { feed.saveMark(home: options.home, logger: log) }
        transport?.close()
        store.close()
        for inbox in inboxes.unordered { inbox.key = nil }
    }
}
