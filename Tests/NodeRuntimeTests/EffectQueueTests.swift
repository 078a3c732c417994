import Messaging
import Testing

@testable import NodeRuntime

@Suite("Effects that wait for the disk") struct EffectQueueTests {
    private let inboxes: [EffectQueue] = {
        var random = Randomness.seeded(1)
        return (0..<2).map { _ in EffectQueue(client: ClientID.generate(&random)) }
    }()
    private var commits = CommitLedger()

    /// Marks what has left, by its number.
    private final class Left {
        var effects: [(number: Int, isDurable: Bool)] = []
        var numbers: [Int] { effects.map(\.number) }

        func perform(_ released: [(EffectQueue, [EffectQueue.Effect])], isDurable: Bool) {
            for case .run(let run) in released.flatMap(\.1) { run(isDurable) }
        }
    }

    private let left = Left()

    private mutating func enqueue(_ number: Int, for inbox: EffectQueue) -> Bool {
        let left = left
        return commits.enqueue(.run { left.effects.append((number, $0)) }, inbox)
    }

    @Test("What follows a change waits for its commit, in order, inbox by inbox; what follows none does not")
    mutating func order() {
        let (one, other) = (inboxes[0], inboxes[1])
        commits.changed(one)
        #expect(enqueue(1, for: one) && !enqueue(2, for: other))
        let first = commits.beginCommit()
        commits.changed(other)
        #expect(enqueue(3, for: one) && enqueue(4, for: other))
        let second = commits.beginCommit()
        left.perform(commits.complete(first), isDurable: true)
        #expect(left.numbers == [1, 3] && other.weight == 1)
        left.perform(commits.complete(second), isDurable: true)
        #expect(left.numbers == [1, 3, 4])
        #expect(!enqueue(5, for: one) && !enqueue(6, for: other))
    }

    @Test("A commit that fails takes back what rests on it, though its inbox has changed again since")
    mutating func failure() {
        let (one, other) = (inboxes[0], inboxes[1])
        commits.changed(one)
        #expect(enqueue(1, for: one))
        let first = commits.beginCommit()
        // In another file, with the next commit, which succeeds.
        commits.changed(one)
        commits.changed(other)
        #expect(enqueue(2, for: one) && enqueue(3, for: other))
        let second = commits.beginCommit()
        let failed = commits.fail(first)
        #expect(failed.count == 1 && failed[0].0 === one)
        left.perform(failed, isDurable: false)
        #expect(left.effects.allSatisfy { !$0.isDurable } && left.numbers == [1, 2])
        left.perform(commits.complete(second), isDurable: true)
        #expect(left.numbers == [1, 2, 3])
        // From here on it is an inbox like any other.
        commits.changed(one)
        #expect(enqueue(4, for: one))
        left.perform(commits.complete(commits.beginCommit()), isDurable: true)
        #expect(left.numbers == [1, 2, 3, 4])
    }

    @Test("A commit that fails says so of everybody who was part of it, also of one that nothing waits for")
    mutating func silent() {
        for inbox in inboxes { commits.changed(inbox) }
        let failed = commits.fail(commits.beginCommit())
        #expect(failed.map(\.0.client) == inboxes.map(\.client).sorted() && failed.allSatisfy(\.1.isEmpty))
        #expect(commits.fail(commits.beginCommit()).isEmpty)
    }

    @Test("Who was let go is part of nothing any more") mutating func dropped() {
        let client = inboxes[0]
        commits.changed(client)
        #expect(enqueue(1, for: client))
        let commit = commits.beginCommit()
        commits.changed(client)
        left.perform([(client, commits.drop(client))], isDurable: false)
        #expect(left.numbers == [1])
        #expect(commits.fail(commit).isEmpty && commits.fail(commits.beginCommit()).isEmpty)
        #expect(!enqueue(2, for: client))
    }
}
