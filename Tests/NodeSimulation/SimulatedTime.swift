import Dispatch
import NIOCore
import Simulation
import Synchronization

/// The global schedule: tasks of all machines and of the world, by time and then by age.
final class SimulatedTime: @unchecked Sendable {
    /// Nanoseconds since the world began.
    private(set) var now: Int64 = 1_000_000_000
    private var queue = EventQueue<(loop: SimulatedEventLoop?, body: () -> Void)>()
    fileprivate(set) unowned(unsafe) var current: SimulatedEventLoop?
    private(set) var count = 0

    var milliseconds: Int64 { now / 1_000_000 }

    /// Returns a number for cancelling the task.
    @discardableResult func plan(at time: Int64, on loop: SimulatedEventLoop? = nil, _ body: @escaping () -> Void)
        -> UInt64
    { queue.push((loop, body), at: max(time, now)) }

    @discardableResult func plan(
        inMilliseconds delay: Int64, on loop: SimulatedEventLoop? = nil, _ body: @escaping () -> Void
    ) -> UInt64 { plan(at: now + delay * 1_000_000, on: loop, body) }

    func cancel(_ id: UInt64) { queue.cancel(id) }

    func forget(_ loop: SimulatedEventLoop) {
        for task in queue.cancel(where: { $0.loop === loop }) { Graveyard.bury(task.body) }
    }

    func forgetEverything() { for task in queue.cancel(where: { _ in true }) { Graveyard.bury(task.body) } }

    func run(until end: Int64, while goesOn: () -> Bool = { true }) {
        while goesOn(), let (at, task) = queue.pop(until: end) {
            now = max(now, at)
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
