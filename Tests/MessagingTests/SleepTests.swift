import Cryptography
import Messaging
import TestSupport
import Testing

/// Inboxes of two nodes that sleep and wake (Delivery.md).
@Suite struct Sleep {
    private func joined(_ lifetime: Lifetime? = .oneDay) throws -> Pair {
        var pair = try Pair.joined()
        if let lifetime { pair.agree(on: LifetimeTerms(lifetime)) }
        pair.now = pair.now + .minute
        return pair
    }

    @Test func `an inbox's sleep of any length does not reset the agreement`() throws {
        var pair = try joined()
        let kept = try pair.say("kept", from: 0)
        pair.run()
        pair.sleep(0)
        pair.run()
        #expect(pair.nodes[0].isSleeping(pair.clients[0]) && pair.machines[0] == nil)
        #expect(pair.nodes[0].summary(pair.clients[0])?.lifetime == .oneDay)
        // The other side knows that it sleeps: it neither dials nor counts a failure.
        #expect(pair.machines[1]?.isOnline(pair.keys[0].publicKey) == false)
        pair.dials = [nil, nil]
        pair.advance(1, by: Limits.redialAsleep - 1)
        #expect(pair.dials[1] == nil)
        #expect(pair.archive[0][kept] != nil)
        pair.now = pair.now + 12 * .hour
        let late = try pair.say("late", from: 1)
        pair.advance(1)
        #expect(pair.dials[1]?.remote == pair.keys[0].publicKey)
        pair.wake(0, .pushNotification)
        pair.meet(dialer: 1)
        #expect(pair.lifetimes() == [.oneDay, .oneDay])
        #expect(pair.archive[0][late]?.keeping == .disk(.oneDay))
        #expect(pair.archive[1][late]?.message.state == .delivered)
        for node in 0..<2 {
            #expect(!pair.events[node].contains { if case .lifetimeReset = $0 { true } else { false } })
        }
        #expect(pair.events[0].contains(.inboxAsleep) && pair.events[0].contains(.inboxAwake(.pushNotification)))
    }

    enum Ending: CaseIterable { case loss, closing, restart }

    @Test(arguments: Ending.allCases) func `a session that is over does not come back with a sleeping inbox`(
        _ ending: Ending
    ) throws {
        var pair = try joined()
        if ending == .closing { pair.command(0) { machine, turn in machine.close(&turn) } }
        if ending != .restart { pair.disconnect() }
        pair.sleep(0)
        // The time since a lost link goes on.
        if ending == .loss { pair.now = pair.now + .minute }
        if ending == .restart {
            pair.run()
            let summary = try #require(pair.nodes[0].summary(pair.clients[0]))
            pair.nodes[0] = NodeStateMachine()
            pair.step(0) { core, turn in core.load(sleeping: summary, &turn) }
            #expect(pair.nodes[0].isSleeping(pair.clients[0]))
        }
        pair.wake(0, .userInteraction)
        #expect(ending != .restart || pair.machines[0]?.sessionGoesOn == false)
        pair.meet(dialer: 0)
        #expect(pair.lifetimes() == [.ephemeral, .ephemeral])
    }

    @Test(arguments: [0, 1]) func `a reset that one side has not read is said again`(sleeper: Int) throws {
        var pair = try joined()
        pair.disconnect()
        pair.now = pair.now + .minute
        pair.open(0, to: 1)
        // The sleeper has said that the session is over, and has not read what the other says.
        pair.wire.removeAll { $0.to == sleeper }
        pair.run()
        #expect(pair.sleep(sleeper) == nil)
        pair.run()
        #expect(pair.lifetimes()[1 - sleeper] == .ephemeral)
        pair.dials[sleeper] = nil
        pair.advance(sleeper, by: Limits.sleepingRetry.first)
        #expect(pair.dials[sleeper] != nil)
        pair.meet(dialer: sleeper)
        #expect(pair.lifetimes() == [.ephemeral, .ephemeral])
    }

    @Test func `an open proposal and its expiry survive sleep`() throws {
        var pair = try joined(nil)
        pair.command(0) { try $0.propose(.oneDay, &$1) }
        pair.run()
        for node in 0..<2 {
            pair.sleep(node)
            pair.run()
        }
        let due = try #require(pair.nodes[0].summary(pair.clients[0])?.deadline)
        #expect(pair.nodes[0].nextDeadline.map { $0 <= due } == true)
        pair.wake(1, .userInteraction)
        #expect(pair.machines[1]?.pendingProposal?.isOurs == false)
        pair.wake(0, .pushNotification)
        pair.meet(dialer: 1)
        pair.command(1) { try $0.accept(&$1) }
        pair.run()
        #expect(pair.lifetimes() == [.oneDay, .oneDay])
    }

