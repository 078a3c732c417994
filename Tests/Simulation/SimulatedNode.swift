import Cryptography
import Messaging

/// A simulated disk, unsealed for the oracle.
struct Disk {
    struct Inbox {
        var record: InboxRecord
        var key: IdentityKey
    }

    var inboxes: [ClientID: Inbox] = [:]
    var messages: [ClientID: [MessageID: Message]] = [:]
    var tombstones: [ConversationID: ExplosionRecord] = [:]
    var fanOuts: [ConversationID: [Member]] = [:]
    /// Scheduled explosions: the inbox to be destroyed, and its tombstone.
    var armed: [ConversationID: Armed] = [:]
    /// Explosion notices for members' boxes, with the key of the inbox that made them.
    var mailNotices: [ConversationID: MailNotices] = [:]

    struct MailNotices {
        var sender: PublicKey
        var notices: [MailNotice]
    }

    struct Armed {
        var client: ClientID
        var record: ExplosionRecord
        var fanOut: [Member]
    }

    /// A change of the process's disk and, when it is committed, of the durable one.
    struct Operation {
        let client: ClientID?
        let change: (inout Disk) -> Void
        let whenDurable: () -> Void
    }

    mutating func destroy(_ client: ClientID) {
        inboxes[client] = nil
        messages[client] = nil
    }

    mutating func explode(_ end: Armed) {
        destroy(end.client)
        armed[end.record.conversation] = nil
        tombstones[end.record.conversation] = end.record
        fanOuts[end.record.conversation] = end.fanOut.isEmpty ? nil : end.fanOut
    }

    mutating func forget(_ conversation: ConversationID) {
        armed[conversation] = nil
        tombstones[conversation] = nil
        fanOuts[conversation] = nil
        mailNotices[conversation] = nil
    }
}

/// The shell of one node: a disk that commits in batches, a clock, and process memory.
final class SimulatedNode {
    struct Held {
        var message: Message
        var untilUnlocked: Bool
    }

    let index: Int
    var endpoint: Endpoint
    var core: NodeStateMachine
    let capacity: Int
    /// Its lifetime policy and cap for conversations without their own.
    let policy: LifetimePolicy
    let cap: LifetimeCap
    var random: Randomness
    /// Offset of its clock to the simulation's; grows with each step forward.
    var clockOffset: Milliseconds
    /// Total time its clock has lost: it is set back while the node is off.
    var lost: Milliseconds = 0
    var gained: Milliseconds = 0
    /// The latest time that an earlier process has seen.
    var latest = Timestamp(milliseconds: 0)
    /// Simulation time when it last went off.
    var downSince: Int64 = 0
    var isUp = true
    var isLocked = false
    /// Number of crashes: outputs of earlier processes are void.
    var incarnation = 0
    var nextWake: Int64?

    /// The disk as the process sees it, and as a crash would leave it.
    var disk = Disk()
    var durable = Disk()
    var pending: [Disk.Operation] = []
    /// Operations deferred while the storage is locked.
    var deferred: [Disk.Operation] = []
    /// Output that leaves the node after the next commit.
    var outputs: [() -> Void] = []
    var commitPlanned = false

    var memory: [ClientID: [MessageID: Held]] = [:]
    var seen: [ClientID: Set<MessageID>] = [:]
    var routes: [ClientID: Set<NodeAction.Route>] = [:]
    var keys: [ClientID: IdentityKey] = [:]

    var place: MailboxPlace?
    var boxes: [BoxID: RelaySeed] = [:]
    /// Boxes claimed since its start, with their conversations.
    var claimed: [BoxID: ConversationID] = [:]
    var nextVisit: Int64?
    /// By its own clock.
    var wokenAt: [ClientID: Timestamp] = [:]

    init(
        index: Int, random: Randomness, clockOffset: Milliseconds, capacity: Int, policy: LifetimePolicy,
        cap: LifetimeCap
    ) {
        (self.index, self.capacity, self.policy, self.cap) = (index, capacity, policy, cap)
        core = NodeStateMachine(capacity: capacity)
        self.random = random
        self.clockOffset = clockOffset
        endpoint = Endpoint(host: "n\(index)", port: 7440)
    }

    /// Accesses the core in place: asking through the property would copy it.
    func withCore<Result>(_ body: (inout NodeStateMachine) -> Result) -> Result { body(&core) }

    func now(_ time: Int64) -> Timestamp { Timestamp(milliseconds: time + clockOffset) }
    /// Messages that had expired by this time are gone, even if the clock was set back since.
    func latestNow(_ time: Int64) -> Timestamp { max(latest, now(time)) }

    var hasCommitted: Bool { pending.isEmpty && outputs.isEmpty }

    func message(_ id: MessageID, of client: ClientID) -> Message? {
        memory[client]?[id]?.message ?? disk.messages[client]?[id]
    }

    func readable(_ client: ClientID, now: Timestamp, ignoringExpiry: Bool) -> [Message] {
        var result = memory[client]?.values.map(\.message) ?? []
        if !isLocked { result += disk.messages[client].map { Array($0.values) } ?? [] }
        if ignoringExpiry { return result }
        return result.filter { $0.expiresAt.map { $0 > now } ?? true }
    }

    func reap(now: Timestamp) {
        func isLeft(_ message: Message) -> Bool { message.expiresAt.map { $0 > now } ?? true }
        disk.messages = disk.messages.mapValues { $0.filter { isLeft($0.value) } }
        durable.messages = durable.messages.mapValues { $0.filter { isLeft($0.value) } }
        memory = memory.mapValues { $0.filter { isLeft($0.value.message) } }
    }

    func forget(_ client: ClientID) {
        memory[client] = nil
        seen[client] = nil
        routes[client] = nil
        deferred.removeAll { $0.client == client }
    }
}
