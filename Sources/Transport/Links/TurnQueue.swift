import DequeModule
import HeapModule
import NIOCore

/// Work of one event loop deferred to later turns, in FIFO order.
///
/// A loop runs every due task before it polls its sockets. A long job does one part and queues the rest here. The queue
/// runs one piece, leaves the loop to its sockets for ``pause``, then runs the next. With a timer per piece, the timers
/// would be due together and the sockets would wait for all of them.
///
/// @unchecked Sendable: all mutable state is used only on the loop, which is checked.
package final class TurnQueue: @unchecked Sendable {
    private let loop: any EventLoop
    private let pause: TimeAmount
    private var waiting: Deque<() -> Void> = []
    private var isUnderWay = false

    /// - Parameter pause: from the end of one piece and the tasks that it scheduled, to the next piece.
    package init(on loop: any EventLoop, pause: TimeAmount) {
        self.loop = loop
        self.pause = pause
    }

    /// Runs the work in a later turn. Call on the loop.
    package func add(_ work: @escaping () -> Void) {
        loop.assertInEventLoop()
        waiting.append(work)
        if !isUnderWay { schedule() }
    }

    private func schedule() {
        guard !waiting.isEmpty else {
            isUnderWay = false
            return
        }
        isUnderWay = true
        // After tasks that this turn has scheduled, such as a commit: the pause begins when they have run.
        let loop = loop.assumeIsolated()
        loop.execute {
            loop.scheduleTask(in: self.pause) {
                self.waiting.popFirst()?()
                self.schedule()
            }
        }
    }
}

/// One timer serves all connections: NIO cancels timers by linear search, and runs all due ones before it reads.
struct Deadlines {
    private struct Entry: Comparable {
        let deadline: NIODeadline
        let id: UInt64

        static func < (left: Entry, right: Entry) -> Bool { left.deadline < right.deadline }
        static func == (left: Entry, right: Entry) -> Bool { left.deadline == right.deadline }
    }

    private var entries = Heap<Entry>()

    /// The next deadline of an owner that still has one: the others need no wake-up.
    mutating func next(where isAwaited: (UInt64) -> Bool) -> NIODeadline? {
        while let first = entries.min, !isAwaited(first.id) { entries.removeMin() }
        return entries.min?.deadline
    }

    /// An entry is not removed when its owner no longer needs it.
    mutating func add(_ id: UInt64, at deadline: NIODeadline) { entries.insert(Entry(deadline: deadline, id: id)) }

    mutating func due(at now: NIODeadline, limit: Int) -> [UInt64] {
        var result: [UInt64] = []
        while result.count < limit, let first = entries.min, first.deadline <= now {
            result.append(entries.removeMin().id)
        }
        return result
    }
}
