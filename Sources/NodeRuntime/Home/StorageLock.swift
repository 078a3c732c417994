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
    /// The unlock or change whose passphrase was given last: it ends after all others, since each takes 256 MiB.
    private(set) var lastStretching: EventLoopFuture<Void>?
    /// How often a lock was asked for: an unlock that was asked for before it is void.
    private var lockCount = 0
    /// Called when the storage has been unlocked and taken up.
    var unlocked: () -> Void = {}

    init(
        _ core: ProtocolCore, _ routes: Routes, _ dials: Dials, _ writer: InboxWriter, _ loading: InboxLoading,
        _ uploads: Uploads, _ explosions: Explosions, _ rendezvous: RendezvousNodes, _ events: NodeEvents
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
        // Before the store waits for the disk, which may hang.
        for inbox in inboxes.all {
            inbox.key?.wipe()
            inbox.archive.forgetOutgoing()
            inbox.forgetHashes()
        }
        // What waits for a commit must not wait for the unlock.
        writer.commits.hurry()
        store.lock()
        for inbox in inboxes.all { inbox.isPlaceSaved = false }
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
        let secret = Secret(passphrase)
        let lockCount = lockCount
        return afterOthers {
            try self.checkUnlock(lockCount)
            let stretching = self.store.stretching
            return { try secret.keys(by: stretching) }
        } then: { (keys: StretchedKeys?) in
            try self.checkUnlock(lockCount)
            // A home with a key file takes any passphrase.
            guard let keys else { return try self.unlock(passphrase: nil) }
            // Another one was faster.
            guard self.store.isLocked else { return }
            try self.store.unlock(with: keys)
            try self.takeUpStorage()
        }
    }

    /// Protects the storage by another passphrase, or by a key file; locked or not. Both passphrases are stretched on another
    /// thread.
    /// - Parameters:
    ///   - old: `nil` for a home with a key file.
    ///   - new: `nil` for a key file.
    /// - Returns: succeeds when what protected it before opens nothing any more.
    func changingProtection(from old: consuming SecretBytes?, to new: consuming SecretBytes?) -> EventLoopFuture<Void> {
        let (old, new) = (Secret(old), Secret(new))
        return afterOthers {
            if self.isStopped { throw NodeError.stopping }
            let rewrapping = try self.store.rewrapping()
            return { try rewrapping.sealed(from: old.bytes, to: new.bytes) }
        } then: { root in
            if self.isStopped { throw NodeError.stopping }
            try self.store.protect(by: root)
            self.log.notice("the protection of the keys was changed")
        }
    }

    /// Carries a passphrase to another thread.
    private final class Secret: Sendable {
        let bytes: SecretBytes?
        init(_ bytes: consuming SecretBytes?) { self.bytes = bytes }

        func keys(by stretching: PassphraseStretching?) throws -> StretchedKeys? {
            switch bytes {
            case .none: nil
            case .some(let bytes): try stretching?.keys(from: bytes)
            }
        }
    }

    /// Does what takes a second on a thread of its own, when all that was asked for before has ended.
    /// - Parameters:
    ///   - prepare: on the loop, when its turn has come; returns the work.
    ///   - perform: on the loop, with the result.
    private func afterOthers<Value: Sendable>(
        _ prepare: @escaping () throws -> @Sendable () throws -> Value, then perform: @escaping (Value) throws -> Void
    ) -> EventLoopFuture<Void> {
        let before = (lastStretching ?? loop.makeSucceededVoidFuture()).flatMapErrorThrowing { _ in }
        let done = before.assumeIsolated().flatMap { () -> EventLoopFuture<Void> in
            let work: @Sendable () throws -> Value
            do { work = try prepare() } catch { return self.loop.makeFailedFuture(error) }
            // Nothing else is done by this thread: who may unlock does not wait for others.
            let thread = NIOThreadPool(numberOfThreads: 1)
            thread.start()
            let value = thread.runIfActive(eventLoop: self.loop, work)
            value.whenComplete { _ in thread.shutdownGracefully { _ in } }
            return value.assumeIsolated().flatMapThrowing { try perform($0) }.nonisolated()
        }.nonisolated()
        lastStretching = done
        return done
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
