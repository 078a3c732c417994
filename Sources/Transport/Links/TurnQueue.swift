import DequeModule
import NIOCore

/// Work of one event loop that waits for a later turn of the loop, first come, first served.
///
/// A loop runs every task that is due before it asks its sockets. Whoever has much to do does a part and leaves the rest
/// here. The queue runs one piece of work, then leaves the loop to its sockets for ``pause``, then runs the next. With a
/// timer for each piece, one would be due while another runs, and the sockets would wait for all of them.
package final class TurnQueue: @unchecked Sendable {
    // @unchecked: every mutable property is touched on the loop alone, which is checked.
    private let loop: any EventLoop
    private let pause: TimeAmount
    private var waiting: Deque<() -> Void> = []
    /// A piece runs, or the time of the next has been set.
    private var isUnderWay = false

    /// - Parameter pause: from the end of one piece, and of what it asked the loop for, to the next.
    package init(on loop: any EventLoop, pause: TimeAmount) {
        self.loop = loop
        self.pause = pause
    }

    /// Runs the work in a later turn. On the loop.
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
        // Behind the tasks that this turn has asked for, such as a commit: the pause begins when they have run.
        let loop = loop.assumeIsolated()
        loop.execute { loop.scheduleTask(in: self.pause) { self.runNext() } }
    }

    private func runNext() {
        if let work = waiting.popFirst() { work() }
        schedule()
    }
}
