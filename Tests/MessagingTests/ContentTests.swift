import Cryptography
import Messaging
import TestSupport
import Testing

@Suite struct Contents {
    private func bytes(_ count: Int, seed: UInt64 = 5) -> [UInt8] {
        var random = Randomness.seeded(seed)
        return random.bytes(count)
    }

    private func sendFile(_ bytes: [UInt8], _ pair: inout Pair, hash: [UInt8]? = nil, announced: Int64? = nil) throws
        -> MessageID
    {
        var prepared: PreparedAttachment?
        pair.command(0) { (machine, turn) throws(CommandError) in
            prepared = try machine.prepareAttachment(byteCount: 0, &turn)
        }
        let draft = try #require(prepared)
        let size = Limits.chunkByteCount
        for (index, start) in stride(from: 0, to: bytes.count, by: size).enumerated() {
            let plain = Array(bytes[start..<min(start + size, bytes.count)])
            pair.chunks[0][draft.message, default: [:]][index] = AttachmentChunk(
                message: draft.message, index: index, plain: plain, isWorthTrying: true)
        }
        let attachment = Messaging.Attachment(
            name: "f", mediaType: "", byteCount: announced ?? Int64(bytes.count), hash: hash ?? BLAKE2b.hash(bytes),
            text: "look")
        pair.command(0) { _ = try $0.send(attachment, draft, &$1) }
        return draft.message
    }

    private func state(_ id: MessageID, _ pair: Pair, _ node: Int) -> DeliveryState? {
        pair.archive[node][id]?.message.state
    }

    /// Delivers the next frames in flight.
    private func deliver(_ count: Int, _ pair: inout Pair) { for _ in 0..<count { pair.deliverOne() } }

    /// A message of node 0 has arrived at node 1, which sends read receipts.
    private func read() throws -> (pair: Pair, id: MessageID) {
        var pair = try Pair.joined()
        let id = try pair.say("hello", from: 0)
        pair.run()
        pair.readReceipts[1] = true
        return (pair, id)
    }

    private func markRead(_ ids: [MessageID], _ pair: inout Pair) {
        let (client, sender) = (pair.clients[1], pair.keys[0].publicKey)
        let seen = ids.map { (id: $0, sender: sender) }
        pair.step(1) { core, turn in core.step(client, &turn) { $0.markRead(seen, &$1) } }
    }

    @Test(arguments: [0, 1, 61_440, 61_441, 3_000_000])
    func `a file counts as delivered only after it has arrived whole`(_ count: Int) throws {
        var pair = try Pair.joined(agreed: .oneDay)
        let file = bytes(count)
        let id = try sendFile(file, &pair)
        #expect(state(id, pair, 0) == .sent)
        pair.run()
        #expect(state(id, pair, 0) == .delivered && state(id, pair, 1) == .received)
        #expect(pair.chunks[1][id]?.count ?? 0 == Messaging.Attachment.chunkCount(Int64(count)))
        #expect(pair.machines[0]?.outboxCount == 0)
        #expect(pair.archive[0][id]?.message.deliveries.map(\.state) == [.delivered])
        if case .disk? = pair.archive[1][id]?.keeping {} else { Issue.record("stored under the agreement") }
    }

    @Test(arguments: [false, true])
    func `a file above the receiver's limit, or whose bytes do not match the announced hash, fails and is deleted`(
        isTooLarge: Bool
    ) throws {
        var pair = try Pair.joined(agreed: .oneDay)
        if isTooLarge { pair.fileLimit[1] = 99_999 }
        let id = try sendFile(bytes(100_000), &pair, hash: isTooLarge ? nil : [UInt8](repeating: 1, count: 32))
        pair.run()
        #expect(state(id, pair, 0) == .failed && state(id, pair, 1) == .failed)
        #expect(pair.chunks[1][id] == nil && pair.machines[0]?.outboxCount == 0)
        #expect(pair.events[0].contains(.messageState(id, .failed, stored: nil)))
    }

    @Test func `a file without an agreement is held in memory, up to the memory limit`() throws {
        var pair = try Pair.joined()
        let limit = Limits.attachmentMemoryByteCount
        let refusal = pair.command(0) { (machine, turn) throws(CommandError) in
            _ = try machine.prepareAttachment(byteCount: limit + 1, &turn)
        }
        #expect(refusal == .fileTooLargeForMemory(limit + 1))
        let id = try sendFile(bytes(50_000), &pair)
        pair.run()
        #expect(state(id, pair, 1) == .received)
        #expect(pair.archive[1][id]?.keeping == .memory)
        // The sender announces a smaller size than the file has.
        let liar = try sendFile(bytes(10), &pair, announced: Limits.attachmentMemoryByteCount)
        pair.run()
        #expect(state(liar, pair, 1) == .receiving, "the chunk has not the size that was announced")
        #expect(pair.chunks[1][liar] == nil)
    }

