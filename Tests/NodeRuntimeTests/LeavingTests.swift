import Messaging
import NIOCore
import NodeRuntime
import SimulatedDisk
import Testing

@Suite("Leaving") struct LeavingTests {
    private static func list(_ node: Node) async throws -> (conversations: [ConversationID], inboxes: [ClientID]) {
        (try await node.conversationIDs(), try await node.inboxStates().map(\.client))
    }

    /// Leaves a conversation while the disk refuses every call.
    private static func leaveInVain(_ machine: NodeMachine) async throws -> (Node, ConversationID, ClientID) {
        let node = try await machine.start()
        let made = try await node.createConversation(name: "tea", profile: nil).get()
        let (conversation, client) = (made.conversation, made.client)
        #expect(try await list(node).conversations == [conversation])
        machine.refuse(from: machine.disk.operations)
        // No member is told of the departure while the keys still exist.
        do throws(NodeError) {
            _ = try await node.leave(conversation.description)
            Issue.record("leaving succeeded though the keys are still on the disk")
        } catch { guard case .store = error else { throw error } }
        return (node, conversation, client)
    }

    @Test func `leaving on a failing disk is an error, and the rest is destroyed later`() async throws {
        let machine = try NodeMachine()
        let (node, conversation, client) = try await Self.leaveInVain(machine)
        // The conversation is gone from memory, so it refuses every command.
        #expect(try await Self.list(node).conversations.isEmpty)
        await #expect(throws: NodeError.self) { try await node.leave(conversation.description) }
        machine.mend()
        machine.wait(seconds: 300)
        await node.lock()
        try await node.unlock(passphrase: nil)
        await node.stop()
        let again = try await machine.start()
        let rest = try await Self.list(again)
        #expect(rest.conversations.isEmpty && !rest.inboxes.contains(client))
        #expect(await again.status().damage.isEmpty)
        try await machine.end(again)
    }

    @Test func `a stop after a failed leaving keeps the whole conversation, which can be left later`() async throws {
        let machine = try NodeMachine()
        let (node, conversation, client) = try await Self.leaveInVain(machine)
        await node.stop()
        machine.mend()
        let second = try await machine.start()
        let rest = try await Self.list(second)
        #expect(rest.conversations == [conversation] && rest.inboxes.contains(client))
        #expect(await second.status().damage.isEmpty)
        #expect(try await second.leave(conversation.description) == conversation)
        await second.stop()
        let third = try await machine.start()
        #expect(try await Self.list(third).conversations.isEmpty)
        try await machine.end(third)
    }
}
