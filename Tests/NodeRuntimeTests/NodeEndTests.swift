import Messaging
import NIOCore
import NIOPosix
import Store
import Testing
import Transport

@testable import NodeRuntime

@Suite("The end of a node") struct NodeEndTests {
    @Test func `a stopped node releases all its objects: no reference cycle holds them`() async throws {
        let ann = Remains()
        let bob = Remains()
        try await run(ann, bob)
        #expect(ann.names == [])
        #expect(bob.names == [])
    }

    @Test("a change of the listeners that is undone opens the closed ones at their ports, unless the node has stopped")
    func listenersReturn() async throws {
        let pair = try await Pair()
        let ends = [try await pair.ann.undoListenerChange(), try await pair.ann.undoListenerChange(afterStop: true)]
        #expect(ends[0].before == ends[0].after && ends[0].isAtPort)
        #expect(!ends[1].isAtPort)
        try await pair.end()
    }

    @Test func `a stop writes the summaries of awake conversations for the next start`() async throws {
        let (machine, node) = try await NodeMachine.started()
        for number in 0..<3 { _ = try await node.createConversation(name: "c\(number)", profile: nil).get() }
        await node.stop()
        let store = try Store.open(home: NodeMachine.home, fileSystem: machine.disk, now: machine.now.milliseconds)
        try store.unlock(passphrase: nil)
        #expect(store.loadSummaries().count == 3)
        store.close()
        try await machine.end()
    }

    /// Runs two linked nodes that have exchanged messages, and releases them.
    private func run(_ ann: Remains, _ bob: Remains) async throws {
        let pair = try await Pair()
        try await pair.agree(.oneHour)
        let arrived = await pair.bob.next { if case .message = $0 { true } else { false } }
        _ = try await pair.ann.send("tea", texts: ["one"]) { _ in }
        _ = try await arrived.get()
        await pair.ann.remember(ann)
        await pair.bob.remember(bob)
        #expect(ann.names.count == 8 && bob.names.count == 8)
        try await pair.end()
    }
}

/// Weak references to a node's objects. Written on the node's loop, read after the loop has ended.
private final class Remains: @unchecked Sendable {
    weak var node: Node?
    weak var shell: Shell?
    weak var core: ProtocolCore?
    weak var timer: NodeTimer?
    weak var transport: LinkTransport?
    weak var links: LinkTable?
    weak var inbox: Inbox?
    weak var link: ActiveLink?

    var names: [String] {
        let all: [(String, AnyObject?)] = [
            ("node", node), ("shell", shell), ("core", core), ("timer", timer), ("transport", transport),
            ("links", links), ("inbox", inbox), ("link", link),
        ]
        return all.compactMap { $0.1 == nil ? nil : $0.0 }
    }
}

extension Node {
    /// Replaces the listener by one at the same port of every address, and undoes that.
    /// - Returns: `isAtPort`: the port accepts connections afterwards.
    fileprivate func undoListenerChange(afterStop: Bool = false) async throws -> (
        before: [Messaging.Endpoint], after: [Messaging.Endpoint], isAtPort: Bool
    ) {
        let before = shell.listening.endpoints
        let port = try #require(before.first?.port)
        let change = try await ListenerChange(
            to: [Messaging.Endpoint(host: "0.0.0.0", port: port)], on: shell.listening)
        if afterStop { await stop() }
        await change.undo()
        let connection = ClientBootstrap(group: loop).connect(host: "127.0.0.1", port: Int(port))
        let channel = try? await connection.get()
        try await channel?.close()
        return (before, shell.listening.endpoints, channel != nil)
    }

    fileprivate func remember(_ remains: Remains) {
        remains.node = self
        remains.shell = shell
        remains.core = core
        remains.timer = shell.timer
        remains.transport = shell.listening.transport
        remains.links = shell.links
        remains.link = shell.links.all.first
        remains.inbox = remains.link?.inbox
    }
}
