import Crypto
import Messaging
import Store
import Transport

/// Runs the protocol core: each event is one turn, and its actions are performed before the turn ends.
final class ProtocolCore: NodePart {
    struct Events {
        let perform: ([NodeAction]) -> Void
        /// A turn or its deferred work has ended: sets the node's timer again.
        let turnEnded: () -> Void
    }

    let services: NodeServices
    let inboxes = InboxTable()
    let links = LinkTable()
    let memory = MessageMemory()
    private let peers: PeerBook
    private let addresses: OwnAddresses
    var machine: NodeStateMachine
    private var events: Events?
    private var mailboxPlace: () -> MailboxPlace? = { nil }
    private var keptSlots: (BoxID) -> KeptSlots? = { _ in KeptSlots([]) }

    init(_ services: NodeServices, _ peers: PeerBook, _ addresses: OwnAddresses) {
        self.services = services
        self.peers = peers
        self.addresses = addresses
        let capacity = services.options.capacity ?? services.configuration.capacity
        machine = NodeStateMachine(capacity: capacity ?? Limits.inboxCapacity)
    }

    func connect(_ events: Events) { self.events = events }

    /// Connects turns to our mailbox and to the boxes stored here.
    func connectMailboxes(place: @escaping () -> MailboxPlace?, keptSlots: @escaping (BoxID) -> KeptSlots?) {
        mailboxPlace = place
        self.keptSlots = keptSlots
    }

    /// Later turns have no effect.
    func disconnect() { events = nil }

    // MARK: Turns

    func turn(_ body: (inout Turn) -> [NodeAction]) {
        guard !isStopped else { return }
        var turn = makeTurn()
        perform(body(&turn))
        schedule()
    }

    /// Runs a user's request; throws refusals of the core and the store.
    func request<Result>(_ body: (inout Turn) throws(CommandError) -> (Result, [NodeAction])) throws(NodeError)
        -> Result
    {
        guard !isStopped else { throw .stopping }
        var turn = makeTurn()
        let outcome: (Result, [NodeAction])
        do throws(CommandError) { outcome = try body(&turn) } catch { throw .command(error) }
        try storing {
            perform(outcome.1)
            schedule()
        }
        return outcome.0
    }

    /// - Throws: the store's refusal during `body`.
    func storing(_ body: () -> Void) throws(NodeError) {
        storage.refusal = nil
        body()
        if let failure = storage.refusal { throw .store(failure) }
    }

    func perform(_ actions: [NodeAction]) { events?.perform(actions) }

    func schedule() { events?.turnEnded() }

    func makeTurn() -> Turn {
        let reading = readClock()
        return Turn(
            now: reading.confirmed, random: .system, endpoints: addresses.advertised,
            relayPlaces: addresses.relayPlaces { machine.contact?.relayPlaces ?? [] }, isLocked: store.isLocked,
            defaultPolicy: services.defaultPolicy, sessionGrace: options.sessionGrace,
            // A closure that captures a single object needs no allocation.
            isKnown: { [inboxes] client, id in inboxes[client]?.archive.contains(id) ?? false },
            hasRoom: { [self] client in hasRoom(client) },
            isNamedPeer: { [peers] key in peers.peer(key).map { !$0.isBlocked } ?? false },
            contents: ContentLookup(
                message: { [self] client, id in inboxes[client]?.archive.read(id, now: readClock().hide)?.message },
                deliveries: { [self] client, id in
                    inboxes[client]?.archive.deliveries(of: id, now: readClock().hide) ?? []
                },
                isStored: { [self] client, id in
                    inboxes[client]?.archive.read(id, now: readClock().hide)?.isStored ?? false
                },
                hasChunk: { [inboxes] client, id, index in inboxes[client]?.archive.hasChunk(index, of: id) ?? false },
                hasRoom: { [self] client, byteCount in hasRoom(client, byteCount: byteCount) },
                memoryAvailable: { [memory] in Limits.attachmentMemoryTotalByteCount - memory.chunkByteCount },
                attachmentByteCount: services.attachmentByteCount, sendsReadReceipts: services.sendsReadReceipts,
                awaitsStorage: { [inboxes] client, id in inboxes[client]?.archive.awaitsStorage(id) ?? false },
                wasShown: { [inboxes] client, id in inboxes[client]?.archive.wasShown(id) ?? false }),
            defaultCap: services.defaultCap, sourceOf: { [links] link in links[link]?.connection.sourcePrefix },
            mailbox: mailboxPlace(), keptSlots: keptSlots, startedAt: services.startedAt,
            sleeperKey: { [self] client in inboxes[client].flatMap { try? $0.deriveKey(in: store) } })
    }

    // MARK: Room on the disk

    private func hasRoom(_ client: ClientID) -> Bool {
        // The store keeps the count; while locked, nothing is stored.
        guard let row = inboxes[client]?.row, let stored = try? store.storedAmount(row) else { return true }
        return storage.room.isFor(byteCount: stored.byteCount, recordCount: stored.recordCount)
    }

    private func hasRoom(_ client: ClientID, byteCount: Int64) -> Bool {
        guard let row = inboxes[client]?.row, !store.isLocked, let stored = try? store.storedAmount(row) else {
            return false
        }
        return storage.room.isFor(file: byteCount, besides: stored.byteCount)
    }
}

/// An object of a node that runs turns.
protocol CorePart: NodePart { var core: ProtocolCore { get } }

extension CorePart {
    var services: NodeServices { core.services }
    var inboxes: InboxTable { core.inboxes }
    var links: LinkTable { core.links }
    var memory: MessageMemory { core.memory }
}
