import Cryptography
import Messaging
import NIOCore
import Testing

@testable import NodeRuntime

/// A node with thousands of conversations is as fast as one with a few: no step visits all of them.
@Suite("Visited inboxes") struct InboxVisitTests {
    private func make(_ count: Int, _ node: Node) async throws {
        for number in 0..<count { _ = try await node.createConversation(name: "unused \(number)", profile: nil).get() }
        try await node.whenCommitted().get()
        // Lets the deferred writes finish.
        for _ in 0..<3 { await node.reapNow() }
    }

    @Test func `neither a tick with nothing due nor status visits an inbox`() async throws {
        let (machine, node) = try await NodeMachine.started()
        try await make(40, node)
        let visited = await node.visits { $0.reapNow() }
        #expect(visited.isEmpty)
        let shown = await node.visits { _ = $0.status() }
        #expect(shown.isEmpty)
        let checked = await node.visits { _ = $0.mailboxConversationCount }
        #expect(checked.isEmpty)
        try await machine.end(node)
    }

    @Test func `a message and its acknowledgement visit only their own inbox`() async throws {
        let pair = try await Pair()
        try await pair.agree(.oneDay)
        // All are awake: to wake one would put another to sleep.
        for node in [pair.ann, pair.bob] { try await make(12, node) }
        for node in [pair.ann, pair.bob] { await node.beginCounting() }
        let delivered = await pair.ann.next { if case .messageState(_, .delivered, _) = $0 { true } else { false } }
        _ = try await pair.ann.send("tea", texts: ["hello"]) { _ in }
        _ = try await delivered.get()
        for node in [pair.ann, pair.bob] {
            let visited = await node.endCounting()
            let own = try await node.resolve("tea")
            let contact = await node.contactClient
            #expect(visited.contains(own))
            #expect(visited.subtracting([own, contact].compactMap(\.self)).isEmpty)
        }
        try await pair.end()
    }

    @Test func `an expiry in memory visits only its own inbox`() async throws {
        let (machine, node) = try await NodeMachine.started()
        try await make(40, node)
        for _ in 0..<3 { await machine.wait(seconds: 10, reaping: node) }
        let client = try await node.resolve("unused 7")
        await node.hold(until: nil, in: client)
        let never = await node.status().nextExpiry
        #expect(never == nil, "a kept message without an end")
        let end = machine.now + 2 * .second
        await node.hold(until: end, in: client)
        let next = await node.status().nextExpiry
        #expect(next == end)
        machine.wait(seconds: 3)
        let visited = await node.visits { $0.reapNow() }
        #expect(visited == [client])
        let after = await node.status().nextExpiry
        #expect(after == nil)
        try await machine.end(node)
    }
}

extension Node {
    fileprivate func beginCounting() { for visits in visits { visits.begin() } }
    fileprivate func endCounting() -> Set<ClientID> { visits.reduce(into: []) { $0.formUnion($1.end()) } }

    fileprivate func visits(_ body: @Sendable (isolated Node) -> Void) -> Set<ClientID> {
        beginCounting()
        body(self)
        return endCounting()
    }

    fileprivate var contactClient: ClientID? { core.machine.contact?.client }

    /// Keeps a message in the memory of an inbox.
    fileprivate func hold(until end: Timestamp?, in client: ClientID) {
        var random = Randomness.seeded(end == nil ? 1 : 2)
        let content = Content(
            type: .text, id: .random(&random), sentAt: currentTime, lifetime: .ephemeral, agreement: nil, fallback: "",
            shouldPush: true, payload: [1])
        let message = Message(content: content, sender: nil, state: .delivered, expiresAt: end, onReading: nil)
        try? inboxes[client]?.archive.keep(message, .memory, now: currentTime)
    }
}
