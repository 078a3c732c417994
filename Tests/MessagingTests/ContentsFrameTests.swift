import Cryptography
import Messaging
import TestSupport
import Testing

/// A frame of many contents (Frames.md, "Contents").
@Suite("Frames of many contents") struct ContentsFrameTests {
    private func scene() throws -> World {
        var all = try World.joined(2)
        all.run()
        return all
    }

    private func texts(_ count: Int, _ all: inout World) -> [AgedContent] {
        (0..<count).map { AgedContent(all.text("\($0)", by: 0), age: 0) }
    }

    private func acknowledgements(_ all: World) -> [Acknowledgement] {
        all.sent.compactMap { if case .acknowledgement(let said) = $0 { said } else { nil } }
    }

    @Test func `a frame's contents are shown in order, and one acknowledgement answers all`() throws {
        var all = try scene()
        let contents = texts(100, &all)
        all.inject(.contents(contents), from: 0, to: 1)
        let ids = contents.map(\.content.id)
        let shown = all.events[1].compactMap { if case .message(let id) = $0 { id } else { nil } }
        #expect(shown == ids && all.archive[1].count >= 100)
        #expect(acknowledgements(all) == [Acknowledgement(held: ids)])
        // A repeat is acknowledged again and not shown.
        all.inject(.contents(contents), from: 0, to: 1)
        #expect(acknowledgements(all).count == 2 && acknowledgements(all).last?.count == 100)
        #expect(all.events[1].count { if case .message = $0 { true } else { false } } == 100)
    }

    @Test func `each content in a frame has its own outcome`() throws {
        var all = try scene()
        all.agree(on: LifetimeTerms(.oneHour, unopened: .minute))
        let agreement = all.machine(0)?.agreement?.id
        let stored = all.text("stored", by: 0, lifetime: .oneHour, agreement: agreement)
        let late = all.text("late", by: 0, lifetime: .oneHour, agreement: agreement)
        let held = all.text("held", by: 0)
        let foreign = all.text("foreign", id: .random(&all.random), by: 0)
        let dropped = all.machine(1)?.droppedCount ?? 0
        all.inject(
            .contents([
                AgedContent(stored, age: 0), AgedContent(late, age: .minute), AgedContent(foreign, age: 0),
                AgedContent(held, age: 0),
            ]), from: 0, to: 1)
        #expect(acknowledgements(all).last == Acknowledgement(stored: [stored.id], held: [held.id], expired: [late.id]))
        #expect(all.archive[1][late.id] == nil && all.archive[1][foreign.id] == nil)
        #expect(all.machine(1)?.droppedCount == dropped + 1)
    }

    @Test func `a content repeated within a frame is kept once`() throws {
        var all = try scene()
        let first = texts(2, &all)
        var other = first[0]
        other.content.payload = Array("another text under the same id".utf8)
        all.inject(.contents([first[0], first[1], other, first[1]]), from: 0, to: 1)
        #expect(all.events[1].count { $0 == .message(first[0].content.id) } == 1)
        #expect(all.events[1].count { $0 == .message(first[1].content.id) } == 1)
        #expect(all.archive[1][first[0].content.id]?.content == first[0].content && all.machine(1)?.droppedCount == 2)
        #expect(acknowledgements(all).last == Acknowledgement(held: first.map(\.content.id)))
    }

    @Test func `a reaction expires with its message, though both come in one frame`() throws {
        var all = try scene()
        all.agree(on: LifetimeTerms(.oneHour))
        let agreement = all.machine(0)?.agreement?.id
        let message = all.text("x", by: 0, lifetime: .oneHour, agreement: agreement)
        var reaction = all.text("", by: 0, lifetime: .oneHour, agreement: agreement)
        reaction.type = .reaction
        reaction.payload = []
        reaction.body = .reaction(Reaction(message: message.id, emoji: "👍", isRemoved: false))
        all.inject(.contents([AgedContent(message, age: 30 * .minute), AgedContent(reaction, age: 0)]), from: 0, to: 1)
        let end = try #require(all.archive[1][message.id]?.expiresAt)
        #expect(all.archive[1][reaction.id]?.expiresAt == end && end == all.now + 30 * .minute)
    }

    @Test func `a frame with more contents than the limit is dropped whole`() throws {
        var all = try scene()
        let many = texts(Limits.contentsCount + 1, &all)
        all.inject(.contents(many), from: 0, to: 1)
        #expect(all.machine(1)?.droppedCount == many.count && acknowledgements(all).isEmpty)
        all.inject(.contents(Array(many.dropLast())), from: 0, to: 1)
        #expect(acknowledgements(all).last?.held.count == Limits.contentsCount)
    }

    @Test func `one frame cannot exceed the memory bound of an inbox`() throws {
        var all = try scene()
        let large = String(repeating: "x", count: 32_000)
        let contents = (0..<40).map { _ in AgedContent(all.text(large, by: 0), age: 0) }
        all.inject(.contents(contents), from: 0, to: 1)
        let held = try #require(all.machine(1)?.heldByteCount)
        #expect(held <= Limits.memoryByteCount && held > Limits.memoryByteCount - 33_000)
        #expect(acknowledgements(all).last?.held.count == all.archive[1].values.count { $0.sender != nil })
    }

