import Dispatch
import Synchronization

/// Where commits run.
package enum CommitThread: Sendable {
    /// A thread of the store's own, so that the event loop does not wait for the disk.
    case own
    /// The caller's, before `commit` returns: for tests and short-lived commands.
    case caller
    /// The caller's, but later: whoever is handed the work runs it once, when its time has come (the simulator).
    case later(@Sendable (_ work: @escaping @Sendable () -> Void) -> Void)
}

/// What a commit makes durable and destroys.
struct CommitJob: Sendable {
    let sequence: UInt64
    /// How many failed commits, and failed checkpoints, the store knew of: a job that was made before a failure rests on
    /// bytes that are not there, and fails as well.
    let failures: Int
    let checkpointFailures: Int
    let key: JournalKey
    let batch: JournalBatch
    /// Everything that record files lack and no checkpoint before it writes, what this job has included.
    let checkpoint: [FileTask]?
    /// The batch is not written to the journal: the checkpoint makes it durable.
    let isDirect: Bool
    let erasures: [ErasureTask]
    /// There is something new in the batch: without it, a failure was told before.
    let hasNews: Bool
    /// Somebody has asked for them: whoever commits next is told of a failure.
    let tellsErasures: Bool
    /// Spans that the journal may still have.
    let hasJournaledErasures: Bool
    /// Files of which something may be in the kernel's cache only: durable before the erasures.
    let synchronizes: [FilePlace]
    /// `nil` when the store commits for itself: a failure is told to the next one that has a completion.
    let completion: (@Sendable (Result<Void, StoreError>) -> Void)?

    /// Nothing but a batch for the journal.
    var isPlain: Bool { checkpoint == nil && erasures.isEmpty && synchronizes.isEmpty }
}

/// What has become of a commit.
struct CommitOutcome: Sendable {
    enum Checkpoint: Sendable {
        case none
        case done
        /// The journal has all that it must keep, and no more of what was to be erased.
        case moved(StoreError)
        case failed(StoreError, directories: [FilePlace])
    }

    let sequence: UInt64
    /// Nothing of it may be on the disk.
    let failure: StoreError?
    let checkpoint: Checkpoint
    /// Of files in which something could not be overwritten.
    let erasureFailures: [Int: StoreError]
}

/// The group commit: jobs that arrive while one runs are written together, with one write and one barrier.
final class Committer: Sendable {
    private struct State {
        var queue: [CommitJob] = []
        var isRunning = false
        var outcomes: [CommitOutcome] = []
        /// The last job that was submitted, and the last that has ended.
        var submitted: UInt64 = 0
        var finished: UInt64 = 0
        /// What waits for the end of a job.
        var waiting: [(sequence: UInt64, body: @Sendable () -> Void)] = []
        /// The failure of a job that had nobody to tell it to, and may have been about what the next one answers for.
        var untold: StoreError?
        var failures = 0
        var checkpointFailures = 0
    }

    private let state = Mutex(State())
    private let hasOutcomes = Atomic(false)
    private let journal: Journal
    private let writer: FileWriter
    private let thread: CommitThread
    private let queue = DispatchQueue(label: "mayfly.store.commit")

    init(journal: Journal, writer: FileWriter, thread: CommitThread) {
        self.journal = journal
        self.writer = writer
        self.thread = thread
    }

    func submit(_ job: CommitJob) {
        let mustStart = state.withLock { state in
            state.queue.append(job)
            state.submitted = job.sequence
            defer { state.isRunning = true }
            return !state.isRunning
        }
        guard mustStart else { return }
        switch thread {
        case .own: queue.async { self.run() }
        case .caller: run()
        case .later(let plan): plan { self.run() }
        }
    }

    /// Runs `body` when everything submitted before is on the disk or has failed.
    func whenFinished(_ body: @escaping @Sendable () -> Void) {
        let isIdle = state.withLock { state in
            let isIdle = state.finished == state.submitted
            if !isIdle { state.waiting.append((state.submitted, body)) }
            return isIdle
        }
        if isIdle { body() }
    }

    /// Does at once what waits for a thread that is the caller's; a thread of our own is at it already.
    func hurry() { if case .later = thread { run() } }

    /// Returns when everything submitted before is on the disk or has failed.
    func drain() {
        switch thread {
        case .own: queue.sync {}
        case .caller: break
        case .later: run()
        }
    }

    /// What has finished since the last call.
    func takeOutcomes() -> [CommitOutcome] {
        guard hasOutcomes.load(ordering: .acquiring) else { return [] }
        return state.withLock { state in
            hasOutcomes.store(false, ordering: .relaxed)
            defer { state.outcomes = [] }
            return state.outcomes
        }
    }

    private func run() {
        while true {
            let batch = state.withLock { state in
                // Nothing after a checkpoint may be in the journal when that is overwritten.
                let end = state.queue.firstIndex { !$0.isPlain }
                let batch = Array(state.queue[...(end ?? state.queue.count - 1)])
                state.queue.removeFirst(batch.count)
                if batch.isEmpty { state.isRunning = false }
                return batch
            }
            if batch.isEmpty { return }
            perform(batch)
        }
    }

    // MARK: - One group

