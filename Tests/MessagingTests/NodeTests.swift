import Cryptography
import Messaging
import TestSupport
import Testing

@Suite struct TwoNodes {
    @Test func `a conversation of two nodes runs from its creation to the explosion's receipt`() throws {
        var pair = try Pair.joined()
        #expect(pair.machines[0]?.isOnline(pair.keys[1].publicKey) == true)
        #expect(pair.machines[1]?.isOnline(pair.keys[0].publicKey) == true)
        #expect(pair.events[1].contains(.joined))
        #expect(pair.machines[0]?.record.members.first?.profile == "two")

        // Without an agreement nothing reaches the disk.
        let fleeting = try pair.say("fleeting", from: 0)
        pair.run()
        #expect(pair.archive[0][fleeting]?.keeping == .memory && pair.archive[1][fleeting]?.keeping == .memory)
        #expect(pair.archive[0][fleeting]?.message.state == .delivered)

        // Under one it does, at both, with its expiry.
        pair.command(0) { try $0.propose(.oneDay, &$1) }
        pair.run()
        #expect(pair.lifetimes() == [.ephemeral, .ephemeral])
        pair.command(1) { try $0.accept(&$1) }
        pair.run()
        #expect(pair.lifetimes() == [.oneDay, .oneDay])
        for from in 0..<2 {
            let kept = try pair.say("kept", from: from)
            pair.run()
            for node in 0..<2 {
                #expect(pair.archive[node][kept]?.keeping == .disk(.oneDay))
                #expect(pair.archive[node][kept]?.message.expiresAt == pair.now + .day)
            }
        }

        // A change is for later messages only.
        let old = try pair.say("old", from: 0)
        pair.run()
        for isTried in [true, false] {
            pair.command(isTried ? 0 : 1) { isTried ? try $0.propose(.sevenDays, &$1) : try $0.accept(&$1) }
            pair.run()
            #expect(pair.lifetimes() == (isTried ? [.oneDay, .oneDay] : [.sevenDays, .sevenDays]))
        }
        let new = try pair.say("new", from: 1)
        pair.run()
        for node in 0..<2 {
            #expect(pair.archive[node][old]?.message.expiresAt == pair.now + .day)
            #expect(pair.archive[node][new]?.message.expiresAt == pair.now + 7 * .day)
        }
        pair.agree(on: .oneDay)

        // Closing forgets memory and ends the session.
        pair.command(1) { machine, turn in machine.close(&turn) }
        #expect(pair.archive[1][fleeting] == nil)
        pair.disconnect()
        let between = try pair.say("between", from: 0)
        #expect(pair.archive[0][between]?.keeping == .disk(.oneDay))
        pair.now = pair.now + Milliseconds.hour
        pair.meet(dialer: 0)
        #expect(pair.lifetimes() == [.ephemeral, .ephemeral])
        // The other side holds the agreement it was sent under, so it expires as it would have.
        #expect(pair.archive[1][between]?.keeping == .disk(.oneDay))
        #expect(pair.archive[1][between]?.message.expiresAt == pair.archive[0][between]?.message.expiresAt)

        pair.command(0) { try $0.explode(&$1) }
        #expect(pair.nodes[0].conversation(pair.clients[0]) == nil)
        pair.run()
        #expect(pair.nodes[1].conversation(pair.clients[1]) == nil)
        #expect(pair.exploded[0]?.role == .creator && pair.exploded[1]?.role == .member)
        #expect(pair.events[0].contains(.deletionReceipt(pair.keys[1].publicKey)))
        let conversation = try #require(pair.exploded[0]?.conversation)
        #expect(pair.nodes[0].tombstone(conversation)?.confirmed.count == 1)
    }

    @Test(arguments: [Limits.sessionGrace, 0])
    func `a link lost for longer than the grace ends the session, a shorter loss does not`(grace: Milliseconds) throws {
        for (loss, isKept) in [(0, true), (grace, true), (grace + 1, false)] {
            var pair = try Pair.joined()
            pair.sessionGrace = grace
            pair.agree(on: .oneDay)
            pair.disconnect()
            pair.now = pair.now + loss
            pair.meet(dialer: 0)
            #expect(pair.lifetimes() == (isKept ? [.oneDay, .oneDay] : [.ephemeral, .ephemeral]), "\(loss)")
        }
    }

