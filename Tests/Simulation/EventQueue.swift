import HeapModule

/// Events by time, and by order of planning at equal times.
package struct EventQueue<Event> {
    /// The events stay in place: the heap moves small entries.
    private struct Entry: Comparable {
        let time: Int64
        let number: UInt64

        static func < (one: Entry, other: Entry) -> Bool { (one.time, one.number) < (other.time, other.number) }
    }

    private var heap = Heap<Entry>()
    private var events: [UInt64: Event] = [:]
    private var next: UInt64 = 0

    package init() {}

    /// Returns a number for cancelling the event.
    @discardableResult package mutating func push(_ event: Event, at time: Int64) -> UInt64 {
        defer { next += 1 }
        heap.insert(Entry(time: time, number: next))
        events[next] = event
        return next
    }

    package mutating func pop(until end: Int64) -> (time: Int64, event: Event)? {
        while let first = heap.min, first.time <= end {
            heap.removeMin()
            if let event = events.removeValue(forKey: first.number) { return (first.time, event) }
        }
        return nil
    }

    package mutating func cancel(_ number: UInt64) { events[number] = nil }

    /// Returns the cancelled events.
    @discardableResult package mutating func cancel(where isMeant: (Event) -> Bool) -> [Event] {
        let meant = events.filter { isMeant($0.value) }
        for number in meant.keys { events[number] = nil }
        return Array(meant.values)
    }
}
