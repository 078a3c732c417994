import Glibc
import Messaging
import NIOCore
import SimulatedDisk
import Store
import Testing

@testable import NodeRuntime

@Suite("Two nodes") struct PairTests {
    @Test func `a message delivered while both homes were locked is marked delivered after the unlock`() async throws {
        let pair = try await Pair()
        try await pair.agree(.oneHour)
        await pair.bob.lock()
        let arrived = await pair.bob.next { if case .message = $0 { true } else { false } }
        let durable = pair.ann.loop.makePromise(of: Int.self)
        let made = try await pair.ann.send("tea", texts: ["while you slept"]) { durable.succeed($0.count) }
        let sent = try #require(made.first).get()
        let (client, id) = (sent.client, sent.message)
        #expect(try await durable.futureResult.get() == 0 && sent.isStored)
        _ = try await arrived.get()
        await pair.ann.lock()
        let delivered = await pair.ann.next { if case .messageState(id, .delivered, _) = $0 { true } else { false } }
        try await pair.bob.unlock(passphrase: nil)
        _ = try await delivered.get()
        try await pair.ann.unlock(passphrase: nil)
        #expect(try await #require(pair.ann.message(id, client: client)).message.state == .delivered)
        try await pair.end()
    }

    @Test func `a delivery state lost with a commit is learned again: the message waits in the outbox`() async throws {
        let pair = try await Pair()
        try await pair.agree(.oneHour)
        let disk = pair.disks.ann
        let delivered = await pair.ann.next { kind in
            guard case .messageState(_, .delivered, _) = kind else { return false }
            // The state would be written with the next commit.
            disk.with { $0.isReadOnly = true }
            return true
        }
        let sent = try #require(try await pair.ann.send("tea", texts: ["lost"]) { _ in }.first).get()
        _ = try await delivered.get()
        await #expect(throws: NodeError.self) { try await pair.ann.whenCommitted().get() }
        disk.with { $0.isReadOnly = false }
        #expect(try await pair.ann.outboxMessages() == [sent.message])
        try await pair.end()
    }

    @Test func `a message keeps waiting when the disk refuses any one call while the outbox is read`() async throws {
        let pair = try await Pair()
        try await pair.agree(.oneHour)
        await pair.bob.stop()
        let sent = try #require(try await pair.ann.send("tea", texts: ["waiting"]) { _ in }.first).get()
        await pair.ann.stop()
        var calls = 0
        for call in 1... {
            let disk = pair.disks.ann.durableCopy()
            var node = try await pair.node(on: disk)
            let first = disk.operations
            disk.with { $0.fault = SimulatedDisk.Fault(at: first + call, code: EIO, isLasting: false) }
            try? await node.unlock(passphrase: nil)
            try? await node.rename("tea", to: "coffee")
            calls = max(calls, disk.operations - first)
            disk.with { $0.fault = nil }
            _ = try? await node.sleepInbox("tea")
            _ = try? await node.sleepInbox("coffee")
            await node.stop()
            node = try await pair.node(on: disk)
            try await node.unlock(passphrase: nil)
            #expect(try await node.outboxMessages() == [sent.message], "call \(call)")
            await node.stop()
            if call > calls { break }
        }
        #expect(calls > 10)
        try await pair.end()
    }

    @Test func `an upload is given up when its inbox is restored to its durable state`() async throws {
        let pair = try await Pair()
        try await pair.agree(.oneHour)
        let upload = try await pair.ann.beginUpload("tea", name: "f", byteCount: nil, text: "", replyTo: nil)
        _ = try await pair.ann.append(ByteBuffer(bytes: Array(repeating: 7, count: 130_000)), to: upload).get()
        let disk = pair.disks.ann
        disk.with { $0.fault = SimulatedDisk.Fault(at: $0.operations, code: EIO, isLasting: true) }
        _ = try? await pair.ann.rename("tea", to: "coffee")
        _ = try? await pair.ann.whenCommitted().get()
        disk.with { $0.fault = nil }
        // Otherwise it would be sent with holes: the earlier pieces are no longer on the disk.
        await #expect(throws: NodeError.self) { try await pair.ann.append(ByteBuffer(bytes: [1]), to: upload) }
        await #expect(throws: NodeError.self) { try await pair.ann.commitUpload(upload) }
        try await pair.end()
    }

