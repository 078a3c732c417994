import DequeModule
import Messaging

/// The outgoing effects of one inbox, which wait in order until all earlier changes are durable.
final class EffectQueue {
    enum Effect {
        case action(NodeAction)
        /// An answer to the user.
        case run((_ isDurable: Bool) -> Void)

        /// The effect's share of the queue bound: each message counts as one.
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
    /// The total of the waiting effects.
    private(set) var weight = 0
    /// The commit of the inbox's newest change; 0 for none.
    fileprivate var blockedUntil: UInt64 = 0
    /// The newest commit with a change of the inbox that blocks no effect; 0 for none.
    fileprivate var listedIn: UInt64 = 0

    init(client: ClientID) { self.client = client }

    /// - Parameter completed: the newest durable commit.
    /// - Returns: whether the effect was queued and waits.
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

    func drop() -> [Effect] {
        blockedUntil = 0
        listedIn = 0
        weight = 0
        defer { waiting = [] }
        return waiting.map(\.effect)
    }
}

/// The node's commits in order, and the inboxes changed by each. A failed commit fails all its inboxes, even those that
/// have changed again since, perhaps in another file.
struct CommitLedger {
    private struct Change {
        var sequence: UInt64
        var queue: EffectQueue
    }

    /// Changes in commits that are not durable yet, in order.
    private var changes: Deque<Change> = []
    /// The commit of the next change.
    private(set) var nextCommit: UInt64 = 1
    private var completed: UInt64 = 0

    mutating func changed(_ queue: EffectQueue) {
        guard queue.blockedUntil != nextCommit else { return }
        queue.blockedUntil = nextCommit
        changes.append(Change(sequence: nextCommit, queue: queue))
    }

    /// For file chunks: no effect waits for this change, but if its commit fails the inbox is reloaded.
    mutating func changedQuietly(_ queue: EffectQueue) {
        guard queue.listedIn != nextCommit else { return }
        queue.listedIn = nextCommit
        changes.append(Change(sequence: nextCommit, queue: queue))
    }

    func enqueue(_ effect: EffectQueue.Effect, _ queue: EffectQueue) -> Bool {
        queue.enqueue(effect, completed: completed)
    }

    /// Starts a commit; later changes belong to the next.
    mutating func beginCommit() -> UInt64 {
        defer { nextCommit += 1 }
        return nextCommit
    }

    /// A commit is durable.
    /// - Returns: the released effects, by inbox, in order.
    mutating func complete(_ sequence: UInt64) -> [(queue: EffectQueue, effects: [EffectQueue.Effect])] {
        end(sequence).compactMap { queue in
            let effects = queue.release(upTo: completed)
            return effects.isEmpty ? nil : (queue, effects)
        }
    }

    /// A commit has failed.
    /// - Returns: its inboxes, and their effects, which must not be sent.
    mutating func fail(_ sequence: UInt64) -> [(queue: EffectQueue, effects: [EffectQueue.Effect])] {
        end(sequence).map { ($0, drop($0)) }
    }

    /// The inboxes of all commits up to this one, without duplicates, sorted by client.
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

    mutating func drop(_ queue: EffectQueue) -> [EffectQueue.Effect] {
        changes.removeAll { $0.queue === queue }
        return queue.drop()
    }
}