    @Test func `a sleeping inbox wakes when its proposal expires`() throws {
        var pair = try joined(nil)
        pair.command(0) { try $0.propose(.oneDay, &$1) }
        pair.run()
        pair.sleep(0)
        pair.run()
        pair.advance(0, by: .day)
        #expect(pair.events[0].contains(.inboxAwake(.activityRanking)))
        #expect(pair.machines[0]?.pendingProposal == nil)
        #expect(pair.events[0].contains { if case .lifetimeExpired = $0 { true } else { false } })
    }

    @Test func `an inbox with unsent messages wakes to retry, after growing waits, in the same order`() throws {
        var pair = try joined()
        pair.disconnect()
        let first = try pair.say("first", from: 0)
        let second = try pair.say("second", from: 0)
        var waits: [Milliseconds] = []
        for _ in 0..<4 {
            pair.now = pair.now + .minute
            pair.sleep(0)
            #expect(pair.nodes[0].summary(pair.clients[0])?.outboxCount == 2)
            #expect(pair.nodes[0].outboxCount == 2)
            let slept = pair.now
            while pair.machines[0] == nil {
                let next = try #require(pair.nodes[0].nextDeadline)
                pair.now = max(next, pair.now + 1)
                pair.dials[0] = nil
                pair.advance(0)
            }
            waits.append(pair.now - slept)
            #expect(pair.dials[0]?.remote == pair.keys[1].publicKey)
        }
        #expect(zip(waits, waits.dropFirst()).allSatisfy { $0 < $1 }, "\(waits)")
        #expect(pair.machines[0]?.outbox(to: pair.keys[1].publicKey).map(\.message) == [first, second])
        pair.meet(dialer: 0)
        #expect(pair.machines[0]?.outboxCount == 0)
    }

    @Test func `an inbox with unread or undelivered messages in memory does not sleep`() throws {
        var pair = try joined(nil)
        // Unread, in memory only.
        _ = try pair.say("hello", from: 0)
        pair.run()
        #expect(pair.nodes[1].protection(pair.clients[1]) == .unread)
        #expect(pair.sleep(1) == .inboxProtected(.unread))
        pair.command(1) { machine, _ in machine.releaseMemory() }
        #expect(pair.sleep(1) == nil)
        pair.run()
        // Undelivered, in memory only.
        pair.disconnect()
        _ = try pair.say("to nobody", from: 0)
        #expect(pair.nodes[0].protection(pair.clients[0]) == .undelivered)
        #expect(pair.sleep(0) == .inboxProtected(.undelivered))
        // Open in front of its user.
        pair.nodes[0].setWatched(pair.clients[0], true)
        #expect(pair.nodes[0].protection(pair.clients[0]) == [.active, .undelivered])
        pair.nodes[0].setWatched(pair.clients[0], false)
        #expect(pair.nodes[0].protection(pair.clients[0]) == .undelivered)
    }

    @Test func `an inbox with a join under way does not sleep`() throws {
        var pair = Pair()
        try pair.createAndInvite()
        try pair.askToJoin()
        let client = pair.clients[1]
        #expect(pair.nodes[1].protection(client) == .pendingInvite)
        #expect(pair.nodes[1].wakeReason(client) == .pendingInvite)
        #expect(pair.sleep(1) == .inboxProtected(.pendingInvite))
        // A creator with an open invite may sleep: a dial with the invite's token wakes it.
        pair.now = pair.now + .minute
        #expect(pair.sleep(0) == nil)
        pair.wake(0, .pushNotification)
        pair.meet(dialer: 1)
        #expect(pair.machines[1] != nil)
    }

    /// A frame that the other member misses because it falls asleep at that moment.
    enum Word: CaseIterable { case proposal, accept, rejection, withdrawal, readReceipt, name, description, schedule }

