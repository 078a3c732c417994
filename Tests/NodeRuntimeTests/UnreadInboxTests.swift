import Glibc
import Messaging
import NIOCore
import SimulatedDisk
import Store
import Testing

@testable import NodeRuntime

extension Node {
    fileprivate var untilNextTick: Milliseconds { (shell.timer.deadline ?? .latest) - currentTime }

    /// In one turn: a call that waits for the disk, and a stop of the node.
    fileprivate func createAndStop() async throws -> EventLoopFuture<
        (client: ClientID, conversation: ConversationID, tag: InviteTag?)
    > {
        let made = try createConversation(name: "tea", profile: nil)
        await stop()
        return made
    }

    fileprivate func watcherCount(of client: ClientID) -> Int { core.machine.watchers(of: client) }

    /// In one turn: a change whose commit fails after the storage was locked.
    fileprivate func renameAndLock(_ text: String, _ name: String) throws {
        try rename(text, to: name)
        lock()
    }
}

@Suite("Inboxes that the disk refuses to read") struct UnreadInboxTests {
    @Test("refused inboxes and the card return when the disk works again, whichever call failed first") func again()
        async throws
    {
        var unknown = 0
        var calls = 0
        for call in 0... {
            let (machine, node) = try await NodeMachine.started()
            let made = try await node.createConversation(name: "tea", profile: nil).get()
            let id = made.conversation
            let card = try await node.card()
            await node.watching(made.client)
            // From here on the state is in the inbox's own file.
            await node.lock()
            try await node.unlock(passphrase: nil)
            let first = machine.disk.operations
            machine.refuse(from: first + call)
            _ = try? await node.rename("tea", to: "coffee")
            _ = try? await node.whenCommitted().get()
            calls = machine.disk.operations - first
            await node.reapNow()
            do throws(NodeError) { _ = try await node.record(of: id.description) } catch {
                unknown += 1
                guard case .store = error else {
                    Issue.record("call \(call): not the disk's trouble but \(error)")
                    break
                }
                #expect(await !node.status().damage.isEmpty)
            }
            machine.mend()
            for _ in 0..<3 { await machine.wait(seconds: 3, reaping: node) }
            #expect((try? await node.record(of: id.description)) != nil, "call \(call)")
            #expect(try await node.card().key == card.key, "call \(call)")
            #expect(await node.watcherCount(of: made.client) == 1, "call \(call): nobody follows it any more")
            try await machine.end(node)
            if call > calls { break }
        }
        #expect(calls > 1 && unknown > 0)
    }

    @Test("inboxes refused at a start return a little later, whichever call failed, with the old card") func start()
        async throws
    {
        let machine = try NodeMachine()
        var node = try await machine.start()
        let id = try await node.createConversation(name: "tea", profile: nil).get().conversation
        let card = try await node.card()
        await node.stop()
        var late = 0
        for call in 0... {
            node = try await machine.node()
            let first = machine.disk.operations
            machine.refuse(from: first + call, isLasting: false)
            let isUnlocked = (try? await node.unlock(passphrase: nil)) != nil
            let calls = machine.disk.operations - first
            machine.mend()
            if isUnlocked {
                let isThere = (try? await node.record(of: id.description)) != nil
                var hasCard = true
                do throws(NodeError) { _ = try await node.card() } catch {
                    hasCard = false
                    if case .locked = error { Issue.record("call \(call): it is not locked") }
                }
                if !isThere || !hasCard { late += 1 }
                await machine.wait(seconds: 3, reaping: node)
                await machine.wait(seconds: 3, reaping: node)
                #expect((try? await node.record(of: id.description)) != nil, "call \(call)")
                #expect(try await node.card().key == card.key, "call \(call)")
            }
            await node.stop()
            if call > calls { break }
        }
        #expect(late > 0)
        try await machine.end()
    }

    @Test func `refused inboxes are not sought endlessly in a locked storage`() async throws {
        let (machine, node) = try await NodeMachine.started()
        let id = try await node.createConversation(name: "tea", profile: nil).get().conversation
        await node.lock()
        try await node.unlock(passphrase: nil)
        machine.refuse(from: machine.disk.operations)
        _ = try? await node.rename("tea", to: "coffee")
        _ = try? await node.whenCommitted().get()
        await #expect(throws: NodeError.self) { try await node.record(of: id.description) }
        machine.mend()
        await node.lock()
        await machine.wait(seconds: 5, reaping: node)
        #expect(await node.untilNextTick > 0)
        try await node.unlock(passphrase: nil)
        #expect((try? await node.record(of: id.description)) != nil)
        try await machine.end(node)
    }

    @Test func `a change that is refused after the storage was locked is void after the unlock`() async throws {
        let (machine, node) = try await NodeMachine.started()
        let id = try await node.createConversation(name: "tea", profile: nil).get().conversation
        machine.refuse(from: machine.disk.operations)
        try await node.renameAndLock("tea", "coffee")
        machine.mend()
        try await node.unlock(passphrase: nil)
        let name = try await node.record(of: id.description).name
        await node.stop()
        let next = try await machine.start()
        #expect(try await next.record(of: id.description).name == name, "what is shown is what is on the disk")
        try await machine.end(next)
    }

    @Test func `a setting that cannot be saved does not apply`() async throws {
        let (machine, node) = try await NodeMachine.started()
        let policy = await node.policyByDefault
        await #expect(throws: NodeError.self) { try await node.setDefaultPolicy(.refuse) }
        await #expect(throws: NodeError.self) { try await node.setDefaultReadReceipts(true) }
        #expect(await node.policyByDefault == policy)
        #expect(await !node.sendsReadReceiptsByDefault)
        try await machine.end(node)
    }

    @Test func `a request in the turn in which the node stops is answered`() async throws {
        let (machine, node) = try await NodeMachine.started()
        let made = try await node.createAndStop()
        let id = try await made.get().conversation
        let next = try await machine.start()
        #expect((try? await next.record(of: id.description)) != nil)
        try await machine.end(next)
    }
}
