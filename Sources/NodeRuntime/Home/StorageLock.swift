import Crypto
import Logging
import Messaging
import NIOCore
import NIOPosix
import Store

/// The storage, locked and unlocked. Links stay meanwhile; contents wait in memory. The identity keys are gone like the
/// storage's: nobody is dialled, no handshake is answered, and nothing is signed.
final class StorageLock: CorePart {
    let core: ProtocolCore
    private let routes: Routes
    private let dials: Dials
    private let writer: InboxWriter
    private let loading: InboxLoading
    private let uploads: Uploads
    private let explosions: Explosions
    private let rendezvous: RendezvousNodes
    private let events: NodeEvents
    /// The unlock whose passphrase was given last: it ends after all others, since each takes 256 MiB.
    private(set) var lastUnlock: EventLoopFuture<Void>?
    /// How often a lock was asked for: an unlock that was asked for before it is void.
    private var lockCount = 0
    /// Called when the storage has been unlocked and taken up.
    var unlocked: () -> Void = {}

    init(
        _ core: ProtocolCore,
        _ routes: Routes,
        _ dials: Dials,
        _ writer: InboxWriter,
        _ loading: InboxLoading,
        _ uploads: Uploads,
        _ explosions: Explosions,
        _ rendezvous: RendezvousNodes,
        _ events: NodeEvents
    ) {
        self.core = core
        self.routes = routes
        self.dials = dials
        self.writer = writer
        self.loading = loading
        self.uploads = uploads
        self.explosions = explosions
        self.rendezvous = rendezvous
        self.events = events
    }

    // MARK: Lock

    /// Wipes the storage keys and the identity keys.
    func lock() {
        lockCount += 1
        guard !store.isLocked else { return }
        close()
        events.publish(.locked)
    }

    private func close() {
        core.turn { turn in
            core.machine.prepareForLock(&turn)
            return []
        }
        dials.giveUp()
        // Their chunks cannot be destroyed later, and the bytes of the last one would stay in memory.
        uploads.cancelAll()
        // What waits for a commit must not wait for the unlock.
        writer.commits.hurry()
        store.lock()
        for inbox in inboxes.unordered {
            inbox.key?.wipe()
            inbox.archive.forgetOutgoing()
            inbox.forgetHashes()
            inbox.isPlaceSaved = false
        }
        core.schedule()
    }

    // MARK: Unlock

    /// Unlocks in this turn, however long that takes.
    /// - Parameter passphrase: `nil` for a home with a key file.
    func unlock(passphrase: consuming SecretBytes?) throws {
        guard store.isLocked else { return }
        try store.unlock(passphrase: passphrase)
        try takeUpStorage()
    }

    /// Unlocks; the passphrase is stretched on another thread, since all else would wait a second for each guess. It is
    /// checked on a node that is unlocked already, too: its user relies on the answer.
    func unlocking(passphrase: consuming SecretBytes) -> EventLoopFuture<Void> {
        guard let stretching = store.stretching else { return loop.makeCompletedFuture { try unlock(passphrase: nil) } }
        let secret = Passphrase(passphrase)
        let lockCount = lockCount
        let before = (lastUnlock ?? loop.makeSucceededVoidFuture()).flatMapErrorThrowing { _ in }
        let unlocked = before.assumeIsolated().flatMap {
            self.unlock(secret, stretching, unlessLockedSince: lockCount)
        }.nonisolated()
        lastUnlock = unlocked
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
        return keys.assumeIsolated().flatMapThrowing { keys in
            try self.checkUnlock(lockCount)
            // Another one was faster.
            guard self.store.isLocked else { return }
            try self.store.unlock(with: keys)
            try self.takeUpStorage()
        }.nonisolated()
    }

    /// What has happened since an unlock was asked for.
    private func checkUnlock(_ lockCount: Int) throws(NodeError) {
        if isStopped { throw .stopping }
        if self.lockCount != lockCount { throw .locked }
    }

    /// The storage has been unlocked: takes up what is in it, the first time, and writes what has waited for it.
    /// - Throws: when that is not possible: it is locked again then, so that the next unlock tries again.
    private func takeUpStorage() throws {
        do {
            if loading.hasLoaded {
                restoreKeys()
                for inbox in inboxes.all where inbox.isVoided { loading.reload(inbox) }
                performDeferred()
                saveWhatWaited()
            } else {
                try loading.load()
            }
            try loading.ensureContact()
        } catch {
            close()
            throw error
        }
        loading.ensureUnused()
        events.publish(.unlocked)
        core.turn { core.machine.unlocked(&$0) }
        rendezvous.changed()
        unlocked()
    }

    /// Derives the identity keys again, and makes the routes for which there was no key.
    private func restoreKeys() {
        for inbox in inboxes.all {
            guard let key = inbox.key, key.isWiped else { continue }
            do { key.restore(from: try inbox.deriveKey(in: store)) } catch {
                say("the key of an inbox could not be derived", of: error)
            }
        }
        for inbox in inboxes.all where !inbox.owedRoutes.isEmpty {
            let owed = inbox.owedRoutes
            inbox.owedRoutes = []
            for route in owed { routes.register(inbox.client, route) }
        }
    }

    /// What the locked storage could not be told, before anything else is written.
    private func performDeferred() {
        for inbox in inboxes.all where !inbox.deferred.isEmpty {
            let waiting = inbox.deferred
            inbox.deferred = []
            core.perform(waiting)
        }
    }

    private func saveWhatWaited() {
        explosions.saveWhatWasRefused()
        writer.storeWaiting()
        for inbox in inboxes.all where !inbox.archive.isWaiting { core.machine.releaseMemory(inbox.client) }
        writer.saveUnsaved()
        writer.commits.schedule()
    }
}
