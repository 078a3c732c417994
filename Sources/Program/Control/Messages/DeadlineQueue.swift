import HeapModule
import NIOCore

/// A queue of timers with one scheduled task, for the earliest deadline.
///
/// Used on its loop only.
final class DeadlineQueue: @unchecked Sendable {
    // @unchecked: mutable state is confined to the loop, which each entry point asserts.

    private struct Entry: Comparable {
        let deadline: NIODeadline
        let number: UInt64

        static func < (one: Entry, other: Entry) -> Bool { (one.deadline, one.number) < (other.deadline, other.number) }
    }

    private let loop: any EventLoop
    private var entries = Heap<Entry>()
    private var actions: [UInt64: () -> Void] = [:]
    private var nextNumber: UInt64 = 1
    private var timer: Scheduled<Void>?
    private var timerDeadline: NIODeadline?

    init(_ loop: any EventLoop) { self.loop = loop }

    var count: Int { actions.count }

    /// Number of queue entries, cancelled deadlines included.
    var entryCount: Int { entries.count }

    /// Runs `body` after `time`, unless cancelled before.
    func add(after time: TimeAmount, _ body: @escaping () -> Void) -> UInt64 {
        loop.assertInEventLoop()
        defer { nextNumber += 1 }
        let entry = Entry(deadline: loop.now + time, number: nextNumber)
        entries.insert(entry)
        actions[entry.number] = body
        schedule()
        return entry.number
    }

    func remove(_ number: UInt64) {
        loop.assertInEventLoop()
        actions[number] = nil
        // Cancelled entries stay until they are the majority.
        if entries.count > 64, entries.count > 2 * actions.count {
            entries = Heap(entries.unordered.filter { actions[$0.number] != nil })
        }
    }

    private func schedule() {
        while let first = entries.min, actions[first.number] == nil { entries.removeMin() }
        guard let first = entries.min else { return }
        if let timerDeadline, timerDeadline <= first.deadline { return }
        timer?.cancel()
        timerDeadline = first.deadline
        timer = loop.assumeIsolated().scheduleTask(deadline: first.deadline) { self.fire() }
    }

    private func fire() {
        timer = nil
        timerDeadline = nil
        let now = loop.now
        while let first = entries.min, first.deadline <= now {
            entries.removeMin()
            actions.removeValue(forKey: first.number)?()
        }
        schedule()
    }
}
