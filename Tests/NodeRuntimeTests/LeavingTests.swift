import Cryptography
import Glibc
import Messaging
import NIOCore
import NIOPosix
import NodeRuntime
import SimulatedDisk
import Store
import Synchronization
import Testing

private final class Machine: Sendable {
    private static let home = "/home"
    private let disk = SimulatedDisk()
    private let minutes = Mutex<Milliseconds>(0)
    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

    init() throws { try disk.makeHome(Self.home) }

    func start() async throws -> Node {
        let node = try await Node.quiet(home: Self.home, on: disk, group.next()) {
            $0.realtime = { [self] in 1_700_000_000_000 + minutes.withLock { $0 } * .minute }
            $0.boottime = { [self] in minutes.withLock { $0 } * .minute }
        }
        try await node.start(passphrase: nil)
        return node
    }

    func breakDisk() { disk.with { $0.fault = SimulatedDisk.Fault(at: $0.operations, code: EIO, isLasting: true) } }

    func mendDisk() { disk.with { $0.fault = nil } }

    func wait(minutes more: Milliseconds) { minutes.withLock { $0 += more } }

    func end() async throws { try await group.shutdownGracefully() }
}

@Suite("Leaving") struct LeavingTests {
    /// The node's conversations and inboxes.
    private static func list(_ node: Node) async throws -> (conversations: [ConversationID], inboxes: [ClientID]) {
        (try await node.conversationIDs(), try await node.inboxStates().map(\.client))
    }

    /// Leaves a conversation while the disk refuses every call.
    private static func leaveInVain(_ machine: Machine) async throws -> (Node, ConversationID, ClientID) {
        let node = try await machine.start()
        let made = try await node.createConversation(name: "tea", profile: nil).get()
        let (conversation, client) = (made.conversation, made.client)
        #expect(try await list(node).conversations == [conversation])
        machine.breakDisk()
        // No member is told of the departure while the keys still exist.
        do throws(NodeError) {
            _ = try await node.leave(conversation.description)
            Issue.record("leaving succeeded though the keys are still on the disk")
        } catch { guard case .store = error else { throw error } }
        return (node, conversation, client)
    }

    @Test("leaving on a failing disk is an error, and the rest is destroyed later") func later() async throws {
        let machine = try Machine()
        let (node, conversation, client) = try await Self.leaveInVain(machine)
        // The conversation is gone from memory, so it refuses every command.
        #expect(try await Self.list(node).conversations.isEmpty)
        await #expect(throws: NodeError.self) { try await node.leave(conversation.description) }
        machine.mendDisk()
        machine.wait(minutes: 5)
        await node.lock()
        try await node.unlock(passphrase: nil)
        await node.stop()
        let again = try await machine.start()
        let rest = try await Self.list(again)
        #expect(rest.conversations.isEmpty && !rest.inboxes.contains(client))
        #expect(await again.status().damage.isEmpty)
        await again.stop()
        try await machine.end()
    }

    @Test("a stop after a failed leaving keeps the whole conversation, which can be left later") func never()
        async throws
    {
        let machine = try Machine()
        let (node, conversation, client) = try await Self.leaveInVain(machine)
        await node.stop()
        machine.mendDisk()
        let second = try await machine.start()
        let rest = try await Self.list(second)
        #expect(rest.conversations == [conversation] && rest.inboxes.contains(client))
        #expect(await second.status().damage.isEmpty)
        #expect(try await second.leave(conversation.description) == conversation)
        await second.stop()
        let third = try await machine.start()
        #expect(try await Self.list(third).conversations.isEmpty)
        await third.stop()
        try await machine.end()
    }
}
