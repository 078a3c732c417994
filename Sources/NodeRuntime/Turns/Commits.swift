import DequeModule
import Logging
import Messaging
import NIOCore
import Store

/// Group commits: their schedule and their waiters. Frames, link closes, events and answers are sent only after the
/// inbox's earlier changes are durable. On the node's loop alone.
final class Commits: Part {
    /// Beyond this ``EffectQueue/weight`` the node stops reading the inbox's links.
    private static let waitingWeight = 1_024
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

    // MARK: Changes

    /// The inbox has changed: its later effects wait for the next commit, which is scheduled.
    func changed(_ inbox: Inbox) {
        mark(inbox)
        schedule()
    }

    /// ``changed(_:)`` without scheduling a commit.
    func mark(_ inbox: Inbox) { ledger.changed(inbox.effects) }

    /// A file chunk was stored. Later effects of the inbox do not wait for it, unless 2 MiB of chunks are not durable.
    func storedChunk(byteCount: Int, _ inbox: Inbox) {
        chunkByteCount += byteCount
        if chunkByteCount + chunkByteCountUnderWay >= 2 * Self.chunksByteCount {
            mark(inbox)
            hasEffectsBehindChunks = true
        } else {
            ledger.changedQuietly(inbox.effects)
        }
        if chunkByteCount >= Self.chunksByteCount { schedule() } else { scheduleLate() }
    }

    // MARK: Effects

    /// Sends an effect now, or after pending commits.
    func sendWhenDurable(_ effect: EffectQueue.Effect, for client: ClientID) {
        guard let inbox = inboxes[client], ledger.enqueue(effect, inbox.effects) else {
            return release(effect, isDurable: true)
        }
        if inbox.effects.weight > Self.waitingWeight { shell.output.pause(inbox) }
    }

    func sendWhenDurable(_ action: NodeAction, on link: LinkID) {
        if let client = links[link]?.client { sendWhenDurable(.action(action), for: client) }
    }

    private func release(_ effect: EffectQueue.Effect, isDurable: Bool) {
        switch effect {
        case .run(let body): body(isDurable)
        case .action(let action):
            guard isDurable else { return }
            switch action {
            case .transmit(let link, let frame): shell.output.transmit(frame, on: link)
            case .transmitMessages(let link, let client, let messages):
                guard let archive = inboxes[client]?.archive else { return }
                let now = now
                shell.output.transmit(
                    messages.compactMap { one in archive.content(one.id, now: now).map { AgedContent($0, age: one.age) }
                    }, on: link)
            case .close(let link): shell.output.close(link)
            case .notify(let event): shell.events.notify(event)
            case .notifyMessages(let happened): for event in happened.events { shell.events.notify(event) }
            default: preconditionFailure("\(action) does not leave the node")
            }
        }
    }

    /// Removes an inbox's waiting effects from the commits.
    /// - Parameter isDurable: whether to send them now.
    func drop(_ inbox: Inbox, isDurable: Bool) {
        for effect in ledger.drop(inbox.effects) { release(effect, isDurable: isDurable) }
    }

    /// Succeeds when all changes of this inbox so far are durable.
    func whenDurable(_ client: ClientID) -> EventLoopFuture<Void> {
        let promise = loop.makePromise(of: Void.self)
        sendWhenDurable(
            .run { [storage] isDurable in
                if isDurable {
                    promise.succeed(())
                } else {
                    promise.fail(storage.refusal.map(NodeError.store) ?? NodeError.stopping)
                }
            }, for: client)
        return promise.futureResult
    }

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
        case .success:
            for (queue, effects) in ledger.complete(sequence) {
                for effect in effects { release(effect, isDurable: true) }
                if let inbox = inboxes[queue.client] { shell.output.resume(inbox) }
            }
        case .failure(let error):
            log.error("a change could not be made durable", metadata: ["error": "\(error)"])
            storage.failed(error, at: now)
            for (queue, effects) in ledger.fail(sequence) {
                for effect in effects { release(effect, isDurable: false) }
                if let inbox = inboxes[queue.client] { shell.loading.reload(inbox) }
            }
        }
        shell.output.flush()
        core.schedule()
        answerWaiters(upTo: sequence, result)
    }

    private func answerWaiters(upTo sequence: UInt64, _ result: Result<Void, StoreError>) {
        let done = waiters.filter { $0.sequence <= sequence }
        waiters.removeAll { $0.sequence <= sequence }
        for waiter in done { waiter.promise.completeWith(result.mapError { NodeError.store($0) }) }
    }
}
