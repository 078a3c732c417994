import DequeModule
import Messaging
import NIOCore
import Store

/// The group commits of the node: when the next one leaves, what waits behind it, and who wants to know. On the node's loop
/// alone.
final class CommitSchedule {
    /// Calls into the node.
    struct Events {
        let isStopped: () -> Bool
        /// Called before a commit leaves. What it writes is part of that commit.
        let leaves: () -> Void
        let ended: (Ended) -> Void
    }

    /// A commit that has ended, and the effects that waited for it, by inbox, in order.
    struct Ended {
        /// `nil` when all of it is durable.
        let failure: StoreError?
        let effects: [(queue: EffectQueue, effects: [EffectQueue.Effect])]
    }

    /// The delay of a commit that nobody waits for.
    private static let latePause = TimeAmount.milliseconds(100)
    /// Messages that make a commit of their own.
    private static let messagesCount = 128
    /// Bytes of chunks that make a commit of their own.
    private static let chunksByteCount = 1 << 20

    private let store: Store
    private let loop: any EventLoop
    private let events: Events
    private var ledger = CommitLedger()
    /// Bytes of chunks that no commit has taken.
    private var chunkByteCount = 0
    /// Bytes of chunks of each commit that is under way.
    private var chunksUnderWay: Deque<(sequence: UInt64, byteCount: Int)> = []
    /// Their sum.
    private var chunkByteCountUnderWay = 0
    /// Effects wait for chunks that no commit has taken: the next one leaves when one that is under way has ended.
    private var hasEffectsBehindChunks = false
    /// Messages that no commit has taken.
    private var messageCount = 0
    private var isScheduled = false
    private var isLateDue = false
    private var isLateScheduled = false
    private(set) var figures = CommitFigures()
    /// Who waits until everything up to a commit is on the disk.
    private var waiters: [(sequence: UInt64, promise: EventLoopPromise<Void>)] = []

    init(_ store: Store, on loop: any EventLoop, events: Events) {
        self.store = store
        self.loop = loop
        self.events = events
    }

    // MARK: What waits

    /// The inbox has changed on the disk: what follows waits.
    func changed(_ queue: EffectQueue) { ledger.changed(queue) }

    /// A chunk of a file was stored. No effect tells of it, so later effects of the inbox leave before its commit, unless two
    /// MiB of chunks are not durable.
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

    /// - Returns: whether the effect has to wait; then it was taken.
    func enqueue(_ effect: EffectQueue.Effect, _ queue: EffectQueue) -> Bool { ledger.enqueue(effect, queue) }

    /// Takes back all that waits for an inbox; no commit is a matter of it any more.
    func drop(_ queue: EffectQueue) -> [EffectQueue.Effect] { ledger.drop(queue) }

    // MARK: When

    /// One commit for everything that happens in one pass of the loop; see ``turnEnded()``.
    func schedule() {
        guard !isScheduled, !store.isLocked else { return }
        isScheduled = true
        loop.assumeIsolated().execute { if self.isScheduled { self.commit() } }
    }

    /// Messages were stored.
    func stored(count: Int) { messageCount += count }

    /// A turn of the core is over. Many messages do not wait for the rest of what the loop has to do: the disk and the
    /// other side work on them meanwhile.
    func turnEnded() { if isScheduled, messageCount >= Self.messagesCount { commit() } }

    /// A commit for what nobody waits for: with the next one, at the latest in a tenth of a second.
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

    /// What was asked for in this turn leaves now.
    func hurry() { if isScheduled || isLateDue { commit() } }

    /// Succeeds when everything that has happened so far, in whatever inbox, is on the disk. While the storage is locked
    /// nothing can be, so nothing is waited for.
    func whenCommitted() -> EventLoopFuture<Void> {
        guard !events.isStopped(), !store.isLocked else { return loop.makeSucceededVoidFuture() }
        let promise = loop.makePromise(of: Void.self)
        waiters.append((ledger.nextCommit, promise))
        schedule()
        return promise.futureResult
    }

    /// Nobody waits any more: the node stops.
    func stop() {
        for waiter in waiters { waiter.promise.fail(NodeError.stopping) }
        waiters = []
    }

    /// - Parameter ended: called on another thread, with whether it is durable.
    func commit(_ ended: (@Sendable (Bool) -> Void)? = nil) {
        guard !events.isStopped(), !store.isLocked else {
            isScheduled = false
            isLateDue = false
            messageCount = 0
            chunkByteCount = 0
            hasEffectsBehindChunks = false
            ended?(false)
            return answerWaiters(upTo: ledger.nextCommit, events.isStopped() ? .failure(.locked) : .success(()))
        }
        // This commit takes along what is written now: nothing schedules another one for it.
        isScheduled = true
        events.leaves()
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
        let bound = NIOLoopBound(self, eventLoop: loop)
        let loop = loop
        let begin = loop.now
        store.commit { result in
            if case .success = result { ended?(true) } else { ended?(false) }
            loop.execute { bound.value.committed(sequence, result, since: begin) }
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
        case .success: events.ended(Ended(failure: nil, effects: ledger.complete(sequence)))
        case .failure(let error): events.ended(Ended(failure: error, effects: ledger.fail(sequence)))
        }
        answerWaiters(upTo: sequence, result)
    }

    private func answerWaiters(upTo sequence: UInt64, _ result: Result<Void, StoreError>) {
        let done = waiters.filter { $0.sequence <= sequence }
        waiters.removeAll { $0.sequence <= sequence }
        for waiter in done { waiter.promise.completeWith(result.mapError { NodeError.store($0) }) }
    }
}
