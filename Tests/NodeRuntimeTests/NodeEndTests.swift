import Messaging
import NIOCore
import Testing
import Transport

@testable import NodeRuntime

@Suite("The end of a node") struct NodeEndTests {
    @Test("a stopped node releases all its objects: no reference cycle holds them") func released() async throws {
        let ann = Remains()
        let bob = Remains()
        try await run(ann, bob)
        #expect(ann.names == [])
        #expect(bob.names == [])
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