    @Test func `a file without disk room is not acknowledged, and arrives once there is room`() throws {
        var pair = try Pair.joined(agreed: .oneDay)
        pair.hasRoom[1] = false
        let id = try sendFile(bytes(100_000), &pair)
        pair.run()
        #expect(pair.archive[1][id] == nil && state(id, pair, 0) == .sent)
        pair.hasRoom[1] = true
        pair.advance(0, by: 3 * .second)
        pair.run()
        #expect(state(id, pair, 0) == .delivered)
    }

    @Test func `a new link transfers only the missing chunks of a file`() throws {
        var pair = try Pair.joined(agreed: .oneDay)
        let id = try sendFile(bytes(100 * Limits.chunkByteCount), &pair)
        deliver(40, &pair)
        let here = pair.chunks[1][id]?.count ?? 0
        #expect((10..<100).contains(here))
        pair.disconnect()
        pair.open(1, to: 0)
        var sent = 0
        while !pair.wire.isEmpty {
            if case .attachmentChunk? = pair.wire[0].frame { sent += 1 }
            deliver(1, &pair)
        }
        #expect(sent == 100 - here)
        #expect(state(id, pair, 0) == .delivered && state(id, pair, 1) == .received)
    }

    @Test(arguments: [(.oneDay, false), (.oneDay, true), (.ephemeral, true)] as [(LifetimeTerms, Bool)])
    func
        `a file cancelled by its sender fails at the receiver, which deletes its chunks, at the latest on reconnection`(
            terms: LifetimeTerms, isLost: Bool
        ) throws
    {
        var pair = try Pair.joined(agreed: terms)
        // More chunks than may be in flight.
        let id = try sendFile(bytes(100 * Limits.chunkByteCount), &pair)
        deliver(12, &pair)
        #expect(state(id, pair, 1) == .receiving && pair.chunks[1][id]?.isEmpty == false)
        if isLost { pair.disconnect() }
        pair.command(0) { try $0.cancel(id, &$1) }
        if isLost { pair.meet(dialer: 0) } else { pair.run() }
        #expect(state(id, pair, 0) == .cancelled && state(id, pair, 1) == .failed && pair.chunks[1][id] == nil)
        // A chunk that the sender still has is requested once, and arrives.
        let other = try sendFile(bytes(20 * Limits.chunkByteCount), &pair)
        deliver(12, &pair)
        pair.disconnect()
        pair.meet(dialer: 0)
        #expect(state(other, pair, 1) == .received && state(other, pair, 0) == .delivered)
    }

