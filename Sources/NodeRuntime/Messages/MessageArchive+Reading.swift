import Cryptography
import DequeModule
import Messaging
import Store

/// Reads messages on the disk and in memory in one order, page by page.
extension MessageArchive {
    struct Listed {
        var message: Message
        var arrivedAt: Timestamp
        var isStored: Bool
        /// For a message on a page: the number of known reactions; some may have expired.
        var reactionCount = 0
    }

    struct Page {
        var messages: [Listed] = []
        /// Memory freed by messages read for the first time; messages waiting for the disk are not freed.
        var freedByteCount = 0
        /// No message in memory is unread or waits for the disk.
        var isAllRead = false
    }

    /// Unread members' messages that are lost when the node stops.
    var unreadInMemoryCount: Int { held.count { $0.isUnread && $0.tier == nil && !$0.message.content.isAnnotation } }

    /// A watcher has shown a message: it may leave memory.
    /// - Returns: the freed bytes of unread memory; 0 for a message that waits for the disk.
    func markShown(_ id: Messaging.MessageID, now: Timestamp) -> Int {
        guard let index = heldIndex[id] else {
            if !store.isLocked, unreadStoredCount(now: now) > 0, let place = try? store.place(row, of: id.bytes) {
                showStored(place)
            }
            return 0
        }
        guard held[index].isUnread else { return 0 }
        held[index].isUnread = false
        return held[index].tier == nil ? held[index].message.byteCount : 0
    }

    /// The number of unread members' messages, at most ``unreadLimit``. A locked or damaged store counts as empty.
    func unreadCount(now: Timestamp) -> Int {
        min(Self.unreadLimit, held.count { $0.isUnread && isListed($0, now) } + unreadStoredCount(now: now))
    }

    private func unreadStoredCount(now: Timestamp) -> Int { (try? countUnread(now: now)) ?? 0 }

    /// The number of unread stored messages, at most ``unreadLimit``.
    func countUnread(now: Timestamp) throws(StoreError) -> Int {
        if let knownUnreadCount { return knownUnreadCount }
        var found: Deque<UInt64> = []
        try visitStored(from: shownPlace, now: now) { place, message, _ in
            if message.sender != nil, heldIndex[message.content.id] == nil { found.append(place) }
            return found.count < Self.unreadLimit
        }
        setUnread(found)
        return found.count
    }

    func contains(_ id: Messaging.MessageID) -> Bool {
        if heldIndex[id] != nil || known.contains(id, orStored: store.isLocked) { return true }
        guard !store.isLocked else { return false }
        return (try? store.contains(row, id: id.bytes)) ?? false
    }

    /// Whether a member's content was shown since the start, even if it has expired; a file counts when complete.
    func wasShown(_ id: Messaging.MessageID) -> Bool { known.wasShown(id) }

    func read(_ id: Messaging.MessageID, now: Timestamp) -> Listed? {
        if let index = heldIndex[id] {
            let entry = held[index]
            if let expiresAt = entry.message.expiresAt, expiresAt <= now { return nil }
            return Listed(message: entry.message, arrivedAt: entry.arrivedAt, isStored: false)
        }
        if let entry = outgoing[id] {
            guard entry.message.expiresAt.map({ $0 > now }) ?? true else { return nil }
            return listed(current(entry.message, []), entry.arrivedAt)
        }
        guard !store.isLocked, let bytes = try? store.read(row, id: id.bytes, now: now.milliseconds),
            let (message, arrivedAt) = try? StoredCodec.decodeMessage(bytes), let current = try? current(message)
        else { return nil }
        return listed(current, arrivedAt)
    }

    func content(_ id: Messaging.MessageID, now: Timestamp) -> Content? {
        // The common case, without building the message's current state.
        if heldIndex.isEmpty, let entry = outgoing[id], entry.message.expiresAt.map({ $0 > now }) ?? true {
            return entry.message.content
        }
        return read(id, now: now)?.message.content
    }

    func deliveries(of id: Messaging.MessageID, now: @autoclosure () -> Timestamp) -> [Delivery] {
        // While the storage is locked, only the deliveries of a message may be known.
        let cached = heldIndex[id] == nil ? outgoing.deliveries(of: id) : nil
        if cached == nil, let message = read(id, now: now())?.message { return message.deliveries }
        var said = cached ?? []
        if let status = learned[id] { said.merge(status.said) }
        if let more = deliveries[id] { said.merge(more) }
        return said
    }

    private func listed(_ message: Message, _ arrivedAt: Timestamp) -> Listed {
        Listed(message: message, arrivedAt: arrivedAt, isStored: true)
    }

    /// Ids of listed messages, unordered.
    /// - Parameters:
    ///   - digits: their first hexadecimal digits, in lower case.
    ///   - limit: the maximum number.
    func ids(beginningWith digits: String, limit: Int, now: Timestamp) throws(StoreError) -> [Messaging.MessageID] {
        guard let values = Hex.values(digits) else { return [] }
        var found: [Messaging.MessageID] = []
        for entry in held where isListed(entry, now) {
            guard found.count < limit else { return found }
            let id = entry.message.content.id
            if id.description.hasPrefix(digits) { found.append(id) }
        }
        let stored = try store.messageIDs(row, beginningWith: values, limit: limit, now: now.milliseconds)
        for id in stored.compactMap({ Messaging.MessageID($0) }) where found.count < limit {
            // Skip a copy received again while the storage was locked.
            if heldIndex[id] == nil { found.append(id) }
        }
        return found
    }

    // MARK: Pages

