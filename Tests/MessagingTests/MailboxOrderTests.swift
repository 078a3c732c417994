import Cryptography
import TestSupport
import Testing

@testable import Messaging

@Suite("Mailbox: orders for an absent member") struct MailboxOrderTests {
    @Test func `no order is made without an agreement or keys, for a linked member, or while locked`() throws {
        var all = try World.mailing(2, .oneDay)
        all.isolate(1)
        _ = try all.say("text", from: 0)
        all.run(for: 2 * .minute)
        #expect(all.orders.isEmpty)
        all = try World.joined(2)
        try all.giveMailboxes()
        all.withoutSlices = [0, 1]
        all.agree(on: .mailed)
        all.isolate(1)
        _ = try all.say("text", from: 0)
        all.run(for: 2 * .minute)
        #expect(all.orders.isEmpty && !all.isMailable(1, by: 0))
        // For a linked member, whether it answers or not.
        all = try World.mailing(2)
        all.cut = [[0, 1]]
        _ = try all.say("text", from: 0)
        all.run(for: 30 * .second)
        #expect(all.orders.isEmpty && all.machine(0)?.isOnline(all.keys[1].publicKey) == true)
        all.run(for: .minute)
        #expect(all.orders[0]?.count == 1)
        all = try World.mailing(2)
        all.isolate(1)
        _ = try all.say("text", from: 0)
        all.isLocked[0] = true
        all.run(for: 2 * .minute)
        #expect(all.orders.isEmpty)
        all.isLocked[0] = false
        all.run(for: 2 * .minute)
        #expect(all.orders[0]?.count == 1)
        all = try World.mailing(2)
        all.isolate(1)
        all.run(for: 5 * .minute)
        #expect(all.orders.isEmpty)
    }

    @Test("an order comes after two seconds without a link, in sending order, and its numbers are durable first")
    func put() throws {
        for terms in [LifetimeTerms.mailed, .inMemory, LifetimeTerms(.sevenDays, unopened: .hour, mailbox: .ram)] {
            var all = try World.mailing(2, terms)
            all.isolate(1)
            let start = all.now
            let ids = try (0..<3).map { try all.say("text \($0)", from: 0) }
            #expect(all.orders.isEmpty)
            _ = all.advance(0, to: start + Limits.mailDelay - 1)
            #expect(all.orders.isEmpty && (all.nodes[0].nextDeadline ?? .latest) <= start + Limits.mailDelay)
            let actions = all.advance(0, to: start + Limits.mailDelay)
            let order = try #require(all.orders[0]?.first)
            let index = try #require(actions.firstIndex(of: .mail(all.clients[0], order)))
            #expect(actions[..<index].contains(.save(all.clients[0])))
            #expect(order.messages == ids.map { NodeAction.AgedMessage(id: $0, age: Limits.mailDelay) })
            #expect(order.member == all.keys[1].publicKey && order.address.box == all.box(1) && order.number == 0)
            #expect(order.kind == (terms.mailbox == .disk ? .disk : .memory) && order.frames.isEmpty)
            #expect(order.agreement == all.machine(0)?.agreement?.id)
            let schedule = SliceSchedule(terms)
            #expect(order.keeping == .holding(schedule.unread) && order.slice == schedule.slice(at: all.now))
            #expect(order.key == all.slices[1]?[order.slice]?.publicKey)
            let next = all.machine(0)?.record.mailbox.outgoing[order.member]?.next
            #expect(next == UInt64(Limits.mailSlotCount), "before any of them is used")
            // One order at a time, however long it takes.
            _ = try all.say("more", from: 0)
            all.run(for: 10 * .minute)
            #expect(all.orders[0]?.count == 1)
        }
    }

    @Test func `ephemeral texts are never put on a mailbox's disk, even if files are`() throws {
        // Terms without stored texts allow no mailbox on a disk.
        #expect(!LifetimeTerms(.ephemeral, attachment: .oneDay, mailbox: .disk).isValid)
        var all = try World.mailing(2, LifetimeTerms(.ephemeral, attachment: .oneDay, mailbox: .ram))
        all.isolate(1)
        _ = try all.say("text", from: 0)
        all.run(for: 2 * .minute)
        #expect(all.orders[0]?.isEmpty == false && all.orders[0]?.allSatisfy { $0.kind == .memory } == true)
    }

    @Test("a message that the mailbox holds is `mailed` and not put again; a later one is put") func mailed() throws {
        var (all, id, order) = try World.away()
        let later = try all.say("two", from: 0)
        all.end(order, of: 0)
        #expect(all.state(id, at: 0) == .mailed && all.state(later, at: 0) == .queued)
        #expect(all.events[0].contains(.messageState(id, .mailed, stored: nil)))
        let second = try all.order(of: 0)
        #expect(second.messages.map(\.id) == [later] && second.number == 1)
        all.end(second, of: 0)
        all.run(for: .hour)
        #expect(all.orders[0]?.count == 2)
        #expect(all.machine(0)?.outbox(to: all.keys[1].publicKey).map(\.message) == [id, later])
        // A link carries them once more, and only the receiver confirms delivery.
        #expect(all.state(id, at: 0) != .delivered)
        all.heal(for: 2 * .minute)
        #expect(all.state(id, at: 0) == .delivered && all.state(later, at: 0) == .delivered)
        #expect(all.shown(id, at: 1) == 1 && all.shown(later, at: 1) == 1 && all.machine(0)?.outboxCount == 0)
    }

