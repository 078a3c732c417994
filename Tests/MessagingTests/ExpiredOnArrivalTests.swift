import Cryptography
import Messaging
import TestSupport
import Testing

/// A content that has expired on arrival is not shown, and its sender is told.
@Suite struct ExpiredOnArrival {
    private let terms = LifetimeTerms(.oneHour, unopened: .minute)

    private func scene(_ count: Int, _ terms: LifetimeTerms? = nil) throws -> World {
        let terms = terms ?? self.terms
        var all = try World.joined(count)
        all.run()
        all.agree(on: terms)
        #expect(all.machine(0)?.agreement?.terms == terms)
        return all
    }

    private func count(_ kind: Event.Kind, _ node: Int, _ all: World) -> Int { all.events[node].count { $0 == kind } }

    @Test func `a receiver answers each content expired on arrival, notifies watchers once and keeps nothing`() throws {
        var all = try scene(2)
        let content = all.text("late", by: 0, lifetime: .oneHour, agreement: all.machine(0)?.agreement?.id)
        for _ in 0..<3 { all.inject(.content(content, age: .minute), from: 0, to: 1) }
        #expect(all.sent.filter { $0 == .expiredOnArrival(content.id) }.count == 3)
        #expect(!all.sent.contains(.acknowledgement(content.id, stored: false)))
        #expect(count(.messageExpired(content.id), 1, all) == 1 && all.archive[1][content.id] == nil)
        let prompt = all.text("prompt", by: 0, lifetime: .oneHour, agreement: all.machine(0)?.agreement?.id)
        all.inject(.content(prompt, age: .minute - 1), from: 0, to: 1)
        #expect(all.archive[1][prompt.id] != nil)
    }

    @Test(arguments: [(LifetimeTerms.Timer.send, .hour), (.read, 0)] as [(LifetimeTerms.Timer, Milliseconds)])
    func `a repeated content that was shown before its expiry is acknowledged`(
        _ timer: LifetimeTerms.Timer, _ age: Milliseconds
    ) throws {
        var all = try scene(2, LifetimeTerms(.oneHour, unopened: .minute, timer: timer))
        let content = all.text("shown", by: 0, lifetime: .oneHour, agreement: all.machine(0)?.agreement?.id)
        let link = try #require(all.machine(1)?.link(to: all.keys[0].publicKey))
        var turn = turn(all.random, now: all.now)
        if timer == .send { turn.around.shown = { $0 == content.id } } else { turn.around.read = { $0 == content.id } }
        all.nodes[1].receive(.content(content, age: age), on: link, verify: { _ in nil }, &turn)
        #expect(turn.actions == [.transmit(link, .acknowledgement(content.id, stored: false))])
    }

    @Test func `a sender shows a content expired on arrival as expired undelivered, and counts one gap`() throws {
        var all = try scene(2)
        all.cut.insert([0, 1])
        let id = try all.say("late", from: 0)
        all.inject(.expiredOnArrival(id), from: 1, to: 0)
        #expect(all.archive[0][id]?.state == .expiredUndelivered)
        #expect(all.events[0].last == .messageState(id, .expiredUndelivered, stored: nil))
        #expect(all.machine(0)?.outboxCount == 0)
        all.inject(.expiredOnArrival(id), from: 1, to: 0)
        all.inject(.expiredOnArrival(.random(&all.random)), from: 1, to: 0)
        #expect(count(.messageState(id, .expiredUndelivered, stored: nil), 0, all) == 1)
        #expect(all.machine(0)?.record.undelivered[all.keys[1].publicKey] == 1)
    }

    @Test(arguments: [true, false])
    func `a message delivered to one member and expired at another counts as expired undelivered`(isMissedFirst: Bool)
        throws
    {
        var all = try scene(3)
        all.cut = [[0, 1], [0, 2]]
        let id = try all.say("late", from: 0)
        let answers: [(Frame, Int)] = [(.expiredOnArrival(id), 1), (.acknowledgement(id, stored: true), 2)]
        for (frame, from) in isMissedFirst ? answers : answers.reversed() {
            #expect(all.archive[0][id]?.state == .sent)
            all.inject(frame, from: from, to: 0)
        }
        #expect(all.archive[0][id]?.state == .expiredUndelivered)
        #expect(all.events[0].last == .messageState(id, .expiredUndelivered, stored: nil))
        #expect(count(.messageDelivery(id, all.keys[1].publicKey, .expiredUndelivered), 0, all) == 1)
        let states = all.archive[0][id]?.deliveries.map(\.state) ?? []
        #expect(Set(states) == [.expiredUndelivered, .delivered])
    }

