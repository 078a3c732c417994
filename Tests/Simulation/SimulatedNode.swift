import Crypto
import Messaging

/// What a simulated disk holds. Nothing is sealed: the oracle reads it.
struct Disk {
    struct Inbox {
        var record: InboxRecord
        var key: IdentityKey
    }

    var inboxes: [ClientID: Inbox] = [:]
    var messages: [ClientID: [MessageID: Message]] = [:]
    var tombstones: [ConversationID: ExplodeStateMachine.Record] = [:]
    var fanOuts: [ConversationID: [Member]] = [:]
    /// Scheduled explosions: the inbox whose keys go, and what is left then.
    var armed: [ConversationID: Armed] = [:]
    /// Notices of explosions for the boxes of members, with the key of the inbox that has made them.
    var mailNotices: [ConversationID: MailNotices] = [:]

    struct MailNotices {
        var sender: PublicKey
        var notices: [MailNotice]
    }

    struct Armed {
        var client: ClientID
        var record: ExplodeStateMachine.Record
        var fanOut: [Member]
    }

    enum Operation {
        case save(ClientID, Inbox)
        case message(ClientID, Message)
        case state(ClientID, MessageID, DeliveryState)
        case erase(ClientID, [MessageID])
        case explode(ClientID, ExplodeStateMachine.Record, [Member])
        case destroy(ClientID)
        case tombstone(ExplodeStateMachine.Record)
        case removeTombstone(ConversationID)
        case arm(ClientID, ExplodeStateMachine.Record, [Member])
        /// `nil`: nothing is left to put.
        case mailNotices(ConversationID, MailNotices?)

        var client: ClientID? {
            switch self {
            case .save(let client, _), .message(let client, _), .state(let client, _, _), .erase(let client, _),
                .explode(let client, _, _), .destroy(let client), .arm(let client, _, _):
                client
            case .tombstone, .removeTombstone, .mailNotices: nil
            }
        }
    }

    mutating func apply(_ operation: Operation) {
        switch operation {
        case .save(let client, let inbox): inboxes[client] = inbox
        case .message(let client, let message): messages[client, default: [:]][message.content.id] = message
        case .state(let client, let id, let state): messages[client]?[id]?.state = state
        case .erase(let client, let ids): for id in ids { messages[client]?[id] = nil }
        case .explode(let client, let record, let members):
            inboxes[client] = nil
            messages[client] = nil
            armed[record.conversation] = nil
            tombstones[record.conversation] = record
            fanOuts[record.conversation] = members.isEmpty ? nil : members
        case .destroy(let client):
            inboxes[client] = nil
            messages[client] = nil
        case .tombstone(let record): tombstones[record.conversation] = record
        case .removeTombstone(let conversation):
            armed[conversation] = nil
            tombstones[conversation] = nil
            fanOuts[conversation] = nil
            mailNotices[conversation] = nil
        case .arm(let client, let record, let members):
            armed[record.conversation] = Armed(client: client, record: record, fanOut: members)
        case .mailNotices(let conversation, let notices): mailNotices[conversation] = notices
        }
    }

    /// What the store's fuses do before anything else at a start, whoever is running.
    mutating func burnFuses(now: Timestamp) {
        for (conversation, one) in armed where one.record.explodedAt <= now {
            inboxes[one.client] = nil
            messages[one.client] = nil
            tombstones[conversation] = one.record
            fanOuts[conversation] = one.fanOut.isEmpty ? nil : one.fanOut
            armed[conversation] = nil
        }
    }
}

/// What waits for a commit before it leaves the node.
enum Output {
    case transmit(LinkID, Frame)
    case close(LinkID)
    case notify(Event)
    case knock(NodeAction.Knock)
    /// The sealed answer to a knock, back to the node that knocked.
    case answer(to: Int, ConversationID, [UInt8])
    case register(ClientID, NodeAction.Route)
    /// Slots of an order whose numbers are durable.
    case mail(ClientID, MailOrder)
    /// What was taken from a box is durable; an answer takes a notice's place.
    case discard(BoxID, SimulatedMailbox.Name, answer: [UInt8]?)
}

/// The shell of one node: a disk that commits in batches, a clock, and what a process holds in memory.
final class SimulatedNode {
    struct Held {
        var message: Message
        var untilUnlocked: Bool
    }

