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

    /// Sends an effect now, or after pending commits.
    func sendWhenDurable(_ effect: EffectQueue.Effect, for client: ClientID) {
        guard let inbox = inboxes[client], inbox.effects.enqueue(effect, completed: ledger.completed) else {
            return release(effect, isDurable: true)
        }
        if inbox.effects.weight > Self.waitingWeight { shell.output.pause(inbox) }
    }

    func sendWhenDurable(_ effect: EffectQueue.Effect, on link: LinkID) {
        if let client = links[link]?.client { sendWhenDurable(effect, for: client) }
    }

    /// Whether no effect of an inbox would wait. Not to be asked between a failed commit and its inboxes' reload.
    func isDurable(_ client: ClientID?) -> Bool {
        guard let client, let inbox = inboxes[client] else { return true }
        return inbox.effects.blockedUntil <= ledger.completed
    }

    private func release(_ effect: EffectQueue.Effect, isDurable: Bool) {
        switch effect {
        case .run(let body): body(isDurable)
        case _ where !isDurable: break
        case .transmit(let link, let frame): shell.output.transmit(frame, on: link)
        case .transmitMessages(let link, let client, let messages):
            guard let archive = inboxes[client]?.archive else { return }
            let now = now
            shell.output.transmit(
                messages.compactMap { one in archive.content(one.id, now: now).map { AgedContent($0, age: one.age) } },
                on: link)
        case .close(let link): shell.output.close(link)
        case .notify(let event): shell.events.notify(event)
        case .notifyMessages(let happened): for event in happened.events { shell.events.notify(event) }
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

/// The outgoing effects of one inbox, which wait in order until all earlier changes are durable.
final class EffectQueue {
    enum Effect {
        case transmit(LinkID, Frame)
        case transmitMessages(LinkID, ClientID, [NodeAction.AgedMessage])
        case close(LinkID)
        case notify(Event)
        case notifyMessages(MessageEvents)
        case run((_ isDurable: Bool) -> Void)

        /// The effect's share of the queue bound: each message counts as one.
        fileprivate var weight: Int {
            switch self {
            case .notifyMessages(let events): events.messages.count
            case .transmitMessages(_, _, let messages): messages.count
            case .transmit, .close, .notify, .run: 1
            }
        }
    }

    private struct Waiting {
        var sequence: UInt64
        var effect: Effect
    }

    let client: ClientID
    private var waiting: Deque<Waiting> = []
    private(set) var weight = 0
    /// The commit of the inbox's newest change; 0 for none.
    fileprivate var blockedUntil: UInt64 = 0
    /// The newest commit with a change of the inbox that blocks no effect; 0 for none.
    fileprivate var listedIn: UInt64 = 0

    init(client: ClientID) { self.client = client }

    /// - Parameter completed: the newest commit that has ended.
    /// - Returns: whether the effect was queued and waits.
    func enqueue(_ effect: Effect, completed: UInt64) -> Bool {
        guard blockedUntil > completed || !waiting.isEmpty else { return false }
        waiting.append(Waiting(sequence: max(blockedUntil, completed), effect: effect))
        weight += effect.weight
        return true
    }

    fileprivate func release(upTo completed: UInt64) -> [Effect] {
        let count = waiting.firstIndex { $0.sequence > completed } ?? waiting.count
        let effects = waiting.prefix(count).map { $0.effect }
        waiting.removeFirst(count)
        weight -= effects.reduce(0) { $0 + $1.weight }
        return effects
    }

    func drop() -> [Effect] {
        blockedUntil = 0
        listedIn = 0
        weight = 0
        defer { waiting = [] }
        return waiting.map(\.effect)
    }
}

/// The node's commits in order, and the inboxes changed by each. A failed commit fails all its inboxes, even those that
/// have changed again since, perhaps in another file.
struct CommitLedger {
    private struct Change {
        var sequence: UInt64
        var queue: EffectQueue
    }

    /// Changes in commits that are not durable yet, in order.
    private var changes: Deque<Change> = []
    /// The commit of the next change.
    private(set) var nextCommit: UInt64 = 1
    /// The newest commit that has ended. A failed one has unblocked its inboxes.
    private(set) var completed: UInt64 = 0

    mutating func changed(_ queue: EffectQueue) {
        guard queue.blockedUntil != nextCommit else { return }
        queue.blockedUntil = nextCommit
        changes.append(Change(sequence: nextCommit, queue: queue))
    }

    /// For file chunks: no effect waits for this change, but if its commit fails the inbox is reloaded.
    mutating func changedQuietly(_ queue: EffectQueue) {
        guard queue.listedIn != nextCommit else { return }
        queue.listedIn = nextCommit
        changes.append(Change(sequence: nextCommit, queue: queue))
    }

    /// Starts a commit; later changes belong to the next.
    mutating func beginCommit() -> UInt64 {
        defer { nextCommit += 1 }
        return nextCommit
    }

    /// A commit is durable.
    /// - Returns: the released effects, by inbox, in order.
    mutating func complete(_ sequence: UInt64) -> [(queue: EffectQueue, effects: [EffectQueue.Effect])] {
        end(sequence).compactMap { queue in
            let effects = queue.release(upTo: completed)
            return effects.isEmpty ? nil : (queue, effects)
        }
    }

    /// A commit has failed.
    /// - Returns: its inboxes, and their effects, which must not be sent.
    mutating func fail(_ sequence: UInt64) -> [(queue: EffectQueue, effects: [EffectQueue.Effect])] {
        end(sequence).map { ($0, drop($0)) }
    }

    /// The inboxes of all commits up to this one, without duplicates, sorted by client.
    private mutating func end(_ sequence: UInt64) -> [EffectQueue] {
        completed = max(completed, sequence)
        var ended: [EffectQueue] = []
        var seen: Set<ObjectIdentifier> = []
        while let first = changes.first, first.sequence <= completed {
            changes.removeFirst()
            if seen.insert(ObjectIdentifier(first.queue)).inserted { ended.append(first.queue) }
        }
        return ended.count > 1 ? ended.sorted { $0.client < $1.client } : ended
    }

    mutating func drop(_ queue: EffectQueue) -> [EffectQueue.Effect] {
        changes.removeAll { $0.queue === queue }
        return queue.drop()
    }
}
