import Crypto
import Logging
import Messaging
import Store

/// Summaries of sleeping inboxes, which let a start load them without reading their logs.
final class InboxSummaries: Part {
    /// When the summaries were last written; `nil` before they are read.
    private var savedAt: Timestamp?

    func read() -> [RowID: InboxTableEntry] {
        savedAt = now
        return store.loadSummaries().compactMapValues { InboxTableEntry($0) }
    }

    /// Loads an inbox from its summary.
    /// - Returns: `false` when the log must be read instead.
    func load(_ entry: InboxTableEntry, _ row: RowID) -> Bool {
        let client = entry.summary.client
        guard inboxes[client] == nil, core.machine.tombstone(entry.summary.conversation) == nil else { return false }
        let inbox = Inbox(client: client, row: row, store: store, memory: memory)
        inboxes.add(inbox)
        inboxes.note(entry.notes, of: inbox)
        inbox.archive.load(shownPlace: entry.notes.shownPlace)
        var turn = core.makeTurn()
        core.machine.load(sleeping: entry.summary, &turn)
        shell.routes.register(entry, inbox)
        return true
    }

    /// At each tick: saves once an hour.
    func saveIfDue(now: Timestamp) { if savedAt.map({ now - $0 >= .hour }) ?? false { save() } }

    /// Writes the summaries of sleeping inboxes with an empty outbox.
    func save() {
        guard !store.isLocked, !store.isReadOnly, savedAt != nil else { return }
        savedAt = now
        var entries: [(row: RowID, payload: [UInt8])] = []
        for summary in core.machine.sleepers where summary.outboxCount == 0 {
            guard let inbox = inboxes[summary.client], !inbox.hasUnreadOutbox else { continue }
            let (routes, invites) = shell.routes.entries(of: inbox)
            let entry = InboxTableEntry(summary: summary, routes: routes, invites: invites, notes: inbox.notes)
            entries.append((inbox.row, entry.encoded))
        }
        do throws(StoreError) { try store.saveSummaries(entries) } catch {
            log.warning("the next start will take longer", metadata: ["error": "\(error)"])
        }
    }
}
