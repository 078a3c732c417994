import Messaging
import Store

/// The inboxes of a node, with indexes that avoid full scans. On the node's loop alone.
final class InboxTable {
    private var inboxes: [ClientID: Inbox] = [:]
    private var clients: [RowID: Inbox] = [:]
    private var aliases = AliasTable()
    /// Sleeping inboxes with contents in memory, longest asleep first.
    private var asleep: [Inbox] = []
    let visits = InboxVisits()

    subscript(client: ClientID) -> Inbox? {
        visits.note(client)
        return inboxes[client]
    }

    func inbox(at row: RowID) -> Inbox? {
        guard let inbox = clients[row] else { return nil }
        visits.note(inbox.client)
        return inbox
    }

    /// Sorted by client: the order of a set must not influence actions.
    func at(_ rows: Set<RowID>) -> [Inbox] { rows.compactMap(inbox).sorted { $0.client < $1.client } }

    /// Sorted by client. Not for turns, ticks or `status`: use lists and queues there.
    var all: [Inbox] {
        visits.note(all: inboxes.keys)
        return inboxes.values.sorted { $0.client < $1.client }
    }

    func add(_ inbox: Inbox) {
        inboxes[inbox.client] = inbox
        clients[inbox.row] = inbox
        inbox.archive.enlist()
    }

    func nextExpiry(in memory: MessageMemory) -> Timestamp? {
        while let time = memory.expiries.next {
            for (row, _) in memory.expiries.take(until: time) { inbox(at: row)?.archive.settleExpiry() }
            if memory.expiries.next == time { return time }
        }
        return nil
    }

    /// Removes an inbox; its alias stays reserved until ``forgetNotes(of:)``.
    func remove(_ inbox: Inbox) {
        noteWaking(inbox)
        guard inboxes[inbox.client] === inbox else { return }
        inboxes[inbox.client] = nil
        clients[inbox.row] = nil
    }

    // MARK: Notes

    /// Drops an alias that another inbox holds.
    func note(_ notes: InboxNotes, of inbox: Inbox) {
        var notes = notes
        notes.alias = aliases.replace(inbox.notes.alias, by: notes.alias, of: inbox.client)
        inbox.notes = notes
    }

    func forgetNotes(of inbox: Inbox) { note(InboxNotes(), of: inbox) }

    /// The inbox whose alias reads like this one; it may be unreadable.
    func holder(of alias: String) -> ClientID? { aliases.holder(of: alias) }

    // MARK: Memory of sleeping inboxes

    /// Sleeping inboxes keep unsaved contents within a memory bound. Beyond it, the inboxes longest asleep drop read
    /// and delivered contents first.
    func noteSleep(_ inbox: Inbox) {
        inbox.archive.sleep()
        noteWaking(inbox)
        guard !inbox.archive.held.isEmpty else { return }
        asleep.append(inbox)
        var total = asleep.reduce(0) { $0 + $1.archive.heldBytes }
        while total > Limits.memoryTotalByteCount, let oldest = asleep.first {
            asleep.removeFirst()
            total -= oldest.archive.heldBytes
            // Messages that wait for the disk stay: they are unacknowledged, and bounded by their inbox's limit.
            oldest.archive.forgetMemory()
        }
    }

    func noteWaking(_ inbox: Inbox) { if !asleep.isEmpty { asleep.removeAll { $0 === inbox } } }
}

struct UnreadInbox {
    /// `nil` if it has not been read since the start.
    var inbox: Inbox?
    var conversation: ConversationID?
    var error: any Error
    var retryAt: Timestamp
}

/// Unreadable inboxes: those to retry, and damaged ones. On the node's loop alone.
final class UnreadInboxes {
    private var unread: [RowID: UnreadInbox] = [:]
    private var retries = DeadlineQueue<RowID>()
    private(set) var skipped: [String] = []

    var isEmpty: Bool { unread.isEmpty }

    subscript(row: RowID) -> UnreadInbox? { unread[row] }

    func add(_ inbox: UnreadInbox, at row: RowID) {
        unread[row] = inbox
        var queued: Timestamp?
        retries.set(row, inbox.retryAt, queued: &queued)
    }

    @discardableResult func remove(_ row: RowID) -> UnreadInbox? { unread.removeValue(forKey: row) }

    /// The inbox is damaged; there is no retry.
    func skip(_ error: any Error) { skipped.append("\(error)") }

    /// Why a requested item may be missing; `nil` if all inboxes are readable.
    var error: NodeError? {
        switch unread.min(by: { $0.key < $1.key })?.value.error {
        case let error as StoreError: .store(error)
        case let error as NodeError: error
        default: nil
        }
    }

    /// No later than the next retry.
    var retryAt: Timestamp? { retries.next }

    /// Takes at most `count` due retries. The caller removes each, or adds it again.
    func takeDue(now: Timestamp, count: Int) -> [RowID] {
        retries.take(until: now, limit: count).filter { unread[$0.key]?.retryAt == $0.at }.map(\.key)
    }

    func rows(of conversation: ConversationID) -> [RowID] {
        unread.filter { $0.value.conversation == conversation }.keys.sorted()
    }

    func inbox(of client: ClientID) -> Inbox? { unread.values.lazy.compactMap(\.inbox).first { $0.client == client } }

    var damage: [String] { skipped + unread.sorted { $0.key < $1.key }.map { "\($0.value.error)" } }
}
