import Messaging
import NIOCore
import NodeRuntime
import SimulatedDisk
import Testing

@Suite("Arming timers of the store") struct ArmingTests {
    @Test func `a schedule with one disk call refused leaves the conversation or a tombstone`() async throws {
        var goesOn = 0
        var calls = 0
        for call in 1... {
            let machine = try NodeMachine()
            let (disk, node) = (machine.disk, try await machine.start())
            _ = try await node.createConversation(name: "tea", profile: nil).get()
            let id = try await node.record(of: "tea").genesis.conversation
            let first = disk.operations
            machine.refuse(from: first + call, isLasting: false)
            _ = try? await node.explode("tea", .after(60 * .second))
            _ = try? await node.whenCommitted().get()
            calls = disk.operations - first
            machine.mend()
            await machine.wait(seconds: 120, reaping: node)
            let lives = await (try? node.record(of: id.description)) != nil
            if lives { goesOn += 1 }
            let isTold = await (try? node.explosion(id.description)) != nil
            #expect(lives || isTold, "call \(call): it is gone without a word")
            try await machine.end(node)
            if call > calls { break }
        }
        #expect(calls > 5 && goesOn > 0)
    }

    @Test(
        "a conversation asleep in a locked home ends at its scheduled time and leaves a tombstone",
        arguments: [Nap.beforeCommit, .afterCommit, .unreadable]) func asleep(_ nap: Nap) async throws
    {
        let (machine, node) = try await NodeMachine.started()
        _ = try await node.createConversation(name: "tea", profile: nil).get()
        let id = try await node.record(of: "tea").genesis.conversation
        if nap == .beforeCommit {
            try await node.explodeAndSleep("tea", after: 60 * .second)
        } else {
            _ = try await node.explode("tea", .after(60 * .second))
            try await node.whenCommitted().get()
            #expect(try await node.sleepInbox("tea").state == .sleeping)
        }
        try await node.whenCommitted().get()
        if nap == .unreadable { machine.refuse(from: machine.disk.operations) } else { await node.lock() }
        await machine.wait(seconds: 120, reaping: node)
        #expect(try await node.explosion(id.description)?.conversation == id)
        machine.mend()
        if nap != .unreadable { try await node.unlock(passphrase: nil) }
        await node.reapNow()
        try await node.whenCommitted().get()
        #expect(try await node.explosion(id.description)?.isPrepared == false)
        await node.stop()
        machine.wait(seconds: 80)
        let next = try await machine.start()
        #expect(try await next.explosion(id.description)?.isPrepared == false)
        try await machine.end(next)
    }

    enum Nap { case beforeCommit, afterCommit, unreadable }
}

extension Node {
    /// In one turn, so that nothing is on the disk yet when the inbox falls asleep.
    fileprivate func explodeAndSleep(_ text: String, after time: Milliseconds) throws {
        _ = try explode(text, .after(time))
        #expect(try sleepInbox(text).state == .sleeping)
    }
}
