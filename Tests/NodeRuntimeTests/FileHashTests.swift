import Cryptography
import Messaging
import NIOCore
import Testing

@testable import NodeRuntime

extension Node {
    /// Begins the hash of a file and returns a reference to it.
    fileprivate func beginHash(
        _ client: ClientID, _ id: Messaging.MessageID, of attachment: Messaging.Attachment? = nil
    ) -> Hash {
        let verification = Verification()
        verification.next = 3
        verification.attachment = attachment
        inboxes[client]?.verifications[id] = verification
        return Hash(verification)
    }

    fileprivate func perform(_ action: NodeAction) { core.perform([action]) }

    fileprivate func keep(_ client: ClientID, _ id: Messaging.MessageID, _ keeping: NodeAction.Keeping) {
        let content = Content(
            type: .text, id: id, sentAt: services.now, lifetime: .oneHour, agreement: nil, fallback: "",
            shouldPush: true, payload: [])
        let sender = inboxes[client]?.key?.publicKey
        let message = Message(content: content, sender: sender, state: .received, expiresAt: services.now + .hour)
        perform(.keep(client, [message], keeping))
    }
}

/// Tells whether a hash, and with it the bytes hashed last, is still in memory.
private final class Hash: @unchecked Sendable {
    // @unchecked: used on the node's loop, and after the loop has ended.
    private weak var verification: Verification?
    private weak var hasher: SHA256Hasher?

    init(_ verification: Verification) {
        self.verification = verification
        hasher = verification.hasher
    }

    var isGone: Bool { verification == nil && hasher == nil }
    var isBegunAnew: Bool { verification?.next == 0 && hasher == nil }
}

@Suite("The hash of a file that is arriving") struct FileHashTests {
    private let machine: NodeMachine
    private let node: Node
    private let client: ClientID
    private let id: Messaging.MessageID

    init() async throws {
        machine = try NodeMachine()
        node = try await machine.start()
        client = try await node.createConversation(name: "tea", profile: nil).get().client
        var random = Randomness.system
        id = MessageID.random(&random)
    }

    private func end() async throws { try await machine.end(node) }

    @Test func `the hash leaves memory when the storage is locked`() async throws {
        let hash = await node.beginHash(client, id)
        #expect(!hash.isGone)
        await node.lock()
        #expect(hash.isGone)
        try await end()
    }

    @Test func `the hash leaves memory when its inbox falls asleep`() async throws {
        let hash = await node.beginHash(client, id)
        #expect(try await node.sleepInbox("tea").state == .sleeping)
        #expect(hash.isGone)
        try await end()
    }

    @Test func `the hash leaves memory with the chunks, or when memory is cleared`() async throws {
        for action in [NodeAction.forgetMemory(client), .forgetChunks(client, id)] {
            let hash = await node.beginHash(client, id)
            await node.perform(action)
            #expect(hash.isGone, "\(action)")
        }
        try await end()
    }

    @Test func `the hash leaves memory when the message expires, on the disk or in memory`() async throws {
        for keeping in [NodeAction.Keeping.disk(.oneHour), .memory] {
            await node.keep(client, id, keeping)
            try await node.whenCommitted().get()
            let hash = await node.beginHash(client, id)
            await machine.wait(seconds: 3_601, reaping: node)
            #expect(hash.isGone, "\(keeping)")
        }
        try await end()
    }

    @Test func `the hash starts again when the file is complete and is being verified`() async throws {
        let attachment = Messaging.Attachment(name: "f", mediaType: "", byteCount: 1_000_000, hash: [], text: "")
        let hash = await node.beginHash(client, id, of: attachment)
        await node.lock()
        #expect(hash.isBegunAnew)
        try await end()
    }
}
