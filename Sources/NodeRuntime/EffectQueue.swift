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
    /// Whose changes each commit that is not durable yet has, and the next: one that fails is a failure of all of them,
    /// also of an inbox that has changed again since, perhaps in another file.
    private var changedIn: [UInt64: Set<ClientID>] = [:]
    /// The number of the commit that the next change will be part of.
    private(set) var nextCommit: UInt64 = 1
    private var completed: UInt64 = 0

    /// The inbox has changed on the disk: what follows waits.
    mutating func changed(_ client: ClientID) {
        blockedUntil[client] = nextCommit
        changedIn[nextCommit, default: []].insert(client)
    }

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
        forgetCompleted()
        return released
    }

    /// A commit has failed.
    /// - Returns: the inboxes that were part of it, and what must not leave.
    mutating func fail(_ sequence: UInt64) -> [(ClientID, [Effect])] {
        completed = max(completed, sequence)
        let clients = changedIn.filter { $0.key <= sequence }.values.reduce(into: Set()) { $0.formUnion($1) }
        let failed = clients.sorted().map { ($0, drop($0)) }
        forgetCompleted()
        return failed
    }

    private mutating func forgetCompleted() {
        blockedUntil = blockedUntil.filter { $0.value > completed }
        changedIn = changedIn.filter { $0.key > completed }
    }

    /// Takes back all that waits for an inbox.
    mutating func drop(_ client: ClientID) -> [Effect] {
        blockedUntil[client] = nil
        for commit in changedIn.keys { changedIn[commit]?.remove(client) }
        return (queues.removeValue(forKey: client) ?? []).map(\.effect)
    }

    /// Takes back all that waits.
    mutating func dropAll() -> [Effect] { queues.keys.sorted().flatMap { drop($0) } }
}
