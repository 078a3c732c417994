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
            if !store.isLocked, unreadStoredCount(now: now) > 0, let place = try? store.place(row, of: id.value) {
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
        return (try? store.contains(row, id: id.value)) ?? false
    }

    /// Whether a member's content was shown since the start, even if it has expired; a file counts when complete.
    func wasShown(_ id: Messaging.MessageID) -> Bool { known.wasShown(id) }

    func read(_ id: Messaging.MessageID, now: Timestamp) -> Listed? {
        if let index = heldIndex[id] {
            let entry = held[index]
            if let expiresAt = entry.message.expiresAt, expiresAt <= now { return nil }
            return listed(entry)
        }
        if let entry = outgoing[id] {
            guard entry.message.expiresAt.map({ $0 > now }) ?? true else { return nil }
            return listed(current(entry.message, []), entry.arrivedAt)
        }
        guard !store.isLocked, let bytes = try? store.read(row, id: id.value, now: now.milliseconds),
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

    private func listed(_ entry: Held) -> Listed {
        Listed(message: entry.message, arrivedAt: entry.arrivedAt, isStored: false)
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
        for id in stored.map(Messaging.MessageID.init) where found.count < limit {
            // Skip a copy received again while the storage was locked.
            if heldIndex[id] == nil { found.append(id) }
        }
        return found
    }

    private func isListed(_ entry: Held, _ now: Timestamp) -> Bool {
        !entry.message.content.isAnnotation && entry.message.expiresAt.map { $0 > now } ?? true
    }

    /// The start of a page: a position on the disk, and an index in memory.
    private struct Beginning {
        var place: UInt64 = 0
        var held = 0
    }

    /// Messages in order of arrival.
    /// - Parameters:
    ///   - last: the maximum number; the newest are chosen.
    ///   - after: only messages after this one.
    ///   - before: only messages before this one, the newest first.
    ///   - isUnread: only messages from the first unread one on.
    ///   - marks: marks messages on the page and between them in memory as read.
    ///   - take: called for each message; returns whether it fits on the page. The page ends before the first that does
    /// not fit, but has at least one message. With `last` or `before` the newest message comes first.
    /// - Returns: `nil` when `after` or `before` does not exist.
    func page(
        last: Int?, after: Messaging.MessageID?, before: Messaging.MessageID? = nil, isUnread: Bool = false,
        marks: Bool = true, now: Timestamp, _ take: (Listed) -> Bool
    ) throws(StoreError) -> Page? {
        settlePlaces()
        var first = isUnread ? try beginningOfUnread(now) : Beginning()
        var end = Beginning(place: .max, held: held.count)
        if let after {
            guard let found = try beginning(at: after, isAfter: true) else { return nil }
            first = found
        }
        if let before {
            guard let found = try beginning(at: before) else { return nil }
            end = found
        }
        var page = Page()
        func add(_ message: Listed) -> Bool {
            // The first unread message may have expired, and our own follow it.
            if isUnread, page.messages.isEmpty, message.message.sender == nil { return true }
            var message = message
            message.reactionCount = reactions[message.message.content.id].count
            guard take(message) || page.messages.isEmpty else { return false }
            page.messages.append(message)
            return true
        }
        if last != nil || before != nil {
            let oldest = first
            first = end
            try visitBack(from: oldest, before: end, now: now, opens: true) { place, message throws(StoreError) in
                guard let message else { return true }
                // Reactions have positions after their messages.
                try knowReactions(from: place.place, now: now)
                guard add(message) else { return false }
                first = place
                return page.messages.count < last ?? .max
            }
            page.messages.reverse()
        } else {
            try knowReactions(from: first.place, now: now)
            end = try visit(from: first, now: now, add)
        }
        guard marks else { return page }
        show(before: end.place == .max ? (try? store.nextPlace(row)) ?? 0 : end.place)
        for index in min(first.held, end.held)..<end.held where held[index].isUnread {
            held[index].isUnread = false
            if held[index].tier == nil { page.freedByteCount += held[index].message.byteCount }
        }
        page.isAllRead = end.held == held.count && !held.contains { $0.isUnread || $0.tier != nil }
        return page
    }

    /// Visits messages in order of arrival.
    /// - Returns: the beginning of the first one that is refused; else the end.
    private func visit(from first: Beginning, now: Timestamp, _ body: (Listed) -> Bool) throws(StoreError) -> Beginning
    {
        var next = first
        func visitHeld(before place: UInt64) -> Bool {
            while next.held < held.count, place == .max || (held[next.held].place ?? .max) <= place {
                let entry = held[next.held]
                guard !isListed(entry, now) || body(listed(entry)) else { return false }
                next.held += 1
            }
            return true
        }
        var isOver = false
        try visitStored(from: first.place, now: now) { place, message, arrivedAt in
            isOver = !visitHeld(before: place)
            // Received again while the storage was locked: shown as waiting for the disk.
            if !isOver, heldIndex[message.content.id] == nil { isOver = !body(listed(message, arrivedAt)) }
            if !isOver { next.place = place + 1 }
            return !isOver
        }
        return isOver || !visitHeld(before: .max) ? next : Beginning(place: .max, held: held.count)
    }

    /// Visits messages from the newest to the oldest.
    /// - Parameter opens: otherwise stored ones are not opened, and the body gets only their beginnings.
    private func visitBack(
        from first: Beginning, before end: Beginning, now: Timestamp, opens: Bool,
        _ body: (_ place: Beginning, _ message: Listed?) throws(StoreError) -> Bool
    ) throws(StoreError) {
        var index = end.held
        var isOver = false
        func visitHeld(after place: UInt64?) throws(StoreError) {
            while !isOver, index > first.held {
                let entry = held[index - 1]
                if let place, (entry.place ?? .max) <= place { return }
                index -= 1
                guard isListed(entry, now) else { continue }
                isOver = try !body(Beginning(place: entry.place ?? .max, held: index), listed(entry))
            }
        }
        try visitStoredBack(from: first.place, before: end.place, now: now, opens: opens) {
            place, stored throws(StoreError) in
            try visitHeld(after: place)
            // Received again while the storage was locked: shown as waiting for the disk.
            if isOver || stored.map({ heldIndex[$0.0.content.id] != nil }) ?? false { return !isOver }
            isOver = try !body(Beginning(place: place, held: index), stored.map { listed($0.0, $0.arrivedAt) })
            return !isOver
        }
        try visitHeld(after: nil)
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

    private func beginning(at id: Messaging.MessageID, isAfter: Bool = false) throws(StoreError) -> Beginning? {
        let step = isAfter ? 1 : 0
        if let index = heldIndex[id] { return Beginning(place: held[index].place ?? .max, held: index + step) }
        guard let place = try store.place(row, of: id.value) else { return nil }
        return Beginning(place: place + UInt64(step), held: held.partitioningIndex { ($0.place ?? .max) > place })
    }

    /// The message at a position from the end; 1 is the newest. `nil` if there are too few.
    func id(fromEnd count: Int, now: Timestamp) throws(StoreError) -> Messaging.MessageID? {
        settlePlaces()
        var left = count
        var first = Beginning()
        let end = Beginning(place: .max, held: held.count)
        try visitBack(from: first, before: end, now: now, opens: false) { place, _ in
            left -= 1
            first = place
            return left > 0
        }
        var id: Messaging.MessageID?
        if left == 0 {
            _ = try visit(from: first, now: now) { message in
                id = message.message.content.id
                return false
            }
        }
        return id
    }
}
