import Messaging
import Testing

@testable import NodeRuntime

@Suite("Effects that wait for the disk") struct EffectQueueTests {
    private let inboxes: [EffectQueue] = {
        var random = Randomness.seeded(1)
        return (0..<2).map { _ in EffectQueue(client: ClientID.generate(&random)) }
    }()
    private var commits = CommitLedger()

    /// Records the effects that were performed, by number.
    private final class Left {
        var effects: [(number: Int, isDurable: Bool)] = []
        var numbers: [Int] { effects.map(\.number) }

        func perform(_ released: [(EffectQueue, [EffectQueue.Effect])], isDurable: Bool) {
            for case .run(let run) in released.flatMap(\.1) { run(isDurable) }
        }
    }

    private let left = Left()

    private func enqueue(_ number: Int, for inbox: EffectQueue) -> Bool {
        inbox.enqueue(.run { [left] in left.effects.append((number, $0)) }, completed: commits.completed)
    }

    @Test("Effects of a change wait for its commit, in order, per inbox; effects without a change do not wait")
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

    @Test mutating func `A failed commit cancels its effects, even if its inbox has changed again since`() {
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
        commits.changed(one)
        #expect(enqueue(4, for: one))
        left.perform(commits.complete(commits.beginCommit()), isDurable: true)
        #expect(left.numbers == [1, 2, 3, 4])
    }

    @Test mutating func `A failed commit names every inbox in it, also one without waiting effects`() {
        for inbox in inboxes { commits.changed(inbox) }
        let failed = commits.fail(commits.beginCommit())
        #expect(failed.map(\.0.client) == inboxes.map(\.client).sorted() && failed.allSatisfy(\.1.isEmpty))
        #expect(commits.fail(commits.beginCommit()).isEmpty)
    }

    @Test mutating func `A removed inbox is in no later failure`() {
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
