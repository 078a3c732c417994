import Cryptography
import Messaging
import TestSupport
import Testing

@Suite struct GroupExplosions {
    private func schedule(_ all: inout World, in delay: Milliseconds, by node: Int = 0) -> CommandError? {
        all.command(node) { try $0.explode(at: $1.now + delay, &$1) }
    }

    private func end(_ all: World, _ node: Int) -> Timestamp? { all.machine(node)?.record.schedule?.expiresAt }

    @Test func `a scheduled explosion is confirmed by all members and ends the conversation at its time`() throws {
        var all = try World.joined(4)
        #expect(schedule(&all, in: .hour) == nil)
        all.run()
        let time = try #require(end(all, 0))
        for node in 0..<4 {
            #expect(end(all, node) == time)
            #expect(all.events[node].contains(.explosionScheduled(time)))
            #expect(all.armed[node]?.isPrepared == true && all.armed[node]?.explodedAt == time)
            #expect((all.armed[node]?.receipt == nil) == (node == 0))
            #expect(all.machine(node)?.record.schedule?.confirmed.count == 3)
        }
        all.run(for: time - all.now - 6 * .minute + 1)
        for node in 0..<4 { #expect(all.events[node].last == .explosionReminder(time)) }
        all.run(for: 6 * .minute)
        for node in 0..<4 {
            #expect(all.machine(node) == nil)
            #expect(all.events[node].filter { $0 == .exploded }.count == 1)
            #expect(all.events[node].filter { $0 == .explosionReminder(time) }.count == 1)
        }
        let tombstone = try #require(all.nodes[0].tombstones.first)
        #expect(tombstone.confirmed.count == 3 && tombstone.waiting.isEmpty)
    }

    @Test func `a link without an answer is closed soon after the explosion`() throws {
        var all = try World.joined(2)
        let link = try #require(all.links.keys.max())
        #expect(all.isOnline(0, 1) && !all.nodes[0].isGuest(link))
        all.cut = [[0, 1]]
        all.command(0) { try $0.explode(&$1) }
        var closed: [LinkID] = []
        for _ in 0..<11 {
            all.now = all.now + .second
            all.step(0) { core, turn in
                core.advance(&turn)
                closed += turn.actions.compactMap { if case .close(let link) = $0 { link } else { nil } }
            }
        }
        #expect(closed == [link])
    }

    @Test func `each member explodes at the scheduled time even without any link`() throws {
        var all = try World.joined(3)
        _ = schedule(&all, in: 30 * .second)
        all.run()
        for node in 0..<3 { all.isolate(node) }
        all.run(for: 40 * .second)
        for node in 0..<3 { #expect(all.machine(node) == nil && all.exploded[node]?.explodedAt != nil) }
        // No member could reach the creator: it asks for the receipts, and each member brings its own once.
        #expect(all.knocks[0].contains(.deliver(all.exploded[0]!.conversation, all.keys[1].publicKey)))
        for node in 1..<3 { #expect(all.knocks[node].contains { if case .report = $0 { true } else { false } }) }
    }

    @Test func `an absent member learns the schedule and the explosion from any other member`() throws {
        var all = try World.joined(3)
        all.isolate(2)
        _ = schedule(&all, in: .hour)
        all.run()
        #expect(end(all, 2) == nil)
        all.isolate(0)
        all.cut = [[0, 1], [0, 2]]
        all.run(for: .minute)
        #expect(end(all, 2) == end(all, 1) && end(all, 2) != nil)
        all.cut = [[0, 2]]
        all.run(for: 2 * .minute)
        all.command(0) { try $0.explode(&$1) }
        all.run()
        #expect(all.machine(1) == nil && all.machine(2) == nil)
        #expect(all.knocks[2].contains { if case .report = $0 { true } else { false } })
    }

    @Test func `a sealed notice contains the seed's JSON, and its fallback names the time`() throws {
        var all = try World.joined(2)
        for (isImmediate, json) in [
            (false, #"{"expiresAt":"2026-11-21T06:37:11Z"}"#),
            (true, #"{"expiresAt":"2026-11-21T06:37:11Z","immediate":true}"#),
        ] {
            let genesis = try #require(all.machine(0)?.record.genesis)
            let notice = ExplodeNotice(
                genesis: genesis, expiresAt: Timestamp(milliseconds: 1_795_243_031_000), isImmediate: isImmediate,
                key: all.keys[0], &all.random)
            #expect(notice.fallback == "Conversation expires at 2026-11-21T06:37:11Z")
            // Any member can open it: the id, the genesis and the signature, then the settings and zeros.
            let key = HKDF.derive(
                secret: SecretBytes(copying: genesis.conversation.bytes), info: "mayfly explode notice v1")
            let sealed = notice.sealed(&all.random)
            let plain = try XChaChaPoly.open(sealed, key: key, authenticating: Array("notice".utf8))
            #expect(sealed.count == Limits.noticeByteCount)
            #expect(Array(plain[128..<(128 + json.utf8.count)]) == Array(json.utf8))
            #expect(plain[(128 + json.utf8.count)...].allSatisfy { $0 == 0 })
        }
    }

    @Test func `the earliest scheduled end wins in any order, and an immediate explosion beats all`() throws {
        var all = try World.joined(2)
        _ = schedule(&all, in: 3 * .hour)
        all.run()
        let late = try #require(all.machine(0)?.record.schedule?.notice).sealed(&all.random)
        _ = schedule(&all, in: .hour)
        all.run()
        let early = try #require(end(all, 0))
        _ = schedule(&all, in: 2 * .hour)
        all.run()
        all.notify(1, late)
        all.run()
        #expect(end(all, 0) == early && end(all, 1) == early)
        // A forged notice changes nothing.
        for isImmediate in [true, false] {
            all.notify(1, all.notice(at: all.now + 60_000, isImmediate: isImmediate, by: 1))
        }
        #expect(end(all, 1) == early)
        // An immediate notice far in the future takes effect now, whatever the clock.
        all.notify(1, all.notice(at: all.now + .day, isImmediate: true))
        #expect(all.machine(1) == nil)
    }

    @Test
    func `a notice that would change nothing is answered with ours unchecked; a forged earlier one ends the link`()
        throws
    {
        var all = try World.joined(2)
        _ = schedule(&all, in: .hour)
        all.run()
        let known = try #require(end(all, 1))
        // Signed by a member in the creator's name.
        for (time, isChecked) in [(known + 1_000, false), (known + .day, false), (known - 1_000, true)] {
            let forged = all.notice(at: time, by: 1)
            let before = try #require(all.machine(1)).forgedCount
            all.notify(1, forged)
            #expect(all.machine(1)?.forgedCount == before + (isChecked ? 1 : 0))
            #expect(end(all, 1) == known)
        }
        // A member with another notice is sent ours.
        let link = try #require(all.machine(1)?.link(to: all.keys[0].publicKey))
        let late = all.notice(at: known + .day)
        var answers: [NodeAction] = []
        all.step(1) { core, turn in
            answers = turn.apart { core.receive(.explosion(late), on: link, verify: { _ in nil }, &$0) }
        }
        guard case .transmit(link, .explosion(let told))? = answers.last else {
            return #expect(Bool(false), "\(answers)")
        }
        #expect(ExplodeNotice(opening: told, conversation: all.conversation)?.expiresAt == known)
        // Over the link, a forged one counts against its sender.
        for (seconds, isDropped) in [(1, false), (-1, true)] as [(Milliseconds, Bool)] {
            let forged = all.notice(at: known + seconds * .second, by: 1)
            let before = all.machine(1)?.droppedCount ?? 0
            all.inject(.explosion(forged), from: 0, to: 1)
            #expect((all.machine(1)?.droppedCount != before) == isDropped && end(all, 1) == known)
        }
    }

    @Test func `only the creator schedules an end: a past time is now, a far one is clamped`() throws {
        var all = try World.joined(2)
        #expect(schedule(&all, in: .hour, by: 1) == .notCreator)
        #expect(schedule(&all, in: .max) == nil)
        all.run()
        let horizon = all.now + Limits.explosionHorizon
        #expect(try #require(end(all, 0)) <= horizon + .second)
        #expect(try #require(end(all, 1)) <= horizon + .second)
        #expect(schedule(&all, in: -.day) == nil)
        #expect(all.machine(0) == nil)
        // A member clamps a received schedule by its own clock, too.
        var other = try World.joined(2)
        let clamped = other.now + Limits.explosionHorizon
        // The second notice has an earlier time, and puts nothing off.
        for time in [Timestamp.latest, clamped + 2 * .day] {
            other.notify(1, other.notice(at: time))
            #expect(end(other, 1) == clamped)
            other.now = other.now + .day
        }
    }

    @Test func `a locked member neither shows nor confirms a schedule before the unlock makes it durable`() throws {
        var pair = try Pair.joined()
        pair.isLocked[1] = true
        pair.command(0) { try $0.explode(at: $1.now + .hour, &$1) }
        pair.run()
        let time = try #require(pair.machines[0]?.record.schedule?.expiresAt)
        // The schedule is in memory and would act, but is not confirmed yet.
        #expect(pair.machines[1]?.record.schedule?.expiresAt == time)
        #expect(!pair.events[1].contains(.explosionScheduled(time)) && pair.armed[1] == nil)
        #expect(pair.machines[0]?.record.schedule?.confirmed == [])
        pair.isLocked[1] = false
        pair.step(1) { core, turn in core.unlocked(&turn) }
        pair.run()
        #expect(pair.events[1].contains(.explosionScheduled(time)) && pair.armed[1]?.explodedAt == time)
        #expect(pair.machines[0]?.record.schedule?.confirmed.count == 1)
        pair.isLocked = [true, true]
        pair.now = time
        for node in 0..<2 { pair.step(node) { core, turn in core.explodeDue(&turn) } }
        #expect(pair.machines[0] == nil && pair.machines[1] == nil)
    }

    @Test func `a prepared explosion follows changes of members and invites, and leaving removes it`() throws {
        var all = try World.joined(2)
        _ = schedule(&all, in: .hour)
        all.run()
        #expect(all.armed[0]?.members.count == 1)
        all.command(0) { _ = try $0.invite(lifetime: .day, singleUse: false, &$1) }
        all.run()
        let issued = try #require(all.machine(0)?.invites?.invites.last)
        #expect(all.armed[0]?.openInvites.contains(issued.id) == true)
        #expect(all.armed[0]?.statement?.isValid(creator: all.keys[0].publicKey) == true)
        all.command(0) { try $0.setLocked(true, &$1) }
        all.run()
        #expect(all.armed[0]?.openInvites == [] && all.armed[0]?.statement == nil)
        all.command(1) { machine, turn in machine.leave(&turn) }
        #expect(all.removed[1] == all.machine(0)?.conversation)
        all.run()
        #expect(all.armed[0]?.members == [])
    }

    @Test(arguments: [false, true]) func `leaving an earlier copy keeps the prepared explosion of the present one`(
        isAsleep: Bool
    ) throws {
        var all = try World.joined(2)
        _ = schedule(&all, in: .hour)
        all.run()
        let earlier = try all.removeAndRejoin(1)
        all.run()
        #expect(all.nodes[1].conversation(earlier)?.record.schedule != nil && all.machine(1)?.record.schedule != nil)
        if isAsleep { all.sleep(all.clients[1], of: 1) }
        all.step(1) { core, turn in core.step(earlier, &turn) { $0.leave(&$1) } }
        #expect(all.removed[1] == nil)
        if !isAsleep { all.command(1) { machine, turn in machine.leave(&turn) } }
        #expect((all.removed[1] == nil) == isAsleep)
    }

    @Test func `a joiner learns the schedule from the welcome, and an inconsistent welcome is invalid`() throws {
        var all = World(2)
        all.create()
        _ = schedule(&all, in: .hour)
        try all.join(1)
        #expect(end(all, 1) == end(all, 0) && end(all, 1) != nil)
        #expect(all.invites[0].invite.conversationExpiresAt == end(all, 0))
        #expect(all.invites[0].invite.expiresAt == end(all, 0))
        #expect(all.armed[1]?.isPrepared == true)
        let machine = try #require(all.machine(0))
        let schedule = try #require(machine.record.schedule)
        var welcome = Welcome(
            tag: all.invites[0].invite.tag, genesis: machine.record.genesis, group: machine.record.group,
            members: [machine.record.own], expiresAt: schedule.notice.expiresAt,
            notice: schedule.notice.sealed(&all.random))
        let joiner = all.keys[1].publicKey
        #expect(welcome.isValid(for: joiner))
        let (right, due) = (welcome.notice, schedule.notice.expiresAt)
        let wrong: [(Timestamp?, [UInt8]?)] = [
            (nil, right), (due + 1_000, right), (due, nil), (due, all.notice(at: due, by: 1)),
        ]
        for (time, notice) in wrong {
            (welcome.expiresAt, welcome.notice) = (time, notice)
            #expect(!welcome.isValid(for: joiner))
        }
    }

    @Test func `a restored creator obeys its own earlier notice and requests the receipts again`() throws {
        var all = try World.joined(2)
        let client = all.clients[0]
        let record = try #require(all.nodes[0].record(client))
        all.command(0) { try $0.explode(&$1) }
        all.run()
        let tombstone = try #require(all.exploded[1])
        all.nodes[0] = NodeStateMachine()
        let key = all.keys[0]
        all.step(0) { core, turn in core.load(record, key: key, &turn) }
        let answer = try #require(tombstone.answer(toQuestionOf: key.publicKey))
        all.step(0) { core, turn in core.receiveNotice(answer, for: client, isAnswer: true, &turn) }
        #expect(all.machine(0) == nil && all.exploded[0]?.role == .creator)
        #expect(all.fanOut[0].map(\.key) == [all.keys[1].publicKey])
        #expect(tombstone.answer(toNoticeOf: key.publicKey) == tombstone.receipt)
        #expect(tombstone.answer(toNoticeOf: all.keys[1].publicKey) == nil)
        #expect(tombstone.answer(toQuestionOf: makeKey(&all.random).publicKey) == nil)
    }

    @Test func `a member with a fast clock explodes first, and the creator keeps its receipt`() throws {
        var pair = try Pair.joined()
        pair.command(0) { try $0.explode(at: $1.now + .hour, isTraceless: true, &$1) }
        pair.run()
        let time = try #require(pair.machines[0]?.record.schedule?.expiresAt)
        let now = pair.now
        pair.now = time
        pair.step(1) { core, turn in core.explodeDue(&turn) }
        pair.now = now
        pair.run()
        #expect(pair.machines[1] == nil && pair.machines[0] != nil)
        #expect(pair.armed[0]?.confirmed.count == 1)
        pair.now = time
        pair.step(0) { core, turn in core.explodeDue(&turn) }
        #expect(pair.exploded[0]?.confirmed.count == 1 && pair.exploded[0]?.isTraceless == true)
        #expect(pair.knocks[0].isEmpty)
    }

    @Test func `a node stopped between any two steps of an explosion continues at its next start`() throws {
        for isScheduled in [false, true] {
            var pair = try Pair.joined()
            pair.command(0) { try $0.explode(at: $1.now + .hour, &$1) }
            pair.run()
            let record = try #require(pair.nodes[0].record(pair.clients[0]))
            let armed = try #require(pair.armed[0])
            if isScheduled { pair.now = armed.explodedAt }
            pair.command(0) { (machine, turn) throws(CommandError) in
                if isScheduled { machine.advance(&turn) } else { try machine.explode(&turn) }
            }
            let tombstone = try #require(pair.exploded[0])
            // Without durable state the conversation is unchanged, or its time has come.
            var fresh = NodeStateMachine()
            var turn = turn(pair.random, now: pair.now)
            #expect(turn.apart { fresh.load(armed, &$0) }.isEmpty != isScheduled)
            let actions = turn.apart { fresh.load(record, key: pair.keys[0], &$0) }
            if isScheduled {
                #expect(actions == [.destroy(record.client)])
                #expect(fresh.tombstone(armed.conversation)?.isPrepared == false)
            } else {
                #expect(fresh.conversations.count == 1)
                #expect(
                    !turn.apart { fresh.explodeDue(&$0) }.contains { if case .explode = $0 { true } else { false } })
            }
            // With the tombstone alone, with or without the inbox, it is gone, and its members are told.
            fresh = NodeStateMachine()
            #expect(turn.apart { fresh.load(tombstone, &$0) }.isEmpty)
            #expect(turn.apart { fresh.load(record, key: pair.keys[0], &$0) } == [.destroy(record.client)])
            let knocks = turn.apart { fresh.advance(&$0) }
            #expect(knocks == [.knock(.deliver(tombstone.conversation, pair.keys[1].publicKey))])
        }
    }

    @Test func `a start with many explosions knocks at a bounded number of members each second`() throws {
        var pair = try Pair.joined()
        pair.command(0) { try $0.explode(&$1) }
        let tombstone = try #require(pair.exploded[0])
        let node = NodeStateMachine()
        var start = turn(pair.random, now: pair.now)
        for number in 0..<100 {
            var another = tombstone
            another.conversation = ConversationID(unchecked: [UInt8](repeating: UInt8(number), count: 32))
            node.load(another, &start)
        }
        var counts: [Int] = []
        for second in 0..<4 {
            var later = turn(pair.random, now: pair.now + Milliseconds(second) * .second)
            counts.append(later.apart { node.advance(&$0) }.count { if case .knock = $0 { true } else { false } })
        }
        #expect(counts.reduce(0, +) >= 100 && counts.max() == Limits.knocksAtOnce, "\(counts)")
    }

    @Test func `a saved record with a schedule reloads unchanged and is armed again at the start`() throws {
        var all = try World.joined(2)
        _ = schedule(&all, in: .hour)
        all.run()
        let client = all.clients[1]
        let record = try #require(all.nodes[1].record(client))
        let fresh = NodeStateMachine()
        var turn = turn(all.random, now: all.now)
        let loaded = turn.apart { fresh.load(record, key: all.keys[1], &$0) }
        #expect(!loaded.contains { if case .notify = $0 { true } else { false } })
        #expect(try #require(fresh.nextDeadline) <= all.now)
        let actions = turn.apart { fresh.advance(&$0) }
        let isArmed = actions.contains { if case .armExplosion(client, _, _) = $0 { true } else { false } }
        #expect(isArmed)
        #expect(!actions.contains { if case .notify = $0 { true } else { false } })
        #expect(fresh.record(client) == record)
    }
}

@Suite struct LateJoiners {
    @Test func `the creator's statement ends a pending join with its tag, and no other`() throws {
        var pair = Pair()
        try pair.createAndInvite()
        try pair.askToJoin()
        let (invite, client) = (try #require(pair.invite), pair.clients[1])
        let creator = pair.keys[0].publicKey
        pair.step(1) { core, turn in core.dialFailed(client, to: creator, isUnknownThere: false, &turn) }
        #expect(pair.knocks[1].isEmpty)
        pair.advance(1, by: Milliseconds.minute)
        pair.step(1) { core, turn in core.dialFailed(client, to: creator, isUnknownThere: true, &turn) }
        #expect(pair.knocks[1] == [.askByInvite(client, invite.invite.id, invite.invite.endpoints)])
        func statement(_ tag: InviteTag, _ key: IdentityKey) -> ExpiredStatement {
            ExpiredStatement(tag: tag, timestamp: noon, key: key, &pair.random)
        }
        let wrong = [statement(invite.invite.tag, pair.keys[1]), statement(.random(&pair.random), pair.keys[0])]
        for statement in wrong { pair.step(1) { core, turn in core.receive(statement, for: client, &turn) } }
        #expect(pair.nodes[1].joins.first?.record.state == .joining)
        let right = statement(invite.invite.tag, pair.keys[0])
        pair.step(1) { core, turn in core.receive(right, for: client, &turn) }
        #expect(pair.nodes[1].joins.first?.record.state == .joinFailed(.conversationExpired))
        #expect(pair.events[1].last == .joinFailed(.conversationExpired, invite.invite.tag))
        let count = pair.events[1].count
        pair.step(1) { core, turn in core.receive(right, for: client, &turn) }
        pair.step(1) { core, turn in core.dialFailed(client, to: creator, isUnknownThere: true, &turn) }
        #expect(pair.events[1].count == count && pair.knocks[1].count == 1)
    }
}
