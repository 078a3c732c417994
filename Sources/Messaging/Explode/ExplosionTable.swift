import Cryptography

/// A tombstone in memory while the node keeps it: 45 days.
struct Explosion: Sendable {
    var record: ExplosionRecord
    /// When the next round of knocks is due, and the wait after it.
    var knockAt: Timestamp?
    var wait: Milliseconds = Limits.knock.first
    /// The destroyed inbox, whose links still deliver receipts.
    var client: ClientID?
    /// The members' own names, until the node stops: the tombstone has none.
    var names: [PublicKey: String] = [:]
    /// See ``DeadlineQueue``.
    fileprivate var queuedDeadline: Timestamp?

    init(_ record: ExplosionRecord, knockAt: Timestamp?, client: ClientID? = nil) {
        (self.record, self.knockAt, self.client) = (record, knockAt, client)
    }

    fileprivate var nextDeadline: Timestamp {
        let end = record.keepUntil
        guard let knockAt, !record.waiting.isEmpty else { return end }
        return min(end, knockAt)
    }
}

/// All explosions of a node and their deadlines. Reads and writes like a dictionary.
struct ExplosionTable: Sendable {
    private var explosions: [ConversationID: Explosion] = [:]
    private var deadlines = DeadlineQueue<ConversationID>()
    /// Seeds of reservations through which members may connect.
    private(set) var relaySeeds: [RelaySeed: ConversationID] = [:]
    /// ``relaySeeds`` has changed since this was last cleared.
    var relaysHaveChanged = false

    subscript(conversation: ConversationID) -> Explosion? {
        get { explosions[conversation] }
        set {
            let before = explosions[conversation]
            explosions[conversation] = newValue
            let (known, seeds) = (before?.record.relaySeeds ?? [], newValue?.record.relaySeeds ?? [])
            if known != seeds {
                for seed in known { relaySeeds[seed] = nil }
                for seed in seeds { relaySeeds[seed] = conversation }
                relaysHaveChanged = true
            }
            guard let newValue else { return }
            // The table owns the queued deadline: the written value may hold an older one.
            var queued = before?.queuedDeadline
            deadlines.set(conversation, newValue.nextDeadline, queued: &queued)
            explosions[conversation]?.queuedDeadline = queued
        }
    }

    var records: [ExplosionRecord] { explosions.values.map(\.record).sorted { $0.conversation < $1.conversation } }

    /// At or before the first deadline of an explosion.
    var nextDeadline: Timestamp? { deadlines.next }

    /// Explosions that may be due, sorted by id. The caller writes each back.
    mutating func takeDue(until now: Timestamp) -> [ConversationID] {
        deadlines.take(until: now).compactMap { conversation, at in
            guard explosions[conversation]?.queuedDeadline == at else { return nil }
            explosions[conversation]?.queuedDeadline = nil
            return conversation
        }.sorted()
    }
}
