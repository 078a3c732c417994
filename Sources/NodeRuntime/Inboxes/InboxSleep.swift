import Cryptography
import Logging
import Messaging
import NIOCore
import Store

/// Puts inboxes to sleep and wakes them (Delivery.md), at the core's request.
final class InboxSleep: Part {
    /// Wakes a sleeping inbox; marks an awake one as used by the user.
    /// - Throws: ``NodeError/locked``, ``NodeError/stopping``, ``NodeError/store(_:)``.
    func wake(_ client: ClientID, _ reason: WakeReason) throws(NodeError) {
        guard core.machine.isSleeping(client) else {
            if reason == .userInteraction { core.machine.touch(client, now: now) }
            return
        }
        if store.isLocked { throw .locked }
        guard let inbox = inboxes[client] else { throw .unknownConversation(client.description) }
        let (snapshot, key) = try sleepingState(inbox)
        inbox.key = key
        inbox.take(snapshot)
        let undelivered = undelivered(inbox, from: inbox.outboxFrom)
        defer { inbox.savedCounters = [] }
        core.turn { core.machine.wake(snapshot.record, key: key, undelivered: undelivered, reason, &$0) }
        guard !core.machine.isSleeping(client) else {
            inbox.key = nil
            throw .stopping
        }
        inboxes.noteWaking(inbox)
        inbox.archive.noteUnsavedMark()
        // Our waiting reactions are hidden records. During an upload the scan is skipped.
        if inbox.outboxFrom != nil, memory.uploading.isEmpty { inbox.archive.isHiddenKnown = false }
        restoreHidden(inbox)
    }

    /// Wakes an inbox for the core, which retries after a failure.
    func wakeIfPossible(_ client: ClientID, _ reason: WakeReason) {
        do throws(NodeError) { try wake(client, reason) } catch {
            log.debug("an inbox could not be woken", metadata: ["client": "\(client)", "error": "\(error)"])
        }
    }

    private func sleepingState(_ inbox: Inbox) throws(NodeError) -> (InboxSnapshot, IdentityKey) {
        let client = inbox.client
        do {
            let snapshot = try StoredCodec.decode(InboxSnapshot.self, try store.loadState(inbox.row) ?? [])
            guard snapshot.record.client == client else { throw NodeError.clientIDMismatch(client) }
            return (snapshot, try inbox.deriveKey(in: store))
        } catch let error as NodeError { throw error } catch let error as StoreError { throw .store(error) } catch {
            throw .store(.damaged(what: "the state of inbox \(client)"))
        }
    }

    /// Reads a conversation without waking it, for lists and display.
    func peek(_ client: ClientID) -> Conversation? {
        if let machine = core.machine.conversation(client) { return machine }
        guard core.machine.isSleeping(client), !store.isLocked, let inbox = inboxes[client],
            let (snapshot, key) = try? sleepingState(inbox)
        else { return nil }
        let undelivered = undelivered(inbox, from: snapshot.outboxFrom)
        return core.machine.preview(snapshot.record, key: key, undelivered: undelivered, now: now)
    }

    /// Our stored messages without an acknowledgement, oldest first. Without contents: those are read when sent.
    /// - Parameter place: a lower bound of their positions; `nil` if there are none.
    func undelivered(_ inbox: Inbox, from place: UInt64?) -> [Message] {
        guard let place else { return [] }
        var found: [Message] = []
        do throws(StoreError) {
            try inbox.archive.visitStored(from: place, now: now) { _, message, _ in
                guard message.sender == nil, message.content.type != .systemMessage, message.state.isWaiting else {
                    return true
                }
                var current = message
                current.content.payload = []
                current.content.fallback = ""
                current.content.body = .opaque
                found.append(current)
                return true
            }
        } catch {
            inbox.isOutboxKnown = false
            log.error("an outbox could not be read", metadata: ["client": "\(inbox.client)", "error": "\(error)"])
        }
        return found
    }

    func restoreOutbox(_ inbox: Inbox) {
        guard core.machine.conversation(inbox.client) != nil else { return }
        for message in undelivered(inbox, from: inbox.outboxFrom) {
            core.machine.restoreOutbox(message, client: inbox.client)
        }
        restoreHidden(inbox)
    }

    /// Restores reactions and chunks when an inbox first wakes or is reloaded.
    private func restoreHidden(_ inbox: Inbox) {
        guard !inbox.archive.isHiddenKnown else { return }
        inbox.archive.isHiddenKnown = true
        do throws(StoreError) {
            let undelivered = try inbox.archive.restoreHidden(from: inbox.outboxFrom ?? .max, now: now)
            for message in undelivered { core.machine.restoreOutbox(message, client: inbox.client) }
        } catch {
            inbox.isOutboxKnown = false
            log.error("reactions could not be read", metadata: ["client": "\(inbox.client)", "error": "\(error)"])
        }
    }

