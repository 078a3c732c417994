import Testing

@testable import Messaging

@Suite("Mailbox: outboxes") struct MailboxOutboxTests {
    private func id(_ number: UInt8) -> MessageID { MessageID(unchecked: [UInt8](repeating: number, count: 16)) }

    private func outbox(
        _ numbers: ClosedRange<UInt8>, mailed: Set<UInt8> = [], deadline: Timestamp = noon + Milliseconds.day
    ) -> OutboxStateMachine {
        var outbox = OutboxStateMachine()
        for number in numbers {
            let isQueued = outbox.enqueue(
                id(number), sentAt: noon, deadline: deadline, isStored: true, isMailed: mailed.contains(number))
            #expect(isQueued)
        }
        return outbox
    }

    private func unmailed(_ outbox: OutboxStateMachine, limit: Int = 100, at now: Timestamp = noon) -> [MessageID] {
        outbox.unmailed(limit: limit, now: now).map(\.id)
    }

    @Test func `a mailed message stays in its order and is not put again`() {
        var outbox = outbox(1...4)
        #expect(unmailed(outbox) == (1...4).map(id) && unmailed(outbox, limit: 2) == [id(1), id(2)])
        #expect(outbox.unmailed(limit: 1, now: noon + 7).map(\.age) == [7])
        #expect(outbox.unmailed(limit: 1, now: noon - 7).map(\.age) == [0], "a clock that was set back")
        #expect(outbox.mailed([id(2), id(9), id(1)]) == [id(2), id(1)])
        #expect(outbox.count == 4 && outbox.all.map(\.message) == (1...4).map(id))
        #expect(outbox.all.map(\.state) == [.mailed, .mailed, .queued, .queued])
        #expect(unmailed(outbox) == [id(3), id(4)] && outbox.hasUnmailed(now: noon))
        #expect(outbox.mailed([id(3), id(4)]).count == 2)
        #expect(unmailed(outbox).isEmpty && !outbox.hasUnmailed(now: noon) && !outbox.isEmpty)
        #expect(outbox.cancel(id(1)) && !outbox.cancel(id(1)) && outbox.mailed([id(1)]).isEmpty)
        #expect(outbox.cancel(id(2)) && outbox.count == 2)
    }

    @Test func `a mailed message also goes over a link, in the old order, and again over the next link`() {
        var random = Randomness.seeded(1)
        var outbox = outbox(1...4)
        _ = outbox.mailed([id(2)])
        #expect(outbox.flush(now: noon, random: &random).transmitted.map(\.id) == (1...4).map(id))
        #expect(unmailed(outbox).isEmpty && !outbox.hasUnmailed(now: noon), "it is in flight")
        _ = outbox.mailed([id(3)])
        outbox.linkLost()
        #expect(unmailed(outbox) == [id(1), id(4)], "what was on a lost link may be put")
        #expect(outbox.flush(now: noon, random: &random).transmitted.map(\.id) == (1...4).map(id))
    }

    @Test func `an expired message is not put`() {
        let outbox = outbox(1...2, deadline: noon + 10)
        #expect(unmailed(outbox, at: noon + 9).count == 2 && unmailed(outbox, at: noon + 10).isEmpty)
        #expect(outbox.hasUnmailed(now: noon + 9) && !outbox.hasUnmailed(now: noon + 10))
    }

    @Test func `a mailed message is restored as mailed`() {
        var random = Randomness.seeded(1)
        var outbox = outbox(1...4, mailed: [1, 3])
        #expect(outbox.all.map(\.isMailed) == [true, false, true, false])
        #expect(unmailed(outbox) == [id(2), id(4)])
        #expect(outbox.flush(now: noon, random: &random).transmitted.map(\.id) == (1...4).map(id))
    }

    @Test func `a mailed message may have arrived, so it is not given up early as a message that never left`() {
        var random = Randomness.seeded(1)
        var outbox = OutboxStateMachine()
        for number in [1, 2] as [UInt8] {
            _ = outbox.enqueue(
                id(number), sentAt: noon, deadline: noon + .day, unsentDeadline: noon + .hour, isStored: true)
        }
        #expect(outbox.mailed([id(1)]) == [id(1)])
        let actions = outbox.advance(now: noon + .hour, isLinked: false, random: &random)
        #expect(actions.expired == [id(2)], "the other has never left")
        #expect(outbox[id(1)]?.deadline == noon + .day)
    }

    /// Each query looks at the first name only. A look at all of them would take minutes.
    @Test(.timeLimit(.minutes(1))) func `neither a tick nor an order looks at mailed messages`() {
        var random = Randomness.seeded(1)
        var outbox = OutboxStateMachine()
        let ids = (0..<Limits.outboxCount).map { _ in MessageID.random(&random) }
        for (index, id) in ids.enumerated() {
            let deadline = noon + (index == 0 ? Milliseconds.minute : .day)
            _ = outbox.enqueue(id, sentAt: noon, deadline: deadline, isStored: true)
        }
        var put = 0
        while outbox.hasUnmailed(now: noon) {
            let order = unmailed(outbox, limit: 8)
            #expect(order == Array(ids[put..<put + order.count]))
            put += outbox.mailed(order).count
        }
        #expect(put == ids.count)
        for _ in 0..<100_000 where outbox.hasUnmailed(now: noon) { Issue.record("all are mailed") }
        // Time does not look at messages that expire later, either.
        #expect(outbox.advance(now: noon + .minute, isLinked: false, random: &random).expired == [ids[0]])
        for second in 0..<100_000 as Range<Int64> {
            outbox.rest()
            let now = noon + .minute + second
            if !outbox.advance(now: now, isLinked: true, random: &random).expired.isEmpty { Issue.record("too early") }
        }
        #expect(outbox.nextDeadline.map { $0 <= noon + .day } == true && !outbox.holdsMemoryOnly)
    }

    @Test func `one message that is never acknowledged does not keep the slot names of later messages`() {
        var random = Randomness.seeded(1)
        var outbox = outbox(1...1)
        for _ in 0..<4 * Limits.inFlightCount {
            let next = MessageID.random(&random)
            _ = outbox.enqueue(next, sentAt: noon, deadline: noon + .day, isStored: false)
            _ = outbox.flush(now: noon, random: &random)
            #expect(outbox.holdsMemoryOnly && outbox.cancel(next) && !outbox.holdsMemoryOnly)
        }
        #expect(outbox.nameCount <= 2 * Limits.inFlightCount + 8)
        outbox.linkLost()
        #expect(unmailed(outbox) == [id(1)])
        #expect(outbox.advance(now: noon + .day, isLinked: false, random: &random).expired == [id(1)])
    }
}
