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

    enum Ending: CaseIterable { case lock, sleep, forgottenMemory, forgottenChunks, expiryOnDisk, expiryInMemory }

    @Test(arguments: Ending.allCases) func `the hash leaves memory with its file`(ending: Ending) async throws {
        if ending == .expiryOnDisk || ending == .expiryInMemory {
            await node.keep(client, id, ending == .expiryOnDisk ? .disk(.oneHour) : .memory)
            try await node.whenCommitted().get()
        }
        let hash = await node.beginHash(client, id)
        #expect(!hash.isGone)
        switch ending {
        case .lock: await node.lock()
        case .sleep: #expect(try await node.sleepInbox("tea").state == .sleeping)
        case .forgottenMemory: await node.perform(.forgetMemory(client))
        case .forgottenChunks: await node.perform(.forgetChunks(client, id))
        case .expiryOnDisk, .expiryInMemory: await machine.wait(seconds: 3_601, reaping: node)
        }
        #expect(hash.isGone)
        try await machine.end(node)
    }

    @Test func `the hash starts again when the file is complete and is being verified`() async throws {
        let attachment = Messaging.Attachment(name: "f", mediaType: "", byteCount: 1_000_000, hash: [], text: "")
        let hash = await node.beginHash(client, id, of: attachment)
        await node.lock()
        #expect(hash.isBegunAnew)
        try await machine.end(node)
    }
}
