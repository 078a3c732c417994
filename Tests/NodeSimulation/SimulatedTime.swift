import Dispatch
import HeapModule
import NIOCore
import Synchronization

/// The global schedule: tasks of all machines and of the world, by time and then by age.
final class SimulatedTime: @unchecked Sendable {
    private struct Planned: Comparable {
        let at: Int64
        let order: UInt64
        let id: UInt64
        static func < (one: Planned, other: Planned) -> Bool { (one.at, one.order) < (other.at, other.order) }
        static func == (one: Planned, other: Planned) -> Bool { one.order == other.order }
    }

    /// Nanoseconds since the world began.
    private(set) var now: Int64 = 1_000_000_000
    private var heap = Heap<Planned>()
    private var tasks: [UInt64: (loop: SimulatedEventLoop?, body: () -> Void)] = [:]
    private var next: UInt64 = 1
    fileprivate(set) unowned(unsafe) var current: SimulatedEventLoop?
    private(set) var count = 0

    var milliseconds: Int64 { now / 1_000_000 }

    /// Returns a number for cancelling the task.
    @discardableResult func plan(at time: Int64, on loop: SimulatedEventLoop? = nil, _ body: @escaping () -> Void)
        -> UInt64
    {
        defer { next += 1 }
        tasks[next] = (loop, body)
        heap.insert(Planned(at: max(time, now), order: next, id: next))
        return next
    }

    @discardableResult func plan(
        inMilliseconds delay: Int64, on loop: SimulatedEventLoop? = nil, _ body: @escaping () -> Void
    ) -> UInt64 { plan(at: now + delay * 1_000_000, on: loop, body) }

    func cancel(_ id: UInt64) { tasks[id] = nil }

    func forget(_ loop: SimulatedEventLoop) {
        for (id, task) in tasks where task.loop === loop {
            Graveyard.bury(task.body)
            tasks[id] = nil
        }
    }

    func forgetEverything() {
        for task in tasks.values { Graveyard.bury(task.body) }
        tasks = [:]
        heap = Heap()
    }

    func run(until end: Int64, while goesOn: () -> Bool = { true }) {
        while let first = heap.min, first.at <= end, goesOn() {
            heap.removeMin()
            guard let task = tasks.removeValue(forKey: first.id) else { continue }
            now = max(now, first.at)
            count += 1
            if let loop = task.loop { loop.turn(task.body) } else { task.body() }
        }
        now = max(now, end)
    }
}

/// A process that dies leaves promises unfulfilled. Debug builds of NIO trap when such a promise is freed, so its
/// possible holders are kept forever there.
enum Graveyard {
    #if DEBUG
        nonisolated(unsafe) private static var buried: [Any] = []
        private static let mutex = Mutex(())

        static func bury(_ what: Any) {
            nonisolated(unsafe) let what = what
            mutex.withLock { _ in buried.append(what) }
        }
    #else
        static func bury(_ what: Any) {}
    #endif
}

/// The event loop of one process. ``SimulatedTime`` runs all loops in one thread.
final class SimulatedEventLoop: EventLoop, NIOSerialEventLoopExecutor, @unchecked Sendable {
    let time: SimulatedTime
    /// The process is gone, and none of its tasks run.
    private(set) var isDead = false

    init(_ time: SimulatedTime) { self.time = time }

    func die() {
        isDead = true
        time.forget(self)
    }

    /// Runs `body` as this process.
    func turn<Result>(_ body: () -> Result) -> Result {
        let before = time.current
        time.current = self
        defer { time.current = before }
        return body()
    }

    var inEventLoop: Bool { time.current === self }
    var now: NIODeadline { .uptimeNanoseconds(UInt64(time.now)) }

    func execute(_ task: @escaping @Sendable () -> Void) { plan(at: time.now, task) }

    private func plan(at moment: Int64, _ body: @escaping () -> Void) {
        if !isDead { time.plan(at: moment, on: self, body) }
    }

    func submit<T>(_ task: @escaping @Sendable () throws -> T) -> EventLoopFuture<T> {
        scheduleTask(deadline: now, task).futureResult
    }

    @discardableResult func scheduleTask<T>(deadline: NIODeadline, _ task: @escaping @Sendable () throws -> T)
        -> Scheduled<T>
    {
        let promise = makePromise(of: T.self)
        guard !isDead else {
            promise.fail(EventLoopError.cancelled)
            return Scheduled(promise: promise, cancellationTask: {})
        }
        let id = time.plan(at: Int64(clamping: deadline.uptimeNanoseconds), on: self) {
            do { promise.assumeIsolatedUnsafeUnchecked().succeed(try task()) } catch { promise.fail(error) }
        }
        return Scheduled(promise: promise, cancellationTask: { self.time.cancel(id) })
    }

    @discardableResult func scheduleTask<T>(in delay: TimeAmount, _ task: @escaping @Sendable () throws -> T)
        -> Scheduled<T>
    { scheduleTask(deadline: now + delay, task) }

    func shutdownGracefully(queue: DispatchQueue, _ callback: @escaping @Sendable ((any Error)?) -> Void) {
        die()
        queue.async { callback(nil) }
    }
}
