import Crypto
import Glibc
import Messaging
import NIOCore
import NIOPosix
import NodeRuntime
import SimulatedDisk
import Store
import Synchronization
import Testing

extension Node {
    fileprivate func unlocking(_ passphrase: String) -> EventLoopFuture<Void> {
        unlocking(passphrase: SecretBytes(copying: passphrase.utf8))
    }

    /// In one turn: two unlocks, and a lock between them. `before` is with whether the node was locked when it failed.
    fileprivate func lockBetweenUnlocks() -> (
        before: EventLoopFuture<(error: (any Error)?, wasLocked: Bool)>, after: EventLoopFuture<Void>
    ) {
        let before = unlocking("right")
        // Hung on before it can fail: the second unlock may be done before anything outside this loop hears of the first.
        let failed = before.map { (error: (any Error)?.none, wasLocked: false) }.recover { error in
            (error, self.assumeIsolated { $0.isLocked })
        }
        lock()
        return (failed, unlocking("right"))
    }

    /// In one turn: two unlocks, and a stop before any of them can be done.
    fileprivate func stopWhileUnlocking() async -> [EventLoopFuture<Void>] {
        let unlocks = [unlocking("right"), unlocking("right")]
        await stop()
        return unlocks
    }

    /// Asks for an unlock, for something else at once, and says which of them was done first.
    fileprivate func race(_ passphrase: String) -> EventLoopFuture<Bool> {
        let isUnlocked = NIOLoopBoundBox(false, eventLoop: loop)
        let unlocked = unlocking(passphrase).map { isUnlocked.value = true }
        // As many turns as many pings take.
        var answered = loop.submit {}
        for _ in 0..<100 { answered = answered.flatMap { self.loop.submit {} } }
        let wasFirst = answered.map { !isUnlocked.value }
        return unlocked.and(wasFirst).map(\.1)
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

    @Test("what the disk refuses at the first unlock is done by the next, whichever call of the disk it was")
    func refused() async throws {
        // How many calls an unlock takes that nothing disturbs.
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
            #expect(try await node.conversation("tea").conversation == made.conversation)
            // Everything is there, the inbox for contacts too, perhaps once more.
            machine.wait(seconds: 2)
            await node.reapNow()
            #expect(await (try? node.card()) != nil, "call \(call) of \(count)")
            await node.stop()
            try await machine.end()
        }
        #expect(refusals > 0)
    }

    @Test("a passphrase is stretched while the node goes on, and a wrong one changes nothing") func stretching()
        async throws
    {
        let machine = try NodeMachine(passphrase: "right")
        let node = try await machine.node()
        await Self.fails(await node.unlocking("wrong")) { $0 as? StoreError == .wrongPassphrase }
        #expect(await node.isLocked)
        #expect(try await node.race("right").get(), "everything waited for the passphrase")
        #expect(await !node.isLocked)
        await Self.fails(await node.unlocking("wrong")) { $0 as? StoreError == .wrongPassphrase }
        #expect(await !node.isLocked, "a wrong passphrase locks nothing")
        try await node.unlocking("right").get()
        await node.stop()
        try await machine.end()
    }

    @Test("of two unlocks at once the second finds it done; one that fails leaves the other alone") func twice()
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
        await node.stop()
        try await machine.end()
    }

    @Test("a lock makes void what was asked for before it, and not what is asked for later") func lockMeanwhile()
        async throws
    {
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
        await node.stop()
        try await machine.end()
    }

    @Test("a stop waits for a passphrase that is being stretched, and the store stays closed") func stopMeanwhile()
        async throws
    {
        let machine = try NodeMachine(passphrase: "right")
        let node = try await machine.node()
        for future in await node.stopWhileUnlocking() {
            await Self.fails(future) { if case .stopping? = $0 as? NodeError { true } else { false } }
        }
        #expect(await node.isLocked)
        // Nothing of it is left on the loop.
        try await machine.end()
    }
}
