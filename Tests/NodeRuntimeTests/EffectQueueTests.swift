import Messaging
import Testing

@testable import NodeRuntime

@Suite("Effects that wait for the disk") struct EffectQueueTests {
    private static let inboxes: [ClientID] = {
        var random = Randomness.seeded(1)
        return (0..<2).map { _ in ClientID.generate(&random) }
    }()
    private var queue = EffectQueue()

    /// Marks what has left, by its number.
    private final class Left {
        var effects: [(number: Int, isDurable: Bool)] = []
        var numbers: [Int] { effects.map(\.number) }

        func perform(_ released: [(ClientID, [EffectQueue.Effect])], isDurable: Bool) {
            for case .run(let run) in released.flatMap(\.1) { run(isDurable) }
        }
    }

    private let left = Left()

    private mutating func enqueue(_ number: Int, for client: ClientID) -> Bool {
        let left = left
        return queue.enqueue(.run { left.effects.append((number, $0)) }, for: client)
    }

    @Test("What follows a change waits for its commit, in order, inbox by inbox; what follows none does not")
    mutating func order() {
        let (one, other) = (Self.inboxes[0], Self.inboxes[1])
        queue.changed(one)
        #expect(enqueue(1, for: one) && !enqueue(2, for: other))
        let first = queue.beginCommit()
        queue.changed(other)
        #expect(enqueue(3, for: one) && enqueue(4, for: other))
        let second = queue.beginCommit()
        left.perform(queue.complete(first), isDurable: true)
        #expect(left.numbers == [1, 3] && queue.count(for: other) == 1)
        left.perform(queue.complete(second), isDurable: true)
        #expect(left.numbers == [1, 3, 4])
        #expect(!enqueue(5, for: one) && !enqueue(6, for: other))
    }

    @Test("A commit that fails takes back what rests on it, though its inbox has changed again since")
    mutating func failure() {
        let (one, other) = (Self.inboxes[0], Self.inboxes[1])
        queue.changed(one)
        #expect(enqueue(1, for: one))
        let first = queue.beginCommit()
        // In another file, with the next commit, which succeeds.
        queue.changed(one)
        queue.changed(other)
        #expect(enqueue(2, for: one) && enqueue(3, for: other))
        let second = queue.beginCommit()
        let failed = queue.fail(first)
        #expect(failed.map(\.0) == [one])
        left.perform(failed, isDurable: false)
        #expect(left.effects.allSatisfy { !$0.isDurable } && left.numbers == [1, 2])
        left.perform(queue.complete(second), isDurable: true)
        #expect(left.numbers == [1, 2, 3])
        // From here on it is an inbox like any other.
        queue.changed(one)
        #expect(enqueue(4, for: one))
        left.perform(queue.complete(queue.beginCommit()), isDurable: true)
        #expect(left.numbers == [1, 2, 3, 4])
    }

    @Test("A commit that fails says so of everybody who was part of it, also of one that nothing waits for")
    mutating func silent() {
        for client in Self.inboxes { queue.changed(client) }
        let failed = queue.fail(queue.beginCommit())
        #expect(failed.map(\.0) == Self.inboxes.sorted() && failed.allSatisfy(\.1.isEmpty))
        #expect(queue.fail(queue.beginCommit()).isEmpty)
    }

    @Test("Who was let go is part of nothing any more")
    mutating func dropped() {
        let client = Self.inboxes[0]
        queue.changed(client)
        #expect(enqueue(1, for: client))
        let commit = queue.beginCommit()
        queue.changed(client)
        left.perform([(client, queue.drop(client))], isDurable: false)
        #expect(left.numbers == [1])
        #expect(queue.fail(commit).isEmpty && queue.fail(queue.beginCommit()).isEmpty)
        #expect(!enqueue(2, for: client))
    }
}
