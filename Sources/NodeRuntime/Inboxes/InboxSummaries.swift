import Crypto
import Logging
import Messaging
import Store

/// The summaries of sleeping inboxes, by which a start takes them up without reading them.
final class InboxSummaries: CorePart {
    let core: ProtocolCore
    private let routes: Routes
    /// When the summaries were last written; `nil` before they were read.
    private var savedAt: Timestamp?

    init(_ core: ProtocolCore, _ routes: Routes) {
        self.core = core
        self.routes = routes
    }

    /// What the last run left of inboxes that slept, as far as it still holds.
    func read() -> [RowID: InboxTableEntry] {
        savedAt = now
        return store.loadSummaries().compactMapValues { InboxTableEntry($0) }
    }

    /// Takes up an inbox without reading it.
    /// - Returns: `false` when it has to be read after all.
    func load(_ entry: InboxTableEntry, _ row: RowID) -> Bool {
        let client = entry.summary.client
        guard inboxes[client] == nil, core.machine.tombstone(entry.summary.conversation) == nil else { return false }
        let inbox = Inbox(client: client, row: row, store: store, memory: memory)
        inboxes.add(inbox)
        inboxes.note(entry.notes, of: inbox)
        inbox.archive.load(shownPlace: entry.notes.shownPlace)
        var turn = core.makeTurn()
        core.machine.load(sleeping: entry.summary, &turn)
        routes.register(entry, inbox)
        return true
    }

    /// At a tick: once an hour.
    func saveIfDue(now: Timestamp) { if savedAt.map({ now - $0 >= .hour }) ?? false { save() } }

    /// Writes the summaries of the inboxes that sleep and have no outbox, for the next start.
    func save() {
        guard !store.isLocked, !store.isReadOnly, savedAt != nil else { return }
        savedAt = now
        var entries: [(row: RowID, payload: [UInt8])] = []
        for summary in core.machine.sleepers where summary.outboxCount == 0 {
            guard let inbox = inboxes[summary.client], !inbox.hasUnreadOutbox else { continue }
            let (routes, invites) = routes.entries(of: inbox)
            let entry = InboxTableEntry(summary: summary, routes: routes, invites: invites, notes: inbox.notes)
            entries.append((inbox.row, entry.encoded))
        }
        do throws(StoreError) { try store.saveSummaries(entries) } catch {
            log.warning("the next start will take longer", metadata: ["error": "\(error)"])
        }
    }
}
