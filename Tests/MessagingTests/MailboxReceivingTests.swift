import Cryptography
import Messaging
import TestSupport
import Testing

@Suite("Mailbox: frames taken from our boxes") struct MailboxReceivingTests {
    @Test(
        "two members that are never online together talk and acknowledge through their boxes",
        arguments: [LifetimeTerms.mailed, .inMemory]) func apart(terms: LifetimeTerms) throws
    {
        var (all, id, order) = try World.away(terms)
        all.end(order, of: 0)
        #expect(try all.deliver(order, from: 0, to: 1))
        #expect(all.shown(id, at: 1) == 1 && all.archive[1][id]?.sender == all.keys[0].publicKey)
        let answer = try all.order(of: 1)
        #expect(answer.messages.isEmpty && answer.member == all.keys[0].publicKey)
        guard case .acknowledgement(let said)? = answer.frames.first else {
            Issue.record("no acknowledgement: \(answer.frames)")
            return
        }
        #expect(said.stored + said.held == [id] && answer.frames.count == 1)
        let text = try all.say("hello yourself", from: 1)
        all.fail(answer, of: 1)
        let both = try all.order(of: 1)
        #expect(both.messages.map(\.id) == [text] && both.frames == answer.frames && both.number == answer.number + 1)
        #expect(try all.deliver(both, from: 1, to: 0))
        all.end(both, of: 1)
        #expect(all.state(id, at: 0) == .delivered && all.machine(0)?.outboxCount == 0)
        #expect(all.shown(text, at: 0) == 1 && all.state(text, at: 1) == .mailed)
        let last = try all.order(of: 0)
        #expect(last.messages.isEmpty && last.frames.count == 1)
        #expect(try all.deliver(last, from: 0, to: 1))
        all.end(last, of: 0)
        #expect(all.state(text, at: 1) == .delivered)
        let count = all.orders.values.reduce(0) { $0 + $1.count }
        all.run(for: .hour)
        #expect(all.orders.values.reduce(0) { $0 + $1.count } == count, "an acknowledgement is not acknowledged")
    }

    @Test func `a message from the box is acknowledged over the link if there is one`() throws {
        var (all, id, order) = try World.away()
        all.cut = []
        all.heal()
        // The link opens while the box's frames are in flight, and those come first.
        let link = all.nextLink
        all.run(for: .minute)
        try #require(all.isOnline(0, 1) && all.nextLink > link)
        all.sent = []
        let before = all.events[1].count
        #expect(try all.deliver(order, from: 0, to: 1))
        let said = all.sent.compactMap { frame -> Acknowledgement? in
            if case .acknowledgement(let said) = frame { said } else { nil }
        }
        #expect(said.count == 1 && said.first.map { $0.stored + $0.held } == [id])
        #expect(all.shown(id, at: 1) == 1 && all.events[1].count == before, "shown once")
        all.run(for: .minute)
        #expect(all.orders[1] == nil && all.state(id, at: 0) == .delivered)
    }

    @Test("a message that comes by box and then by link is shown once and delivered; unsent messages go at once")
    func both() throws {
        var (all, id, order) = try World.away()
        #expect(try all.deliver(order, from: 0, to: 1))
        #expect(try all.deliver(order, from: 0, to: 1), "again, after a crash before it was discarded")
        #expect(all.shown(id, at: 1) == 1 && all.orders[1] == nil)
        all.sent = []
        all.heal()
        all.command(1) { (machine, turn) throws(CommandError) in machine.retry(&turn) }
        all.run(for: .second)
        #expect(all.isOnline(0, 1) && all.shown(id, at: 1) == 1)
        #expect(all.state(id, at: 0) == .delivered && all.orders[1] == nil)
        all.isolate(1)
        all.run(for: .minute)
        #expect(all.orders[1] == nil, "it is said")
    }

    @Test func `a taken slot is recorded as taken, an earlier one that was left out is not`() throws {
        var (all, _, _) = try World.away()
        for number in [5, 3, 5, 6] as [UInt64] {
            let result = all.receive([], number: number, from: 0, at: 1)
            #expect(result.isTaken && result.actions == [.save(all.clients[1])])
            #expect(all.machine(1)?.hasTaken(number, of: all.keys[0].publicKey) == true)
        }
        let taken = all.incoming(0, at: 1)
        #expect((0..<9).filter { taken.hasTaken($0) } == [3, 5, 6])
        // Numbers far below the newest count as taken.
        let far = UInt64(3 * Limits.slotGapCount)
        _ = all.receive([], number: far, from: 0, at: 1)
        let later = all.incoming(0, at: 1)
        #expect(later.hasTaken(4) && !later.hasTaken(far - 1) && !later.hasTaken(far + 1))
        for number in [UInt64.max - 1, .max] {
            _ = all.receive([], number: number, from: 0, at: 1)
            #expect(all.incoming(0, at: 1).hasTaken(number))
        }
    }

