import DequeModule
import Messaging

/// What leaves the node for one inbox waits here, in order, until everything before it is durable.
final class EffectQueue {
    enum Effect {
        case action(NodeAction)
        /// An answer to the user.
        case run((_ isDurable: Bool) -> Void)

        /// What it counts for against the bound of what may wait: a message is one, however many go together.
        fileprivate var weight: Int {
            switch self {
            case .action(.notifyMessages(let events)): events.messages.count
            case .action(.transmitMessages(_, _, let messages)): messages.count
            case .action, .run: 1
            }
        }
    }

    private struct Waiting {
        var sequence: UInt64
        var effect: Effect
    }

    let client: ClientID
    private var waiting: Deque<Waiting> = []
    /// Of all that waits.
    private(set) var weight = 0
    /// The commit that covers the inbox's newest change; 0 for none.
    fileprivate var blockedUntil: UInt64 = 0
    /// The newest commit that lists the inbox for a change that nothing waits for; 0 for none.
    fileprivate var listedIn: UInt64 = 0

    init(client: ClientID) { self.client = client }

    /// - Parameter completed: the newest commit that is durable.
    /// - Returns: whether the effect has to wait; then it was taken.
    fileprivate func enqueue(_ effect: Effect, completed: UInt64) -> Bool {
        guard blockedUntil > completed || !waiting.isEmpty else { return false }
        waiting.append(Waiting(sequence: max(blockedUntil, completed), effect: effect))
        weight += effect.weight
        return true
    }

    fileprivate func release(upTo completed: UInt64) -> [Effect] {
        var effects: [Effect] = []
        let count = waiting.firstIndex { $0.sequence > completed } ?? waiting.count
        effects.reserveCapacity(count)
        for _ in 0..<count {
            let effect = waiting.removeFirst().effect
            weight -= effect.weight
            effects.append(effect)
        }
        return effects
    }

    /// Takes back all that waits.
    func drop() -> [Effect] {
        blockedUntil = 0
        listedIn = 0
        weight = 0
        defer { waiting = [] }
        return waiting.map(\.effect)
    }
}

/// The commits of the node, in order, and which inboxes each has changes of. A commit that fails is a failure of all of
/// them, also of an inbox that has changed again since, perhaps in another file.
struct CommitLedger {
    private struct Change {
        var sequence: UInt64
        var queue: EffectQueue
    }

    /// Of commits that are not durable yet, in order.
    private var changes: Deque<Change> = []
    /// The number of the commit that the next change will be part of.
    private(set) var nextCommit: UInt64 = 1
    private var completed: UInt64 = 0

    /// The inbox has changed on the disk: what follows waits.
    mutating func changed(_ queue: EffectQueue) {
        guard queue.blockedUntil != nextCommit else { return }
        queue.blockedUntil = nextCommit
        changes.append(Change(sequence: nextCommit, queue: queue))
    }

    /// The inbox has changed on the disk, and no effect tells of the change. Later effects do not wait for its commit; a
    /// commit that fails is a failure of the inbox all the same.
    mutating func changedQuietly(_ queue: EffectQueue) {
        guard queue.listedIn != nextCommit else { return }
        queue.listedIn = nextCommit
        changes.append(Change(sequence: nextCommit, queue: queue))
    }

    /// - Returns: whether the effect has to wait; then it was taken.
    func enqueue(_ effect: EffectQueue.Effect, _ queue: EffectQueue) -> Bool {
        queue.enqueue(effect, completed: completed)
    }

    /// A commit is taken on its way; later changes belong to the next.
    mutating func beginCommit() -> UInt64 {
        defer { nextCommit += 1 }
        return nextCommit
    }

    /// A commit is durable.
    /// - Returns: what may leave now, by inbox, in order.
    mutating func complete(_ sequence: UInt64) -> [(queue: EffectQueue, effects: [EffectQueue.Effect])] {
        end(sequence).compactMap { queue in
            let effects = queue.release(upTo: completed)
            return effects.isEmpty ? nil : (queue, effects)
        }
    }

    /// A commit has failed.
    /// - Returns: the inboxes that were part of it, and what must not leave.
    mutating func fail(_ sequence: UInt64) -> [(queue: EffectQueue, effects: [EffectQueue.Effect])] {
        end(sequence).map { ($0, drop($0)) }
    }

    /// The inboxes of all commits up to this one, each once, in the order of their names.
    private mutating func end(_ sequence: UInt64) -> [EffectQueue] {
        completed = max(completed, sequence)
        var ended: [EffectQueue] = []
        var seen: Set<ObjectIdentifier> = []
        while let first = changes.first, first.sequence <= completed {
            changes.removeFirst()
            if seen.insert(ObjectIdentifier(first.queue)).inserted { ended.append(first.queue) }
        }
        return ended.count > 1 ? ended.sorted { $0.client < $1.client } : ended
    }

    /// Takes back all that waits for an inbox; no commit is a matter of it any more.
    mutating func drop(_ queue: EffectQueue) -> [EffectQueue.Effect] {
        changes.removeAll { $0.queue === queue }
        return queue.drop()
    }
}
