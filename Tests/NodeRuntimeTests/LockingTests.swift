import Cryptography
import Glibc
import Messaging
import NIOCore
import NodeRuntime
import SimulatedDisk
import Store
import Testing

extension Node {
    fileprivate func unlocking(_ passphrase: String) -> EventLoopFuture<Void> {
        unlocking(passphrase: SecretBytes(copying: passphrase.utf8))
    }

    /// In one turn: two unlocks, with a lock between them. `before` succeeds with its error and whether the node was
    /// locked then.
    fileprivate func lockBetweenUnlocks() -> (
        before: EventLoopFuture<(error: (any Error)?, wasLocked: Bool)>, after: EventLoopFuture<Void>
    ) {
        let before = unlocking("right")
        // Attached before it can fail: the second unlock may be done before code outside of this loop hears of the
        // first.
        let failed = before.map { (error: (any Error)?.none, wasLocked: false) }.recover { error in
            (error, self.assumeIsolated { $0.isLocked })
        }
        lock()
        return (failed, unlocking("right"))
    }

    /// In one turn: two unlocks, and a stop before either can finish.
    fileprivate func stopWhileUnlocking() async -> [EventLoopFuture<Void>] {
        let unlocks = [unlocking("right"), unlocking("right")]
        await stop()
        return unlocks
    }

    fileprivate func changing(_ old: String, to new: String) -> EventLoopFuture<Void> {
        changingProtection(from: SecretBytes(copying: old.utf8), to: SecretBytes(copying: new.utf8))
    }

    /// Asks for slow work and at once for something else. Succeeds with whether the other finished first.
    fileprivate func race(_ begin: @Sendable (isolated Node) -> EventLoopFuture<Void>) -> EventLoopFuture<Bool> {
        let isDone = NIOLoopBoundBox(false, eventLoop: loop)
        let done = begin(self).map { isDone.value = true }
        // As many turns of the loop as many pings take.
        var answered = loop.submit {}
        for _ in 0..<100 { answered = answered.flatMap { self.loop.submit {} } }
        let wasFirst = answered.map { !isDone.value }
        return done.and(wasFirst).map(\.1)
    }
}

@Suite("Locking") struct LockingTests {
    private static func fails(_ future: EventLoopFuture<Void>, _ isRight: (any Error) -> Bool) async {
        do {
            try await future.get()
            Issue.record("it was unlocked")
        } catch { #expect(isRight(error), "\(error)") }
    }

    private static func isLocked(_ error: any Error) -> Bool {
        if case .locked? = error as? NodeError { true } else { false }
    }

    @Test func `a second unlock succeeds after the disk refused any call of the first`() async throws {
        // The number of disk calls of an undisturbed unlock.
        let calm = try NodeMachine()
        var node = try await calm.node()
        var before = calm.disk.operations
        try await node.unlock(passphrase: nil)
        let count = calm.disk.operations - before
        await node.stop()
        try await calm.end()
        var refusals = 0
        for call in 1...count {
            let machine = try NodeMachine()
            node = try await machine.node()
            before = machine.disk.operations
            machine.disk.with { $0.fault = SimulatedDisk.Fault(at: before + call, code: EIO, isLasting: false) }
            do { try await node.unlock(passphrase: nil) } catch {
                refusals += 1
                #expect(await node.isLocked, "call \(call): it says that it failed, and is unlocked")
            }
            machine.disk.with { $0.fault = nil }
            try await node.unlock(passphrase: nil)
            #expect(await !node.isLocked)
            let made = try await node.createConversation(name: "tea", profile: nil).get()
            #expect(try await node.record(of: "tea").genesis.conversation == made.conversation)
            // Everything is there, including the contact inbox, which may have been made once more.
            await machine.wait(seconds: 2, reaping: node)
            #expect(await (try? node.card()) != nil, "call \(call) of \(count)")
            try await machine.end(node)
        }
        #expect(refusals > 0)
    }

    @Test func `a passphrase is stretched while the node goes on, and a wrong one changes nothing`() async throws {
        let machine = try NodeMachine(passphrase: "right")
        let node = try await machine.node()
        await Self.fails(await node.unlocking("wrong")) { $0 as? StoreError == .wrongPassphrase }
        #expect(await node.isLocked)
        #expect(try await node.race { $0.unlocking("right") }.get(), "everything waited for the passphrase")
        #expect(await !node.isLocked)
        await Self.fails(await node.unlocking("wrong")) { $0 as? StoreError == .wrongPassphrase }
        #expect(await !node.isLocked, "a wrong passphrase locks nothing")
        try await node.unlocking("right").get()
        #expect(try await node.race { $0.changing("right", to: "new") }.get(), "everything waited for the passphrases")
        try await machine.end(node)
    }

    @Test func `of two changes at once the first succeeds, and the second has the wrong passphrase`() async throws {
        let machine = try NodeMachine(passphrase: "right")
        let node = try await machine.node()
        let first = await node.changing("right", to: "first")
        let second = await node.changing("right", to: "second")
        try await first.get()
        await Self.fails(second) { $0 as? StoreError == .wrongPassphrase }
        for passphrase in ["right", "second"] {
            await Self.fails(await node.unlocking(passphrase)) { $0 as? StoreError == .wrongPassphrase }
        }
        try await node.unlocking("first").get()
        try await machine.end(node)
    }

    @Test("the second of two unlocks finds the node unlocked; a failed one does not affect the other") func twice()
        async throws
    {
        let machine = try NodeMachine(passphrase: "right")
        let node = try await machine.node()
        let wrong = await node.unlocking("wrong")
        let right = await node.unlocking("right")
        let late = await node.unlocking("wrong, too")
        let latest = await node.unlocking("right")
        await Self.fails(wrong) { $0 as? StoreError == .wrongPassphrase }
        try await right.get()
        await Self.fails(late) { $0 as? StoreError == .wrongPassphrase }
        try await latest.get()
        #expect(await !node.isLocked)
        try await machine.end(node)
    }

    @Test func `a lock voids earlier unlock requests, but not later ones`() async throws {
        let machine = try NodeMachine(passphrase: "right")
        let node = try await machine.node()
        let (before, after) = await node.lockBetweenUnlocks()
        let (error, wasLocked) = try await before.get()
        #expect(error.map(Self.isLocked) == true, "\(String(describing: error))")
        #expect(wasLocked)
        try await after.get()
        #expect(await !node.isLocked)
        await node.lock()
        #expect(await node.isLocked)
        try await machine.end(node)
    }

    @Test func `a stop waits for a passphrase that is being stretched, and the store stays closed`() async throws {
        let machine = try NodeMachine(passphrase: "right")
        let node = try await machine.node()
        for future in await node.stopWhileUnlocking() {
            await Self.fails(future) { if case .stopping? = $0 as? NodeError { true } else { false } }
        }
        #expect(await node.isLocked)
        try await machine.end()
    }
}
