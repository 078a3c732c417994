import Crypto
import Messaging
import Testing

/// A frame that acknowledges many messages (Frames.md, "Acknowledgement").
@Suite("Acknowledgements") struct AcknowledgementTests {
    private func scene(_ count: Int) throws -> (all: Assembly, ids: [MessageID]) {
        var all = try Assembly.joined(2)
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
        #expect(all.machine(0)?.outboxCount == 2)
        #expect(all.machine(0)?.record.undelivered[all.keys[1].publicKey] == 1)
    }

    @Test func `the first outcome named for a message in a frame counts`() throws {
        var (all, ids) = try scene(1)
        all.inject(
            .acknowledgement(Acknowledgement(stored: [ids[0], ids[0]], held: ids, expired: ids)), from: 1, to: 0)
        #expect(all.events[0].count { $0 == .messageState(ids[0], .delivered, stored: true) } == 1)
        #expect(all.archive[0][ids[0]]?.state == .delivered)
        #expect(all.machine(0)?.record.undelivered[all.keys[1].publicKey] ?? 0 == 0)
    }

    @Test func `an acknowledgement of ten messages makes room for ten waiting ones`() throws {
        var (all, ids) = try scene(Limits.inFlightCount + 10)
        #expect(all.archive[0][ids[Limits.inFlightCount]]?.state == .queued)
        all.inject(.acknowledgement(Acknowledgement(stored: Array(ids.prefix(10)))), from: 1, to: 0)
        #expect(ids.suffix(10).allSatisfy { all.archive[0][$0]?.state == .sent })
    }

    @Test func `an acknowledgement of more messages than the limit changes nothing`() throws {
        var (all, ids) = try scene(1)
        let many = ids + (0..<Limits.acknowledgementCount).map { _ in MessageID.random(&all.random) }
        all.inject(.acknowledgement(Acknowledgement(stored: many)), from: 1, to: 0)
        #expect(all.archive[0][ids[0]]?.state == .sent && all.machine(0)?.droppedCount == 1)
    }

    @Test func `unknown messages in one frame count against their sender as much as in single frames`() throws {
        let burst = Limits.idleFrameGroup * Limits.idleFrameRate.burst
        for size in [1, 64, 1_024] {
            var (all, _) = try scene(0)
            var named = 0
            while all.pauses[0] == nil, named <= 4 * Limits.acknowledgementCount {
                let unknown = (0..<size).map { _ in MessageID.random(&all.random) }
                all.inject(.acknowledgement(Acknowledgement(held: unknown)), from: 1, to: 0)
                named += size
            }
            #expect(named > burst - 8 && named <= burst + max(size, Limits.idleFrameGroup), "\(size) a frame: \(named)")
        }
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