    @Test("a message is `mailed` when each member without its acknowledgement has it in a box") func three() throws {
        var all = try World.mailing(3)
        all.isolate(1)
        all.isolate(2)
        let id = try all.say("one", from: 0)
        all.run(for: 10 * .second)
        let orders = try #require(all.orders[0])
        #expect(Set(orders.map(\.member)) == Set([1, 2].map { all.keys[$0].publicKey }) && orders.count == 2)
        #expect(orders[0].address != orders[1].address)
        all.end(orders[0], of: 0)
        #expect(all.state(id, at: 0) == .queued)
        #expect(all.events[0].contains(.messageDelivery(id, orders[0].member, .mailed)))
        all.end(orders[1], of: 0)
        #expect(all.state(id, at: 0) == .mailed)
        all.heal()
        all.isolate(2)
        all.run(for: 2 * .minute)
        #expect(all.state(id, at: 0) != .delivered)
        all.heal(for: 2 * .minute)
        #expect(all.state(id, at: 0) == .delivered)

        // A linked member does not keep the message from being mailed.
        all = try World.mailing(3)
        all.isolate(2)
        let other = try all.say("two", from: 0)
        let order = try all.order(of: 0)
        #expect(order.member == all.keys[2].publicKey)
        all.end(order, of: 0)
        #expect(all.state(other, at: 0) == .mailed)
    }

    @Test func `a mailbox that refuses is tried again after 4 s, 8 s and so on, up to 15 min`() throws {
        var (all, _, order) = try World.away()
        for step in 0..<12 {
            all.fail(order, of: 0)
            let wait = min(Limits.mailRetry.first << Milliseconds(step), Limits.mailRetry.longest)
            #expect(all.orders(0, after: wait) == true, "\(step)")
            order = try #require(all.orders[0]?.last)
        }
        // A success resets the backoff.
        all.end(order, of: 0)
        _ = try all.say("two", from: 0)
        all.fail(try all.order(of: 0), of: 0)
        #expect(all.orders(0, after: Limits.mailRetry.first) == true)
        // A partial success does, too, even if it ends with `too fast`.
        let third = try all.say("three", from: 0)
        for step in 0..<6 {
            order = try #require(all.orders[0]?.last)
            all.fail(order, of: 0, mailed: step == 5 ? order.messages.map(\.id).filter { $0 != third } : [])
            let wait = step == 5 ? Limits.mailRetry.first : Limits.mailRetry.first << Milliseconds(step + 1)
            #expect(all.orders(0, after: wait) == true, "\(step)")
        }
    }

    @Test func `no number is used twice, whatever becomes of an order, and whenever the node stops`() throws {
        var all = try World.mailing(2)
        all.isolate(1)
        var next: UInt64 = 0
        for step in 0..<60 {
            _ = try all.say("text \(step)", from: 0)
            let order = try all.order(of: 0, within: 20 * .minute)
            #expect(order.number >= next, "\(step)")
            let slotCount = step % (Limits.mailSlotCount + 1)
            next = order.number + UInt64(slotCount)
            let record = all.machine(0)?.record.mailbox.outgoing[order.member]
            #expect(record.map { $0.next >= order.number + UInt64(Limits.mailSlotCount) } == true)
            let mailed = step % 3 == 0 ? [] : Array(order.messages.map(\.id).prefix(step % 4))
            all.end(
                order, of: 0, MailResult(mailed: mailed, tooLarge: [], slotCount: slotCount, isComplete: step % 5 > 0))
            #expect(all.machine(0)?.record.mailbox.outgoing[order.member].map { $0.next >= next } == true)
        }
    }

    @Test func `each start uses new numbers whatever number was saved, so an old copy of a home repeats none`() {
        let (early, late) = (Timestamp(milliseconds: 1_700_000_000_000), Timestamp(milliseconds: 1_700_000_000_001))
        let first = SlotRun.next(after: 0, startedAt: early)
        #expect(SlotRun.next(after: first, startedAt: early) == first)
        #expect(SlotRun.next(after: first + 500, startedAt: early) == first + 500, "the same run goes on")
        let second = SlotRun.next(after: first + 500, startedAt: late)
        #expect(second > first + 500 && SlotRun.next(after: first, startedAt: late) == second)
        // The system's clock was set back: the numbers are new all the same.
        #expect(SlotRun.next(after: second + 10, startedAt: Timestamp(milliseconds: 1_600_000_000_000)) < first)
        #expect(SlotRun.next(after: second + 10, startedAt: Timestamp(milliseconds: -5)) == 0)
        #expect(SlotRun.next(after: 0, startedAt: .latest) <= UInt64(1) << 63)
    }

