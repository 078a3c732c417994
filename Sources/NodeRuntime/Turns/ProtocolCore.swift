import Crypto
import Messaging
import Store
import Transport

/// Runs the protocol core: each event is one turn, and its actions are performed before the turn ends.
final class ProtocolCore: Part {
    var machine: NodeStateMachine

    override init(_ shell: Shell) {
        let capacity = shell.services.options.capacity ?? shell.services.configuration.capacity
        machine = NodeStateMachine(capacity: capacity ?? Limits.inboxCapacity)
        super.init(shell)
    }

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

    func perform(_ actions: [NodeAction]) { shell.performer.perform(actions) }

    /// A turn or its deferred work has ended: sets the node's timer again.
    func schedule() {
        shell.commits.turnEnded()
        shell.timer.schedule()
    }

    func makeTurn() -> Turn {
        let reading = readClock()
        return Turn(
            now: reading.confirmed, random: .system, endpoints: shell.addresses.advertised,
            relayPlaces: shell.addresses.relayPlaces { machine.contact?.relayPlaces ?? [] }, isLocked: store.isLocked,
            defaultPolicy: services.defaultPolicy, sessionGrace: options.sessionGrace,
            // A closure that captures a single object needs no allocation.
            isKnown: { [inboxes] client, id in inboxes[client]?.archive.contains(id) ?? false },
            hasRoom: { [self] client in hasRoom(client) },
            isNamedPeer: { [book = shell.book] key in book.peer(key).map { !$0.isBlocked } ?? false },
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
            mailbox: shell.ownMailbox.place, keptSlots: { [self] box in shell.keptBoxes.slots(of: box) },
            startedAt: services.startedAt,
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
