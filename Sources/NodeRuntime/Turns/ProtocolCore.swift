import Cryptography
import Messaging
import Store
import Transport

/// Runs the protocol core: each event is one turn, and its actions are performed before the turn ends.
final class ProtocolCore: Part {
    var machine: NodeStateMachine
    var turnEnded: (() -> Void)?

    override init(_ shell: Shell) {
        let capacity = shell.services.options.capacity ?? shell.services.configuration.capacity
        machine = NodeStateMachine(capacity: capacity ?? Limits.inboxCapacity)
        super.init(shell)
    }

    func turn(_ body: (inout Turn) -> Void) {
        guard !isStopped else { return }
        var turn = makeTurn()
        body(&turn)
        perform(turn.actions)
        schedule()
    }

    /// Runs a user's request; throws refusals of the core and the store.
    func request<Result>(_ body: (inout Turn) throws(CommandError) -> Result) throws(NodeError) -> Result {
        guard !isStopped else { throw .stopping }
        var turn = makeTurn()
        let result: Result
        do throws(CommandError) { result = try body(&turn) } catch { throw .command(error) }
        try storing {
            perform(turn.actions)
            schedule()
        }
        return result
    }

    /// - Throws: the store's refusal during `body`.
    func storing(_ body: () -> Void) throws(NodeError) {
        storage.refusal = nil
        body()
        if let failure = storage.refusal { throw .store(failure) }
    }

    func perform(_ actions: [NodeAction]) { shell.performer.perform(actions) }

    /// A turn or its deferred work has ended: sets the node's timer again.
    func schedule() {
        shell.commits.turnEnded()
        shell.timer.schedule()
        turnEnded?()
    }

    func makeTurn() -> Turn {
        let reading = readClock()
        var turn = Turn(
            now: reading.confirmed, random: .system, endpoints: shell.addresses.advertised, isLocked: store.isLocked,
            node: self)
        turn.relayPlaces = shell.addresses.relayPlaces { machine.contact?.relayPlaces ?? [] }
        turn.defaultPolicy = services.defaultPolicy
        turn.sessionGrace = options.sessionGrace
        turn.attachmentByteCount = services.attachmentByteCount
        turn.sendsReadReceipts = services.sendsReadReceipts
        turn.defaultCap = services.defaultCap
        turn.mailbox = shell.ownMailbox.place
        turn.startedAt = services.startedAt
        return turn
    }
}

extension ProtocolCore: Surroundings {
    private func archive(_ client: ClientID) -> MessageArchive? { inboxes[client]?.archive }

    func isKnown(_ message: Messaging.MessageID, _ client: ClientID) -> Bool {
        archive(client)?.contains(message) ?? false
    }

    func message(_ message: Messaging.MessageID, _ client: ClientID) -> Message? {
        archive(client)?.read(message, now: readClock().hide)?.message
    }

    func deliveries(of message: Messaging.MessageID, _ client: ClientID) -> [Delivery] {
        archive(client)?.deliveries(of: message, now: readClock().hide) ?? []
    }

    func isStored(_ message: Messaging.MessageID, _ client: ClientID) -> Bool {
        archive(client)?.read(message, now: readClock().hide)?.isStored ?? false
    }

    func awaitsStorage(_ message: Messaging.MessageID, _ client: ClientID) -> Bool {
        archive(client)?.awaitsStorage(message) ?? false
    }

    func wasShown(_ message: Messaging.MessageID, _ client: ClientID) -> Bool {
        archive(client)?.wasShown(message) ?? false
    }

    func wasRead(_ message: Messaging.MessageID, _ client: ClientID) -> Bool {
        archive(client)?.wasRead(message) ?? false
    }

    func hasChunk(_ index: Int, of message: Messaging.MessageID, _ client: ClientID) -> Bool {
        archive(client)?.hasChunk(index, of: message) ?? false
    }

    func hasRoom(_ client: ClientID) -> Bool {
        // The store keeps the count; while locked, nothing is stored.
        guard let row = inboxes[client]?.row, let stored = try? store.storedAmount(row) else { return true }
        return storage.room.isFor(byteCount: stored.byteCount, recordCount: stored.recordCount)
    }

    func hasRoom(for byteCount: Int64, _ client: ClientID) -> Bool {
        guard let row = inboxes[client]?.row, !store.isLocked, let stored = try? store.storedAmount(row) else {
            return false
        }
        return storage.room.isFor(file: byteCount, besides: stored.byteCount)
    }

    var memoryAvailable: Int64 { Limits.attachmentMemoryTotalByteCount - memory.chunkByteCount }

    func isNamedPeer(_ key: PublicKey) -> Bool { shell.book.peer(key).map { !$0.isBlocked } ?? false }

    func source(of link: LinkID) -> UInt64? { links[link]?.connection.sourcePrefix }

    func keptSlots(of box: BoxID) -> KeptSlots? { shell.keptBoxes.slots(of: box) }

    func sleeperKey(_ client: ClientID) -> IdentityKey? { inboxes[client].flatMap { try? $0.deriveKey(in: store) } }
}