    @Test func `one frame cannot exceed the memory bound of all inboxes together`() throws {
        var all = try scene()
        let link = try #require(all.machine(1)?.link(to: all.keys[0].publicKey))
        let client = all.clients[1]
        let contents = (0..<8).map { _ in AgedContent(all.text("0123456789", by: 0), age: 0) }
        let one = Message(content: contents[0].content, sender: nil, state: .received, expiresAt: nil).byteCount
        var turn = turn(all.random, now: all.now)
        let machine = try #require(all.nodes[1].conversation(client))
        machine.receive(.contents(contents), from: all.keys[0].publicKey, on: link, memoryAvailable: 3 * one, &turn)
        let kept = turn.actions.flatMap { action -> [Message] in
            if case .keep(_, let messages, _) = action { messages } else { [] }
        }
        #expect(kept.map(\.content.id) == contents.prefix(3).map(\.content.id))
    }

    @Test func `messages that waited for a link go in one frame, the oldest first`() throws {
        var all = try scene()
        all.isolate(1)
        let ids = try (0..<20).map { try all.say("\($0)", from: 0) }
        all.heal(for: .minute)
        let frames = all.sent.compactMap { if case .contents(let contents) = $0 { contents } else { nil } }
        #expect(frames.contains { $0.map(\.content.id) == ids })
        #expect(ids.allSatisfy { all.archive[0][$0]?.state == .delivered })
    }
}

/// A frame that acknowledges many messages (Frames.md, "Acknowledgement").
@Suite("Acknowledgements") struct AcknowledgementTests {
    private func scene(_ count: Int) throws -> (all: World, ids: [MessageID]) {
        var all = try World.joined(2)
        all.run()
        all.cut.insert([0, 1])
        let ids = try (0..<count).map { try all.say("\($0)", from: 0) }
        return (all, ids)
    }

    @Test func `one frame acknowledges many messages, each with its own outcome`() throws {
        var (all, ids) = try scene(6)
        let said = Acknowledgement(stored: [ids[0], ids[3]], held: [ids[1]], expired: [ids[4]])
        all.inject(.acknowledgement(said), from: 1, to: 0)
        let expected: [DeliveryState] = [.delivered, .delivered, .sent, .delivered, .expiredUndelivered, .sent]
        #expect(ids.map { all.archive[0][$0]?.state } == expected)
        let events = all.events[0]
        #expect(events.contains(.messageState(ids[0], .delivered, stored: true)))
        #expect(events.contains(.messageState(ids[1], .delivered, stored: false)))
        #expect(all.machine(0)?.outboxCount == 2 && all.machine(0)?.record.undelivered[all.keys[1].publicKey] == 1)
    }

    @Test func `the first outcome named for a message in a frame counts`() throws {
        var (all, ids) = try scene(1)
        all.inject(
            .acknowledgement(Acknowledgement(stored: [ids[0], ids[0]], held: ids, expired: ids)), from: 1, to: 0)
        #expect(all.events[0].count { $0 == .messageState(ids[0], .delivered, stored: true) } == 1)
        #expect(all.archive[0][ids[0]]?.state == .delivered)
        #expect(all.machine(0)?.record.undelivered[all.keys[1].publicKey] ?? 0 == 0)
    }

    @Test func `an acknowledgement of more messages than the limit changes nothing`() throws {
        var (all, ids) = try scene(1)
        let many = ids + (0..<Limits.acknowledgementCount).map { _ in MessageID.random(&all.random) }
        all.inject(.acknowledgement(Acknowledgement(stored: many)), from: 1, to: 0)
        #expect(all.archive[0][ids[0]]?.state == .sent && all.machine(0)?.droppedCount == 1)
    }

    @Test func `unknown messages in a frame count against its sender even beside known ones`() throws {
        var (all, ids) = try scene(8)
        for id in ids {
            let unknown = (0..<64).map { _ in MessageID.random(&all.random) }
            all.inject(.acknowledgement(Acknowledgement(stored: [id] + unknown)), from: 1, to: 0)
        }
        #expect(all.pauses[0] != nil)
    }

    @Test func `two acknowledgements merge only when they fit into one frame`() {
        var random = Randomness.seeded(1)
        let most = Limits.acknowledgementCount
        var said = Acknowledgement(stored: (0..<most - 2).map { _ in .random(&random) })
        let three = Acknowledgement(stored: [.random(&random)], held: [.random(&random)], expired: [.random(&random)])
        #expect(!said.merge(three) && said.count == most - 2)
        #expect(said.merge(Acknowledgement(held: three.held, expired: three.expired)) && said.count == most)
        #expect(said.held == three.held && said.expired == three.expired && !said.isEmpty)
    }
}