    @Test(arguments: Word.allCases.map { ($0, false) } + [(.name, true), (.description, true), (.schedule, true)])
    func `an inbox with an unheard change keeps dialling the member until it hears`(word: Word, restarts: Bool) throws {
        var pair = try joined(nil)
        var read: MessageID?
        if let proposer = [Word.withdrawal: 0, .accept: 1, .rejection: 1][word] {
            pair.command(proposer) { try $0.propose(.oneDay, &$1) }
            pair.run()
        } else if word == .readReceipt {
            pair.readReceipts[0] = true
            read = try pair.say("read me", from: 1)
            pair.run()
        }
        let (client, other) = (pair.clients[0], pair.keys[1].publicKey)
        if let read {
            pair.command(0) { machine, _ in machine.releaseMemory() }
            pair.step(0) { core, turn in core.step(client, &turn) { $0.markRead([(read, other)], &$1) } }
        }
        pair.command(0) { (machine, turn) throws(CommandError) in
            switch word {
            case .proposal: try machine.propose(.oneDay, &turn)
            case .accept: try machine.accept(&turn)
            case .rejection: try machine.reject(&turn)
            case .withdrawal: try machine.withdraw(&turn)
            case .readReceipt: break
            case .name: try machine.rename("another", &turn)
            case .description: try machine.setProfile("another", &turn)
            case .schedule: try machine.explode(at: turn.now + .day, &turn)
            }
        }
        pair.wire = []
        pair.sleep(1)
        pair.run()
        // The other side sleeps, and is dialled all the same.
        pair.dials[0] = nil
        pair.advance(0, by: 2 * .second)
        #expect(pair.dials[0]?.remote == other)
        // A sleeping inbox is woken for it.
        #expect(pair.sleep(0) == nil)
        pair.dials[0] = nil
        if restarts {
            pair.run()
            let (record, key) = (try #require(pair.saved[0]), pair.keys[0])
            pair.nodes[0] = NodeStateMachine()
            pair.step(0) { core, turn in
                core.load(sleeping: record, key: key, undelivered: [], lastActivity: nil, &turn)
                core.launch(&turn)
            }
        }
        pair.advance(0, by: (restarts ? 2 : 1) * Limits.sleepingRetry.first)
        #expect(
            pair.events[0].last { if case .inboxAwake = $0 { true } else { false } } == .inboxAwake(.activityRanking))
        #expect(pair.dials[0]?.remote == other)
        pair.wake(1, .pushNotification)
        pair.meet(dialer: 0)
        let theirs = try #require(pair.machines[1])
        switch word {
        case .proposal: #expect(theirs.pendingProposal?.isOurs == false)
        case .accept: #expect(pair.lifetimes() == [.oneDay, .oneDay])
        case .rejection, .withdrawal: #expect(theirs.pendingProposal == nil)
        case .readReceipt: #expect(pair.archive[1][try #require(read)]?.message.state == .read)
        case .name: #expect(theirs.record.name == "another")
        case .description: #expect(theirs.currentMembers.first?.profile == "another")
        case .schedule: #expect(theirs.record.schedule != nil)
        }
        // It was heard: nothing wakes it any more.
        #expect(pair.sleep(0) == nil)
        pair.run()
        pair.advance(0, by: .hour)
        #expect(pair.nodes[0].isSleeping(client))
    }

    @Test func `a peer that falls asleep with a message in flight is dialled again`() throws {
        var pair = try joined()
        let message = try pair.say("crossing", from: 1)
        // The content arrives at a node that has closed the link.
        pair.sleep(0)
        pair.run()
        #expect(pair.archive[0][message] == nil)
        pair.now = pair.now + 2 * .second
        pair.dials[1] = nil
        pair.advance(1)
        #expect(pair.dials[1] != nil)
        pair.wake(0, .pushNotification)
        pair.meet(dialer: 1)
        #expect(pair.archive[0][message]?.keeping == .disk(.oneDay))
    }

    @Test func `a sleeping inbox drops incoming frames, and a closing frame from another link closes nothing`() throws {
        var pair = try joined()
        let client = pair.clients[0]
        let remote = pair.keys[1].publicKey
        pair.sleep(0)
        pair.wire = []
        pair.receive(.ping(1), 0, on: LinkID(1))
        pair.step(0) { core, turn in core.linkClosed(LinkID(1), &turn) }
        pair.step(0) { core, turn in core.dialFailed(client, to: remote, isUnknownThere: true, &turn) }
        pair.step(0) { core, turn in core.receiveNotice([1, 2, 3], for: client, &turn) }
        #expect(pair.wire.isEmpty && pair.nodes[0].isSleeping(client))
        let machine = try #require(pair.machines[1])
        pair.command(1) { (machine, turn) throws(CommandError) in
            machine.receive(
                .closing(asleep: true), from: machine.currentMembers[0].key, on: LinkID(77), memoryAvailable: 0, &turn)
        }
        let member = machine.currentMembers[0].key
        #expect(pair.machines[1]?.link(to: member) == machine.link(to: member))
    }

