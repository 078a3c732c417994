/// Events by time, and by order of planning at equal times. A binary heap.
struct EventQueue<Event> {
    /// The events stay in place: the heap moves small entries.
    private struct Entry {
        var time: Int64
        var sequence: UInt64
        var slot: Int

        func precedes(_ other: Entry) -> Bool { (time, sequence) < (other.time, other.sequence) }
    }

    private var heap: [Entry] = []
    private var events: [Event?] = []
    private var freeSlots: [Int] = []
    private var nextSequence: UInt64 = 0

    var nextTime: Int64? { heap.first?.time }

    mutating func push(_ event: Event, at time: Int64) {
        let slot: Int
        if let free = freeSlots.popLast() {
            slot = free
            events[free] = event
        } else {
            slot = events.count
            events.append(event)
        }
        heap.append(Entry(time: time, sequence: nextSequence, slot: slot))
        nextSequence += 1
        var child = heap.count - 1
        while child > 0 {
            let parent = (child - 1) / 2
            guard heap[child].precedes(heap[parent]) else { break }
            heap.swapAt(child, parent)
            child = parent
        }
    }

    mutating func pop() -> (time: Int64, event: Event)? {
        guard let first = heap.first else { return nil }
        guard let event = events[first.slot].take() else { preconditionFailure("a slot without an event") }
        freeSlots.append(first.slot)
        let last = heap.removeLast()
        guard !heap.isEmpty else { return (first.time, event) }
        heap[0] = last
        var parent = 0
        while true {
            var smallest = parent
            for child in [2 * parent + 1, 2 * parent + 2] where child < heap.count {
                if heap[child].precedes(heap[smallest]) { smallest = child }
            }
            if smallest == parent { break }
            heap.swapAt(parent, smallest)
            parent = smallest
        }
        return (first.time, event)
    }
}