    @Test func `the plaintext of an upload does not outlive its conversation`() async throws {
        let pair = try await Pair()
        let upload = try await pair.ann.beginUpload("tea", name: "f", byteCount: nil, text: "", replyTo: nil)
        _ = try await pair.ann.append(ByteBuffer(bytes: [1, 2, 3]), to: upload).get()
        _ = try await pair.ann.explode("tea")
        #expect(await pair.ann.uploadCount == 0)
        try await pair.end()
    }

    @Test func `a lock gives up an upload: none of it stays on the disk or in memory`() async throws {
        let pair = try await Pair()
        try await pair.agree(.oneHour)
        let before = try await pair.ann.recordCount("tea")
        let upload = try await pair.ann.beginUpload("tea", name: "f", byteCount: nil, text: "", replyTo: nil)
        _ = try await pair.ann.append(ByteBuffer(bytes: Array(repeating: 7, count: 130_000)), to: upload).get()
        #expect(try await pair.ann.recordCount("tea") == before + 2)
        await pair.ann.lock()
        #expect(await pair.ann.uploadCount == 0)
        await #expect { try await pair.ann.append(ByteBuffer(bytes: [1]), to: upload) } throws: { error in
            if case NodeError.locked? = error as? NodeError { true } else { false }
        }
        try await pair.ann.unlock(passphrase: nil)
        #expect(try await pair.ann.recordCount("tea") == before)
        try await pair.end()
    }

    @Test func `an upload wakes its inbox after another inbox has taken its place`() async throws {
        let pair = try await Pair()
        let upload = try await pair.ann.beginUpload("tea", name: "f", byteCount: nil, text: "", replyTo: nil)
        _ = try await pair.ann.append(ByteBuffer(bytes: [1, 2, 3]), to: upload).get()
        #expect(try await pair.ann.sleepInbox("tea").state == .sleeping)
        #expect(try await pair.ann.append(ByteBuffer(bytes: [4]), to: upload).get() == 4)
        try await pair.ann.whenCommitted().get()
        #expect(try await pair.ann.sleepInbox("tea").state == .sleeping)
        _ = try await pair.ann.commitUpload(upload)
        try await pair.end()
    }

    @Test("an explosion completes once its fan-out list is on the disk, whichever call the disk refuses")
    func listOfWhomToTell() async throws {
        var isExploding = 0
        for call in 0... {
            let pair = try await Pair()
            await pair.bob.stop()
            let id = try await pair.ann.record(of: "tea").genesis.conversation
            let disk = pair.disks.ann
            let first = disk.operations
            disk.with { $0.fault = SimulatedDisk.Fault(at: first + call, code: EIO, isLasting: false) }
            let isDone = try await pair.ann.explodes(id).get()
            let calls = disk.operations - first
            if !isDone { isExploding += 1 }
            disk.with { $0.fault = nil }
            if isDone {
                await pair.ann.forgetFanOuts()
                #expect(await pair.ann.hasFanOut(id), "call \(call): it says that it is done, and tells nobody")
            } else {
                await pair.ann.reapNow()
                try? await pair.ann.whenCommitted().get()
                if case .exploded = await pair.ann.progress(of: id) {} else { Issue.record("call \(call): never done") }
            }
            try await pair.end()
            if call > calls { break }
        }
        #expect(isExploding > 0)
    }
}

extension Node {
    /// Starts an explosion and looks as soon as its commit has ended, on the node's own loop. A second later the
    /// refused call would have been repeated.
    fileprivate func explodes(_ conversation: ConversationID) -> EventLoopFuture<Bool> {
        _ = try? explode(conversation.description)
        let committed = whenCommitted()
        let seen = committed.eventLoop.makePromise(of: Bool.self)
        committed.assumeIsolated().whenComplete { _ in
            self.assumeIsolated { node in
                if case .exploded = node.progress(of: conversation) { seen.succeed(true) } else { seen.succeed(false) }
            }
        }
        return seen.futureResult
    }

    /// Drops the fan-out lists from memory, so that only the disk has them.
    fileprivate func forgetFanOuts() {
        let endings = shell.endings
        for tombstone in core.machine.tombstones { endings[tombstone.conversation].fanOut = nil }
    }

    fileprivate func hasFanOut(_ conversation: ConversationID) -> Bool { shell.explosions.fanOut(conversation) != nil }

    fileprivate var uploadCount: Int { shell.uploads.count }

    fileprivate func recordCount(_ conversation: String) throws -> Int {
        let inbox = try #require(inboxes[try resolve(conversation)])
        return try services.store.storedAmount(inbox.row).recordCount
    }
}
