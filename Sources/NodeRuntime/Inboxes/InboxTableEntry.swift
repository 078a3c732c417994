import Cryptography
import Logging
import Messaging
import Store
import Transport

/// The stored summary of a sleeping inbox, sealed under its row: its state and the secrets of its routing tokens. A
/// start can route to thousands of inboxes before it opens one.
///
/// A binary format, because a start reads thousands. Numbers are little-endian; texts and lists have a 16-bit length
/// prefix. Writing and reading follow the order of the initialisers.
struct InboxTableEntry: Hashable {
    /// The tokens with which a member reaches us.
    struct Route: Hashable {
        var remote: PublicKey
        /// 32 bytes; see `RoutingSecret`.
        var secret: [UInt8]
        var counters: ListenerCounters
    }

    var summary: InboxSummary
    var routes: [Route]
    var invites: [InviteID]
    var notes: InboxNotes

    private static let version: UInt8 = 7

    var encoded: [UInt8] {
        var bytes: [UInt8] = [Self.version]
        func number(_ value: some FixedWidthInteger) {
            withUnsafeBytes(of: value.littleEndian) { bytes.append(contentsOf: $0) }
        }
        func flag(_ value: Bool) { bytes.append(value ? 1 : 0) }
        func text(_ value: String?) {
            let utf8 = Array((value ?? "").utf8.prefix(Int(UInt16.max) - 1))
            number(value == nil ? UInt16.max : UInt16(utf8.count))
            bytes += utf8
        }
        func time(_ value: Timestamp?) { number(value?.milliseconds ?? -1) }
        func pair(_ one: UInt32, _ other: UInt32) {
            number(one)
            number(other)
        }
        func list<Element>(_ elements: [Element], _ write: (Element) -> Void) {
            number(UInt16(clamping: elements.count))
            for element in elements.prefix(Int(UInt16.max)) { write(element) }
        }
        bytes += summary.client.bytes
        time(summary.createdAt)
        bytes += summary.own.bytes + summary.conversation.bytes + summary.creator.bytes
        text(summary.name)
        list(summary.members) {
            bytes += $0.key.bytes
            text($0.profile)
        }
        text(summary.lifetime.rawValue)
        flag(summary.isLocked)
        flag(summary.isRemoved)
        number(summary.endpointMark)
        list(summary.relaySeeds) { bytes += $0.bytes }
        flag(summary.usesMailbox)
        time(summary.boxUntil)
        time(summary.lastActivity)
        time(summary.deadline)
        list(routes) { route in
            bytes += route.remote.bytes + route.secret
            let counters = route.counters
            pair(counters.generation.day, counters.generation.counter)
            pair(counters.window.shown, counters.window.completed)
            pair(counters.next?.day ?? 0, counters.next?.counter ?? 0)
            list(counters.days) {
                number($0.day)
                pair($0.window.shown, $0.window.completed)
            }
        }
        list(invites) { bytes += $0.bytes }
        text(notes.alias)
        flag(notes.takesName)
        list(notes.sentInvites) { bytes += $0.invite.bytes + $0.peer.bytes }
        list(notes.guests) { bytes += $0.member.bytes + $0.peer.bytes }
        number(notes.shownPlace)
        number(notes.unreadCount ?? .max)
        return bytes
    }
}

extension InboxTableEntry {
    /// `nil` if truncated, too long or of another version; the state log is then read.
    init?(_ bytes: [UInt8]) {
        var reader = StoredReader(bytes)
        guard let entry = try? Self(&reader), reader.isAtEnd, !entry.summary.relaySeeds.isEmpty else { return nil }
        self = entry
    }

