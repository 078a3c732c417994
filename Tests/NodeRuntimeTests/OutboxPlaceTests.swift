import Cryptography
import Messaging
import NIOCore
import SimulatedDisk
import Store
import Testing

@testable import NodeRuntime

extension Node {
    /// Stores one of our messages, as the core requests it.
    fileprivate func keepOwn(
        _ client: ClientID, _ state: DeliveryState, _ keeping: NodeAction.Keeping = .disk(.oneHour)
    ) -> Messaging.MessageID {
        var random = Randomness.system
        let content = Content(
            type: .text, id: MessageID.random(&random), sentAt: services.now, lifetime: .oneHour, agreement: nil,
            fallback: "", shouldPush: true, payload: Array("hello".utf8))
        let message = Message(content: content, sender: nil, state: state, expiresAt: services.now + .hour)
        core.perform([.keep(client, [message], keeping)])
        return content.id
    }

    fileprivate func beginHandingOver() {
        var random = Randomness.system
        shell.memory.uploading.insert(MessageID.random(&random))
    }

    fileprivate func saved(_ client: ClientID) throws -> InboxSnapshot {
        let inbox = try #require(inboxes[client])
        return try StoredCodec.decode(InboxSnapshot.self, try #require(try store.loadState(inbox.row)))
    }

    /// Messages that a wake would find in the outbox.
    fileprivate func waiting(_ client: ClientID) -> [Messaging.MessageID] {
        guard let inbox = inboxes[client] else { return [] }
        return shell.sleep.undelivered(inbox, from: inbox.outboxFrom).map(\.content.id)
    }
}

@Suite("The outbox's saved place") struct OutboxPlaceTests {
    /// A machine after a power cut, whose node saved a place behind three messages that no longer exist.
    private func machine() async throws -> (NodeMachine, ClientID) {
        let (machine, node) = try await NodeMachine.started()
        let client = try await node.createConversation(name: "tea", profile: nil).get().client
        for _ in 0..<3 { _ = await node.keepOwn(client, .delivered) }
        try await node.rename("tea", to: "coffee")
        try await node.whenCommitted().get()
        let next = NodeMachine(afterPowerCut: machine)
        try await machine.end(node)
        next.wait(seconds: 2 * 3_600)
        return (next, client)
    }

    @Test func `the place goes back for a message sent after the earlier messages have ended`() async throws {
        let (machine, client) = try await machine()
        let node = try await machine.start()
        await node.reapNow()
        let id = await node.keepOwn(client, .queued)
        try await node.whenCommitted().get()
        #expect(await node.waiting(client) == [id])
        try await machine.end(node)
    }

    @Test func `the place is saved again after an unlock, since the earlier messages may have ended`() async throws {
        let machine = try NodeMachine()
        var node = try await machine.start()
        let client = try await node.createConversation(name: "tea", profile: nil).get().client
        for _ in 0..<3 { _ = await node.keepOwn(client, .delivered) }
        try await node.rename("tea", to: "coffee")
        _ = await node.keepOwn(client, .queued)
        try await node.whenCommitted().get()
        await machine.wait(seconds: 2 * 3_600, reaping: node)
        await node.lock()
        try await node.unlock(passphrase: nil)
        let id = await node.keepOwn(client, .queued)
        try await node.whenCommitted().get()
        let cut = NodeMachine(afterPowerCut: machine)
        try await machine.end(node)
        node = try await cut.start()
        #expect(await node.waiting(client) == [id])
        try await cut.end(node)
    }

    @Test(
        "a message written while the storage was locked is found after a power cut, also if it was stored in its sleep",
        arguments: [false, true]) func locked(isFull: Bool) async throws
    {
        let (machine, node) = try await NodeMachine.started()
        let client = try await node.createConversation(name: "tea", profile: nil).get().client
        // The core does not know of the message, so that a save would raise the place.
        await node.beginHandingOver()
        await node.lock()
        let id = await node.keepOwn(client, .queued, .untilUnlocked(.oneHour))
        machine.disk.with { $0.isFull = isFull }
        try await node.unlock(passphrase: nil)
        if isFull {
            #expect(try await node.sleepInbox("tea").state == .sleeping)
            machine.disk.with { $0.isFull = false }
            await machine.wait(seconds: 3, reaping: node)
        }
        try await node.whenCommitted().get()
        let cut = NodeMachine(afterPowerCut: machine)
        try await machine.end(node)
        let next = try await cut.start()
        #expect(await next.waiting(client) == [id])
        try await cut.end(next)
    }

    @Test("the place stays while the disk refuses a segment, and no saved state says that nothing waits") func refused()
        async throws
    {
        let machine = try NodeMachine()
        var node = try await machine.start()
        let client = try await node.createConversation(name: "tea", profile: nil).get().client
        let id = await node.keepOwn(client, .queued)
        await node.stop()
        let segments = machine.disk.files().keys.filter { $0.hasSuffix(".seg") }
        for name in segments.compactMap({ $0.split(separator: "/").last }) {
            machine.disk.with { $0.unreadable[String(name)] = 0..<Int.max }
        }
        node = try await machine.start()
        #expect(await node.waiting(client).isEmpty && !segments.isEmpty)
        try await node.rename("tea", to: "coffee")
        #expect(try await node.saved(client).outboxPlace == 0)
        #expect(try await node.sleepInbox("coffee").state == .sleeping)
        let saved = try await node.saved(client)
        #expect(saved.outboxCount == nil && saved.outboxPlace == 0)
        machine.disk.with { $0.unreadable = [:] }
        await node.stop()
        node = try await machine.start()
        #expect(await node.waiting(client) == [id])
        try await machine.end(node)
    }

    @Test("the place is saved before a message with a lower place, whether the process ends cleanly or not")
    func lower() async throws {
        for count in [1, 5] {
            let (machine, client) = try await machine()
            let node = try await machine.start()
            await node.reapNow()
            // During an upload the place is not the store's next one.
            await node.beginHandingOver()
            var ids: [Messaging.MessageID] = []
            for _ in 0..<count { ids.append(await node.keepOwn(client, .queued)) }
            try await node.whenCommitted().get()
            let cut = NodeMachine(afterPowerCut: machine)
            await node.stop()
            for one in [machine, cut] {
                let next = try await one.start()
                #expect(await next.waiting(client) == ids)
                try await one.end(next)
            }
        }
    }
}
