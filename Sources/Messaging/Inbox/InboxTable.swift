import Cryptography

/// All inboxes of a node by client id, and indices that avoid visits to all inboxes. A class, because a method of a
/// struct in a class runs on a copy.
final class InboxTable {
    private var entries: [ClientID: InboxEntry] = [:]
    private var awakeEntries: Set<InboxEntry> = []
    private var sleepingEntries: Set<InboxEntry> = []
    private var joiningEntries: Set<InboxEntry> = []
    private var unusedEntries: Set<InboxEntry> = []
    private(set) var contact: InboxEntry?
    private(set) var directory = InboxDirectory()
    private var deadlines = DeadlineQueue<ClientID>()
    private(set) var heldByteCount = 0
    private(set) var outboxCount = 0
    private(set) var mailboxCount = 0
    /// Awake conversations with a sign that two copies of a home run at once.
    private(set) var withCopies: Set<InboxEntry> = []
    private var relayOwners: [RelaySeed: InboxEntry] = [:]
    /// Dirty: the contact inbox does not know the present seeds.
    var relaysHaveChanged = false
    /// Dirty: the seeds of inboxes that need boxes have changed.
    var mailboxesHaveChanged = false
    private(set) var usesRendezvous = false

    let visits = InboxVisits()

    subscript(client: ClientID) -> InboxEntry? {
        visits.note(client)
        return entries[client]
    }

    var all: Dictionary<ClientID, InboxEntry>.Values {
        visits.note(all: entries.keys)
        return entries.values
    }
    /// All roles but `sleeping`, including unused inboxes and the contact inbox.
    var awake: Set<InboxEntry> { visiting(awakeEntries) }
    var sleeping: Set<InboxEntry> { visiting(sleepingEntries) }
    var joining: Set<InboxEntry> { visiting(joiningEntries) }
    var sleepingCount: Int { sleepingEntries.count }

    private func visiting(_ entries: Set<InboxEntry>) -> Set<InboxEntry> {
        visits.note(all: entries.lazy.map(\.client))
        return entries
    }

    var unused: InboxEntry? { unusedEntries.min { $0.client < $1.client } }
    func owner(of seed: RelaySeed) -> InboxEntry? { relayOwners[seed] }

    @discardableResult func enter(_ client: ClientID, createdAt: Timestamp, as role: InboxEntry.Role) -> InboxEntry {
        let entry = entries[client] ?? InboxEntry(client: client, createdAt: createdAt)
        entries[client] = entry
        entry.createdAt = createdAt
        set(entry, to: role)
        return entry
    }

    func set(_ entry: InboxEntry, to role: InboxEntry.Role) {
        awakeEntries.remove(entry)
        sleepingEntries.remove(entry)
        joiningEntries.remove(entry)
        unusedEntries.remove(entry)
        if contact === entry {
            contact = nil
            usesRendezvous = false
        }
        entry.role = role
        entry.queuedDeadline = nil
        switch role {
        case .gone: break
        case .unused:
            awakeEntries.insert(entry)
            unusedEntries.insert(entry)
        case .contact:
            awakeEntries.insert(entry)
            contact = entry
        case .joining:
            awakeEntries.insert(entry)
            joiningEntries.insert(entry)
        case .conversation: awakeEntries.insert(entry)
        case .sleeping: sleepingEntries.insert(entry)
        }
        reindex(entry)
    }

    func remove(_ entry: InboxEntry) {
        entries[entry.client] = nil
        set(entry, to: .gone)
        directory.remove(entry)
    }

    /// A sleeping inbox must tell its members its new endpoints.
    func setMoved(_ entry: InboxEntry, retryAt: Timestamp) {
        guard var inbox = entry.asleep else { return }
        inbox.hasMoved = true
        inbox.retryAt = min(inbox.retryAt ?? retryAt, retryAt)
        entry.role = .sleeping(inbox)
        setDeadline(entry, inbox.wakeAt)
    }

