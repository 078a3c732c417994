import Messaging
import Store

/// The inboxes of a node, and what is found in them without looking at all of them. On the node's loop alone.
final class InboxTable {
    private var inboxes: [ClientID: Inbox] = [:]
    private var clients: [RowID: Inbox] = [:]
    private var aliases = AliasTable()
    /// Sleeping inboxes that hold contents in memory, the one that sleeps longest first.
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

    /// In the order of their names: the order of a set must not reach an action.
    func at(_ rows: Set<RowID>) -> [Inbox] { rows.compactMap(inbox).sorted { $0.client < $1.client } }

    /// In the order of their names. Not for a turn, a tick or `status`: what waits is in a list or a queue.
    var all: [Inbox] {
        visits.note(all: inboxes.keys)
        return inboxes.values.sorted { $0.client < $1.client }
    }

    func add(_ inbox: Inbox) {
        inboxes[inbox.client] = inbox
        clients[inbox.row] = inbox
        inbox.archive.enlist()
    }

    /// When the first message in memory expires.
    func nextExpiry(in memory: MessageMemory) -> Timestamp? {
        while let time = memory.expiries.next {
            for (row, _) in memory.expiries.take(until: time) { inbox(at: row)?.archive.settleExpiry() }
            if memory.expiries.next == time { return time }
        }
        return nil
    }

    /// It is not here, or no longer; its alias stays its own until ``forgetNotes(of:)``.
    func remove(_ inbox: Inbox) {
        noteWaking(inbox)
        guard inboxes[inbox.client] === inbox else { return }
        inboxes[inbox.client] = nil
        clients[inbox.row] = nil
    }

    // MARK: Notes

    /// An alias that another inbox has already is left out.
    func note(_ notes: InboxNotes, of inbox: Inbox) {
        var notes = notes
        notes.alias = aliases.replace(inbox.notes.alias, by: notes.alias, of: inbox.client)
        inbox.notes = notes
    }

    func forgetNotes(of inbox: Inbox) { note(InboxNotes(), of: inbox) }

    /// The inbox whose alias reads like this one; it may be one that the disk does not give.
    func holder(of alias: String) -> ClientID? { aliases.holder(of: alias) }

    // MARK: Memory of those that sleep

    /// Contents that are in memory only stay when an inbox falls asleep, within a bound: those read and delivered go first
    /// of the inboxes that sleep longest.
    func noteSleep(_ inbox: Inbox) {
        inbox.archive.sleep()
        noteWaking(inbox)
        guard !inbox.archive.held.isEmpty else { return }
        asleep.append(inbox)
        var total = asleep.reduce(0) { $0 + $1.archive.heldBytes }
        while total > Limits.memoryTotalByteCount, let oldest = asleep.first {
            asleep.removeFirst()
            total -= oldest.archive.heldBytes
            // What waits for the disk is not acknowledged, and bounded by what its inbox may hold.
            oldest.archive.forgetMemory()
        }
    }

    func noteWaking(_ inbox: Inbox) { if !asleep.isEmpty { asleep.removeAll { $0 === inbox } } }
}
