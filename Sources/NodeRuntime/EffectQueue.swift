import DequeModule
import Messaging

/// What leaves the node waits here until everything before it is durable; in order for each inbox.
struct EffectQueue {
    enum Effect {
        case action(NodeAction)
        /// An answer to the user.
        case run((_ isDurable: Bool) -> Void)
    }

    private struct Waiting {
        var sequence: UInt64
        var effect: Effect
    }

    private var queues: [ClientID: Deque<Waiting>] = [:]
    /// The commit that covers an inbox's newest change.
    private var blockedUntil: [ClientID: UInt64] = [:]
    /// The number of the commit that the next change will be part of.
    private(set) var nextCommit: UInt64 = 1
    private var completed: UInt64 = 0

    /// The inbox has changed on the disk: what follows waits.
    mutating func changed(_ client: ClientID) { blockedUntil[client] = nextCommit }

    /// - Returns: whether the effect has to wait; then it was taken.
    mutating func enqueue(_ effect: Effect, for client: ClientID) -> Bool {
        let until = blockedUntil[client] ?? 0
        guard until > completed || queues[client] != nil else { return false }
        queues[client, default: []].append(Waiting(sequence: max(until, completed), effect: effect))
        return true
    }

    func count(for client: ClientID) -> Int { queues[client]?.count ?? 0 }

    /// A commit is taken on its way; later changes belong to the next.
    mutating func beginCommit() -> UInt64 {
        defer { nextCommit += 1 }
        return nextCommit
    }

    /// A commit is durable.
    /// - Returns: what may leave now, by inbox, in order.
    mutating func complete(_ sequence: UInt64) -> [(ClientID, [Effect])] {
        completed = max(completed, sequence)
        var released: [(ClientID, [Effect])] = []
        for client in queues.keys.sorted() {
            var effects: [Effect] = []
            while let first = queues[client]?.first, first.sequence <= completed {
                effects.append(first.effect)
                queues[client]!.removeFirst()
            }
            if queues[client]?.isEmpty ?? false { queues[client] = nil }
            if !effects.isEmpty { released.append((client, effects)) }
        }
        blockedUntil = blockedUntil.filter { $0.value > completed }
        return released
    }

    /// A commit has failed.
    /// - Returns: the inboxes that were part of it, and what must not leave.
    mutating func fail(_ sequence: UInt64) -> [(ClientID, [Effect])] {
        completed = max(completed, sequence)
        var failed: [(ClientID, [Effect])] = []
        for (client, until) in blockedUntil.sorted(by: { $0.key < $1.key }) where until <= sequence {
            failed.append((client, (queues.removeValue(forKey: client) ?? []).map(\.effect)))
        }
        blockedUntil = blockedUntil.filter { $0.value > completed }
        return failed
    }

    /// Takes back all that waits for an inbox.
    mutating func drop(_ client: ClientID) -> [Effect] {
        blockedUntil[client] = nil
        return (queues.removeValue(forKey: client) ?? []).map(\.effect)
    }

    mutating func forget(_ client: ClientID) {
        queues[client] = nil
        blockedUntil[client] = nil
    }
}