    /// Saves an inbox whose links the core has closed. Only row, summary, routes and unsaved contents stay in memory.
    func putToSleep(_ client: ClientID) {
        guard let inbox = inboxes[client], core.machine.conversation(client) != nil else { return }
        shell.writer.saveSleeping(inbox)
        var turn = core.makeTurn()
        core.machine.fallAsleep(client, &turn)
        inbox.key = nil
        inbox.troubledUntil = nil
        inbox.forgetHashes()
        shell.routes.silence(inbox)
        inboxes.noteSleep(inbox)
        store.release(inbox.row)
    }

    private var waits: [(isWorthwhile: () -> Bool, promise: EventLoopPromise<Void>)] = []
    /// Enough for a sleeping node on the other side of the world to answer.
    private static let reachTime: Milliseconds = 3 * .second
    /// Enough for a second dial after a failed one.
    private static let retryTime: Milliseconds = 1_500

    /// Waits until the members are linked: at most 3 s, and 1.5 s while no dial is running.
    func whenReached(_ client: ClientID) -> EventLoopFuture<Void> {
        let start = loop.now
        return wait { [unowned self] in isWorthwhile(client, since: start) }
    }

    /// Waits for the agreement that the proposer gathers once all have signed: a round trip, at most 3 s.
    func whenGathered(_ proposal: ProposalID, _ client: ClientID) -> EventLoopFuture<Void> {
        let end = loop.now + .milliseconds(Self.reachTime)
        return wait { [unowned self] in
            guard let machine = core.machine.conversation(client), !isStopped, loop.now < end else { return false }
            return machine.pendingProposal?.proposal.id == proposal && machine.unanswered.isEmpty
        }
    }

    private func wait(_ isWorthwhile: @escaping () -> Bool) -> EventLoopFuture<Void> {
        let promise = loop.makePromise(of: Void.self)
        waits.append((isWorthwhile, promise))
        // A turn establishes a session, and takes a dial's failure.
        core.turnEnded = { [unowned self] in settleWaits() }
        for time in [Self.retryTime, Self.reachTime] { after(time) { self.settleWaits() } }
        settleWaits()
        return promise.futureResult
    }

    private func settleWaits() {
        let all = waits
        waits = []
        for wait in all {
            if wait.isWorthwhile() {
                waits.append(wait)
            } else if isStopped {
                wait.promise.succeed()
            } else {
                // After this turn: the request begins one of its own.
                execute { wait.promise.succeed() }
            }
        }
        if waits.isEmpty { core.turnEnded = nil }
    }

    private func isWorthwhile(_ client: ClientID, since start: NIODeadline) -> Bool {
        guard let machine = core.machine.conversation(client), !isStopped, !machine.isReached else { return false }
        return loop.now - start < .milliseconds(machine.isReaching(now: now) ? Self.reachTime : Self.retryTime)
    }

    /// A user follows this conversation until ``stoppedWatching(_:)``. Wakes the conversation if possible.
    func watching(_ client: ClientID) {
        if let inbox = knownInbox(client) { inbox.watcherCount += 1 }
        core.machine.setWatched(client, true)
        wakeIfPossible(client, .userInteraction)
    }

    func stoppedWatching(_ client: ClientID) {
        if let inbox = knownInbox(client) { inbox.watcherCount = max(0, inbox.watcherCount - 1) }
        core.machine.setWatched(client, false)
    }

    private func knownInbox(_ client: ClientID) -> Inbox? { inboxes[client] ?? shell.unread.inbox(of: client) }

    /// Gives the core the number of watchers after a reload.
    func watchAgain(_ inbox: Inbox) {
        let missing = inbox.watcherCount - core.machine.watchers(of: inbox.client)
        for _ in 0..<max(0, missing) { core.machine.setWatched(inbox.client, true) }
    }
}

/// Destroys inboxes: keys on the disk, and state in memory.
final class InboxRemoval: Part {
    /// - Returns: why the keys may still exist; the store retries.
    @discardableResult func destroy(_ client: ClientID) -> StoreError? {
        guard let inbox = inboxes[client] else {
            if core.machine.contains(client) { core.machine.remove(client) }
            return nil
        }
        var failure: StoreError?
        do throws(StoreError) { try store.destroyRow(inbox.row) } catch {
            failure = error
            storage.refusal = error
            log.critical("an inbox's keys could not be destroyed; trying again", metadata: ["error": "\(error)"])
        }
        letGo(inbox)
        return failure
    }

    /// Wipes the memory of an inbox whose keys are gone. Open links stay until their closing frame is sent.
    func letGo(_ inbox: Inbox) {
        let client = inbox.client
        inboxes.remove(inbox)
        inboxes.forgetNotes(of: inbox)
        inbox.key = nil
        shell.uploads.cancelAll(into: client)
        inbox.verifications = [:]
        inbox.archive.forget()
        shell.routes.unregisterAll(inbox)
        // Effects that wait for this inbox's commit need not wait any more.
        shell.commits.drop(inbox, isDurable: true)
        shell.output.resume(inbox)
        if core.machine.contains(client) { core.machine.remove(client) }
    }
}
