import Crypto

/// What is left of an exploded conversation while the node remembers it: 45 days.
struct Explosion: Sendable {
    var machine: ExplodeStateMachine
    /// When the next round of knocks is due, and after how long the one after it.
    var knockAt: Timestamp?
    var wait: Milliseconds = Limits.knockFirst
    /// Links of the destroyed inbox over which receipts still come.
    var client: ClientID?
    /// See ``DeadlineQueue``.
    fileprivate var queuedDeadline: Timestamp?

    init(machine: ExplodeStateMachine, knockAt: Timestamp?, client: ClientID? = nil) {
        self.machine = machine
        self.knockAt = knockAt
        self.client = client
    }

    fileprivate var nextDeadline: Timestamp {
        let end = machine.record.keepUntil
        guard let knockAt, !machine.waiting.isEmpty else { return end }
        return min(end, knockAt)
    }
}

/// All explosions that a node remembers, and when one of them has something to do. Reads and writes like a dictionary.
struct ExplosionTable: Sendable {
    private var explosions: [ConversationID: Explosion] = [:]
    private var deadlines = DeadlineQueue<ConversationID>()
    /// Those whose members may come through rendezvous nodes.
    private(set) var relaySeeds: [RelaySeed: ConversationID] = [:]
    /// They have changed since somebody has looked.
    var relaysHaveChanged = false

    subscript(conversation: ConversationID) -> Explosion? {
        get { explosions[conversation] }
        set {
            let before = explosions[conversation]
            explosions[conversation] = newValue
            let (known, seeds) = (before?.machine.record.relaySeeds ?? [], newValue?.machine.record.relaySeeds ?? [])
            if known != seeds {
                for seed in known { relaySeeds[seed] = nil }
                for seed in seeds { relaySeeds[seed] = conversation }
                relaysHaveChanged = true
            }
            guard let newValue else { return }
            // The deadline that is queued belongs to the table: what is written back may hold an older one.
            var queued = before?.queuedDeadline
            deadlines.set(conversation, newValue.nextDeadline, queued: &queued)
            explosions[conversation]?.queuedDeadline = queued
        }
    }

    /// In the order of their conversations' ids.
    var records: [ExplodeStateMachine.Record] {
        explosions.values.map(\.machine.record).sorted { $0.conversation < $1.conversation }
    }

    /// Not after the first moment at which an explosion has something to do.
    var nextDeadline: Timestamp? { deadlines.next }

    /// Those that may have something to do, in the order of their ids; whoever takes them puts them back.
    mutating func takeDue(until now: Timestamp) -> [ConversationID] {
        deadlines.take(until: now).compactMap { conversation, at in
            guard explosions[conversation]?.queuedDeadline == at else { return nil }
            explosions[conversation]?.queuedDeadline = nil
            return conversation
        }.sorted()
    }
}