    @Test func `the number of unfinished files of one member is bounded`() throws {
        var pair = try Pair.joined(agreed: .oneDay)
        for _ in 0..<Limits.incomingAttachmentCount + 3 { _ = try sendFile(bytes(40_000), &pair) }
        // The contents arrive, the chunks do not.
        while let position = pair.wire.firstIndex(where: { if case .contents? = $0.frame { true } else { false } }) {
            let next = pair.wire.remove(at: position)
            pair.receive(try #require(next.frame), next.to, on: next.link)
        }
        #expect(pair.archive[1].values.count { $0.message.state == .receiving } == Limits.incomingAttachmentCount)
    }

    @Test func `a reply and a reaction to a known message reach the other member`() throws {
        var pair = try Pair.joined()
        let id = try pair.say("hello", from: 0)
        pair.run()
        pair.command(1) { _ = try $0.reply("hi", to: id, &$1) }
        pair.command(1) { _ = try $0.react("👍", to: id, isRemoved: false, &$1) }
        pair.run()
        let bodies = pair.archive[0].values.map(\.message.content.body)
        #expect(bodies.contains(.reply(Reply(replyTo: id, text: "hi"))))
        #expect(bodies.contains(.reaction(Reaction(message: id, emoji: "👍", isRemoved: false))))
        var random = Randomness.seeded(2)
        let unknown = MessageID.random(&random)
        #expect(pair.command(1) { _ = try $0.react("👍", to: unknown, isRemoved: false, &$1) } == .unknownMessage)
        #expect(pair.command(1) { _ = try $0.react("\n", to: id, isRemoved: false, &$1) } == .invalidReaction)
    }

    @Test func `a reaction expires with its message`() throws {
        var pair = try Pair.joined(agreed: .oneHour)
        let id = try pair.say("hello", from: 0)
        pair.run()
        pair.now = pair.now + 30 * .minute
        pair.command(1) { _ = try $0.react("👍", to: id, isRemoved: false, &$1) }
        pair.run()
        let end = pair.archive[0][id]?.message.expiresAt
        let reaction = pair.archive[0].values.first { $0.message.content.isAnnotation }
        #expect(end != nil && reaction?.message.expiresAt == end)
    }

    @Test func `read receipts are sent only when enabled, once per message and in batches`() throws {
        var pair = try Pair.joined()
        let ids = try (0..<300).map { try pair.say("\($0)", from: 0) }
        pair.run()
        markRead(ids, &pair)
        #expect(pair.wire.isEmpty)
        pair.readReceipts[1] = true
        markRead(ids, &pair)
        #expect(pair.wire.count { if case .receipt? = $0.frame { true } else { false } } == 2)
        pair.run()
        #expect(ids.allSatisfy { state($0, pair, 0) == .read })
        markRead(ids, &pair)
        #expect(pair.wire.isEmpty)
        // A conversation's own setting beats the default.
        pair.command(1) { (machine, turn) throws(CommandError) in machine.setReadReceipts(false, &turn) }
        let last = try pair.say("last", from: 0)
        pair.run()
        markRead([last], &pair)
        #expect(pair.wire.isEmpty)
    }

    @Test func `read receipts wait for the link`() throws {
        var (pair, id) = try read()
        pair.disconnect()
        markRead([id], &pair)
        #expect(state(id, pair, 0) == .delivered)
        pair.meet(dialer: 0)
        #expect(state(id, pair, 0) == .read)
    }

    @Test func `a read receipt in flight on a replaced link still counts`() throws {
        var (pair, id) = try read()
        markRead([id], &pair)
        #expect(pair.wire.contains { if case .receipt? = $0.frame { true } else { false } })
        pair.meet(dialer: 0)
        #expect(state(id, pair, 0) == .read)
    }

    @Test func `a receipt for a message that we did not send changes nothing`() throws {
        var pair = try Pair.joined()
        let id = try pair.say("hello", from: 1)
        pair.run()
        let link = try #require(pair.machines[0]?.link(to: pair.keys[1].publicKey))
        for kind in [Receipt.Kind.read, .tooLarge, .damaged] {
            pair.receive(.receipt(Receipt(kind, [id])), 0, on: link)
        }
        #expect(state(id, pair, 0) == .received)
    }

    @Test func `a bot may send any content type except reserved ones`() throws {
        var pair = try Pair.joined()
        func send(_ type: String, _ count: Int = 3, fallback: String = "a poll") -> CommandError? {
            pair.command(0) { (machine, turn) throws(CommandError) in
                _ = try machine.send(
                    ContentType(type), payload: [UInt8](repeating: 1, count: count), fallback: fallback, &turn)
            }
        }
        #expect(send("example.org/poll:1.0") == nil)
        pair.run()
        let poll = pair.archive[1].values.first { $0.message.content.type == ContentType("example.org/poll:1.0") }
        #expect(poll?.message.content.displayText == "a poll" && poll?.message.content.isUnknown == true)
        #expect(send("poll") == .invalidContentType("poll"))
        #expect(send("mayfly/text:1.0") == .reservedContentType("mayfly"))
        #expect(send("convos.org/x:1.0") == .reservedContentType("convos.org"))
        #expect(
            send("a/b:1.0", 60_001)
                == .tooLong(
                    "payload", 60_001, limit: Limits.payloadByteCount, "send it as a file: `mayfly send C --file FILE`")
        )
        #expect(
            send("a/b:1.0", fallback: String(repeating: "x", count: 1_025))
                == .tooLong("fallback", 1_025, limit: Limits.fallbackByteCount))
    }

    @Test func `content of attachment version 1 counts as a file, all other content as text`() {
        func kind(_ type: String) -> ContentKind {
            Content(
                type: ContentType(type), id: MessageID(unchecked: [UInt8](repeating: 0, count: MessageID.byteCount)),
                sentAt: noon, lifetime: .ephemeral, agreement: nil, fallback: "", shouldPush: false, payload: []
            ).kind
        }
        #expect(kind("mayfly/attachment:1.0") == .attachment && kind("mayfly/attachment:1.4") == .attachment)
        #expect(kind("mayfly/text:1.0") == .text && kind("mayfly/attachment:2.0") == .text)
    }
}
