import Cryptography
import Messaging
import Store

/// Unwritten status changes of stored messages, in order of their first change.
struct LearnedStatuses {
    struct Entry {
        var status: MessageStatus
        /// `nil`: look the message up in the store.
        var place: MessagePlace?
    }

    /// `nil` for removed entries.
    private var entries: [Entry?] = []
    private var indices: [Messaging.MessageID: Int] = [:]

    var isEmpty: Bool { indices.isEmpty }

    subscript(message: Messaging.MessageID) -> MessageStatus? { indices[message].flatMap { entries[$0]?.status } }

    mutating func add(_ status: MessageStatus, at place: MessagePlace?) {
        guard let index = indices[status.message] else {
            indices[status.message] = entries.count
            return entries.append(Entry(status: status, place: place))
        }
        if let state = status.state { entries[index]?.status.state = state }
        entries[index]?.status.said.merge(status.said)
        if let place { entries[index]?.place = place }
    }

    mutating func remove(_ message: Messaging.MessageID) {
        if let index = indices.removeValue(forKey: message) { entries[index] = nil }
    }

    mutating func forgetPlace(of message: Messaging.MessageID) {
        if let index = indices[message] { entries[index]?.place = nil }
    }

    mutating func forgetPlaces() { for index in indices.values { entries[index]?.place = nil } }

    var all: [Entry] { entries.compactMap(\.self) }

    mutating func removeAll() {
        entries = []
        indices = [:]
    }
}

extension Message {
    mutating func learn(_ status: MessageStatus) {
        if let state = status.state { self.state = state }
        deliveries.merge(status.said)
        // An aggregate `delivered` may not know of a member's earlier failure.
        guard state == .delivered else { return }
        if deliveries.contains(where: { $0.state == .failed }) {
            state = .failed
        } else if deliveries.contains(where: { $0.state == .expiredUndelivered }) {
            state = .expiredUndelivered
        }
    }
}

extension MessageArchive {
    /// Writes pending status changes: one record for all messages of a bucket, so that the record expires with them.
    /// Drops changes of absent messages; keeps those of unreadable ones.
    func writeStatuses() throws(StoreError) {
        guard !learned.isEmpty, !store.isLocked else { return }
        struct Group {
            let tier: Tier
            let bucket: Int64
            var statuses: [(place: MessagePlace, status: MessageStatus)]
        }
        var groups: [Group] = []
        var kept: [MessageStatus] = []
        for entry in learned.all {
            let status = entry.status
            let located = if let place = entry.place { place } else { try store.locate(row, status.message.value) }
            guard let place = located else {
                if !store.isWhole(row) { kept.append(status) }
                continue
            }
            let bucket = place.tier.bucket(expiresAt: place.expiresAt)
            if let index = groups.firstIndex(where: { $0.tier == place.tier && $0.bucket == bucket }) {
                groups[index].statuses.append((place, status))
            } else {
                groups.append(Group(tier: place.tier, bucket: bucket, statuses: [(place, status)]))
            }
        }
        for group in groups {
            let sorted = group.statuses.sorted { $0.place.order < $1.place.order }
            let statuses = sorted.map(\.status)
            var start = 0
            while start < sorted.count {
                let (bytes, count) = StoredCodec.encode(statuses[start...])
                let places = sorted[start..<(start + count)].map(\.place)
                guard let first = places.first, let last = places.last else { break }
                try store.appendStatus(
                    row, tier: group.tier, expiresAt: places.reduce(first.expiresAt) { max($0, $1.expiresAt) },
                    concerning: first.order...last.order, bytes)
                start += count
            }
        }
        learned.removeAll()
        for status in kept { learned.add(status, at: nil) }
    }

    /// Visits stored messages in their current state, oldest first.
    func visitStored(
        from place: UInt64, now: Timestamp,
        _ body: (_ place: UInt64, _ message: Message, _ arrivedAt: Timestamp) throws(StoreError) -> Bool
    ) throws(StoreError) {
        var stretch = StatusStretch()
        try store.visit(row, from: place, now: now.milliseconds) { place, stored throws(StoreError) in
            guard let (message, arrivedAt) = try? StoredCodec.decodeMessage(stored.payload) else { return true }
            try stretch.read(place, of: row, in: store)
            return try body(place, current(message, stretch[message.content.id]), arrivedAt)
        }
    }

    /// Visits stored messages in their current state, newest first.
    /// - Parameter opens: otherwise the body gets only their places.
    func visitStoredBack(
        from place: UInt64, before end: UInt64, now: Timestamp, opens: Bool,
        _ body: (_ place: UInt64, _ message: (Message, arrivedAt: Timestamp)?) throws(StoreError) -> Bool
    ) throws(StoreError) {
        var stretch = StatusStretch(goesBack: true)
        try store.visitBack(row, from: place, before: end, now: now.milliseconds, opens: opens) {
            place, stored throws(StoreError) in
            guard let stored else { return try body(place, nil) }
            guard let (message, arrivedAt) = try? StoredCodec.decodeMessage(stored.payload) else { return true }
            try stretch.read(place, of: row, in: store)
            return try body(place, (current(message, stretch[message.content.id]), arrivedAt))
        }
    }

    /// The current state of a message or reaction read from the disk.
    func current(_ message: Message) throws(StoreError) -> Message {
        var stretch = StatusStretch(width: 1)
        // Members' messages change only if they have a file.
        if message.sender == nil || message.content.attachment != nil,
            let place = try store.locate(row, message.content.id.value)
        {
            try stretch.read(place.order, of: row, in: store)
        }
        return current(message, stretch[message.content.id])
    }

    func current(_ message: Message, _ statuses: [MessageStatus]) -> Message {
        var message = message
        let id = message.content.id
        for status in statuses { message.learn(status) }
        if let status = learned[id] { message.learn(status) }
        if message.state == .queued, sent.contains(id) { message.state = .sent }
        if let said = deliveries[id] { message.deliveries.merge(said) }
        return message
    }
}

/// The statuses of a range of messages, which bounds memory during a scan.
private struct StatusStretch {
    var width: UInt64 = 256
    var goesBack = false
    var places: ClosedRange<UInt64>?
    var statuses: [Messaging.MessageID: [MessageStatus]] = [:]

    subscript(message: Messaging.MessageID) -> [MessageStatus] { statuses[message] ?? [] }

    /// Loads the statuses of the message at `place` and of those that are visited next.
    mutating func read(_ place: UInt64, of row: RowID, in store: Store) throws(StoreError) {
        if let places, places.contains(place) { return }
        let width = width - 1
        let stretch = goesBack ? place - min(place, width)...place : place...place + min(.max - place, width)
        var found: [Messaging.MessageID: [MessageStatus]] = [:]
        try store.visitStatuses(row, concerning: stretch, now: 0) { bytes throws(StoreError) in
            for status in (try? StoredCodec.decodeStatuses(bytes)) ?? [] {
                found[status.message, default: []].append(status)
            }
            return true
        }
        statuses = found
        places = stretch
    }
}
