import Dispatch
import Synchronization

/// The group commit: jobs that arrive while another runs are written together, with one write and one barrier.
final class Committer: Sendable {
    private struct State {
        var queue: [CommitJob] = []
        var isRunning = false
        var outcomes: [CommitOutcome] = []
        var submitted: UInt64 = 0
        var finished: UInt64 = 0
        var waiting: [(sequence: UInt64, body: @Sendable () -> Void)] = []
        /// Error of an internal commit. It may concern a caller, so the next commit with a completion reports it.
        var untold: StoreError?
        var failures = 0
        var lastFailure: StoreError?
        var checkpointFailures = 0
    }

    private let state = Mutex(State())
    private let hasOutcomes = Atomic(false)
    private let journal: Journal
    private let writer: FileWriter
    private let thread: CommitThread
    private let queue = DispatchQueue(label: "mayfly.store.commit")

    init(journal: Journal, writer: FileWriter, thread: CommitThread) {
        (self.journal, self.writer, self.thread) = (journal, writer, thread)
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

    /// Runs `body` when every earlier job is durable or has failed.
    func whenFinished(_ body: @escaping @Sendable () -> Void) {
        let isIdle = state.withLock { state in
            let isIdle = state.finished == state.submitted
            if !isIdle { state.waiting.append((state.submitted, body)) }
            return isIdle
        }
        if isIdle { body() }
    }

    /// Runs work queued for the caller's thread now. The store's own thread is already working.
    func hurry() { if case .later = thread { run() } }

    /// Returns when every earlier job is durable or has failed.
    func drain() {
        switch thread {
        case .own: queue.sync {}
        case .caller: break
        case .later: run()
        }
    }

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
                // Jobs after a checkpoint must not be in the journal when the checkpoint overwrites it.
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

    /// - Parameter group: only the last job may have a checkpoint or erasures.
    private func perform(_ group: [CommitJob]) {
        let (counts, cause) = state.withLock { (($0.failures, $0.checkpointFailures), $0.lastFailure) }
        let stale = cause ?? .io(path: journal.path, operation: "commit", code: 5)
        var sound = group.filter { $0.failures == counts.0 }
        if let last = sound.last, last.isDirect, last.checkpointFailures != counts.1 { sound.removeLast() }
        var failure: StoreError?
        // The checkpoint of a direct job writes its data into the files.
        let batches = sound.filter { !$0.isDirect && !$0.batch.isEmpty }.map(\.batch)
        if !batches.isEmpty, let key = sound.first?.key {
            do throws(StoreError) { try journal.append(batches, key) } catch { failure = error }
        }
        guard failure == nil, let last = group.last, sound.last?.sequence == last.sequence else {
            // All jobs after an unsound one are unsound.
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

    private func outcome(_ job: CommitJob, _ failure: StoreError?, _ checkpoint: CommitOutcome.Checkpoint? = nil)
        -> CommitOutcome
    {
        var erasureFailures: [Int: StoreError] = [:]
        if let failure { for task in job.erasures { erasureFailures[task.file] = failure } }
        var lost = CommitOutcome.Checkpoint.none
        if let failure, job.checkpoint != nil { lost = .failed(failure, directories: []) }
        return CommitOutcome(
            sequence: job.sequence, failure: failure, checkpoint: checkpoint ?? lost, erasureFailures: erasureFailures)
    }

    /// Performs the checkpoint and erasures of a job. Its batch is in the journal, or the checkpoint writes it.
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
                if job.isDirect { return outcome(job, error, checkpoint) }
                if job.hasJournaledErasures, isCurrent {
                    // Erase the older versions first: they may already be in the files.
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

    private func write(_ tasks: [FileTask]) throws(StoreError) {
        let failures = writer.perform(tasks).sorted { $0.key < $1.key }.map(\.value)
        if let worst = failures.first(where: { $0.kind != .full }) ?? failures.first { throw worst }
    }

    /// The data of unwritten files that the journal must keep.
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
                if let failure = outcome.failure { (state.failures, state.lastFailure) = (state.failures + 1, failure) }
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

package enum CommitThread: Sendable {
    /// A thread of the store, so that the event loop does not wait for the disk.
    case own
    /// The caller's thread, before `commit` returns: for tests and short-lived commands.
    case caller
    /// The caller's thread, later: the simulator receives the work and runs it once at its simulated time.
    case later(@Sendable (_ work: @escaping @Sendable () -> Void) -> Void)
}

/// The data that one commit makes durable, and the spans that it destroys.
struct CommitJob: Sendable {
    let sequence: UInt64
    /// Failures known when the job was made. A job made before a failure builds on missing bytes and fails as well.
    let failures: Int
    let checkpointFailures: Int
    let key: JournalKey
    let batch: JournalBatch
    /// Everything that record files lack, including this job's data, except what earlier checkpoints write.
    let checkpoint: [FileTask]?
    /// The checkpoint makes the batch durable, without the journal.
    let isDirect: Bool
    let erasures: [ErasureTask]
    /// The batch has new data. Without it, the failure was already reported.
    let hasNews: Bool
    /// A caller asked for the erasures: the next commit with a completion reports their failure.
    let tellsErasures: Bool
    /// The journal may still have some of the erased spans.
    let hasJournaledErasures: Bool
    /// Files that may be partly only in the kernel's cache. They are made durable before the erasures.
    let synchronizes: [FilePlace]
    /// `nil` for an internal commit: the next commit with a completion reports its failure.
    let completion: (@Sendable (Result<Void, StoreError>) -> Void)?

    var isPlain: Bool { checkpoint == nil && erasures.isEmpty && synchronizes.isEmpty }
}

struct CommitOutcome: Sendable {
    enum Checkpoint: Sendable {
        case none
        case done
        /// The checkpoint failed, but the journal moved: it keeps what it needs, without the spans to erase.
        case moved(StoreError)
        case failed(StoreError, directories: [FilePlace])
    }

    let sequence: UInt64
    /// If not `nil`, possibly none of the commit is on the disk.
    let failure: StoreError?
    let checkpoint: Checkpoint
    /// By file number: files with a span that could not be overwritten.
    let erasureFailures: [Int: StoreError]
}
