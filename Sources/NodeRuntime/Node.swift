import Discovery
import Dispatch
import Logging
import Messaging
import NIOCore
import NIOPosix
import Primitives
import Store
import Transport
import Wire

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
    let surroundings: Surroundings
    nonisolated package var unownedExecutor: UnownedSerialExecutor { loop.executor.asUnownedSerialExecutor() }

    var core = NodeStateMachine()
    var configuration: NodeConfiguration
    var peers: PeersFile
    var archive: MessageArchive
    let store: Store
    let log: Logger
    var transport: LinkTransport?
    /// How often holders of invites wake what sleeps.
    var guestWakes = TokenBucket(interval: Limits.guestWakeInterval, burst: Limits.guestWakeBurst)
    var listeners: [TCPListener] = []
    /// ``advertised`` as of the last tick: asking the system for its addresses takes longer than a turn.
    var advertisedNow: [Messaging.Endpoint]?
    /// ``machineDevices`` as of the last tick.
    var devicesNow: [NIONetworkDevice]?
    /// The machine's addresses as of the last look.
    var addressesSeen: Set<String>?
    /// A look at them is on its way.
    var isLookingAtAddresses = false
    var addressWatch: (any Channel)?
    /// What the members of our conversations were told last.
    var announced: [Messaging.Endpoint]?
    var clock: NodeClock
    /// When it was last said that something could not be destroyed.
    var failuresToldAt: Timestamp?
    /// Called once when the home is found to be gone.
    package var homeGone: (() -> Void)?
    var lastMark: Timestamp?

    // Inboxes
    var rows: [ClientID: RowID] = [:]
    var keys: [ClientID: IdentityKey] = [:]
    /// Awake inboxes whose saved state says that none of their messages waits.
    var settled: Set<ClientID> = []
    /// When the summaries of sleeping inboxes were last written.
    var summarizedAt: Timestamp?
    var tombstoneIDs: [ConversationID: TombstoneID] = [:]
    /// Records that changed while the storage was locked.
    var unsaved: Set<ClientID> = []
    /// Tombstones of explosions that happened while the storage was locked.
    var unsavedTombstones: Set<ConversationID> = []
    /// The lists by which the members of exploded conversations are told.
    var fanOuts: [ConversationID: FanOut] = [:]
    /// Those that are not on the disk: it was locked, or full.
    var unsavedFanOuts: Set<ConversationID> = []
    /// Prepared tombstones of explosions to come.
    var armed: [ConversationID: ExplodeStateMachine.Record] = [:]
    /// Inboxes whose scheduled destruction the store has refused so far.
    var unarmed: [ClientID: Timestamp] = [:]
    /// Exploded conversations whose key page could not be overwritten yet, and why.
    var undestroyed: [ConversationID: StoreError] = [:]
    /// By which our receipt is brought to the creator of a conversation that has just exploded.
    var reports: [ConversationID: KnockSecret] = [:]
    var hasLoaded = false
    /// Why the store refused the newest change that it refused.
    var lastStorageFailure: StoreError?
    /// The newest failure of the disk, for `status`.
    var storageTrouble: (error: StoreError, at: Timestamp)?
    /// When a disk in trouble was looked at last.
    var probedAt: Timestamp?
    static let probePause: Milliseconds = 5 * .second
    /// Inboxes whose storage has just failed: no links until then.
    var troubled: [ClientID: Timestamp] = [:]
    static let storagePause: Milliseconds = 2 * .second
    /// Routes whose tokens are made for a new day in one turn, and the pause between two turns.
    static let rollBatchCount = 64
    static let rollPause: Milliseconds = 10
    /// How much more of what peers send may be stored.
    var room: StorageRoom
    /// Inboxes that could not be loaded, and why.
    var skipped: [String] = []

    // Links
    var routing: RoutingTable
    var routeTargets: [UInt64: RouteTarget] = [:]
    var routeNumbers: [ClientID: [NodeAction.Route: UInt64]] = [:]
    var tombstoneRoutes: [ConversationID: [RouteTarget.Knocker: UInt64]] = [:]
    var nextRoute: UInt64 = 1
    var dialTokens: [LinkName: DialTokens] = [:]
    var dials: [UInt64: ActiveDial] = [:]
    var groups: [UInt64: DialGroup] = [:]
    var nextGroup: UInt64 = 1
    /// Dials of rendezvous nodes, by the transport's numbers, and the links that came of them.
    var guestDials: [UInt64: RelayGuestDial] = [:]
    var relayGuests: [LinkID: RelayGuestLink] = [:]
    /// Relayed streams that end here.
    var relayEnds: [RelayEndName: RelayEnd] = [:]
    var links: [LinkID: ActiveLink] = [:]
    var knocking: Set<KnockName> = []
    /// Why there are no links over UDP where there should be some.
    package private(set) var withoutDatagrams: [ListenFailure] = []
    /// `nil` unless peers look for each other on this network.
    var lan: LanSearch?
    /// `nil` unless gateways are asked for port mappings.
    var mappings: PortMappings?
    /// Counters of inboxes that are being loaded.
    var savedCounters: [ClientID: [InboxSnapshot.Counters]] = [:]

    // Effects that wait for the disk
    var effects = EffectQueue()
    var isCommitScheduled = false
    var isLateCommitDue = false
    var isLateCommitScheduled = false
    /// Who waits until everything up to a commit is on the disk.
    var commitWaiters: [(sequence: UInt64, promise: EventLoopPromise<Void>)] = []
    var touchedLinks: Set<LinkID> = []

    // Watchers
    var events: EventLog
    var watchers: [UInt64: (EventLog.Entry) -> Void] = [:]
    /// Watchers that are not told of other messages than theirs.
    var messageWatchers: [Messaging.MessageID: [UInt64: (EventLog.Entry) -> Void]] = [:]
    var nextWatcher: UInt64 = 1
    var pings: [UInt64: PendingPing] = [:]
    /// When a ping went out, once its link was open.
    var pingSentAt: [UInt64: NIODeadline] = [:]
    var peerSightings: [String: PeerSighting] = [:]

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
    var isStopped = false

    // MARK: Starting and stopping

    /// Opens the home and locks it to this process; destroys what is overdue before anything can be served.
    package static func open(
        _ options: Options,
        on loop: any EventLoop,
        log: Logger
    ) throws -> Node {
        let configuration = try NodeConfiguration.load(home: options.home)
        let peers = try PeersFile.load(home: options.home)
        return try Node(options, configuration: configuration, peers: peers, loop: loop, log: log)
    }

    /// As ``open(_:on:log:)``, with what the files of the home would have said, and in surroundings of the caller's.
    package init(
        _ options: Options,
        configuration: NodeConfiguration,
        peers: PeersFile,
        surroundings: Surroundings = Surroundings(),
        loop: any EventLoop,
        log: Logger
    ) throws {
        self.options = options
        self.surroundings = surroundings
        self.configuration = configuration
        self.peers = peers
        self.loop = loop
        self.log = log
        let realtime = surroundings.realtime()
        let store = try Store.open(
            home: options.home,
            fileSystem: surroundings.disk,
            now: realtime,
            committingOn: surroundings.commitThread
        )
        self.store = store
        archive = MessageArchive(store: store)
        room = StorageRoom(
            home: options.home,
            limits: configuration.storage ?? NodeConfiguration.Storage(),
            space: surroundings.space
        )
        core = NodeStateMachine(capacity: options.capacity ?? configuration.capacity ?? Limits.inboxCapacity)
        clock = NodeClock(mark: store.clockMark(), realtime: realtime, boottime: surroundings.boottime())
        routing = RoutingTable(day: Timestamp(milliseconds: realtime).day)
        events = EventLog(start: realtime * 1_000)
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
            network: surroundings.network,
            datagrams: (options.datagrams ?? configuration.datagrams ?? true) ? surroundings.datagrams : nil
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
        isStopped = true
        timer?.cancel()
        for waiter in commitWaiters { waiter.promise.fail(NodeError.stopping) }
        commitWaiters = []
        let closed = EventLoopFuture.andAllComplete(listeners.map { $0.close() } + [stopPortMapping()], on: loop)
        stopDiscovery()
        addressWatch?.close(promise: nil)
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
        saveSummaries()
        transport?.close()
        store.close()
        keys = [:]
    }

    // MARK: Turns

    func readClock() -> NodeClock.Reading {
        clock.read(realtime: surroundings.realtime(), boottime: surroundings.boottime())
    }

    /// The time of everything the node does.
    var now: Timestamp { readClock().confirmed }

    /// The node's own time, which never goes back.
    package var currentTime: Timestamp { now }

    var defaultPolicy: LifetimePolicy { LifetimePolicy(configuration.policy) ?? .ask }

    var defaultCap: LifetimeCap { configuration.cap.flatMap { LifetimeCap($0) } ?? .none }

    func makeTurn() -> Turn {
        let reading = readClock()
        let endpoints = advertisedNow ?? advertised
        advertisedNow = endpoints
        return Turn(
            now: reading.confirmed,
            random: .system,
            endpoints: endpoints,
            isLocked: store.isLocked,
            defaultPolicy: defaultPolicy,
            sessionGrace: options.sessionGrace,
            // Not a copy of the archive: what the turn changes would be copied with it.
            isKnown: { [unowned self] client, id in archive.contains(id, client: client, row: rows[client]) },
            hasRoom: { [unowned self] client in hasRoom(client) },
            isNamedPeer: { [unowned self] key in peers.peers.contains { $0.contact?.key == key } },
            contents: ContentLookup(
                message: { [unowned self] client, id in
                    archive.read(id, client: client, row: rows[client], now: readClock().hide)?.message
                },
                isStored: { [unowned self] client, id in
                    archive.read(id, client: client, row: rows[client], now: readClock().hide)?.isStored ?? false
                },
                hasChunk: { [unowned self] client, id, index in
                    archive.hasChunk(index, of: id, client: client, row: rows[client])
                },
                hasRoom: { [unowned self] client, byteCount in hasRoom(client, byteCount: byteCount) },
                memoryAvailable: { [unowned self] in
                    Limits.attachmentMemoryTotalByteCount - archive.heldChunkByteCount
                },
                attachmentByteCount: attachmentByteCount,
                sendsReadReceipts: configuration.readReceipts ?? false,
                awaitsStorage: { [unowned self] client, id in archive.awaitsStorage(id, client: client) }
            ),
            defaultCap: defaultCap,
            sourceOf: { [unowned self] link in links[link]?.connection.sourcePrefix }
        )
    }

    /// Whether the inbox may store more of what peers send.
    private func hasRoom(_ client: ClientID) -> Bool {
        // Counted by the store; while it is locked nothing is stored.
        guard let row = rows[client], let stored = try? store.storedAmount(row) else { return true }
        return room.isFor(byteCount: stored.byteCount, recordCount: stored.recordCount)
    }

    /// One step of the core and what follows from it.
    func turn(_ body: (inout Turn) -> [NodeAction]) {
        guard !isStopped else { return }
        var turn = makeTurn()
        perform(body(&turn))
        schedule()
    }

    /// What is due by now: expiry, deadlines of the core, the routing tokens of a new day.
    func tick() {
        guard !isStopped else { return }
        advertisedNow = nil
        devicesNow = nil
        let reading = readClock()
        // First, for the store destroys the keys at the same moment, and they sign what is left.
        for client in core.sleepersDue(now: reading.confirmed) { wakeIfPossible(client, .activityRanking) }
        turn { core.explodeDue(&$0) }
        reap(reading)
        probeDisk(after: Self.probePause)
        saveWhatWasRefused()
        storeWhatWaited()
        room.look()
        if reading.confirmed.day != routing.day { routing.beginRoll(to: reading.confirmed.day) }
        if routing.isRolling { routing.continueRoll(routes: Self.rollBatchCount) }
        if summarizedAt.map({ reading.confirmed - $0 >= .hour }) ?? false { saveSummaries() }
        if lastMark.map({ reading.confirmed - $0 >= .minute }) ?? true, !store.isReadOnly {
            lastMark = reading.confirmed
            do { try store.saveClockMark(reading.confirmed.milliseconds) } catch {
                log.error("the clock's high-water mark could not be saved", metadata: ["error": "\(error)"])
            }
        }
        if store.isHomeGone, let homeGone {
            log.critical("the home was removed or moved away: stopping", metadata: ["home": "\(options.home)"])
            self.homeGone = nil
            homeGone()
        }
        noteAddresses()
        lookAtGateways()
        announceEndpoints()
        turn { core.advance(&$0) }
    }

    /// Hides and destroys what has expired.
    func reap(_ reading: NodeClock.Reading) {
        let report = store.reap(hide: reading.hide.milliseconds, destroy: reading.confirmed.milliseconds)
        let isIdle = report.expired.isEmpty && report.rows.isEmpty
        let clients = isIdle ? [:] : Dictionary(uniqueKeysWithValues: rows.map { ($1, $0) })
        for expired in report.expired {
            guard let client = clients[expired.row], let id = Messaging.MessageID(expired.id) else { continue }
            archive.expired(id, client: client)
            publish(client, .messageExpired(id))
        }
        for (client, id) in archive.expire(now: reading.confirmed) { publish(client, .messageExpired(id)) }
        for row in report.rows {
            if let client = clients[row] { letGo(client) }
        }
        // Tried again every second, said once a minute: a disk that stays as it is must not be filled with words.
        if !report.failures.isEmpty, failuresToldAt.map({ reading.confirmed - $0 >= .minute }) ?? true {
            failuresToldAt = reading.confirmed
            for failure in report.failures {
                log.critical("something that is due could not be destroyed", metadata: ["error": "\(failure)"])
            }
        }
        if report.failures.isEmpty {
            undestroyed = [:]
            failuresToldAt = nil
        }
        if report.recordsOverwritten > 0 { scheduleCommit() }
    }

    func publish(_ client: ClientID, _ kind: Event.Kind) {
        notify(Event(client: client, conversation: core.conversationID(client), at: now, kind: kind))
    }

    /// Sets the one timer to the next thing to do; at the latest in ten seconds, to see steps of the clock.
    func schedule() {
        guard !isStopped else { return }
        let now = now
        var next = now + 10 * .second
        if let deadline = core.nextDeadline { next = min(next, deadline) }
        if let deadline = store.nextDeadline { next = min(next, Timestamp(milliseconds: deadline)) }
        if let deadline = archive.wakeAt { next = min(next, deadline) }
        if routing.isRolling { next = min(next, now + Self.rollPause) }
        if storageTrouble != nil { next = min(next, now + Self.probePause) }
        if let timerDeadline, timer != nil, timerDeadline <= next, timerDeadline > now { return }
        timer?.cancel()
        timerDeadline = next
        timer = loop.assumeIsolated().scheduleTask(in: .milliseconds(max(1, next - now))) {
            self.assumeIsolated { node in
                node.timer = nil
                node.tick()
            }
        }
    }

    // MARK: Events

    func notify(_ event: Event) {
        let entry = events.append(event)
        if case .invited(let id, let key) = event.kind { answer(invitation: id, from: key) }
        for watcher in watchers.keys.sorted() { watchers[watcher]?(entry) }
        if let message = event.kind.message {
            tellWatchers(of: message, entry)
        } else {
            for message in messageWatchers.keys.sorted() { tellWatchers(of: message, entry) }
        }
    }

    private func tellWatchers(of message: Messaging.MessageID, _ entry: EventLog.Entry) {
        guard let told = messageWatchers[message] else { return }
        for watcher in told.keys.sorted() { messageWatchers[message]?[watcher]?(entry) }
    }

    /// Calls `body` with each event from now on.
    package func watch(_ body: @escaping (EventLog.Entry) -> Void) -> UInt64 {
        defer { nextWatcher += 1 }
        watchers[nextWatcher] = body
        return nextWatcher
    }

    /// Ends what ``watch(_:)`` began.
    package func unwatch(_ watcher: UInt64) { watchers[watcher] = nil }

    /// Calls `body` with each event from now on that is about this message, or about no message.
    package func watch(
        _ message: Messaging.MessageID,
        _ body: @escaping (EventLog.Entry) -> Void
    ) -> UInt64 {
        defer { nextWatcher += 1 }
        messageWatchers[message, default: [:]][nextWatcher] = body
        return nextWatcher
    }

    package func unwatch(_ message: Messaging.MessageID, _ watcher: UInt64) {
        messageWatchers[message]?[watcher] = nil
        if messageWatchers[message]?.isEmpty ?? false { messageWatchers[message] = nil }
    }

    /// The events that are still kept.
    package var eventLog: EventLog { events }
}

extension Event.Kind {
    /// The message that this is about.
    fileprivate var message: Messaging.MessageID? {
        switch self {
        case .message(let id), .messageState(let id, _, _), .messageExpired(let id), .messageDelivery(let id, _, _),
            .attachmentProgress(let id, _, _, _):
            id
        default: nil
        }
    }
}
