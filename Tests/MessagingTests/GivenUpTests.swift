import Cryptography
import Messaging
import TestSupport
import Testing

/// Copies that are given up for one member, and state that is dropped with a member.
@Suite struct GivenUp {
    private func count(_ kind: Event.Kind, _ all: World) -> Int { all.events[0].count { $0 == kind } }

    @Test func `a message given up for one member stays undelivered though another member has it`() throws {
        var all = try World.joined(3)
        all.run()
        all.agree(on: LifetimeTerms(.oneHour, unopened: .minute))
        all.isolate(1)
        all.cut.insert([0, 2])
        let id = try all.say("to both", from: 0)
        all.run(for: .minute + 1)
        let (gone, other) = (all.keys[1].publicKey, all.keys[2].publicKey)
        #expect(all.archive[0][id]?.state == .sent)
        #expect(all.archive[0][id]?.deliveries.first { $0.member == gone }?.state == .expiredUndelivered)
        #expect(count(.messageDelivery(id, gone, .expiredUndelivered), all) == 1)
        all.archive[2][id] = all.archive[0][id]
        all.archive[2][id]?.sender = all.keys[0].publicKey
        all.cut.remove([0, 2])
        all.run(for: .minute)
        #expect(all.archive[0][id]?.deliveries.first { $0.member == other }?.state == .delivered)
        #expect(all.archive[0][id]?.state == .expiredUndelivered)
        #expect(all.machine(0)?.record.undelivered == [gone: 1])
        // After a restart the sender does not wait for the same member again.
        let record = try #require(all.nodes[0].record(all.clients[0]))
        let node = NodeStateMachine()
        var turn = turn(all.random, now: all.now)
        node.load(record, key: all.keys[0], &turn)
        var waiting = try #require(all.archive[0][id]).message
        waiting.state = .sent
        node.restoreOutbox(waiting, client: all.clients[0])
        #expect(node.conversation(all.clients[0])?.outboxCount == 0)
    }

    @Test func `closing reports a text's cancellation once, however many recipients it has`() throws {
        var all = try World.joined(4)
        for node in 1...3 { all.isolate(node) }
        let id = try all.say("in memory only", from: 0)
        let client = all.clients[0]
        var cancelled: [MessageID] = []
        all.step(0) { core, turn in
            core.step(client, &turn) { $0.close(&$1) }
            for case .setState(_, let ids, .cancelled) in turn.actions { cancelled += ids }
        }
        #expect(cancelled == [id])
        #expect(count(.messageState(id, .cancelled, stored: nil), all) == 1)
    }

    @Test func `removing a member deletes the counters of its mailbox`() throws {
        var all = try World.joined(3)
        let (member, client) = (all.keys[1].publicKey, all.clients[0])
        let age = SlotAge(dwell: 0, least: 0)
        for number: UInt64 in [3, 900] {
            all.step(0) { core, turn in
                core.receiveMailed([], number: number, from: member, age: age, client: client, &turn)
            }
        }
        #expect(all.machine(0)?.record.mailbox.incoming[member] != nil)
        all.command(0) { try $0.remove(member, &$1) }
        #expect(all.machine(0)?.record.mailbox == MailboxRecord())
    }

    @Test func `a reset that voids an acceptance saves the change, though no proposal is open`() throws {
        var pair = Council(2)
        let proposal = pair.proposal(by: 0, .oneHour, membership: 3)
        let others = [pair.keys[0].publicKey, makeKey(&pair.random).publicKey]
        func machine(_ record: LifetimeStateMachine.Record) -> LifetimeStateMachine {
            LifetimeStateMachine(
                conversation: pair.conversation, own: pair.keys[1].publicKey, members: others.sorted(), membership: 3,
                record: record)
        }
        var before = machine(LifetimeStateMachine.Record())
        _ = before.receive(
            .proposal(proposal), from: others[0], policy: .ask, now: pair.now, key: pair.keys[1], random: &pair.random)
        _ = try before.accept(now: pair.now, key: pair.keys[1], random: &pair.random)
        #expect(before.record.accepted != nil)
        var machine = machine(before.record)
        let sent = machine.sessionStart(reset: true, policy: .ask)
        var received = sent
        received.head = nil
        let actions = machine.sessionEstablished(
            with: others[0], sent: sent, received: received, policy: .ask, now: pair.now, key: pair.keys[1],
            random: &pair.random)
        #expect(machine.record.accepted == nil)
        #expect(actions.contains(.save))
    }
}