    @Test(arguments: [(true, false), (true, true), (false, false)])
    func `an ended session shows one line, the renewal's line if it is renewed, also after a catch-up`(
        isRenewed: Bool, isMissed: Bool
    ) throws {
        var pair = try Pair.joined()
        if isRenewed { for node in [0, 1] { pair.command(node) { $0.setPolicy(.acceptUpTo(.oneDay), &$1) } } }
        if isMissed { pair.agree(on: .oneHour) }
        pair.command(0) { try $0.propose(.oneDay, &$1) }
        while !isMissed || pair.lifetimes()[0] == .oneHour, !pair.wire.isEmpty { pair.deliverOne() }
        if !isRenewed { pair.command(1) { try $0.accept(&$1) } }
        if !isMissed { pair.run() }
        let before = lines(pair)
        pair.disconnect()
        pair.now = pair.now + pair.sessionGrace + 1
        pair.meet(dialer: 0)
        pair.now = pair.now + 5_000
        for node in [0, 1] { pair.advance(node) }
        let beginning = isRenewed ? "Messages will be deleted after 1 Day" : "From now on nothing is stored"
        let cause = "was out of reach for over 30 s, restarted, or closed the conversation"
        let lines = zip(lines(pair), before).map { $0.subtracting($1) }
        let asBefore = [isRenewed, isRenewed && !isMissed].map { $0 ? ", as before" : "" }
        #expect(lines == [["\(beginning)\(asBefore[0]): two \(cause)"], ["\(beginning)\(asBefore[1]): one \(cause)"]])
        #expect(pair.lifetimes() == (isRenewed ? [.oneDay, .oneDay] : [.ephemeral, .ephemeral]))
    }

    private func lines(_ pair: Pair) -> [Set<String>] {
        pair.archive.map { archive in
            Set(archive.values.map(\.message.content).filter { $0.type == .systemMessage }.compactMap(\.displayText))
        }
    }

