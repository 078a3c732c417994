import DequeModule
import HeapModule

/// Our messages for one member (Delivery.md, "Outbox"): in order, at most ``Limits/inFlightCount`` in flight, sent
/// again until they are acknowledged or expire.
///
/// The archive holds the bodies; this machine holds ids and times.
package struct OutboxStateMachine: Sendable {
    package struct Entry: Hashable, Sendable {
        package let message: MessageID
        /// By our clock; the message's age counts from here.
        package let sentAt: Timestamp
        /// The deadline once it was transmitted.
        fileprivate let lastDeadline: Timestamp
        /// The deadline before the first transmission: later a receiver would find it expired. After one, only the
        /// receiver knows whether it arrived in time.
        fileprivate let unsentDeadline: Timestamp?
        /// Its body is on disk. Otherwise closing the conversation ends it.
        package let isStored: Bool
        package fileprivate(set) var attempts = 0
        /// When it may be sent again; `nil` before the first transmission.
        package fileprivate(set) var nextAttempt: Timestamp?
        fileprivate let sequence: UInt64
        fileprivate var isInFlight = false
        package fileprivate(set) var isMailed = false

        package var state: DeliveryState { isMailed ? .mailed : attempts == 0 ? .queued : .sent }
        package var deadline: Timestamp {
            guard attempts == 0, !isMailed, let unsentDeadline else { return lastDeadline }
            return min(lastDeadline, unsentDeadline)
        }
    }

    /// The deadline of an entry. It is stale once the entry is gone or has a later deadline.
    private struct End: Comparable, Sendable {
        let at: Timestamp
        let sequence: UInt64
        let message: MessageID

        static func < (left: End, right: End) -> Bool { (left.at, left.sequence) < (right.at, right.sequence) }
    }

    package struct Actions: Hashable, Sendable {
        package var expired: [MessageID] = []
        /// The part of ``transmitted`` that is sent for the first time.
        package var sent: [MessageID] = []
        package var transmitted: [NodeAction.AgedMessage] = []

        package var isEmpty: Bool { expired.isEmpty && transmitted.isEmpty }
    }

    private var entries: [MessageID: Entry] = [:]
    /// Entries that are not in flight, in order. Ids of removed entries are skipped.
    private var waiting: Deque<MessageID> = []
    /// Memory-only entries before ``waiting`` that wait for the acknowledgement of other memory-only ones.
    private var stalled: Deque<MessageID> = []
    private var inFlight: Set<MessageID> = []
    private var memoryOnlyInFlight: Set<MessageID> = []
    /// Entries that the member's mailbox lacks, in order, also those in flight. The first is never stale; later stale
    /// ids are skipped.
    private var unmailed: Deque<MessageID> = []
    /// The minimum is at or before the first deadline; see ``End``.
    private var ends = Heap<End>()
    private var memoryOnlyCount = 0
    private var nextSequence: UInt64 = 0
    /// At or before the next deadline; exact after ``advance(now:isLinked:random:)``.
    private var wakeAt: Timestamp?

    package init() {}

    package var isEmpty: Bool { entries.isEmpty }
    package var count: Int { entries.count }
    /// In the order of sending.
    package var all: [Entry] { entries.values.sorted { $0.sequence < $1.sequence } }
    package subscript(message: MessageID) -> Entry? { entries[message] }

    /// - Parameter unsentDeadline: an earlier deadline before the first transmission; `nil`: none.
    /// - Returns: `false` when the outbox is full.
    package mutating func enqueue(
        _ message: MessageID, sentAt: Timestamp, deadline: Timestamp, unsentDeadline: Timestamp? = nil, isStored: Bool,
        isMailed: Bool = false
    ) -> Bool {
        guard entries.count < Limits.outboxCount else { return false }
        var entry = Entry(
            message: message, sentAt: sentAt, lastDeadline: deadline, unsentDeadline: unsentDeadline,
            isStored: isStored, sequence: nextSequence)
        entry.isMailed = isMailed
        let known = entries.updateValue(entry, forKey: message)
        nextSequence += 1
        waiting.append(message)
        if !isMailed, known?.isMailed ?? true { unmailed.append(message) }
        memoryOnlyCount += (isStored ? 0 : 1) - (known?.isStored ?? true ? 0 : 1)
        ends.insert(End(at: entry.deadline, sequence: entry.sequence, message: message))
        wake(at: entry.deadline)
        return true
    }

    package mutating func flush(now: Timestamp, random: inout some RandomNumberGenerator) -> Actions {
        var actions = Actions()
        flush(&actions, now: now, random: &random)
        return actions
    }

    private mutating func flush(_ actions: inout Actions, now: Timestamp, random: inout some RandomNumberGenerator) {
        guard !waiting.isEmpty || !stalled.isEmpty else { return }
        let jitter = random.next()
        while let message = popWaiting() {
            guard var entry = entries[message], !entry.isInFlight else { continue }
            guard entry.deadline > now else {
                wake(at: entry.deadline)
                continue
            }
            if entry.attempts == 0 { actions.sent.append(message) }
            actions.transmitted.append(NodeAction.AgedMessage(id: message, age: max(0, now - entry.sentAt)))
            entry.isInFlight = true
            inFlight.insert(message)
            if !entry.isStored { memoryOnlyInFlight.insert(message) }
            schedule(&entry, now: now, jitter)
            entries[message] = entry
        }
    }

    /// A stored content passes the memory-only ones, which a member leaves unacknowledged while its memory is full.
    private mutating func popWaiting() -> MessageID? {
        let isFull = memoryOnlyInFlight.count >= Limits.inFlightCount
        if !isFull, let message = stalled.popFirst() { return message }
        while inFlight.count - memoryOnlyInFlight.count < Limits.inFlightCount, let message = waiting.popFirst() {
            guard isFull, entries[message]?.isStored == false else { return message }
            stalled.append(message)
        }
        return nil
    }

    /// - Returns: whether it was waiting here.
    package mutating func cancel(_ message: MessageID) -> Bool {
        guard let entry = entries.removeValue(forKey: message) else { return false }
        inFlight.remove(message)
        memoryOnlyInFlight.remove(message)
        if !entry.isStored { memoryOnlyCount -= 1 }
        if unmailed.first == message { skipMailed() }
        forgetStale()
        return true
    }

    /// - Returns: the removed messages, in order.
    package mutating func removeAll(onlyInMemory: Bool) -> [MessageID] {
        let ended = all.filter { !onlyInMemory || !$0.isStored }.map(\.message)
        for message in ended { _ = cancel(message) }
        return ended
    }

    /// Entries in flight go first on the next link, in the old order.
    package mutating func linkLost() {
        waiting.insert(contentsOf: stalled, at: 0)
        stalled = []
        for entry in inOrder(inFlight).reversed() {
            entries[entry.message]?.isInFlight = false
            waiting.prepend(entry.message)
        }
        inFlight.removeAll()
        memoryOnlyInFlight.removeAll()
    }

    /// The messages that may go to the member's mailbox while there is no link, in order.
    /// - Parameter others: left out.
    func unmailed(limit: Int, now: Timestamp, besides others: Set<MessageID> = []) -> [NodeAction.AgedMessage] {
        var result: [NodeAction.AgedMessage] = []
        for message in unmailed {
            if result.count >= limit { break }
            guard let entry = mailable(message, now: now), !others.contains(message) else { continue }
            result.append(NodeAction.AgedMessage(id: message, age: max(0, now - entry.sentAt)))
        }
        return result
    }

    /// Whether the member's mailbox lacks a waiting message.
    func hasUnmailed(now: Timestamp) -> Bool { unmailed.contains { mailable($0, now: now) != nil } }

    private func mailable(_ message: MessageID, now: Timestamp) -> Entry? {
        guard let entry = entries[message], !entry.isMailed, !entry.isInFlight, entry.deadline > now else { return nil }
        return entry
    }

    /// Entries stay here until the member has acknowledged them, though its mailbox has them.
    /// - Returns: the messages that still wait.
    mutating func mailed(_ messages: [MessageID]) -> [MessageID] {
        let known = messages.filter { message in
            guard entries[message] != nil else { return false }
            entries[message]?.isMailed = true
            return true
        }
        skipMailed()
        return known
    }

    /// Skips each id once, so that no later scan looks at mailed entries.
    private mutating func skipMailed() {
        while let first = unmailed.first, entries[first]?.isMailed ?? true { unmailed.removeFirst() }
    }

    /// Bounds the stale ids behind a message that is never acknowledged.
    private mutating func forgetStale() {
        let bound = 2 * entries.count + Limits.inFlightCount
        if unmailed.count > bound { unmailed.removeAll { entries[$0]?.isMailed ?? true } }
        guard ends.count > bound else { return }
        ends = Heap(entries.values.map { End(at: $0.deadline, sequence: $0.sequence, message: $0.message) })
    }

    /// Ids kept to find entries, including stale ones.
    var nameCount: Int { max(unmailed.count, ends.count) }

    /// Losing this machine would lose messages.
    var holdsMemoryOnly: Bool { memoryOnlyCount > 0 }

    /// No link for a while: only the deadlines remain.
    mutating func rest() { wakeAt = ends.min?.at }

    /// Removes expired entries, and resends those not acknowledged in time.
    package mutating func advance(now: Timestamp, isLinked: Bool, random: inout some RandomNumberGenerator) -> Actions {
        var actions = Actions()
        if let due = wakeAt, due <= now {
            wakeAt = nil
            let jitter = random.next()
            actions.expired = takeExpired(now: now)
            for var entry in inOrder(inFlight) {
                if isLinked, let next = entry.nextAttempt, next <= now {
                    actions.transmitted.append(
                        NodeAction.AgedMessage(id: entry.message, age: max(0, now - entry.sentAt)))
                    schedule(&entry, now: now, jitter)
                    entries[entry.message] = entry
                }
                if let next = entry.nextAttempt { wake(at: next) }
            }
            if let first = ends.min { wake(at: first.at) }
        }
        if isLinked { flush(&actions, now: now, random: &random) }
        return actions
    }

    /// Removes expired entries, and queues moved deadlines again.
    /// - Returns: the expired messages, in order.
    private mutating func takeExpired(now: Timestamp) -> [MessageID] {
        var expired: [Entry] = []
        while let first = ends.min, first.at <= now {
            ends.removeMin()
            guard let entry = entries[first.message], entry.sequence == first.sequence else { continue }
            if entry.deadline > now {
                ends.insert(End(at: entry.deadline, sequence: entry.sequence, message: entry.message))
            } else {
                _ = cancel(entry.message)
                expired.append(entry)
            }
        }
        return expired.sorted { $0.sequence < $1.sequence }.map(\.message)
    }

    private func inOrder(_ messages: Set<MessageID>) -> [Entry] {
        messages.compactMap { entries[$0] }.sorted { $0.sequence < $1.sequence }
    }

    package var nextDeadline: Timestamp? { entries.isEmpty ? nil : wakeAt }

    /// 2 s, 4 s, 8 s … 15 min, less up to a quarter at random. Messages sent together are resent together.
    private mutating func schedule(_ entry: inout Entry, now: Timestamp, _ jitter: UInt64) {
        let wait = Limits.resend.wait(after: entry.attempts)
        entry.attempts += 1
        let next = now + wait - Milliseconds(jitter % UInt64(wait / 4))
        entry.nextAttempt = next
        wake(at: next)
    }

    private mutating func wake(at time: Timestamp) { wakeAt = earliest(wakeAt, time) }
}
