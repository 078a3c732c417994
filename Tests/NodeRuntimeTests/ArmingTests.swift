import Glibc
import Messaging
import NIOCore
import NIOPosix
import NodeRuntime
import SimulatedDisk
import Store
import Synchronization
import Testing

@Suite("Arming timers of the store") struct ArmingTests {
    /// A started node with the conversation `tea`; the test sets its clock in seconds.
    private static func node(on disk: SimulatedDisk, _ loop: any EventLoop, _ seconds: Seconds) async throws -> Node {
        try disk.makeHome()
        let node = try await Node.quiet(home: "/home", on: disk, loop) {
            $0.realtime = { 1_700_000_000_000 + seconds.value.withLock { $0 } * .second }
            $0.boottime = { seconds.value.withLock { $0 } * .second }
        }
        try await node.unlock(passphrase: nil)
        _ = try await node.createConversation(name: "tea", profile: nil).get()
        return node
    }

    private final class Seconds: Sendable { let value = Mutex<Milliseconds>(0) }

    @Test("a schedule with one disk call refused leaves the conversation or a tombstone") func refused() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        var goesOn = 0
        var calls = 0
        for call in 1... {
            let disk = SimulatedDisk()
            let seconds = Seconds()
            let node = try await Self.node(on: disk, group.next(), seconds)
            let id = try await node.record(of: "tea").genesis.conversation
            let first = disk.operations
            disk.with { $0.fault = SimulatedDisk.Fault(at: first + call, code: EIO, isLasting: false) }
            _ = try? await node.explode("tea", .after(60 * .second))
            _ = try? await node.whenCommitted().get()
            calls = disk.operations - first
            disk.with { $0.fault = nil }
            seconds.value.withLock { $0 += 120 }
            await node.reapNow()
            let lives = await (try? node.record(of: id.description)) != nil
            if lives { goesOn += 1 }
            let isTold = await (try? node.explosion(id.description)) != nil
            #expect(lives || isTold, "call \(call): it is gone without a word")
            await node.stop()
            if call > calls { break }
        }
        #expect(calls > 5 && goesOn > 0)
        try await group.shutdownGracefully()
    }

    @Test(
        "a conversation asleep in a locked home ends at its scheduled time and leaves a tombstone",
        arguments: [Nap.beforeCommit, .afterCommit, .unreadable]) func asleep(_ nap: Nap) async throws
    {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let disk = SimulatedDisk()
        let seconds = Seconds()
        let node = try await Self.node(on: disk, group.next(), seconds)
        let id = try await node.record(of: "tea").genesis.conversation
        if nap == .beforeCommit {
            try await node.explodeAndSleep("tea", after: 60 * .second)
        } else {
            _ = try await node.explode("tea", .after(60 * .second))
            try await node.whenCommitted().get()
            #expect(try await node.sleepInbox("tea").state == .sleeping)
        }
        try await node.whenCommitted().get()
        if nap == .unreadable {
            disk.with { disk in disk.fault = SimulatedDisk.Fault(at: disk.operations, code: EIO, isLasting: true) }
        } else {
            await node.lock()
        }
        seconds.value.withLock { $0 += 120 }
        await node.reapNow()
        #expect(try await node.explosion(id.description)?.conversation == id)
        disk.with { $0.fault = nil }
        if nap != .unreadable { try await node.unlock(passphrase: nil) }
        await node.reapNow()
        try await node.whenCommitted().get()
        #expect(try await node.explosion(id.description)?.isPrepared == false)
        await node.stop()
        let next = try await Node.quiet(home: "/home", on: disk, group.next()) { $0.realtime = { 1_700_000_200_000 } }
        try await next.unlock(passphrase: nil)
        #expect(try await next.explosion(id.description)?.isPrepared == false)
        await next.stop()
        try await group.shutdownGracefully()
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