    @Test func `the taken slots of 64 runs of a sender's node are kept; slots of older runs count as taken`() throws {
        var (all, _, _) = try World.away()
        func number(_ run: Int, _ place: UInt64) -> UInt64 {
            SlotRun.next(after: 0, startedAt: Timestamp(milliseconds: Int64(run))) + place
        }
        // An earlier run may be heard of later.
        for run in [9, 7, 8] { all.receive([], number: number(run, 1), from: 0, at: 1) }
        for run in [7, 8, 9] {
            #expect(!all.incoming(0, at: 1).hasTaken(number(run, 0)) && all.incoming(0, at: 1).hasTaken(number(run, 1)))
        }
        for run in 100..<(100 + Limits.slotRunCount) { all.receive([], number: number(run, 0), from: 0, at: 1) }
        let taken = all.incoming(0, at: 1)
        for run in [1, 7, 99] { #expect(taken.hasTaken(number(run, 5)), "\(run)") }
        for run in [100, 163] { #expect(taken.hasTaken(number(run, 0)) && !taken.hasTaken(number(run, 1)), "\(run)") }
        #expect(!taken.hasTaken(number(164, 0)))
        // The gaps of all runs have one bound.
        for run in 200..<(200 + Limits.slotRunCount) { all.receive([], number: number(run, 100), from: 0, at: 1) }
        let full = all.incoming(0, at: 1)
        #expect(full.hasTaken(number(200, 0)) && !full.hasTaken(number(263, 0)) && !full.hasTaken(number(263, 99)))
    }

    @Test func `frames that do not belong in a box are ignored`() throws {
        var (all, _, _) = try World.away()
        var frames: [String: Frame] = [:]
        for frame in all.sent { frames[String("\(frame)".prefix { $0 != "(" })] = frame }
        let box = BoxID(unchecked: [UInt8](repeating: 1, count: 16))
        let message = MessageID.random(&all.random)
        for frame: Frame in [
            .ping(1), .pong(1), .closing(asleep: true), .closing(asleep: false), .joinCancelled,
            .receipt(Receipt(.read, [message])), .attachmentRequest(message, first: 0, count: 1),
            .attachmentGone(message), .mailbox(.want(.none, above: nil)), .mailboxRequest(.list(box)),
            .mailboxAnswer(.waiting(box)), .relayRequest(.release),
            .group(GroupUpdate(state: nil, members: [], departures: [])),
        ] { frames["\(frame)"] = frame }
        for kind in ["contents", "acknowledgement", "profile", "explosion"] { frames[kind] = nil }
        #expect(Set(["session", "lifetime", "welcome", "joinRequest", "mailbox"]).isSubset(of: frames.keys))
        for (kind, frame) in frames {
            let machine = try #require(all.machine(1))
            let before = (dropped: machine.droppedCount, machine.record, machine.agreement, machine.nextDeadline)
            let result = all.receive([frame], number: nil, from: 0, at: 1)
            #expect(result.actions.isEmpty && result.isTaken, "\(kind)")
            #expect(machine.droppedCount == before.dropped + 1, "\(kind)")
            #expect(machine.record == before.1, "\(kind)")
            #expect(machine.agreement == before.2 && machine.nextDeadline == before.3)
        }
    }

    @Test func `slots of a non-member, or for an inbox that does not exist, are ignored`() throws {
        var (all, id, order) = try World.away()
        let frames = all.frames(of: order, from: 0)
        let stranger = makeKey(&all.random).publicKey
        let client = all.clients[1]
        for client in [client, ClientID.generate(&all.random)] {
            all.step(1) { core, turn in
                let isTaken = core.receiveMailed(
                    frames, number: 0, from: stranger, age: SlotAge(dwell: 0), client: client, &turn)
                #expect(turn.actions.isEmpty && !isTaken)
            }
        }
        #expect(all.shown(id, at: 1) == 0)
    }

    @Test func `the age is that at the deposit plus the time in the box, and at least the age of its slice`() throws {
        let ages: [(deposit: Milliseconds, dwell: Milliseconds, least: Milliseconds, sum: Milliseconds)] = [
            (0, 0, 0, 0), (.hour, 2 * .hour, 0, 3 * .hour), (.hour, -5 * .hour, 0, .hour), (.hour, .min, 0, .hour),
            (-.hour, .hour, 0, .hour), (.min, 0, 0, 0), (.min, .min, .min, 0), (.hour, 0, 5 * .hour, 5 * .hour),
            (6 * .hour, .hour, 5 * .hour, 7 * .hour), (.hour, 0, -1, .hour), (0, 24 * .hour - 1, 0, 24 * .hour - 1),
            (0, 0, 24 * .hour - 1, 24 * .hour - 1),
        ]
        for (deposit, dwell, least, sum) in ages {
            var (all, id, _) = try World.away()
            let content = try #require(all.archive[0][id]).content
            all.receive(
                [.contents([AgedContent(content, age: deposit)])], from: 0, at: 1,
                age: SlotAge(dwell: dwell, least: least))
            #expect(all.archive[1][id]?.expiresAt == all.now + (24 * .hour - sum), "\(deposit) \(dwell) \(least)")
        }
        let over: [(Milliseconds, Milliseconds, Milliseconds)] = [
            (0, 24 * .hour, 0), (24 * .hour, 0, 0), (0, 0, 24 * .hour), (.max, 0, 0), (0, .max, 0), (0, 0, .max),
            (.max, .max, .max), (.max, .max, .min), (.max, 1, 0), (1, .max, 0),
        ]
        for (deposit, dwell, least) in over {
            var (all, id, _) = try World.away()
            let content = try #require(all.archive[0][id]).content
            let frame = Frame.contents([AgedContent(content, age: deposit)])
            let result = all.receive([frame], from: 0, at: 1, age: SlotAge(dwell: dwell, least: least))
            #expect(result.isTaken && all.archive[1][id] == nil, "\(deposit) \(dwell) \(least)")
            #expect(all.events[1].contains(.messageExpired(id)))
            #expect(all.machine(1)?.record.mailbox.acknowledgements[all.keys[0].publicKey]?.expired == [id])
        }
    }

    @Test("with a doubtful age an expired content is dropped, a living one kept for its rest; neither is acknowledged")
    func doubtfulAge() throws {
        var (all, id, _) = try World.away()
        let content = try #require(all.archive[0][id]).content
        let frame = Frame.contents([AgedContent(content, age: .hour)])
        let over = SlotAge(dwell: 23 * .hour, isDoubtful: true)
        let result = all.receive([frame], from: 0, at: 1, age: over)
        #expect(result.isTaken && all.archive[1][id] == nil)
        #expect(!all.events[1].contains(.messageExpired(id)))
        #expect(all.machine(1)?.record.mailbox.acknowledgements.isEmpty == true)
        let kept = all.machine(0)?.outbox(to: all.keys[1].publicKey).map(\.message)
        #expect(kept == [id], "its sender keeps it for a link")
        // The next slot repeats the frame with another age.
        all.receive([frame], number: 1, from: 0, at: 1, age: SlotAge(dwell: 22 * .hour, isDoubtful: true))
        #expect(all.archive[1][id]?.expiresAt == all.now + .hour)
        #expect(all.machine(1)?.record.mailbox.acknowledgements.isEmpty == true)
    }

    @Test func `a description above the rate limit stays in the box until it is accepted`() throws {
        var (all, _, _) = try World.away()
        let stamp = UInt64(all.now.milliseconds) + 1_000
        func receive(_ count: Int) -> Bool {
            let member = Member(
                profile: "n\(count)", endpoints: [], version: stamp + UInt64(count), key: all.keys[0], &all.random)
            return all.receive([.profile(member)], number: UInt64(count), from: 0, at: 1).isTaken
        }
        for count in 0..<Limits.profileRate.burst { #expect(receive(count)) }
        let last = Limits.profileRate.burst
        #expect(!receive(last) && all.machine(1)?.hasTaken(UInt64(last), of: all.keys[0].publicKey) == false)
        all.now = all.now + Limits.profileRate.interval
        #expect(receive(last) && all.names(1) == ["n\(last)"])
        #expect(receive(0), "an older one is of no use")
    }

    @Test func `contents without a lifetime stay in memory, whatever their age`() throws {
        var (all, id, order) = try World.away(.inMemory)
        let frames = all.frames(of: order, from: 0)
        all.receive(frames, from: 0, at: 1, age: SlotAge(dwell: .max, least: .max))
        #expect(all.archive[1][id] != nil && all.archive[1][id]?.expiresAt == nil)
    }

    @Test func `a frame with too many contents is ignored`() throws {
        var (all, id, order) = try World.away()
        let content = try #require(all.archive[0][id]).content
        let many = [AgedContent](repeating: AgedContent(content, age: 0), count: Limits.contentsCount + 1)
        #expect(all.receive([.contents(many)], from: 0, at: 1).isTaken && all.shown(id, at: 1) == 0)
        #expect(all.receive([.contents(Array(many.dropLast()))], from: 0, at: 1).isTaken && all.shown(id, at: 1) == 1)
        _ = order
    }

    @Test func `a content without room in memory stays in the box`() throws {
        var (all, _, _) = try World.away(.inMemory)
        // Unread contents fill the memory of one inbox.
        let text = String(repeating: "x", count: Limits.textByteCount)
        var refused: [MessageID] = []
        for step in 0..<(Limits.memoryByteCount / Limits.textByteCount + 2) {
            let id = try all.say(text, from: 0)
            let content = try #require(all.archive[0][id]).content
            let number = UInt64(step)
            let result = all.receive([.contents([AgedContent(content, age: 0)])], number: number, from: 0, at: 1)
            #expect(result.isTaken == (all.archive[1][id] != nil))
            #expect(result.isTaken == all.incoming(0, at: 1).hasTaken(number))
            if !result.isTaken { refused.append(id) }
        }
        #expect(!refused.isEmpty)
        all.step(1) { [client = all.clients[1]] core, _ in core.releaseMemory(client) }
        let content = try #require(all.archive[0][refused[0]]).content
        #expect(all.receive([.contents([AgedContent(content, age: 0)])], from: 0, at: 1).isTaken)
        #expect(all.archive[1][refused[0]] != nil)
    }

    @Test func `two members that have both moved find each other through their boxes`() throws {
        var all = try World.mailing(2)
        all.isolate(1)
        for node in 0..<2 {
            all.endpoints[node] = "moved\(node)"
            all.step(node) { core, turn in core.endpointsChanged(&turn) }
        }
        all.run(for: .minute)
        all.heal(for: .minute)
        #expect(!all.isOnline(0, 1), "each looks where the other was")
        all.isolate(1)
        let id = try all.say("one", from: 0)
        let order = try #require(all.orders[0]?.last ?? (try? all.order(of: 0)))
        #expect(order.frames == [.profile(try #require(all.machine(0)?.record.own))])
        #expect(try all.deliver(order, from: 0, to: 1))
        #expect(all.machine(1)?.record.members.first?.endpoints == [Endpoint(host: "moved0", port: 1)])
        all.end(order, of: 0)
        all.heal(for: .minute)
        #expect(all.isOnline(0, 1) && all.shown(id, at: 1) == 1)
        // The description was sent once. The session and the agreement have ended since.
        all.agree(on: .mailed)
        all.isolate(1)
        _ = try all.say("two", from: 0)
        #expect(try all.order(of: 0).frames.isEmpty)
    }

    @Test func `a description that its member has not signed changes nothing`() throws {
        var (all, _, _) = try World.away()
        let own = try #require(all.machine(0)?.record.own)
        let later = Member(
            key: own.key, profile: "another", endpointTexts: own.endpointTexts, version: own.version + 1,
            signature: own.signature)
        let before = try #require(all.machine(1)).record
        #expect(all.receive([.profile(later)], number: nil, from: 0, at: 1).actions.isEmpty)
        #expect(all.machine(1)?.record == before)
    }

    @Test("a creator leaves notices in all boxes before its keys are destroyed; a member where it has no link")
    func notices() throws {
        var all = try World.mailing(3)
        all.isolate(2)
        let conversation = try #require(all.machine(0)).conversation
        let box = try #require(all.box(2))
        let theirs = SlotSecret(
            sender: all.keys[0].publicKey, owner: all.keys[2].publicKey, box: box, conversation: conversation,
            own: all.keys[2])
        var actions: [NodeAction] = []
        all.command(0) { (machine, turn) throws(CommandError) in
            try machine.explode(&turn)
            actions = turn.actions
        }
        let mailed = try #require(actions.firstIndex { if case .mailNotices = $0 { true } else { false } })
        let ended = try #require(actions.firstIndex { if case .explode = $0 { true } else { false } })
        #expect(mailed < ended)
        let notices = try #require(all.notices[0])
        #expect(Set(notices.map(\.member)) == [all.keys[1].publicKey, all.keys[2].publicKey])
        let notice = try #require(notices.first { $0.member == all.keys[2].publicKey })
        #expect(notice.address.box == box && notice.tag == theirs.noticeTag && notice.body.count == 1_024)
        let sealed = try #require(SlotSealing.notice(in: notice.body, theirs, box: box))
        #expect(sealed.count == Limits.noticeByteCount)
        // The notice ends the conversation there, and the answer goes to the creator.
        let result = all.receive([.explosion(sealed)], number: nil, from: 0, at: 2)
        #expect(result.isTaken && all.machine(2) == nil && all.exploded[2] != nil)
        let receipt = try #require(all.exploded[2]?.receipt)
        let answer = SlotSealing.seal(answer: receipt, theirs, box: box, nonce: randomBytes(XChaChaPoly.nonceByteCount))
        #expect(answer.count <= Limits.slotAnswerByteCount)
        #expect(SlotSealing.answer(in: answer, key: SecretBytes(copying: notice.answerKey), box: box) == receipt)
        all.step(0) { core, turn in core.receiveReceipt(receipt, for: conversation, &turn) }
        #expect(all.nodes[0].tombstone(conversation)?.confirmed[all.keys[2].publicKey] != nil)
        // The other member hears of it over its link, and leaves a notice for the absent member.
        all.run(for: .minute)
        #expect(all.machine(1) == nil && all.notices[1]?.map(\.member) == [all.keys[2].publicKey])
    }

    @Test("no notice is left where there is a link, with `--no-trace`, or without boxes") func noNotices() throws {
        var all = try World.mailing(3)
        all.command(0) { try $0.explode(&$1) }
        all.run()
        #expect(all.notices[0]?.count == 2 && all.notices[1] == nil && all.notices[2] == nil)
        all = try World.mailing(3)
        all.isolate(2)
        all.command(0) { try $0.explode(isTraceless: true, &$1) }
        #expect(all.notices[0] == nil && all.machine(0) == nil)
        all = try World.mailing(2, .oneDay)
        all.command(0) { try $0.explode(&$1) }
        #expect(all.notices.isEmpty && all.machine(0) == nil)
    }

    @Test func `a notice that does not open, or not by the creator, ends nothing`() throws {
        var (all, _, _) = try World.away()
        for bytes in [[], [UInt8](repeating: 0, count: Limits.noticeByteCount), all.random.bytes(512)] {
            let result = all.receive([.explosion(bytes)], number: nil, from: 0, at: 1)
            #expect(!result.actions.contains { if case .explode = $0 { true } else { false } })
            #expect(!result.actions.contains { if case .close = $0 { true } else { false } })
        }
        // Forged by another member in the creator's name.
        let genesis = try #require(all.machine(0)?.record.genesis)
        let foreign = ExplodeNotice(genesis: genesis, expiresAt: all.now, key: all.keys[1], &all.random)
        #expect(all.receive([.explosion(foreign.sealed(&all.random))], number: nil, from: 0, at: 1).isTaken)
        #expect(all.machine(1) != nil)
    }

    @Test("frames behind an end in the same slot are ignored: nothing of an ended conversation is kept or saved")
    func behindTheEnd() throws {
        var (all, id, order) = try World.away()
        let genesis = try #require(all.machine(0)?.record.genesis)
        let notice = ExplodeNotice(genesis: genesis, expiresAt: all.now, key: all.keys[0], &all.random)
        let frames = [.explosion(notice.sealed(&all.random))] + all.frames(of: order, from: 0)
        let actions = all.receive(frames, number: 0, from: 0, at: 1).actions
        let end = try #require(actions.firstIndex { if case .explode = $0 { true } else { false } })
        for action in actions[(end + 1)...] {
            switch action {
            case .keep, .save, .setState, .setDelivery: Issue.record("\(action)")
            default: break
            }
        }
        #expect(all.machine(1) == nil && all.shown(id, at: 1) == 0)
    }

    @Test func `a schedule from the box is kept, and a repeat does not move its time`() throws {
        var (all, _, _) = try World.away()
        let genesis = try #require(all.machine(0)?.record.genesis)
        let end = all.now + .hour
        let notice = ExplodeNotice(genesis: genesis, expiresAt: end, isImmediate: false, key: all.keys[0], &all.random)
        for _ in 0..<3 {
            let result = all.receive([.explosion(notice.sealed(&all.random))], number: nil, from: 0, at: 1)
            #expect(result.isTaken && !result.actions.contains { if case .transmit = $0 { true } else { false } })
        }
        #expect(all.machine(1)?.record.schedule?.notice == notice)
        all.run(for: .hour + .second)
        #expect(all.machine(1) == nil)
    }
}