    @Test func `a message that may have arrived is resent, and its receiver reports the outcome`() throws {
        for wasShown in [true, false] {
            var all = try scene(2)
            all.cut.insert([0, 1])
            let id = try all.say("unread", from: 0)
            all.isolate(1)
            all.run(for: 2 * .minute)
            #expect(all.archive[0][id]?.state == .sent, "an hour at its sender: it may have been shown")
            if wasShown { all.archive[1][id] = all.archive[0][id] }
            all.archive[1][id]?.sender = all.keys[0].publicKey
            all.heal(for: .minute)
            #expect(all.archive[0][id]?.state == (wasShown ? .delivered : .expiredUndelivered))
            #expect(count(.messageExpired(id), 1, all) == (wasShown ? 0 : 1))
        }
    }

    @Test func `an unsent message is given up when its receiver would find it expired`() throws {
        var all = try scene(2)
        all.isolate(1)
        let id = try all.say("unread", from: 0)
        all.run(for: .minute - 1)
        #expect(all.archive[0][id]?.state == .queued)
        all.run(for: 2)
        #expect(all.archive[0][id]?.state == .expiredUndelivered, "an hour at its sender, a minute unopened elsewhere")
        all.heal(for: .minute)
        #expect(all.events[1].contains(.messagesMissed(all.keys[0].publicKey, count: 1)))
    }

    @Test func `a flood of expired contents is read slowly`() throws {
        var all = try scene(2)
        let agreement = all.machine(0)?.agreement?.id
        for _ in 0..<2_000 {
            let content = all.text("late", by: 0, lifetime: .oneHour, agreement: agreement)
            all.inject(.content(content, age: .hour), from: 0, to: 1)
        }
        #expect(all.pauses[1, default: 0] > 0)
    }

    @Test func `a read receipt does not end the transfer of a file`() throws {
        var all = try scene(2)
        var sent: MessageID?
        all.command(0) { (machine, turn) throws(CommandError) in
            let prepared = try machine.prepareAttachment(byteCount: 100_000, &turn)
            let file = Attachment(
                name: "f", mediaType: "a/b", byteCount: 100_000, hash: [UInt8](repeating: 1, count: 32), text: "")
            let message = try machine.send(file, prepared, &turn)
            sent = message.content.id
        }
        all.run(for: .second)
        let id = try #require(sent)
        #expect(all.archive[1][id]?.state == .receiving)
        // The message is read while the file is still arriving.
        let (sender, client) = (all.keys[0].publicKey, all.clients[1])
        all.command(1) { (machine, turn) throws(CommandError) in machine.setReadReceipts(true, &turn) }
        all.step(1) { core, turn in core.step(client, &turn) { $0.markRead([(id, sender)], &$1) } }
        #expect(!all.sent.contains(.receipt(Receipt(.read, [id]))), "it is not whole")
        // Another implementation may send the receipt early.
        all.inject(.receipt(Receipt(.read, [id])), from: 1, to: 0)
        #expect(all.archive[0][id]?.state == .sent && all.machine(0)?.outboxCount == 1)
        all.inject(.acknowledgement(id, stored: true), from: 1, to: 0)
        all.inject(.receipt(Receipt(.read, [id])), from: 1, to: 0)
        #expect(all.archive[0][id]?.state == .read)
        // The receipt is sent once the file is complete.
        all.archive[1][id]?.state = .received
        all.step(1) { core, turn in core.step(client, &turn) { $0.markRead([(id, sender)], &$1) } }
        #expect(all.sent.contains(.receipt(Receipt(.read, [id]))))
    }
}