    /// - Parameter group: of these only the last has a checkpoint or erasures.
    private func perform(_ group: [CommitJob]) {
        let counts = state.withLock { ($0.failures, $0.checkpointFailures) }
        let stale = StoreError.io(path: journal.path, operation: "commit", code: 5)
        var sound = group.filter { $0.failures == counts.0 }
        if let last = sound.last, last.isDirect, last.checkpointFailures != counts.1 { sound.removeLast() }
        var failure: StoreError?
        // What a direct job writes into the files itself.
        let batches = sound.filter { !$0.isDirect && !$0.batch.isEmpty }.map(\.batch)
        if !batches.isEmpty, let key = sound.first?.key {
            do throws(StoreError) { try journal.append(batches, key) } catch { failure = error }
        }
        guard failure == nil, let last = group.last, sound.last?.sequence == last.sequence else {
            // Whatever comes after a job that is not sound is not sound.
            return finish(
                group.map { job in
                    let isSound = failure == nil && sound.contains { $0.sequence == job.sequence }
                    return (job, outcome(job, isSound ? nil : failure ?? stale))
                })
        }
        finish(group.dropLast().map { ($0, outcome($0, nil)) })
        if last.isPlain { return finish([(last, outcome(last, nil))]) }
        finish([(last, complete(last, isCurrent: last.checkpointFailures == counts.1))])
    }

    private func outcome(_ job: CommitJob, _ failure: StoreError?) -> CommitOutcome {
        var erasureFailures: [Int: StoreError] = [:]
        if let failure { for task in job.erasures { erasureFailures[task.file] = failure } }
        let isCheckpointLost = failure != nil && job.checkpoint != nil
        return CommitOutcome(
            sequence: job.sequence, failure: failure,
            checkpoint: failure.flatMap { isCheckpointLost ? .failed($0, directories: []) : nil } ?? .none,
            erasureFailures: erasureFailures)
    }

    /// Checkpoint and erasures of a job whose batch is in the journal, or is to be written by the checkpoint.
    private func complete(_ job: CommitJob, isCurrent: Bool) -> CommitOutcome {
        var checkpoint = CommitOutcome.Checkpoint.none
        var failures: [Int: StoreError] = [:]
        var early: [Int: StoreError]?
        if let tasks = job.checkpoint {
            do throws(StoreError) {
                guard isCurrent else { throw .io(path: journal.path, operation: "checkpoint", code: 5) }
                try write(tasks)
                try journal.reset(job.key)
                checkpoint = .done
            } catch {
                checkpoint = .failed(error, directories: isCurrent ? tasks.map(\.place) : [])
                if job.isDirect { return fail(job, error, checkpoint) }
                if job.hasJournaledErasures, isCurrent {
                    // The older versions first, which may be in the files already.
                    early = writer.perform(job.erasures, isLast: false)
                    do throws(StoreError) {
                        guard early?.isEmpty ?? true else { throw error }
                        try journal.move(to: Self.remaining(tasks, without: job.erasures), job.key)
                        checkpoint = .moved(error)
                    } catch { for task in job.erasures { failures[task.file] = error } }
                } else if job.hasJournaledErasures {
                    for task in job.erasures { failures[task.file] = error }
                }
            }
        }
        for place in job.synchronizes {
            do throws(StoreError) { try writer.synchronize(place) } catch {
                for task in job.erasures { failures[task.file] = error }
            }
        }
        if failures.isEmpty {
            failures = early ?? writer.perform(job.erasures, isLast: false)
            if failures.isEmpty {
                failures = writer.perform(job.erasures, isLast: true)
            } else {
                for task in job.erasures where !task.lastSpans.isEmpty {
                    failures[task.file] = failures[task.file] ?? failures.first?.value
                }
            }
        }
        return CommitOutcome(sequence: job.sequence, failure: nil, checkpoint: checkpoint, erasureFailures: failures)
    }

    private func fail(_ job: CommitJob, _ error: StoreError, _ checkpoint: CommitOutcome.Checkpoint) -> CommitOutcome {
        var failures: [Int: StoreError] = [:]
        for task in job.erasures { failures[task.file] = error }
        return CommitOutcome(sequence: job.sequence, failure: error, checkpoint: checkpoint, erasureFailures: failures)
    }

    private func write(_ tasks: [FileTask]) throws(StoreError) {
        let failures = writer.perform(tasks).sorted { $0.key < $1.key }.map(\.value)
        if let worst = failures.first(where: { $0.kind != .full }) ?? failures.first { throw worst }
    }

    /// What the journal has to keep of files that could not be written.
    private static func remaining(_ tasks: [FileTask], without erasures: [ErasureTask]) -> [JournalBatch] {
        let spans = Dictionary(erasures.map { ($0.place, $0.spans + $0.lastSpans) }, uniquingKeysWith: +)
        return tasks.map { $0.batch(without: spans[$0.place] ?? []) }
    }

    private func finish(_ results: [(job: CommitJob, outcome: CommitOutcome)]) {
        guard let last = results.last?.job.sequence else { return }
        let (answers, bodies) = state.withLock { state in
            state.finished = last
            let count = state.waiting.prefix { $0.sequence <= last }.count
            defer { state.waiting.removeFirst(count) }
            let bodies = state.waiting.prefix(count).map(\.body)
            let answers = results.map { job, outcome -> StoreError? in
                if outcome.failure != nil { state.failures += 1 }
                if case .failed = outcome.checkpoint { state.checkpointFailures += 1 }
                if case .moved = outcome.checkpoint { state.checkpointFailures += 1 }
                state.outcomes.append(outcome)
                let erasure = outcome.erasureFailures.min { $0.key < $1.key }?.value
                let failure = job.hasNews || job.completion != nil ? outcome.failure : nil
                let own = failure ?? (job.tellsErasures ? erasure : nil)
                let error = state.untold ?? own
                state.untold = job.completion == nil ? error : nil
                return error
            }
            return (answers, bodies)
        }
        hasOutcomes.store(true, ordering: .releasing)
        for ((job, _), error) in zip(results, answers) { job.completion?(error.map { .failure($0) } ?? .success(())) }
        for body in bodies { body() }
    }
}
