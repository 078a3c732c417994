import HeapModule

/// Events by time, and by order of planning at equal times.
struct EventQueue<Event> {
    /// The events stay in place: the heap moves small entries.
    private struct Entry: Comparable {
        let time: Int64
        let sequence: UInt64

        static func < (one: Entry, other: Entry) -> Bool { (one.time, one.sequence) < (other.time, other.sequence) }
    }

    private var heap = Heap<Entry>()
    private var events: [UInt64: Event] = [:]
    private var nextSequence: UInt64 = 0

    var nextTime: Int64? { heap.min?.time }

    mutating func push(_ event: Event, at time: Int64) {
        heap.insert(Entry(time: time, sequence: nextSequence))
        events[nextSequence] = event
        nextSequence += 1
    }

    mutating func pop() -> (time: Int64, event: Event)? {
        guard let first = heap.popMin() else { return nil }
        guard let event = events.removeValue(forKey: first.sequence) else { preconditionFailure("no event") }
        return (first.time, event)
    }
}
