import Cryptography
import Logging
import Messaging
import NIOCore
import NIOPosix
import Store

/// Locks and unlocks the storage. Links stay open while the storage is locked, and contents wait in memory. The
/// identity keys are wiped too, so the node cannot dial, answer handshakes or sign.
final class StorageLock: Part {
    /// The latest unlock or change of passphrase. They run one after another, since each takes 256 MiB.
    private(set) var lastStretching: EventLoopFuture<Void>?
    /// The number of lock requests: a lock cancels unlocks requested before it.
    private var lockCount = 0

    func lock() {
        lockCount += 1
        guard !store.isLocked else { return }
        close()
        shell.events.publish(.locked)
    }

    private func close() {
        core.turn { core.machine.prepareForLock(&$0) }
        shell.dials.giveUp()
        // Later, their chunks could not be destroyed, and the bytes of the last one would stay in memory.
        shell.uploads.cancelAll()
        // Before the store waits for the disk, which may hang.
        for inbox in inboxes.all {
            inbox.key?.wipe()
            inbox.archive.forgetOutgoing()
            inbox.forgetHashes()
        }
        // Pending commits must not wait for the unlock.
        shell.commits.hurry()
        store.lock()
        core.schedule()
    }

    /// Unlocks synchronously.
    /// - Parameter passphrase: `nil` for a home with a key file.
    func unlock(passphrase: consuming SecretBytes?) throws {
        guard store.isLocked else { return }
        try store.unlock(passphrase: passphrase)
        try takeUpStorage()
    }

    /// Unlocks; stretches the passphrase on another thread, since a guess would block the loop for a second. An
    /// unlocked node checks the passphrase too, because the user relies on the answer.
    func unlocking(passphrase: consuming SecretBytes) -> EventLoopFuture<Void> {
        let secret = Secret(passphrase)
        let lockCount = lockCount
        return afterOthers {
            try self.checkUnlock(lockCount)
            let stretching = self.store.stretching
            return { try secret.keys(by: stretching) }
        } then: { (keys: StretchedKeys?) in
            try self.checkUnlock(lockCount)
            // A home with a key file accepts any passphrase.
            guard let keys else { return try self.unlock(passphrase: nil) }
            guard self.store.isLocked else { return }
            try self.store.unlock(with: keys)
            try self.takeUpStorage()
        }
    }

    /// Changes the protection to another passphrase or a key file, locked or not. Stretches both passphrases on another
    /// thread.
    /// - Parameters:
    ///   - old: `nil` for a home with a key file.
    ///   - new: `nil` for a key file.
    /// - Returns: succeeds once the old protection opens nothing any more.
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

    /// Runs slow work on its own thread, after all earlier requests.
    /// - Parameters:
    ///   - prepare: called on the loop when the request's turn comes; returns the work.
    ///   - perform: called on the loop with the result.
    private func afterOthers<Value: Sendable>(
        _ prepare: @escaping () throws -> @Sendable () throws -> Value, then perform: @escaping (Value) throws -> Void
    ) -> EventLoopFuture<Void> {
        let before = (lastStretching ?? loop.makeSucceededVoidFuture()).flatMapErrorThrowing { _ in }
        // The work retains the shell until its end.
        let done = before.assumeIsolated().flatMap { [shell] () -> EventLoopFuture<Void> in
            let work: @Sendable () throws -> Value
            do { work = try prepare() } catch { return self.loop.makeFailedFuture(error) }
            // A thread of its own, so that an unlock does not wait for other work.
            let thread = NIOThreadPool(numberOfThreads: 1)
            thread.start()
            let value = thread.runIfActive(eventLoop: self.loop, work)
            value.whenComplete { _ in thread.shutdownGracefully { _ in } }
            return value.assumeIsolated().flatMapThrowing { value in
                try withExtendedLifetime(shell) { try perform(value) }
            }.nonisolated()
        }.nonisolated()
        lastStretching = done
        return done
    }

    /// Fails if the node stopped or was locked since the unlock was requested.
    private func checkUnlock(_ lockCount: Int) throws(NodeError) {
        if isStopped { throw .stopping }
        if self.lockCount != lockCount { throw .locked }
    }

    /// After an unlock: loads the storage, the first time, and writes pending changes.
    /// - Throws: if loading fails; the storage is then locked, so that the next unlock retries.
    private func takeUpStorage() throws {
        do {
            if shell.loading.hasLoaded {
                restoreKeys()
                retries.run()
                saveWhatWaited()
            } else {
                try shell.loading.load()
            }
            try shell.loading.ensureContact()
        } catch {
            close()
            throw error
        }
        shell.loading.ensureUnused()
        shell.events.publish(.unlocked)
        core.turn { core.machine.unlocked(&$0) }
        shell.peerServices.changed()
        shell.timer.tick(reaps: true)
    }

    private func restoreKeys() {
        for inbox in inboxes.all {
            guard let key = inbox.key, key.isWiped else { continue }
            do { key.restore(from: try inbox.deriveKey(in: store)) } catch {
                say("the key of an inbox could not be derived", of: error)
            }
        }
    }

    private func saveWhatWaited() {
        shell.writer.storeWaiting()
        for inbox in inboxes.all where !inbox.archive.isWaiting { core.machine.releaseMemory(inbox.client) }
        shell.commits.schedule()
    }
}