    let index: Int
    /// Where it is now; what others remember of an earlier place leads nowhere.
    var endpoint: Endpoint
    var core: NodeStateMachine
    /// How many of its inboxes are to be awake.
    let capacity: Int
    /// Its answer to proposals, and its bound on what it keeps, in conversations that have none of their own.
    let policy: LifetimePolicy
    let cap: LifetimeCap
    var random: Randomness
    /// This node's clock runs ahead of the simulation's by this much; grows when the clock is stepped.
    var clockOffset: Milliseconds
    /// What its clock has lost in all: it is set back while the node is off.
    var lost: Milliseconds = 0
    /// How far its clock was stepped forward in all.
    var gained: Milliseconds = 0
    /// The latest time that an earlier process of it has seen.
    var latest = Timestamp(milliseconds: 0)
    /// When it went off last, by the simulation's time.
    var downSince: Int64 = 0
    var isUp = true
    var isLocked = false
    /// Rises with every crash: what belongs to an earlier process is void.
    var incarnation = 0
    var nextWake: Int64?

    /// As the process sees the disk, and as it would be found after a crash.
    var disk = Disk()
    var durable = Disk()
    var pending: [Disk.Operation] = []
    /// What could not be written because the storage is locked.
    var deferred: [Disk.Operation] = []
    var outputs: [Output] = []
    var commitPlanned = false

    var memory: [ClientID: [MessageID: Held]] = [:]
    var seen: [ClientID: Set<MessageID>] = [:]
    var routes: [ClientID: Set<NodeAction.Route>] = [:]
    var keys: [ClientID: IdentityKey] = [:]

    /// Where its boxes are; `nil` without a mailbox.
    var place: MailboxPlace?
    /// Its boxes at the mailbox, as it knows them.
    var boxes: [BoxID: RelaySeed] = [:]
    /// Those that it has claimed since its start, with their conversations.
    var claimed: [BoxID: ConversationID] = [:]
    var nextVisit: Int64?
    /// By its own clock.
    var wokenAt: [ClientID: Timestamp] = [:]

    init(
        index: Int, random: Randomness, clockOffset: Milliseconds, capacity: Int, policy: LifetimePolicy,
        cap: LifetimeCap
    ) {
        self.index = index
        self.capacity = capacity
        self.policy = policy
        self.cap = cap
        core = NodeStateMachine(capacity: capacity)
        self.random = random
        self.clockOffset = clockOffset
        endpoint = Endpoint(host: "n\(index)", port: 7440)
    }

    /// Looks at the core where it is: asking through the property would copy it.
    func withCore<Result>(_ body: (inout NodeStateMachine) -> Result) -> Result { body(&core) }

    func now(_ time: Int64) -> Timestamp { Timestamp(milliseconds: time + clockOffset) }
    /// What was over by it is gone, although the clock was set back since.
    func latestNow(_ time: Int64) -> Timestamp { max(latest, now(time)) }

    /// What a reader of this inbox would be shown.
    func readable(_ client: ClientID, now: Timestamp, ignoringExpiry: Bool) -> [Message] {
        var result = memory[client]?.values.map(\.message) ?? []
        if !isLocked { result += disk.messages[client].map { Array($0.values) } ?? [] }
        if ignoringExpiry { return result }
        return result.filter { $0.expiresAt.map { $0 > now } ?? true }
    }

    /// Overwrites what is past its time.
    func reap(now: Timestamp) {
        func isOver(_ message: Message) -> Bool { message.expiresAt.map { $0 <= now } ?? false }
        for client in disk.messages.keys.sorted() {
            for (id, message) in disk.messages[client] ?? [:] where isOver(message) { disk.messages[client]?[id] = nil }
        }
        for client in durable.messages.keys.sorted() {
            for (id, message) in durable.messages[client] ?? [:] where isOver(message) {
                durable.messages[client]?[id] = nil
            }
        }
        for client in memory.keys.sorted() {
            for (id, held) in memory[client] ?? [:] where isOver(held.message) { memory[client]?[id] = nil }
        }
    }

    func forget(_ client: ClientID) {
        memory[client] = nil
        seen[client] = nil
        routes[client] = nil
        deferred.removeAll { $0.client == client }
    }
}
