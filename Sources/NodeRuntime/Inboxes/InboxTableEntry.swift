import Crypto
import Logging
import Messaging
import Store
import Transport

/// The stored summary of a sleeping inbox, sealed under its row: its state and the secrets of its routing tokens. A
/// start can route to thousands of inboxes before it opens one.
///
/// A binary format, because a start reads thousands. Numbers are little-endian; texts and lists have a 16-bit length
/// prefix.
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

    private static let version: UInt8 = 6

    // MARK: Writing

    var encoded: [UInt8] {
        var bytes: [UInt8] = [Self.version]
        func number(_ value: some FixedWidthInteger) {
            withUnsafeBytes(of: value.littleEndian) { bytes.append(contentsOf: $0) }
        }
        func text(_ value: String?) {
            let utf8 = Array((value ?? "").utf8.prefix(Int(UInt16.max) - 1))
            number(value == nil ? UInt16.max : UInt16(utf8.count))
            bytes += utf8
        }
        func time(_ value: Timestamp?) { number(value?.milliseconds ?? -1) }
        func window(_ value: TokenWindow) {
            number(value.shown)
            number(value.completed)
        }
        func list<Element>(_ elements: [Element], _ write: (Element) -> Void) {
            number(UInt16(clamping: elements.count))
            for element in elements.prefix(Int(UInt16.max)) { write(element) }
        }
        bytes += summary.client.bytes + summary.own.bytes + summary.conversation.bytes + summary.creator.bytes
        time(summary.createdAt)
        time(summary.lastActivity)
        time(summary.deadline)
        number(summary.endpointMark)
        bytes.append((summary.isLocked ? 1 : 0) | (summary.isRemoved ? 2 : 0) | (summary.usesMailbox ? 4 : 0))
        time(summary.boxUntil)
        text(summary.lifetime.rawValue)
        text(summary.name)
        list(summary.members) { member in
            bytes += member.key.bytes
            text(member.profile)
        }
        list(routes) { route in
            bytes += route.remote.bytes + route.secret
            for generation in [route.counters.generation, route.counters.next ?? .first] {
                number(generation.day)
                number(generation.counter)
            }
            window(route.counters.window)
            list(route.counters.days) { day in
                number(day.day)
                window(day.window)
            }
        }
        list(invites) { bytes += $0.bytes }
        bytes.append(notes.takesName ? 1 : 0)
        text(notes.alias)
        list(notes.sentInvites) { bytes += $0.invite.bytes + $0.peer.bytes }
        list(notes.guests) { bytes += $0.member.bytes + $0.peer.bytes }
        number(notes.shownPlace)
        number(notes.unreadCount ?? .max)
        list(summary.relaySeeds) { bytes += $0.bytes }
        return bytes
    }

    init(summary: InboxSummary, routes: [Route], invites: [InviteID], notes: InboxNotes) {
        self.summary = summary
        self.routes = routes
        self.invites = invites
        self.notes = notes
    }

    // MARK: Reading

    /// `nil` if truncated, too long or of another version; the state log is then read.
    init?(_ bytes: [UInt8]) {
        var reader = Reader(bytes: bytes)
        guard reader.take(1) == [Self.version], let client = reader.take(16).flatMap({ ClientID($0) }),
            let own = reader.key(), let conversation = reader.take(32).flatMap({ ConversationID($0) }),
            let creator = reader.key(), let createdAt = reader.time(), let created = createdAt,
            let lastActivity = reader.time(), let deadline = reader.time(), let mark = reader.number(UInt64.self),
            let flags = reader.take(1)?.first, let boxUntil = reader.time(), let lifetimeText = reader.text(),
            let lifetime = lifetimeText.flatMap({ Lifetime(rawValue: $0) }), let name = reader.text(),
            let members = reader.list({ reader -> InboxSummary.Peer? in
                guard let key = reader.key(), let profile = reader.text() else { return nil }
                return InboxSummary.Peer(key: key, profile: profile)
            }),
            let routes = reader.list({ reader -> Route? in
                guard let remote = reader.key(), let secret = reader.take(RoutingSecret.byteCount),
                    let counters = reader.counters()
                else { return nil }
                return Route(remote: remote, secret: secret, counters: counters)
            }), let invites = reader.list({ $0.take(InviteID.byteCount).flatMap { InviteID($0) } }),
            let notes = reader.notes(),
            let seeds = reader.list({ $0.take(RelaySeed.byteCount).flatMap { RelaySeed($0) } }), !seeds.isEmpty,
            reader.isAtEnd
        else { return nil }
        self.init(
            summary: InboxSummary(
                client: client, createdAt: created, own: own, conversation: conversation, creator: creator, name: name,
                members: members, lifetime: lifetime, isLocked: flags & 1 != 0, isRemoved: flags & 2 != 0,
                // Entries are written for empty outboxes only.
                outboxCount: 0, endpointMark: mark, relaySeeds: seeds, usesMailbox: flags & 4 != 0, boxUntil: boxUntil,
                lastActivity: lastActivity, deadline: deadline), routes: routes, invites: invites, notes: notes)
    }

    private struct Reader {
        let bytes: [UInt8]
        var position = 0

        var isAtEnd: Bool { position == bytes.count }

        mutating func take(_ count: Int) -> [UInt8]? {
            guard count <= bytes.count - position else { return nil }
            defer { position += count }
            return Array(bytes[position..<(position + count)])
        }

        mutating func number<Value: FixedWidthInteger>(_ type: Value.Type) -> Value? {
            take(MemoryLayout<Value>.size)?.reversed().reduce(0) { $0 << 8 | Value(truncatingIfNeeded: $1) }
        }

        mutating func counters() -> ListenerCounters? {
            guard let present = generation(), let next = generation(), let used = window(),
                let days = list({ reader -> ListenerCounters.Day? in
                    guard let day = reader.number(UInt32.self), let window = reader.window() else { return nil }
                    return ListenerCounters.Day(day: day, window: window)
                })
            else { return nil }
            return ListenerCounters(
                generation: present, window: used,
                // No handshake starts the first generation.
                next: next == .first ? nil : next, days: days)
        }

        private mutating func generation() -> TokenGeneration? {
            guard let day = number(UInt32.self), let counter = number(UInt32.self) else { return nil }
            return TokenGeneration(day: day, counter: counter)
        }

        private mutating func window() -> TokenWindow? {
            guard let shown = number(UInt32.self), let completed = number(UInt32.self) else { return nil }
            return TokenWindow(shown: shown, completed: completed)
        }

        mutating func key() -> PublicKey? { take(PublicKey.byteCount).flatMap { PublicKey(unchecked: $0) } }

        /// The outer `nil`: truncated.
        mutating func time() -> Timestamp?? {
            guard let value = number(Int64.self) else { return nil }
            return .some(value < 0 ? nil : Timestamp(milliseconds: value))
        }

        /// The outer `nil`: truncated, or not UTF-8.
        mutating func text() -> String?? {
            guard let count = number(UInt16.self) else { return nil }
            if count == .max { return .some(nil) }
            guard let utf8 = take(Int(count)), let text = String(validating: utf8, as: UTF8.self) else { return nil }
            return .some(text)
        }

        mutating func notes() -> InboxNotes? {
            guard let takesName = take(1)?.first, let alias = text(),
                let sentInvites = list({ reader -> InboxNotes.SentInvite? in
                    guard let id = reader.take(InviteID.byteCount).flatMap({ InviteID($0) }), let peer = reader.key()
                    else { return nil }
                    return InboxNotes.SentInvite(invite: id, peer: peer)
                }),
                let guests = list({ reader -> InboxNotes.Guest? in
                    guard let member = reader.key(), let peer = reader.key() else { return nil }
                    return InboxNotes.Guest(member: member, peer: peer)
                }), let shownPlace = number(UInt64.self), let unreadCount = number(UInt32.self)
            else { return nil }
            return InboxNotes(
                alias: alias, takesName: takesName != 0, sentInvites: sentInvites, guests: guests,
                shownPlace: shownPlace, unreadCount: unreadCount == .max ? nil : unreadCount)
        }

        mutating func list<Element>(_ element: (inout Reader) -> Element?) -> [Element]? {
            guard let count = number(UInt16.self) else { return nil }
            var elements: [Element] = []
            for _ in 0..<count {
                guard let next = element(&self) else { return nil }
                elements.append(next)
            }
            return elements
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

    /// Writes the summaries of sleeping inboxes with an empty outbox.
    func save() {
        guard !store.isLocked, !store.isReadOnly, savedAt != nil else { return }
        savedAt = now
        var entries: [(row: RowID, payload: [UInt8])] = []
        for summary in core.machine.sleepers where summary.outboxCount == 0 {
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
