import Logging
import Messaging
import NIOCore
import NIOPosix
import Primitives
import Store

/// Unlocks whose passphrases are being stretched, or wait for that: one at a time, since each takes 256 MiB.
struct PendingUnlocks {
    /// The newest; it ends after all others.
    var last: EventLoopFuture<Void>?
    /// How often a lock was asked for: what was asked for before it is void.
    var lockCount = 0
}

/// The storage, locked and unlocked. Links stay meanwhile; contents wait in memory. The identity keys are gone like the
/// storage's: nobody is dialled, no handshake is answered, and nothing is signed.
extension Node {
    /// Wipes the storage keys and the identity keys.
    package func lock() {
        unlocks.lockCount += 1
        guard !store.isLocked else { return }
        closeStorage()
        notify(Event(client: nil, conversation: nil, at: now, kind: .locked))
    }

    private func closeStorage() {
        turn { turn in
            core.prepareForLock(&turn)
            return []
        }
        giveUpDials()
        // What waits for a commit must not wait for the unlock.
        commits.hurry()
        store.lock()
        for inbox in inboxes.unordered {
            inbox.key?.wipe()
            inbox.archive.outgoing.removeAll()
        }
        schedule()
    }

    /// Unlocks in this turn, however long that takes.
    /// - Parameter passphrase: `nil` for a home with a key file.
    package func unlock(passphrase: consuming SecretBytes?) throws {
        guard store.isLocked else { return }
        try store.unlock(passphrase: passphrase)
        try takeUpStorage()
    }

    /// Unlocks; the passphrase is stretched on another thread, since all else would wait a second for each guess. It is
    /// checked on a node that is unlocked already, too: its user relies on the answer.
    package func unlocking(passphrase: consuming SecretBytes) -> EventLoopFuture<Void> {
        guard let stretching = store.stretching else { return loop.makeCompletedFuture { try unlock(passphrase: nil) } }
        let secret = Passphrase(passphrase)
        let lockCount = unlocks.lockCount
        let unlocked = (unlocks.last ?? loop.makeSucceededVoidFuture()).flatMapErrorThrowing { _ in }
            .flatMap { self.assumeIsolated { $0.unlock(secret, stretching, unlessLockedSince: lockCount) } }
        unlocks.last = unlocked
        return unlocked
    }

    /// Carries a passphrase to another thread.
    private final class Passphrase: Sendable {
        let bytes: SecretBytes
        init(_ bytes: consuming SecretBytes) { self.bytes = bytes }
    }

    private func unlock(
        _ secret: Passphrase,
        _ stretching: PassphraseStretching,
        unlessLockedSince lockCount: Int
    ) -> EventLoopFuture<Void> {
        do throws(NodeError) { try checkUnlock(lockCount) } catch { return loop.makeFailedFuture(error) }
        // Nothing else is done by this thread: who may unlock does not wait for others.
        let thread = NIOThreadPool(numberOfThreads: 1)
        thread.start()
        let keys = thread.runIfActive(eventLoop: loop) { try stretching.keys(from: secret.bytes) }
        keys.whenComplete { _ in thread.shutdownGracefully { _ in } }
        return
            keys
            .flatMapThrowing { keys in
                try self.assumeIsolated { node in
                    try node.checkUnlock(lockCount)
                    // Another one was faster.
                    guard node.store.isLocked else { return }
                    try node.store.unlock(with: keys)
                    try node.takeUpStorage()
                }
            }
    }

    /// What has happened since an unlock was asked for.
    private func checkUnlock(_ lockCount: Int) throws(NodeError) {
        if isStopped { throw .stopping }
        if unlocks.lockCount != lockCount { throw .locked }
    }

    /// The storage has been unlocked: takes up what is in it, the first time, and writes what has waited for it.
    /// - Throws: when that is not possible: it is locked again then, so that the next unlock tries again.
    private func takeUpStorage() throws {
        do {
            if hasLoaded {
                restoreKeys()
                for inbox in inboxes.all where inbox.isVoided { reload(inbox) }
                performPutOff()
                saveWhatWaited()
            } else {
                try load()
            }
            try ensureContact()
        } catch {
            closeStorage()
            throw error
        }
        ensureUnused()
        notify(Event(client: nil, conversation: nil, at: now, kind: .unlocked))
        turn { core.unlocked(&$0) }
        rendezvousChanged()
        tick()
    }

    /// Derives the identity keys again, and makes the routes for which there was no key.
    private func restoreKeys() {
        for inbox in inboxes.all {
            guard let key = inbox.key, key.isWiped else { continue }
            do { key.restore(from: try Self.identityKey(inbox.row, in: store)) } catch {
                say("the key of an inbox could not be derived", of: error)
            }
        }
        for inbox in inboxes.all where !inbox.owedRoutes.isEmpty {
            let owed = inbox.owedRoutes
            inbox.owedRoutes = []
            for route in owed { register(inbox.client, route) }
        }
    }

    /// The inbox for contacts is gone when the disk has refused its first state.
    func remakeContact() {
        guard hasLoaded, !store.isLocked, !store.isReadOnly, core.contact == nil else { return }
        do { try ensureContact() } catch {
            say("there is no inbox for contacts", of: error)
        }
    }

    private func saveWhatWaited() {
        saveWhatWasRefused()
        storeWhatWaited()
        for inbox in inboxes.all where !inbox.archive.isWaiting { core.releaseMemory(inbox.client) }
        let unsaved = inboxes.all.filter(\.isUnsaved)
        perform(unsaved.map { .save($0.client) })
        for inbox in unsaved { inbox.isUnsaved = false }
        commits.schedule()
    }

    /// Writes what has waited in memory for the disk, and tells its senders once it is there. What the disk refuses, or has
    /// no room for, waits on and is tried again.
    func storeWhatWaited() {
        guard memory.waitingCount > 0, !store.isLocked, !store.isReadOnly else { return }
        let waiting = inboxes.all.filter { $0.archive.isWaiting && !$0.isTroubled(now: now) }
        guard !waiting.isEmpty else { return }
        // A commit that fails would have to be undone: what is in memory is given away for good.
        do throws(StoreError) { try store.probe(for: waiting.reduce(0) { $0 + $1.archive.waitingByteCount }) } catch {
            for inbox in waiting { keepWaiting(inbox, error) }
            return
        }
        for inbox in waiting where inboxes[inbox.client] === inbox {
            let (stored, failure) = inbox.archive.storeWaiting(now: now)
            changed(inbox.client)
            turn { core.stored(stored, client: inbox.client, &$0) }
            if let failure { keepWaiting(inbox, failure) } else { core.releaseMemory(inbox.client) }
        }
    }

    private func keepWaiting(_ inbox: Inbox, _ error: StoreError) {
        if storage.trouble == nil {
            log.error("contents that waited could not be stored", metadata: ["error": "\(error)"])
        }
        storage.note(error, at: now)
        inbox.troubledUntil = now + Self.storagePause
    }
}