    private init(_ reader: inout StoredReader) throws {
        guard try reader.byte() == Self.version else { throw Malformed() }
        summary = InboxSummary(
            client: try reader.id(), createdAt: try reader.time().present, own: try reader.key(),
            conversation: try reader.id(), creator: try reader.key(), name: try reader.text(),
            members: try reader.list { InboxSummary.Peer(key: try $0.key(), profile: try $0.text()) },
            lifetime: try Lifetime(rawValue: try reader.text().present).present, isLocked: try reader.flag(),
            isRemoved: try reader.flag(),
            // Entries are written for inboxes without news only.
            outboxCount: 0, endpointMark: try reader.number(), relaySeeds: try reader.list { try $0.id() },
            usesMailbox: try reader.flag(), boxUntil: try reader.time(), lastActivity: try reader.time(),
            deadline: try reader.time())
        routes = try reader.list { reader in
            Route(
                remote: try reader.key(), secret: try reader.take(RoutingSecret.byteCount),
                counters: ListenerCounters(
                    generation: try reader.generation(), window: try reader.window(), next: try reader.next(),
                    days: try reader.list { ListenerCounters.Day(day: try $0.number(), window: try $0.window()) }))
        }
        invites = try reader.list { try $0.id() }
        notes = InboxNotes(
            alias: try reader.text(), takesName: try reader.flag(),
            sentInvites: try reader.list { InboxNotes.SentInvite(invite: try $0.id(), peer: try $0.key()) },
            guests: try reader.list { InboxNotes.Guest(member: try $0.key(), peer: try $0.key()) },
            shownPlace: try reader.number(), unreadCount: try reader.number())
        if notes.unreadCount == .max { notes.unreadCount = nil }
    }
}

extension StoredReader {
    fileprivate mutating func take(_ count: Int) throws -> [UInt8] { try value(count) { Array($0) } }

    fileprivate mutating func flag() throws -> Bool { try byte() != 0 }

    fileprivate mutating func id<ID: FixedBytes>() throws -> ID { try ID(try take(ID.byteCount)).present }

    fileprivate mutating func time() throws -> Timestamp? {
        let value: Int64 = try number()
        return value < 0 ? nil : Timestamp(milliseconds: value)
    }

    fileprivate mutating func text() throws -> String? {
        let count: UInt16 = try number()
        return count == .max ? nil : try String(validating: try take(Int(count)), as: UTF8.self).present
    }

    fileprivate mutating func window() throws -> TokenWindow {
        TokenWindow(shown: try number(), completed: try number())
    }

    fileprivate mutating func generation() throws -> TokenGeneration {
        TokenGeneration(day: try number(), counter: try number())
    }

    /// No handshake starts the first generation.
    fileprivate mutating func next() throws -> TokenGeneration? {
        let next = try generation()
        return next == .first ? nil : next
    }

    fileprivate mutating func list<Element>(_ element: (inout StoredReader) throws -> Element) throws -> [Element] {
        let count: UInt16 = try number()
        return try (0..<count).map { _ in try element(&self) }
    }
}

private struct Malformed: Error {}

extension Optional {
    fileprivate var present: Wrapped {
        get throws {
            guard let self else { throw Malformed() }
            return self
        }
    }
}

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

    /// Writes the summaries of sleeping inboxes that have nothing for a member; at a stop of awake ones too.
    func save() {
        guard !store.isLocked, !store.isReadOnly, savedAt != nil else { return }
        savedAt = now
        var turn = core.makeTurn()
        for one in isStopped ? core.machine.conversations : [] where one.outboxCount == 0 {
            guard let record = core.machine.record(one.client), let inbox = inboxes[one.client] else { continue }
            let lastActivity = core.machine.lastActivity(one.client)
            core.machine.load(sleeping: record, key: one.key, undelivered: [], lastActivity: lastActivity, &turn)
            inbox.notes = inbox.savedNotes
        }
        var entries: [(row: RowID, payload: [UInt8])] = []
        for summary in core.machine.sleepers where summary.outboxCount == 0 && !summary.hasNews {
            guard let inbox = inboxes[summary.client], inbox.isOutboxKnown else { continue }
            let (routes, invites) = shell.routes.entries(of: inbox)
            let entry = InboxTableEntry(summary: summary, routes: routes, invites: invites, notes: inbox.notes)
            entries.append((inbox.row, entry.encoded))
        }
        do throws(StoreError) { try store.saveSummaries(entries) } catch {
            log.warning("the next start will take longer", metadata: ["error": "\(error)"])
        }
    }
}