    /// Updates the indices after an inbox has changed.
    /// - Parameter member: the only member whose link and outbox have changed; `nil` for any.
    func reindex(_ entry: InboxEntry, touching member: PublicKey? = nil) {
        switch entry.role {
        case .gone: set(entry, InboxFigures())
        case .unused(let key):
            if entry.figures.relaySeeds.isEmpty {
                set(entry, InboxFigures(relaySeeds: [RelaySeed(key: key, generation: 0)]))
            }
        case .contact(let running):
            usesRendezvous = running.machine.usesRendezvous
            set(entry, InboxFigures())
            setDeadline(entry, running.machine.nextDeadline)
        case .joining(let running):
            let isJoining = running.machine.record.state == .joining
            set(entry, InboxFigures(relaySeeds: isJoining ? [running.machine.relaySeed] : []))
            setDeadline(entry, running.machine.nextDeadline)
        case .conversation(let conversation):
            list(
                entry, conversation.conversation, name: conversation.record.name,
                isRemoved: conversation.record.isRemoved)
            setDeadline(entry, conversation.nextDeadline(touching: member))
            let isBusy = conversation.peers.contains { $0.outbox.holdsMemoryOnly } || conversation.isTransferring
            set(
                entry,
                InboxFigures(
                    heldByteCount: conversation.heldByteCount, outboxCount: conversation.outboxCount, isBusy: isBusy,
                    usesMailbox: conversation.usesMailbox, hasShownCopies: conversation.hasShownCopies,
                    boxUntil: conversation.boxUntil, relaySeeds: conversation.relaySeeds))
        case .sleeping(let inbox):
            let summary = inbox.summary
            list(entry, summary.conversation, name: summary.name, isRemoved: summary.isRemoved)
            setDeadline(entry, inbox.wakeAt)
            set(
                entry,
                InboxFigures(
                    outboxCount: summary.outboxCount, usesMailbox: summary.usesMailbox, boxUntil: summary.boxUntil,
                    relaySeeds: summary.relaySeeds))
        }
    }

    private func list(
        _ entry: InboxEntry, _ conversation: @autoclosure () -> ConversationID, name: String?, isRemoved: Bool
    ) {
        if let listing = entry.listing, listing.name == name, listing.isRemoved == isRemoved { return }
        directory.set(entry, InboxListing(conversation: conversation(), name: name, isRemoved: isRemoved))
    }

    private func set(_ entry: InboxEntry, _ new: InboxFigures) {
        let old = entry.figures
        entry.figures = new
        heldByteCount += new.heldByteCount - old.heldByteCount
        outboxCount += new.outboxCount - old.outboxCount
        mailboxCount += (new.usesMailbox ? 1 : 0) - (old.usesMailbox ? 1 : 0)
        if new.hasShownCopies { withCopies.insert(entry) } else if old.hasShownCopies { withCopies.remove(entry) }
        if new.boxUntil != old.boxUntil { mailboxesHaveChanged = true }
        guard new.relaySeeds != old.relaySeeds else { return }
        if new.boxUntil != nil { mailboxesHaveChanged = true }
        for seed in old.relaySeeds { relayOwners[seed] = nil }
        for seed in new.relaySeeds { relayOwners[seed] = entry }
        relaysHaveChanged = true
    }

    /// A lower bound of the first deadline.
    var nextDeadline: Timestamp? { deadlines.next }

    func setDeadline(_ entry: InboxEntry, _ deadline: Timestamp?) {
        deadlines.set(entry.client, deadline, queued: &entry.queuedDeadline)
    }

    /// Inboxes that may be due; they stay queued.
    func due(until now: Timestamp) -> [InboxEntry] {
        deadlines.due(until: now).compactMap { client, at in self[client].flatMap { $0.queuedDeadline == at ? $0 : nil }
        }
    }

    func takeDue(until now: Timestamp) -> [InboxEntry] {
        deadlines.take(until: now).compactMap { client, at in
            guard let entry = self[client], entry.queuedDeadline == at else { return nil }
            entry.queuedDeadline = nil
            return entry
        }
    }
}