    @Test func `a description that the member has heard is saved as heard, and is no news after a restart`() throws {
        let pair = try joined()
        for node in 0..<2 {
            guard case .conversation(let record)? = pair.saved[node]?.role else { preconditionFailure("it is none") }
            #expect(record.told[pair.keys[1 - node].publicKey] == record.own.version)
        }
    }

    @Test func `a start wakes its inboxes in batches, with a pause in which requests are served`() throws {
        var pair = Pair()
        let count = 2 * Limits.wakeBatchCount + 1
        for number in 0..<count {
            if number > 0 { pair.takeFreshInboxes() }
            let client = pair.clients[0]
            pair.step(0) { core, turn in _ = try? core.createConversation(client, name: nil, profile: nil, &turn) }
        }
        let (clients, records, keys) = (pair.nodes[0].clients, pair.records, pair.inboxKeys)
        pair.nodes[0] = NodeStateMachine()
        pair.step(0) { core, turn in
            for client in clients {
                core.load(sleeping: records[client]!, key: keys[client]!, undelivered: [], lastActivity: nil, &turn)
            }
        }
        pair.step(0) { core, turn in core.launch(&turn) }
        for awake in [Limits.wakeBatchCount, 2 * Limits.wakeBatchCount, count] {
            #expect(pair.nodes[0].nextDeadline == pair.now)
            for _ in 0..<3 { pair.advance(0) }
            #expect(pair.nodes[0].awakeCount == awake)
            pair.now = pair.now + Limits.wakePause
        }
    }

    @Test func `a locked node wakes no inbox until it is unlocked`() throws {
        var pair = try joined()
        pair.sleep(0)
        pair.run()
        pair.isLocked[0] = true
        pair.wake(0, .userInteraction)
        #expect(pair.nodes[0].isSleeping(pair.clients[0]))
        pair.step(0) { core, turn in core.rebalance(&turn) }
        pair.step(0) { core, turn in core.launch(&turn) }
        for _ in 0..<3 { pair.advance(0, by: .second) }
        #expect(pair.nodes[0].isSleeping(pair.clients[0]))
        pair.isLocked[0] = false
        pair.advance(0, by: 2 * .second)
        #expect(pair.machines[0] != nil)
    }

    @Test func `a node keeps only its capacity of conversations awake, unless more are protected`() throws {
        var pair = Pair(capacity: 2)
        var clients: [ClientID] = []
        for number in 0..<6 {
            let client = ClientID.generate(&pair.random)
            let key = makeKey(&pair.random)
            pair.step(0) { core, turn in core.addUnused(client, key: key, &turn) }
            pair.step(0) { core, turn in
                _ = try? core.createConversation(client, name: "c\(number)", profile: nil, &turn)
            }
            pair.inboxKeys[client] = key
            clients.append(client)
            pair.now = pair.now + .minute
        }
        #expect(pair.nodes[0].awakeCount == 2 && pair.nodes[0].sleepingCount == 4)
        #expect(pair.nodes[0].clients.filter { clients.contains($0) } == clients)
        #expect(pair.nodes[0].isSleeping(clients[0]) && !pair.nodes[0].isSleeping(clients[5]))
        pair.wake(0, .userInteraction, clients[0])
        #expect(!pair.nodes[0].isSleeping(clients[0]) && pair.nodes[0].isSleeping(clients[4]))
        // Protected inboxes do not keep others asleep.
        for client in clients { pair.nodes[0].setWatched(client, true) }
        for client in clients { pair.wake(0, .pushNotification, client) }
        #expect(pair.nodes[0].awakeCount == 6)
        for client in clients { pair.nodes[0].setWatched(client, false) }
        for _ in 0..<3 { pair.advance(0, by: .minute) }
        #expect(pair.nodes[0].awakeCount == 2)
        // A larger capacity is used.
        pair.nodes[0].setCapacity(5, now: pair.now)
        for _ in 0..<3 { pair.advance(0, by: .second) }
        #expect(pair.nodes[0].awakeCount == 5)
        let gone = try #require(clients.first { !pair.nodes[0].isSleeping($0) })
        pair.step(0) { core, turn in core.step(gone, &turn) { $0.leave(&$1) } }
        for _ in 0..<3 { pair.advance(0, by: .second) }
        #expect(pair.nodes[0].awakeCount == 5 && pair.nodes[0].sleepingCount == 0)
    }
}