    @Test func `an owner that changes its mailbox and returns gets no number twice`() throws {
        var all = try World.mailing(2)
        let places = [try #require(all.mailboxes[1]), try all.makeMailbox(of: 1)]
        var next: [BoxID: UInt64] = [:]
        for step in 0..<4 {
            all.mailboxes[1] = places[step % 2]
            all.step(1) { core, turn in core.endpointsChanged(&turn) }
            all.run(for: 10 * .second)
            all.isolate(1)
            _ = try all.say("text \(step)", from: 0)
            let order = try all.order(of: 0)
            #expect(order.address.box == all.box(1))
            #expect(order.number >= next[order.address.box] ?? 0, "\(step)")
            next[order.address.box] = order.number + 1
            all.end(order, of: 0)
            all.heal(for: 2 * .minute)
        }
    }

    @Test func `a message too large for a slot waits for a link and holds up no other message`() throws {
        var all = try World.mailing(2)
        all.isolate(1)
        let ids = try ["large", "small"].map { try all.say($0, from: 0) }
        let order = try all.order(of: 0)
        all.end(order, of: 0, MailResult(mailed: [ids[1]], tooLarge: [ids[0]], slotCount: 1, isComplete: true))
        #expect(all.settles(0) == true)
        let later = try all.say("later", from: 0)
        #expect(try all.order(of: 0).messages.map(\.id) == [later])
        #expect(all.state(ids[0], at: 0) == .queued)
    }

    @Test func `messages beyond the size of one order go in several orders, in sequence`() throws {
        var all = try World.mailing(2)
        all.isolate(1)
        let ids = try (0..<(Limits.mailOrderCount + 10)).map { try all.say("text \($0)", from: 0) }
        let first = try all.order(of: 0)
        #expect(first.messages.map(\.id) == Array(ids.prefix(Limits.mailOrderCount)))
        all.end(first, of: 0)
        let second = try all.order(of: 0, within: 1)
        #expect(second.messages.map(\.id) == Array(ids.dropFirst(Limits.mailOrderCount)))
    }

    @Test func `an order that failed is not retried in the same moment`() throws {
        var (all, _, order) = try World.away()
        // The shell found nothing to put and reports the order complete.
        all.end(order, of: 0, MailResult(mailed: [], tooLarge: [], slotCount: 0, isComplete: true))
        _ = all.advance(0, to: all.now)
        #expect(all.orders[0]?.count == 1)
    }

    @Test func `an order that fails after a link has opened leaves no timer behind`() throws {
        var (all, id, order) = try World.away()
        all.heal(for: .minute)
        #expect(all.state(id, at: 0) == .delivered)
        all.fail(order, of: 0)
        all.now = all.now + Limits.mailRetry.first
        #expect(all.settles(0) == true)
    }

    @Test func `an order that fails after we were removed leaves no timer behind`() throws {
        var all = try World.mailing(3)
        all.isolate(2)
        _ = try all.say("one", from: 1)
        let order = try all.order(of: 1)
        all.fail(order, of: 1)
        let removed = all.keys[1].publicKey
        all.command(0) { try $0.remove(removed, &$1) }
        all.run(for: .second)
        try #require(all.machine(1)?.record.isRemoved == true)
        all.now = all.now + Limits.mailRetry.first
        #expect(all.settles(1) == true)
    }

    @Test func `the end of an agreement on mailboxes leaves no timer behind`() throws {
        var all = try World.mailing(2)
        all.agree(on: .oneDay)
        try #require(all.machine(0)?.usesMailbox == false)
        all.now = all.now + Limits.sliceHorizon
        for (one, other) in [(0, 1), (1, 0)] { _ = all.frame(.ping(1), from: one, to: other) }
        for node in 0..<2 { #expect(all.settles(node) == true) }
    }

    @Test func `after a restart mailed messages are still mailed, and the others are put`() throws {
        var (all, first, order) = try World.away()
        all.end(order, of: 0)
        let second = try all.say("two", from: 0)
        let machine = try #require(all.machine(0))
        let undelivered = try [first, second].map { try #require(all.archive[0][$0]).message }
        let again = Conversation(
            client: all.clients[0], key: all.keys[0], record: machine.record, session: .quiet, undelivered: undelivered,
            dials: false, now: all.now)
        let member = all.keys[1].publicKey
        #expect(again.outbox(to: member).map(\.message) == [first, second])
        #expect(again.outbox(to: member).map(\.isMailed) == [true, false])
        #expect(again.outbox(to: member).map(\.state) == [.mailed, .queued])
        var orders: [MailOrder] = []
        for now in [all.now, all.now + Limits.mailDelay] {
            var turn = turn(all.random, now: now)
            turn.mailbox = all.mailboxes[0]
            again.advance(&turn)
            for case .mail(_, let order) in turn.actions { orders.append(order) }
        }
        #expect(orders.map { $0.messages.map(\.id) } == [[second]])
        #expect(orders.first.map { $0.number >= order.number + 1 } == true)
    }
}
