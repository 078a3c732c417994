import DequeModule
import Messaging
import NIOCore
import Store

/// Group commits: their schedule, the effects that wait for them, and their waiters. On the node's loop alone.
final class CommitSchedule: Part {
    /// A finished commit, and the effects that waited for it, by inbox, in order.
    struct Ended {
        /// `nil` when the commit is durable.
        let failure: StoreError?
        let effects: [(queue: EffectQueue, effects: [EffectQueue.Effect])]
    }

    private static let latePause = TimeAmount.milliseconds(100)
    /// This many messages start a commit at once.
    private static let messagesCount = 128
    /// This many bytes of chunks start a commit at once.
    private static let chunksByteCount = 1 << 20

    private var ledger = CommitLedger()
    /// Bytes of chunks not in a commit yet.
    private var chunkByteCount = 0
    /// Bytes of chunks in each running commit.
    private var chunksUnderWay: Deque<(sequence: UInt64, byteCount: Int)> = []
    private var chunkByteCountUnderWay = 0
    /// Effects wait for chunks not in a commit yet: the next commit starts when a running one ends.
    private var hasEffectsBehindChunks = false
    private var messageCount = 0
    private var isScheduled = false
    private var isLateDue = false
    private var isLateScheduled = false
    private(set) var figures = CommitFigures()
    private var waiters: [(sequence: UInt64, promise: EventLoopPromise<Void>)] = []

    // MARK: Pending effects

    /// The inbox has changed: its later effects wait for the commit.
    func changed(_ queue: EffectQueue) { ledger.changed(queue) }

    /// A file chunk was stored. Later effects of the inbox do not wait for it, unless 2 MiB of chunks are not durable.
    func storedChunk(byteCount: Int, _ queue: EffectQueue) {
        chunkByteCount += byteCount
        if chunkByteCount + chunkByteCountUnderWay >= 2 * Self.chunksByteCount {
            ledger.changed(queue)
            hasEffectsBehindChunks = true
        } else {
            ledger.changedQuietly(queue)
        }
        if chunkByteCount >= Self.chunksByteCount { schedule() } else { scheduleLate() }
    }

    /// - Returns: whether the effect was queued and waits.
    func enqueue(_ effect: EffectQueue.Effect, _ queue: EffectQueue) -> Bool { ledger.enqueue(effect, queue) }

    func drop(_ queue: EffectQueue) -> [EffectQueue.Effect] { ledger.drop(queue) }

    // MARK: Scheduling

    /// One commit for one pass of the loop; see ``turnEnded()``.
    func schedule() {
        guard !isScheduled, !store.isLocked else { return }
        isScheduled = true
        execute { if self.isScheduled { self.commit() } }
    }

    func stored(count: Int) { messageCount += count }

    /// After a turn: many messages start their commit at once, so that disk and peer work while the loop continues.
    func turnEnded() { if isScheduled, messageCount >= Self.messagesCount { commit() } }

    /// Schedules a commit without a waiter: together with the next one, at the latest after 100 ms.
    func scheduleLate() {
        isLateDue = true
        guard !isLateScheduled, !isScheduled, !store.isLocked else { return }
        isLateScheduled = true
        loop.assumeIsolated().scheduleTask(in: Self.latePause) { [weak self] in
            guard let self else { return }
            isLateScheduled = false
            if isLateDue { schedule() }
        }
    }

    /// Starts a scheduled commit now.
    func hurry() { if isScheduled || isLateDue { commit() } }

    /// Succeeds when all changes so far, in all inboxes, are durable; at once while the storage is locked.
    func whenCommitted() -> EventLoopFuture<Void> {
        guard !isStopped, !store.isLocked else { return loop.makeSucceededVoidFuture() }
        let promise = loop.makePromise(of: Void.self)
        waiters.append((ledger.nextCommit, promise))
        schedule()
        return promise.futureResult
    }

    func stop() {
        for waiter in waiters { waiter.promise.fail(NodeError.stopping) }
        waiters = []
    }

    /// - Parameter ended: called on another thread, with whether the commit is durable.
    func commit(_ ended: (@Sendable (Bool) -> Void)? = nil) {
        guard !isStopped, !store.isLocked else {
            isScheduled = false
            isLateDue = false
            messageCount = 0
            chunkByteCount = 0
            hasEffectsBehindChunks = false
            ended?(false)
            return answerWaiters(upTo: ledger.nextCommit, isStopped ? .failure(.locked) : .success(()))
        }
        // Changes made by `writeStatuses` are part of this commit, so they must not schedule another.
        isScheduled = true
        shell.writer.writeStatuses()
        isScheduled = false
        isLateDue = false
        messageCount = 0
        let sequence = ledger.beginCommit()
        if chunkByteCount > 0 {
            chunksUnderWay.append((sequence, chunkByteCount))
            chunkByteCountUnderWay += chunkByteCount
            chunkByteCount = 0
            hasEffectsBehindChunks = false
        }
        let bound = NIOLoopBound(shell, eventLoop: loop)
        let loop = loop
        let begin = loop.now
        store.commit { result in
            if case .success = result { ended?(true) } else { ended?(false) }
            loop.execute { bound.value.commits.committed(sequence, result, since: begin) }
        }
    }

    private func committed(_ sequence: UInt64, _ result: Result<Void, StoreError>, since begin: NIODeadline) {
        figures.ended(isDurable: (try? result.get()) != nil, after: (loop.now - begin).nanoseconds)
        while let first = chunksUnderWay.first, first.sequence <= sequence {
            chunkByteCountUnderWay -= first.byteCount
            chunksUnderWay.removeFirst()
        }
        if hasEffectsBehindChunks, chunkByteCount > 0 { schedule() }
        switch result {
        case .success: shell.held.committed(Ended(failure: nil, effects: ledger.complete(sequence)))
        case .failure(let error): shell.held.committed(Ended(failure: error, effects: ledger.fail(sequence)))
        }
        answerWaiters(upTo: sequence, result)
    }

    private func answerWaiters(upTo sequence: UInt64, _ result: Result<Void, StoreError>) {
        let done = waiters.filter { $0.sequence <= sequence }
        waiters.removeAll { $0.sequence <= sequence }
        for waiter in done { waiter.promise.completeWith(result.mapError { NodeError.store($0) }) }
    }
}