    private func isListed(_ entry: Held, _ now: Timestamp) -> Bool {
        !entry.message.content.isAnnotation && entry.message.expiresAt.map { $0 > now } ?? true
    }

    /// The start of a page: a position on the disk, and an index in memory.
    private struct Beginning {
        var place: UInt64 = 0
        var held = 0
    }

    /// Messages in order of arrival. Marks messages on the page and between them in memory as read.
    /// - Parameters:
    ///   - last: the maximum number; the newest are chosen.
    ///   - after: only messages after this one.
    ///   - isUnread: only messages from the first unread one on.
    ///   - take: called for each message; returns whether it fits on the page. The page ends before the first that does
    /// not fit, but has at least one message.
    /// - Returns: `nil` when `after` does not exist.
    func page(last: Int?, after: Messaging.MessageID?, isUnread: Bool = false, now: Timestamp, _ take: (Listed) -> Bool)
        throws(StoreError) -> Page?
    {
        settlePlaces()
        var first = isUnread ? try beginningOfUnread(now) : Beginning()
        if let after {
            guard let found = try beginning(after: after) else { return nil }
            first = found
        }
        if let last { first = try beginning(ofLast: last, from: first, now).beginning }
        // Reactions have positions after their messages.
        try knowReactions(from: first.place, now: now)
        // Moved out to avoid copying a long conversation.
        var entries = held
        held = []
        defer { held = entries }
        var page = Page()
        var next = first.held
        var isFull = false
        var end = first.place == .max ? 0 : first.place
        let known = reactions
        func add(_ message: Listed) -> Bool {
            // The first unread message may have expired, and our own follow it.
            if isUnread, page.messages.isEmpty, message.message.sender == nil { return true }
            var message = message
            message.reactionCount = known[message.message.content.id].count
            isFull = !take(message) && !page.messages.isEmpty
            if !isFull { page.messages.append(message) }
            return !isFull
        }
        func addHeld(before place: UInt64) -> Bool {
            while next < entries.count, place == .max || (entries[next].place ?? .max) <= place {
                let entry = entries[next]
                if isListed(entry, now),
                    !add(Listed(message: entry.message, arrivedAt: entry.arrivedAt, isStored: false))
                {
                    return false
                }
                next += 1
            }
            return true
        }
        try visitStored(from: first.place, now: now) { place, message, arrivedAt in
            guard addHeld(before: place) else { return false }
            // Received again while the storage was locked: shown as waiting for the disk.
            if heldIndex[message.content.id] != nil { return true }
            guard add(listed(message, arrivedAt)) else { return false }
            end = place + 1
            return true
        }
        if !isFull { _ = addHeld(before: .max) }
        show(before: isFull ? end : max(end, (try? store.nextPlace(row)) ?? 0))
        for index in min(first.held, next)..<next where entries[index].isUnread {
            entries[index].isUnread = false
            if entries[index].tier == nil { page.freedByteCount += entries[index].message.byteCount }
        }
        page.isAllRead = next == entries.count && !entries.contains { $0.isUnread || $0.tier != nil }
        return page
    }

    /// The first unread message; the end if there is none.
    private func beginningOfUnread(_ now: Timestamp) throws(StoreError) -> Beginning {
        let place = try countUnread(now: now) > 0 ? unread?.first ?? .max : .max
        let index = held.firstIndex { $0.isUnread && isListed($0, now) } ?? held.count
        if index < held.count, (held[index].place ?? .max) <= place {
            return Beginning(place: held[index].place ?? .max, held: index)
        }
        return Beginning(place: place, held: held.partitioningIndex { ($0.place ?? .max) > place })
    }

    private func beginning(after: Messaging.MessageID) throws(StoreError) -> Beginning? {
        let entries = held
        if let index = heldIndex[after] { return Beginning(place: entries[index].place ?? .max, held: index + 1) }
        guard let place = try store.place(row, of: after.bytes) else { return nil }
        return Beginning(place: place + 1, held: entries.partitioningIndex { ($0.place ?? .max) > place })
    }

    /// The message at a position from the end; 1 is the newest. `nil` if there are too few.
    func id(fromEnd count: Int, now: Timestamp) throws(StoreError) -> Messaging.MessageID? {
        settlePlaces()
        let (found, missing) = try beginning(ofLast: count, from: Beginning(), now)
        guard missing == 0 else { return nil }
        if found.held < held.count, (held[found.held].place ?? .max) <= found.place {
            return held[found.held].message.content.id
        }
        var id: Messaging.MessageID?
        try visitStored(from: found.place, now: now) { _, message, _ in
            id = message.content.id
            return false
        }
        return id
    }

    /// Finds the newest messages by position, without opening them.
    /// - Returns: their start, and how many are missing to `last`.
    private func beginning(ofLast last: Int, from first: Beginning, _ now: Timestamp) throws(StoreError) -> (
        beginning: Beginning, missing: Int
    ) {
        let entries = held
        var found = Beginning(place: .max, held: entries.count)
        var left = last
        func countHeld(after place: UInt64?) {
            while left > 0, found.held > first.held {
                let entry = entries[found.held - 1]
                if let place, (entry.place ?? .max) <= place { return }
                found.held -= 1
                if isListed(entry, now) { left -= 1 }
            }
        }
        try store.visitPlaces(row, from: first.place, now: now.milliseconds) { place in
            countHeld(after: place)
            guard left > 0 else { return false }
            left -= 1
            found.place = place
            return left > 0
        }
        countHeld(after: nil)
        // Messages in memory from that index on follow the stored messages before that position.
        return (found, left)
    }
}
