import Dispatch
import Foundation
import Synchronization
import Testing

/// Runs the tests of a suite on their own threads. A script blocks its thread while it waits for a node, and Swift's
/// task pool has one thread per processor, so it would leave the processors idle most of the time.
struct ScriptTrait: TestTrait, SuiteTrait, TestScoping {
    var isRecursive: Bool { true }

    func provideScope(for test: Test, testCase: Test.Case?, performing body: @Sendable () async throws -> Void)
        async throws
    {
        await ScriptThreads.shared.admit()
        defer { ScriptThreads.shared.leave() }
        let start = ContinuousClock.now
        try await withTaskExecutorPreference(ScriptThreads.shared) { try await body() }
        // Swift Testing's own times begin when all tests are started, and include the wait for a thread.
        let seconds = (ContinuousClock.now - start) / .seconds(1)
        if seconds >= 1 { print(String(format: "script: %5.1f s", seconds), test.displayName ?? test.name) }
    }
}

extension Trait where Self == ScriptTrait { static var script: Self { ScriptTrait() } }

/// Threads for blocking tests. No more tests begin than there are threads, so none delays another's next step.
private final class ScriptThreads: TaskExecutor {
    static let shared = ScriptThreads(
        count: ProcessInfo.processInfo.environment["MAYFLY_SCRIPTS"].flatMap { Int($0) } ?? 4)

    private struct State {
        var jobs: [UnownedJob] = []
        var free: Int
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    private let state: Mutex<State>
    private let work = DispatchSemaphore(value: 0)

    private init(count: Int) {
        state = Mutex(State(free: count))
        for _ in 0..<count {
            Thread.detachNewThread { [self] in
                while true {
                    work.wait()
                    let job = state.withLock { $0.jobs.removeFirst() }
                    job.runSynchronously(on: asUnownedTaskExecutor())
                }
            }
        }
    }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        state.withLock { $0.jobs.append(job) }
        work.signal()
    }

    /// Waits until fewer tests run than there are threads.
    func admit() async {
        await withCheckedContinuation { continuation in
            let isFree = state.withLock { state in
                guard state.free > 0 else {
                    state.waiting.append(continuation)
                    return false
                }
                state.free -= 1
                return true
            }
            if isFree { continuation.resume() }
        }
    }

    func leave() {
        let next = state.withLock { state in
            guard state.waiting.isEmpty else { return state.waiting.removeFirst() as CheckedContinuation<Void, Never>? }
            state.free += 1
            return nil
        }
        next?.resume()
    }
}
