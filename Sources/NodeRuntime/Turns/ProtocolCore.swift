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
            now: reading.confirmed, random: .system, endpoints: shell.addresses.advertised, isLocked: store.isLocked)
        turn.relayPlaces = shell.addresses.relayPlaces { machine.contact?.relayPlaces ?? [] }
        turn.defaultPolicy = services.defaultPolicy
        turn.sessionGrace = options.sessionGrace
        // A closure that captures a single object needs no allocation.
        turn.isKnown = { [inboxes] client, id in inboxes[client]?.archive.contains(id) ?? false }
        turn.hasRoom = { [self] client in hasRoom(client) }
        turn.isNamedPeer = { [book = shell.book] key in book.peer(key).map { !$0.isBlocked } ?? false }
        turn.contents.message = { [self] client, id in inboxes[client]?.archive.read(id, now: readClock().hide)?.message
        }
        turn.contents.said = { [self] client, id in
            inboxes[client]?.archive.deliveries(of: id, now: readClock().hide) ?? []
        }
        turn.contents.isStored = { [self] client, id in
            inboxes[client]?.archive.read(id, now: readClock().hide)?.isStored ?? false
        }
        turn.contents.hasChunk = { [inboxes] client, id, index in
            inboxes[client]?.archive.hasChunk(index, of: id) ?? false
        }
        turn.contents.hasRoom = { [self] client, byteCount in hasRoom(client, byteCount: byteCount) }
        turn.contents.memoryAvailable = { [memory] in Limits.attachmentMemoryTotalByteCount - memory.chunkByteCount }
        turn.contents.attachmentByteCount = services.attachmentByteCount
        turn.contents.sendsReadReceipts = services.sendsReadReceipts
        turn.contents.awaitsStorage = { [inboxes] client, id in inboxes[client]?.archive.awaitsStorage(id) ?? false }
        turn.contents.wasShown = { [inboxes] client, id in inboxes[client]?.archive.wasShown(id) ?? false }
        turn.defaultCap = services.defaultCap
        turn.sourceOf = { [links] link in links[link]?.connection.sourcePrefix }
        turn.mailbox = shell.ownMailbox.place
        turn.keptSlots = { [self] box in shell.keptBoxes.slots(of: box) }
        turn.startedAt = services.startedAt
        turn.sleeperKey = { [self] client in inboxes[client].flatMap { try? $0.deriveKey(in: store) } }
        return turn
    }

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