    @Test(arguments: [0, 1]) func `a link replaced twice at once ends no session, despite an old loss`(dialer: Int)
        throws
    {
        var pair = try Pair.joined(agreed: .oneDay)
        pair.disconnect()
        pair.now = pair.now + .second
        pair.meet(dialer: 1)
        pair.now = pair.now + 4 * pair.sessionGrace
        for _ in 0..<2 { pair.open(dialer, to: 1 - dialer) }
        pair.run()
        #expect(pair.lifetimes() == [.oneDay, .oneDay])
        for node in 0..<2 { #expect(pair.machines[node]?.isOnline(pair.keys[1 - node].publicKey) == true) }
    }

    @Test func `an accept counts only for the proposal seen, not for its replacement`() throws {
        var pair = try Pair.joined()
        pair.command(0) { try $0.propose(.oneHour, &$1) }
        pair.run()
        let seen = try #require(pair.machines[1]?.pendingProposal?.proposal)
        #expect(seen.lifetime == .oneHour)
        pair.command(0) { try $0.propose(.thirtyDays, &$1) }
        pair.run()
        let now = try #require(pair.machines[1]?.pendingProposal?.proposal)
        #expect(now.lifetime == .thirtyDays && now.id != seen.id)
        func accept(_ id: ProposalID) -> CommandError? { pair.command(1) { try $0.accept(only: id, &$1) } }
        #expect(accept(seen.id) == .otherProposal)
        pair.run()
        #expect(pair.lifetimes() == [.ephemeral, .ephemeral])
        #expect(accept(now.id) == nil)
        pair.run()
        #expect(pair.lifetimes() == [.thirtyDays, .thirtyDays])
    }

    @Test func `a session's end drops an open proposal and leaves both sides ephemeral`() throws {
        var pair = try Pair.joined()
        pair.command(0) { try $0.propose(.oneDay, &$1) }
        pair.run()
        pair.disconnect()
        pair.now = pair.now + Limits.sessionGrace + 1
        pair.meet(dialer: 0)
        #expect(pair.lifetimes() == [.ephemeral, .ephemeral])
        let refusal = pair.command(1) { try $0.accept(&$1) }
        #expect(refusal == .noProposal)
        pair.run()
        #expect(pair.lifetimes() == [.ephemeral, .ephemeral])
    }

    @Test func `a joiner that lost its welcome gets it again`() throws {
        var pair = Pair()
        try pair.createAndInvite()
        try pair.askToJoin()
        pair.open(1, to: 0)
        pair.deliverOne()
        pair.disconnect()
        #expect(pair.machines[0]?.currentMembers.count == 1 && pair.machines[1] == nil)
        pair.meet(dialer: 1)
        #expect(pair.machines[1]?.isOnline(pair.keys[0].publicKey) == true)
        #expect(pair.machines[0]?.isOnline(pair.keys[1].publicKey) == true)
        #expect(pair.closed.isEmpty)
    }

    @Test func `a locked creator admits no joiner until it is unlocked`() throws {
        var pair = Pair()
        try pair.createAndInvite()
        pair.isLocked[0] = true
        try pair.askToJoin()
        pair.meet(dialer: 1)
        #expect(pair.machines[0]?.currentMembers.isEmpty == true && pair.machines[1] == nil)
        pair.disconnect()
        pair.isLocked[0] = false
        pair.meet(dialer: 1)
        #expect(pair.machines[1] != nil)
    }

    @Test(arguments: [true, false])
    func `in a locked node a message to be kept waits for the unlock, and another is acknowledged as held in memory`(
        isKept: Bool
    ) throws {
        var pair = try Pair.joined(agreed: isKept ? .oneDay : nil)
        pair.isLocked = [isKept, true]
        let id = try pair.say("hello", from: 0)
        pair.run()
        for node in 0..<2 { #expect(pair.archive[node][id]?.keeping == (isKept ? .untilUnlocked(.oneDay) : .memory)) }
        #expect(pair.events[0].contains(.messageState(id, .delivered, stored: false)) == !isKept)
    }

    /// Bob's storage is locked, a day is agreed, and Ann has sent `hello`.
    private func heldForBob() throws -> (pair: Pair, MessageID) {
        var pair = try Pair.joined(agreed: .oneDay)
        pair.isLocked[1] = true
        let id = try pair.say("hello", from: 0)
        pair.run()
        return (pair, id)
    }

    private func unlock(_ pair: inout Pair, _ id: MessageID) {
        pair.isLocked[1] = false
        pair.archive[1][id]?.keeping = .disk(.oneDay)
        let (client, sender) = (pair.clients[1], pair.keys[0].publicKey)
        pair.step(1) { core, turn in
            core.step(client, &turn) { $0.stored([StoredContent(id: id, sender: sender)], &$1) }
        }
        pair.run()
    }

    @Test func `a message waiting for the unlock is shown once and acknowledged when on disk`() throws {
        var (pair, id) = try heldForBob()
        let bytes = try #require(pair.machines[1]?.heldByteCount)
        #expect(bytes > 0)
        let expiresAt = try #require(pair.archive[1][id]?.message.expiresAt)
        for _ in 0..<3 {
            #expect(pair.archive[0][id]?.message.state == .sent)
            pair.advance(0, by: 20 * .second)
            pair.run()
        }
        #expect(pair.machines[0]?.outboxCount == 1)
        #expect(pair.events[1].count { $0 == .message(id) } == 1)
        #expect(pair.machines[1]?.heldByteCount == bytes)
        #expect(pair.archive[1][id]?.message.expiresAt == expiresAt)
        unlock(&pair, id)
        #expect(pair.archive[0][id]?.message.state == .delivered)
        #expect(pair.events[0].contains(.messageState(id, .delivered, stored: true)))
        #expect(pair.machines[0]?.outboxCount == 0)
    }

    @Test func `a message stored while the link was lost is acknowledged when it is resent`() throws {
        var (pair, id) = try heldForBob()
        pair.disconnect()
        unlock(&pair, id)
        #expect(pair.machines[0]?.outboxCount == 1)
        pair.now = pair.now + 20 * .second
        pair.meet(dialer: 0)
        #expect(pair.archive[0][id]?.message.state == .delivered)
        #expect(pair.events[0].contains(.messageState(id, .delivered, stored: true)))
        #expect(pair.events[1].count { $0 == .message(id) } == 1)
    }

    @Test func `a read receipt waits until its message is on disk`() throws {
        var (pair, id) = try heldForBob()
        pair.readReceipts[1] = true
        let (client, sender) = (pair.clients[1], pair.keys[0].publicKey)
        pair.step(1) { core, turn in core.step(client, &turn) { $0.markRead([(id: id, sender: sender)], &$1) } }
        pair.run()
        #expect(pair.machines[0]?.outboxCount == 1)
        unlock(&pair, id)
        #expect(pair.archive[0][id]?.message.state == .read)
    }

    @Test func `a stored message that is resent to a locked node is neither shown nor acknowledged`() throws {
        var pair = try Pair.joined(agreed: .oneDay)
        let id = try pair.say("hello", from: 0)
        pair.run()
        let content = try #require(pair.archive[1][id]?.message.content)
        let link = try #require(pair.machines[1]?.link(to: pair.keys[0].publicKey))
        pair.isLocked[1] = true
        var answers: [NodeAction] = []
        pair.step(1) { core, turn in
            answers = turn.apart { core.receive(.content(content, age: 0), on: link, verify: { _ in nil }, &$0) }
        }
        #expect(answers.isEmpty)
    }

    @Test func `a message beyond the memory bound is not acknowledged until there is room`() throws {
        var pair = try Pair.joined()
        let text = String(repeating: "x", count: Limits.textByteCount)
        for _ in 0..<40 { _ = try pair.say(text, from: 0) }
        pair.run()
        let held = pair.archive[1].count
        #expect(held < 40 && held > 25)
        #expect(try #require(pair.machines[1]).heldByteCount <= Limits.memoryByteCount)
        #expect(pair.machines[0]?.outboxCount == 40 - held)
        pair.command(1) { machine, _ in machine.releaseMemory() }
        pair.advance(0, by: 10 * .second)
        pair.run()
        #expect(pair.machines[0]?.outboxCount == 0)
    }

    @Test func `all inboxes together hold at most sixteen times the memory bound of one`() throws {
        var pair = Pair()
        let text = String(repeating: "x", count: Limits.textByteCount)
        var held: [Int] = []
        for _ in 0..<18 {
            if !held.isEmpty { pair.takeFreshInboxes() }
            try pair.createAndInvite()
            try pair.join()
            for _ in 0..<40 { _ = try pair.say(text, from: 0) }
            pair.run()
            held.append(try #require(pair.machines[1]).heldByteCount)
        }
        #expect(Limits.memoryTotalByteCount == 16 << 20 && Limits.memoryByteCount == 1 << 20)
        let total = held.reduce(0, +)
        #expect(total <= Limits.memoryTotalByteCount && total > Limits.memoryTotalByteCount - text.utf8.count - 1_024)
        #expect(held[0] > 900_000 && held[..<16].allSatisfy { $0 == held[0] } && held[17] == 0)
        #expect(pair.machines[0]?.outboxCount == 40)
        let client = try #require(pair.nodes[1].clients.first)
        pair.nodes[1].releaseMemory(client)
        _ = try pair.say(text, from: 0)
        pair.disconnect()
        pair.meet(dialer: 0)
        #expect(try #require(pair.machines[1]).heldByteCount == held[0])
    }

    @Test func `closing cancels undelivered messages that are held only in memory`() throws {
        var pair = try Pair.joined()
        pair.disconnect()
        let id = try pair.say("fleeting", from: 0)
        pair.command(0) { machine, turn in machine.close(&turn) }
        #expect(pair.archive[0][id] == nil)
        #expect(pair.machines[0]?.outboxCount == 0)
        #expect(pair.events[0].contains(.messageState(id, .cancelled, stored: nil)))
    }

    @Test func `a content under an unknown agreement stays in memory`() throws {
        var pair = try Pair.joined()
        let link = try #require(pair.machines[0]?.link(to: pair.keys[1].publicKey))
        let conversation = try #require(pair.machines[0]?.conversation)
        let id = MessageID.make(by: pair.keys[1].publicKey, in: conversation, &pair.random)
        let content = Content(
            type: .text, id: id, sentAt: pair.now, lifetime: .thirtyDays, agreement: .random(&pair.random),
            fallback: "", shouldPush: true, payload: [65])
        pair.receive(.content(content, age: -5), 0, on: link)
        #expect(pair.archive[0][id]?.keeping == .memory)
        pair.wire.removeAll()
        pair.receive(.content(content, age: .max), 0, on: link)
        #expect(pair.wire.count == 1)
    }

    @Test func `a node with a tombstone never loads or enters the conversation again`() throws {
        var pair = try Pair.joined()
        let record = try #require(pair.nodes[1].record(pair.clients[1]))
        let key = pair.keys[1]
        pair.command(0) { try $0.explode(&$1) }
        pair.run()
        let tombstone = try #require(pair.exploded[1])
        let fresh = NodeStateMachine()
        var turn = turn(pair.random, now: pair.now)
        fresh.load(tombstone, &turn)
        fresh.load(record, key: key, &turn)
        #expect(turn.actions == [.destroy(record.client)])
        #expect(fresh.conversations.isEmpty)
    }
}
