import Crypto
import DequeModule
import Messaging
import Store
import Wire

/// What is shown of an inbox: its messages on the disk and in memory in one order, a page at a time.
extension MessageArchive {
    /// What is listed: a message, when it arrived here, and whether it is on the disk.
    struct Listed {
        var message: Message
        var arrivedAt: Timestamp
        var isStored: Bool
        /// How many reactions are known at it, of a message on a page; some of them may have expired.
        var reactionCount = 0
    }

    /// Some messages of an inbox, in the order of their arrival.
    struct Page {
        var messages: [Listed] = []
        /// Bytes in memory of what nobody had read before; what waits for the disk is not let go of.
        var freedByteCount = 0
        /// Nothing is left in memory that nobody has read, or that waits for the disk.
        var isAllRead = false
    }

    /// Messages of members that nobody has read and that are in memory until the node stops.
    var unreadInMemoryCount: Int { held.count { $0.isUnread && $0.tier == nil && !$0.message.content.isAnnotation } }

    /// A watcher has shown a message: it need not be protected any more.
    /// - Returns: how many bytes of unread memory that frees; none when it waits for the disk, for it is not let go of.
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

    /// The number of unread messages of members, at most ``unreadLimit``. A locked or damaged store counts as empty.
    func unreadCount(now: Timestamp) -> Int {
        min(Self.unreadLimit, held.count { $0.isUnread && isListed($0, now) } + unreadStoredCount(now: now))
    }

    func unreadStoredCount(now: Timestamp) -> Int {
        if let knownUnreadCount { return knownUnreadCount }
        var found: Deque<UInt64> = []
        do throws(StoreError) {
            try visitStored(from: shownPlace, now: now) { place, message, _ in
                if message.sender != nil, heldIndex[message.content.id] == nil { found.append(place) }
                return found.count < Self.unreadLimit
            }
        } catch { return found.count }
        setUnread(found)
        return found.count
    }

    func contains(_ id: Messaging.MessageID) -> Bool {
        if heldIndex[id] != nil || known.contains(id, orStored: store.isLocked) { return true }
        guard !store.isLocked else { return false }
        return (try? store.contains(row, id: id.bytes)) ?? false
    }

    /// Whether a content of a member was shown since the start, be it gone by now or not; a file when it was whole.
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

    /// What a message says.
    func content(_ id: Messaging.MessageID, now: Timestamp) -> Content? {
        // The common case, without a copy of what it has come to.
        if heldIndex.isEmpty, let entry = outgoing[id], entry.message.expiresAt.map({ $0 > now }) ?? true {
            return entry.message.content
        }
        return read(id, now: now)?.message.content
    }

    /// What members have said of a message of ours.
    func deliveries(of id: Messaging.MessageID, now: Timestamp) -> [Delivery] {
        // While the storage is locked a message may be known by what its members have said alone.
        guard heldIndex[id] == nil, var said = outgoing.deliveries(of: id) else {
            return read(id, now: now)?.message.deliveries ?? deliveries[id] ?? []
        }
        if let status = learned[id] { said.merge(status.said) }
        if let more = deliveries[id] { said.merge(more) }
        return said
    }

    private func listed(_ message: Message, _ arrivedAt: Timestamp) -> Listed {
        Listed(message: message, arrivedAt: arrivedAt, isStored: true)
    }

    /// Identifiers of listed messages, in no order.
    /// - Parameters:
    ///   - digits: the hexadecimal digits that they begin with, in lower case.
    ///   - limit: most of them.
    func ids(beginningWith digits: String, limit: Int, now: Timestamp) throws(StoreError) -> [Messaging.MessageID] {
        var values: [UInt8] = []
        for digit in digits.utf8 {
            switch digit {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): values.append(digit - UInt8(ascii: "0"))
            case UInt8(ascii: "a")...UInt8(ascii: "f"): values.append(digit - UInt8(ascii: "a") + 10)
            default: return []
            }
        }
        var found: [Messaging.MessageID] = []
        for entry in held where isListed(entry, now) {
            guard found.count < limit else { return found }
            let id = entry.message.content.id
            if id.description.hasPrefix(digits) { found.append(id) }
        }
        let stored = try store.messageIDs(row, beginningWith: values, limit: limit, now: now.milliseconds)
        for id in stored.compactMap({ Messaging.MessageID($0) }) where found.count < limit {
            // It came again while the storage was locked.
            if heldIndex[id] == nil { found.append(id) }
        }
        return found
    }

    // MARK: Pages

    private func isListed(_ entry: Held, _ now: Timestamp) -> Bool {
        !entry.message.content.isAnnotation && entry.message.expiresAt.map { $0 > now } ?? true
    }

    /// Where a page begins: a place on the disk, and an index in memory.
    private struct Beginning {
        var place: UInt64 = 0
        var held = 0
    }

    /// Messages in the order of their arrival. Those in memory, and all in memory that lies between them, count as read
    /// from now on.
    /// - Parameters:
    ///   - last: at most so many, the newest.
    ///   - after: only what came later than this message.
    ///   - take: given each message in turn; it says whether there is room for it on the page, which ends before the first
    ///     for which there is none. A page has at least one.
    /// - Returns: `nil` when `after` is not, or no longer, there.
    func page(last: Int?, after: Messaging.MessageID?, now: Timestamp, _ take: (Listed) -> Bool) throws(StoreError)
        -> Page?
    {
        settlePlaces()
        var first = Beginning()
        if let after {
            guard let found = try beginning(after: after) else { return nil }
            first = found
        }
        if let last { first = try beginning(ofLast: last, from: first, now).beginning }
        // Reactions have places after those of their messages.
        try knowReactions(from: first.place, now: now)
        // Taken out and put back, so that a long conversation in memory is not copied for its last word.
        var entries = held
        held = []
        defer { held = entries }
        var page = Page()
        var next = first.held
        var isFull = false
        var end = first.place == .max ? 0 : first.place
        let known = reactions
        func add(_ message: Listed) -> Bool {
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
            // It came again while the storage was locked, and is shown as what waits for the disk.
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

    private func beginning(after: Messaging.MessageID) throws(StoreError) -> Beginning? {
        let entries = held
        if let index = heldIndex[after] { return Beginning(place: entries[index].place ?? .max, held: index + 1) }
        guard let place = try store.place(row, of: after.bytes) else { return nil }
        return Beginning(place: place + 1, held: entries.partitioningIndex { ($0.place ?? .max) > place })
    }

    /// The `count`th message from the end: 1 is the newest. `nil` when there are fewer messages.
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

    /// The newest so many, found by their places: none is opened for it.
    /// - Returns: where they begin, and the number of messages that are missing to `last`.
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
        // What is in memory from there on comes after what is on the disk before it.
        return (found, left)
    }
}
