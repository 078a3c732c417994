import Cryptography
import Messaging
import TestSupport
import Testing

@Suite struct Groups {
    @Test func `members of a conversation of the largest size have links to all, and their messages reach all`() throws
    {
        let count = Limits.memberCount
        var all = try World.joined(count)
        let id = try all.say("full house", from: 7)
        all.run()
        #expect(all.archive.allSatisfy { $0[id]?.content.displayText == "full house" })
        #expect(all.archive[7][id]?.state == .delivered)
        for one in 0..<count {
            #expect(all.names(one) == (0..<count).filter { $0 != one }.map { "p\($0)" }.sorted())
            for other in 0..<one { #expect(all.isOnline(one, other), "\(one) and \(other)") }
        }
    }

    @Test func `a message counts as delivered only when the last member has it`() throws {
        var all = try World.joined(3)
        all.isolate(2)
        let id = try all.say("wait for it", from: 0)
        all.run()
        #expect(all.archive[1][id] != nil && all.archive[0][id]?.state == .sent)
        all.heal(for: 90_000)
        #expect(all.archive[2][id] != nil && all.archive[0][id]?.state == .delivered)
        let states = all.events[0].filter { if case .messageState(id, .delivered, _) = $0 { true } else { false } }
        #expect(states.count == 1)
    }

    @Test func `a message is read when all who got it have read it, and a later joiner cannot read it`() throws {
        var all = World(4)
        all.create()
        for node in 1...2 { try all.join(node) }
        let id = try all.say("to two", from: 0)
        all.run()
        try all.join(3)
        for (reader, state) in [(3, DeliveryState.delivered), (1, .delivered), (2, .read)] {
            let link = try #require(all.machine(0)?.link(to: all.keys[reader].publicKey))
            all.receive(.receipt(Receipt(.read, [id])), 0, on: link)
            #expect(all.archive[0][id]?.state == state)
            #expect(all.archive[0][id]?.deliveries.count == 2)
        }
    }

    @Test func `a message missing only at a removed member is delivered, or cancelled if none has it`() throws {
        var all = try World.joined(3)
        let keys = all.keys.map(\.publicKey)
        all.isolate(2)
        let id = try all.say("two have it", from: 0)
        all.run()
        #expect(all.archive[0][id]?.state == .sent)
        all.command(0) { try $0.remove(keys[2], &$1) }
        #expect(all.archive[0][id]?.state == .delivered)
        all.isolate(1)
        let lost = try all.say("nobody has it", from: 0)
        all.command(0) { try $0.remove(keys[1], &$1) }
        #expect(all.archive[0][lost]?.state == .cancelled)
    }

    @Test func `only the creator changes the name and the lock, and all members see it`() throws {
        var all = try World.joined(3)
        #expect(all.command(1) { try $0.rename("mine", &$1) } == .notCreator)
        #expect(all.command(1) { try $0.setLocked(true, &$1) } == .notCreator)
        #expect(
            all.command(0) { (machine, turn) throws(CommandError) in try machine.rename("\u{7}", &turn) }
                == .invalidName)
        all.command(0) { try $0.rename("room", &$1) }
        all.command(0) { try $0.setLocked(true, &$1) }
        all.run()
        for node in 0..<3 {
            #expect(all.machine(node)?.record.name == "room" && all.machine(node)?.record.group.isLocked == true)
            #expect(all.events[node].contains(.conversationUpdated(name: "room", isLocked: true)))
        }
    }

    @Test func `a member back from absence learns the newest state from any member`() throws {
        var all = try World.joined(3)
        all.isolate(2)
        all.command(0) { try $0.rename("later", &$1) }
        all.command(1) { try $0.setProfile("uno", &$1) }
        all.run()
        all.heal()
        all.isolate(0)
        all.run(for: 90_000)
        #expect(all.machine(2)?.record.name == "later")
        #expect(all.names(2) == ["p0", "uno"])
    }

    @Test func `a member that moved is found again through another member`() throws {
        var all = try World.joined(3)
        // Members 1 and 2 lose their link and 2 moves. Member 1 learns the new address from the creator.
        all.isolate(1, from: [2])
        all.endpoints[2] = "elsewhere"
        all.step(2) { core, turn in core.endpointsChanged(&turn) }
        all.run()
        let known = all.machine(1)?.currentMembers.first { $0.key == all.keys[2].publicKey }
        #expect(known?.endpoints == [Endpoint(host: "elsewhere", port: 1)])
        all.heal(for: 90_000)
        #expect(all.isOnline(1, 2))
    }

    @Test func `a member counts as told our new address only after it has answered`() throws {
        var all = try World.joined(2)
        let other = all.keys[1].publicKey
        all.isolate(1)
        all.endpoints[0] = "elsewhere"
        all.step(0) { core, turn in core.endpointsChanged(&turn) }
        all.heal()
        // A link opens that carries frames in one direction only.
        all.command(0) { (machine, turn) throws(CommandError) in machine.retry(&turn) }
        for frame in all.wire where frame.to == 0 { all.receive(try #require(frame.frame), 0, on: frame.link) }
        let link = try #require(all.machine(0)?.link(to: other))
        all.wire = []
        for node in 0...1 { all.step(node) { core, turn in core.linkClosed(link, &turn) } }
        #expect(all.machine(0)?.record.told[other] != all.machine(0)?.record.own.version)
        all.run(for: 90_000)
        #expect(all.machine(0)?.record.told[other] == all.machine(0)?.record.own.version)
        #expect(all.machine(1)?.currentMembers.first?.endpoints == [Endpoint(host: "elsewhere", port: 1)])
    }

    /// The creator's next state.
    private func next(_ all: World, _ change: (inout GroupState) -> Void) throws -> GroupState {
        var state = try #require(all.machine(1)?.record.group)
        state.version += 1
        change(&state)
        return state
    }

    /// Node 1 hears of a state from its creator or from another member.
    private func offer(
        _ state: GroupState, _ members: [Member] = [], by signer: Int = 0, from node: Int = 0, _ all: inout World
    ) {
        let signed = state.signed(by: all.keys[signer], &all.random)
        all.inject(.group(GroupUpdate(state: signed, members: members, departures: [])), from: node, to: 1)
    }

    private func newcomers(_ count: Int, _ all: inout World) -> [Member] {
        (0..<count).map { number in
            let key = makeKey(&all.random)
            return Member(profile: "new \(number)", endpoints: [], version: 1, key: key, &all.random)
        }
    }

    @Test func `a group state with other members needs a new membership number`() throws {
        var all = try World.joined(2)
        all.agree(on: .oneDay)
        let newcomer = newcomers(1, &all)
        for (membership, isTaken) in [(0, false), (1, true)] as [(UInt64, Bool)] {
            let state = try next(all) {
                $0.membership += membership
                $0.members.append(newcomer[0].key)
            }
            offer(state, newcomer, &all)
            #expect(all.names(1) == (isTaken ? ["new 0", "p0"] : ["p0"]))
            #expect(all.machine(1)?.lifetime == (isTaken ? .ephemeral : .oneDay))
        }
    }

    @Test func `a state that adds many members keeps all of them and drops the departed`() throws {
        var all = try World.joined(3)
        let newcomers = newcomers(Limits.departedCount + 2, &all)
        let state = try next(all) {
            $0.membership += 1
            $0.members = [all.keys[0].publicKey, all.keys[1].publicKey] + newcomers.map(\.key)
        }
        offer(state, newcomers, &all)
        #expect(all.names(1).count == 1 + newcomers.count && !all.names(1).contains("p2"))
        let known = Set((all.machine(1)?.record.members ?? []).map(\.key))
        #expect(known.isSuperset(of: newcomers.map(\.key)))
    }

    @Test func `a group state that is forged, old or names an unknown member changes nothing`() throws {
        var all = try World.joined(3)
        let before = try #require(all.machine(1)?.record.group)
        let stranger = makeKey(&all.random).publicKey
        let other = ConversationID.random(&all.random)
        func addStranger(_ state: inout GroupState) {
            state.membership += 1
            state.members.append(stranger)
        }
        let wrong: [(why: String, signer: Int, change: (inout GroupState) -> Void)] = [
            ("it is signed by another member", 2, { $0.name = "forged" }),
            ("it names somebody who has not been described", 0, addStranger),
            ("its version is not larger", 0, { ($0.version, $0.name) = ($0.version - 1, "old") }),
            ("it is of another conversation", 0, { $0.conversation = other }),
            ("it names a member twice", 0, { $0.members.append($0.members[0]) }),
            ("its creator is not the first", 0, { $0.members.swapAt(0, 1) }),
        ]
        for (why, signer, change) in wrong {
            offer(try next(all, change), by: signer, from: 2, &all)
            #expect(all.machine(1)?.record.group == before, "\(why)")
        }
        let right = try next(all) { $0.name = "true" }
        // After so many invalid states the link is not read for a while.
        offer(right, from: 2, &all)
        #expect(all.machine(1)?.record.group == before)
        all.run(for: 2 * Limits.forgeryPause)
        // Members who are described beside one who is not are not kept.
        let members = try #require(all.machine(1)?.record.members)
        for _ in 0..<5 {
            let described = newcomers(10, &all)
            let state = try next(all) {
                addStranger(&$0)
                $0.members += described.map(\.key)
            }
            offer(state, described, from: 2, &all)
        }
        #expect(all.machine(1)?.record.members == members && all.machine(1)?.record.group == before)
        offer(right, from: 2, &all)
        #expect(all.machine(1)?.record.name == "true", "whoever brings it")
    }

    @Test func `a member's session ends only after it lacked every link for longer than the grace`() throws {
        var all = try World.joined(3)
        all.agree(on: .oneDay)
        func lifetimes() -> [Lifetime?] { (0..<3).map { all.machine($0)?.lifetime } }
        #expect(lifetimes() == [.oneDay, .oneDay, .oneDay])
        // One of two links is lost for long.
        all.isolate(1, from: [2])
        all.run(for: 10 * .minute)
        all.heal(for: 2 * .minute)
        #expect(all.isOnline(1, 2) && lifetimes() == [.oneDay, .oneDay, .oneDay])
        // All links are lost for a short time.
        all.isolate(2)
        all.run(for: 10 * .second)
        all.heal()
        let lostAt = all.now + -10 * .second
        while !all.isOnline(0, 2) { all.run(for: 100) }
        try #require(all.now - lostAt <= Limits.sessionGrace, "it was found in time")
        all.run(for: 2 * .minute)
        #expect(lifetimes() == [.oneDay, .oneDay, .oneDay])
        all.isolate(2)
        all.run(for: Limits.sessionGrace + 1)
        all.heal(for: 2 * .minute)
        #expect(all.isOnline(0, 2) && all.isOnline(1, 2))
        #expect(lifetimes() == [.ephemeral, .ephemeral, .ephemeral])
    }

    @Test func `a removed member is told and gets no later messages`() throws {
        var all = try World.joined(3)
        let before = try all.say("before", from: 0)
        all.run()
        let removed = all.keys[2].publicKey
        #expect(all.command(1) { try $0.remove(removed, &$1) } == .notCreator)
        all.command(0) { try $0.remove(removed, &$1) }
        all.run()
        #expect(all.machine(2)?.record.isRemoved == true && all.events[2].contains(.removed))
        #expect(all.names(0) == ["p1"] && all.names(1) == ["p0"] && all.names(2).isEmpty)
        #expect(all.events[0].contains(.memberRemoved(removed)) && all.events[1].contains(.memberRemoved(removed)))
        let after = try all.say("after", from: 1)
        all.run(for: 90_000)
        #expect(all.archive[0][after] != nil && all.archive[2][after] == nil)
        #expect(all.archive[2][before] != nil)
        #expect(all.command(2) { _ = try $0.send("hello?", &$1) } == .removed)
        #expect(all.command(0) { try $0.remove(removed, &$1) } == .unknownMember)
    }

    @Test func `a removed member may join again, whether its old copy is awake or asleep`() throws {
        var all = try World.joined(2)
        let removed = all.keys[1].publicKey
        all.command(0) { try $0.remove(removed, &$1) }
        all.run()
        #expect(all.machine(1)?.record.isRemoved == true)
        let invite = try all.invite()
        let client = all.clients[1]
        func refusal(_ all: inout World) -> CommandError? {
            var refusal: CommandError?
            all.step(1) { core, turn in
                do throws(CommandError) { try core.checkJoin(invite, turn) } catch { refusal = error }
            }
            return refusal
        }
        #expect(refusal(&all) == nil)
        all.sleep(client, of: 1)
        #expect(all.nodes[1].isSleeping(client) && refusal(&all) == nil)
    }

    @Test func `a member removed during its absence is told when it returns`() throws {
        var all = try World.joined(3)
        all.isolate(2)
        let removed = all.keys[2].publicKey
        all.command(0) { try $0.remove(removed, &$1) }
        let secret = try all.say("not for it", from: 0)
        all.run()
        all.heal(for: 180_000)
        #expect(all.machine(2)?.record.isRemoved == true)
        #expect(all.archive[2][secret] == nil)
    }

    @Test func `a member cannot remove another member with a forged departure`() throws {
        var all = try World.joined(3)
        let victim = all.keys[2].publicKey
        let forged = Departure(of: victim, conversation: all.conversation, key: all.keys[1], &all.random)
        for node in [2, 0] { all.inject(.memberLeft(forged), from: 1, to: node) }
        #expect(all.machine(2)?.record.isRemoved == false && all.names(2) == ["p0", "p1"])
        #expect(all.names(0) == ["p1", "p2"])
    }

    @Test func `a departed member is removed by all members, even when told by another member`() throws {
        var all = try World.joined(4)
        all.isolate(0)
        all.isolate(2, from: [3])
        all.command(3) { machine, turn in machine.leave(&turn) }
        all.run()
        #expect(all.names(1) == ["p0", "p2"])
        #expect(all.names(2) == ["p0", "p1"])
        all.heal(for: 90_000)
        #expect(all.names(0) == ["p1", "p2"])
        let version = all.machine(0)?.record.group.version
        #expect(all.machine(1)?.record.group.version == version && all.machine(2)?.record.group.version == version)
        #expect(all.machine(1)?.record.departures.isEmpty == true)
    }

    @Test func `a member cannot describe another member, and describes itself only at a limited rate`() throws {
        var all = try World.joined(3)
        let link = try #require(all.machine(1)?.link(to: all.keys[2].publicKey))
        let stamp = UInt64(all.now.milliseconds)
        func offer(_ member: Member, _ all: inout World) { all.receive(.profile(member), 1, on: link) }
        let fake = Member(profile: "fake", endpoints: [], version: stamp + 9, key: all.keys[0], &all.random)
        offer(fake, &all)
        #expect(all.names(1) == ["p0", "p2"], "even if it is genuine, it is not its own")
        let forged = Member(
            key: all.keys[2].publicKey, profile: "x", endpointTexts: [], version: stamp + 9, signature: fake.signature)
        offer(forged, &all)
        #expect(all.names(1) == ["p0", "p2"])
        for count in 1...20 {
            offer(
                Member(
                    profile: "n\(count)", endpoints: [], version: stamp + UInt64(count), key: all.keys[2], &all.random),
                &all)
        }
        #expect(all.names(1) == ["n\(Limits.profileRate.burst)", "p0"])
        // Above the rate limit the newest description counts, once the rate allows it.
        all.advance(1, by: Limits.profileRate.interval - 1)
        #expect(all.names(1) == ["n\(Limits.profileRate.burst)", "p0"])
        all.now = all.now + 1
        func told(_ all: World) -> Int { all.events[1].count { if case .profileChanged = $0 { true } else { false } } }
        let before = told(all)
        all.advance(1)
        #expect(all.names(1) == ["n20", "p0"])
        #expect(told(all) == before + 1, "watchers are told once")
        all.advance(1, by: .hour)
        #expect(all.names(1) == ["n20", "p0"] && told(all) == before + 1)
    }

    @Test func `a forged description among too frequent ones does not displace a genuine one`() throws {
        var all = try World.joined(3)
        let (own, key) = (all.keys[2], all.keys[2].publicKey)
        let links = try [2, 0].map { try #require(all.machine(1)?.link(to: all.keys[$0].publicKey)) }
        func member(_ name: String, _ version: UInt64) -> Member {
            Member(profile: name, endpoints: [], version: version, key: own, &all.random)
        }
        let stamp = UInt64(all.now.milliseconds)
        let good = (0...10 as ClosedRange<UInt64>).map { member("n\($0)", stamp + $0) }
        for one in good.prefix(8) { all.receive(.profile(one), 1, on: links[0]) }
        // Passed on by another member: the genuine description counts, the forged one does not.
        let forged = Member(key: key, profile: "x", endpointTexts: [], version: .max, signature: good[0].signature)
        for one in [good[9], forged, good[8]] {
            let update = GroupUpdate(state: nil, members: [one], departures: [])
            all.receive(.group(update), 1, on: links[1])
        }
        #expect(all.names(1).contains("n\(Limits.profileRate.burst - 1)"))
        // A description above the rate limit does not hold up the next member's.
        let news = Member(profile: "news", endpoints: [], version: stamp + 1, key: all.keys[0], &all.random)
        let update = GroupUpdate(state: nil, members: [good[10], news], departures: [])
        all.receive(.group(update), 1, on: links[1])
        #expect(all.names(1) == ["n\(Limits.profileRate.burst - 1)", "news"])
        all.advance(1, by: Limits.profileRate.interval)
        #expect(all.names(1) == ["n10", "news"])
    }

    @Test func `messages given up undelivered are shown to the receiver as a gap`() throws {
        var all = try World.joined(3)
        all.isolate(2)
        _ = try all.say("one", from: 0)
        _ = try all.say("two", from: 0)
        all.run(for: Limits.outboxLifetime + .minute)
        all.heal(for: 120_000)
        #expect(all.events[2].contains(.messagesMissed(all.keys[0].publicKey, count: 2)))
        #expect(!all.events[1].contains { if case .messagesMissed = $0 { true } else { false } })
        let told = all.events[2].count { if case .messagesMissed = $0 { true } else { false } }
        all.isolate(2)
        all.heal(for: 120_000)
        #expect(all.events[2].count { if case .messagesMissed = $0 { true } else { false } } == told)
    }

    @Test func `an explosion reaches removed members too`() throws {
        var all = try World.joined(3)
        let removed = all.keys[2].publicKey
        all.command(0) { try $0.remove(removed, &$1) }
        all.run()
        all.command(0) { try $0.explode(&$1) }
        all.run()
        #expect(Set(all.fanOut[0].map(\.key)) == [all.keys[1].publicKey, removed])
        #expect(all.exploded[0] != nil && all.exploded[1] != nil)
        let notice = try #require(all.exploded[0]?.notice)
        all.notify(2, notice)
        #expect(all.exploded[2] != nil)
    }

    @Test func `a member that rejoined three times confirms an explosion for each of its keys`() throws {
        var all = try World.joined(3)
        var keys = [all.keys[1].publicKey, all.keys[2].publicKey]
        for _ in 0..<3 {
            let earlier = try all.removeAndRejoin(1)
            keys.append(all.keys[1].publicKey)
            // The living copy represents the conversation, whichever was entered last.
            all.step(1) { core, turn in core.step(earlier, &turn) { $0.retry(&$1) } }
            #expect(
                all.nodes[1].conversation(earlier) != nil && all.nodes[1].client(of: all.conversation) == all.clients[1]
            )
            if keys.count == 4 { all.sleep(earlier, of: 1) }
        }
        all.command(0) { try $0.explode(&$1) }
        all.run(for: 1_000)
        let conversation = try #require(all.exploded[0]?.conversation)
        let tombstone = try #require(all.nodes[0].tombstone(conversation))
        #expect(Set(tombstone.confirmed.keys) == Set(keys))
        #expect(tombstone.waiting.isEmpty)
        // The answers to the creator's knocks, in case a receipt is lost.
        let earlier = try #require(all.exploded[1]?.earlierCopies)
        #expect(Set(earlier.map(\.receipt.member)) == Set(keys).subtracting([keys[1], keys[4]]))
        #expect(earlier.allSatisfy { $0.receipt.isSignatureValid })
        #expect(all.nodes[1].conversations.isEmpty && all.nodes[1].client(of: conversation) == nil)
    }

    @Test func `a notice to an earlier copy explodes the latest copy, which tells the members`() throws {
        var all = try World.joined(3)
        let earlier = try all.removeAndRejoin(1)
        let key = try #require(all.inboxKeys[earlier]).publicKey
        all.isolate(1)
        all.command(0) { try $0.explode(&$1) }
        let notice = try #require(all.exploded[0]?.notice)
        var answer: [UInt8]?
        all.step(1) { core, turn in answer = core.receiveNotice(notice, for: earlier, &turn) }
        let record = try #require(all.exploded[1])
        #expect(Set(record.members) == [all.keys[0].publicKey, all.keys[2].publicKey])
        let sealed = try #require(answer)
        #expect(DeletionReceipt(opening: sealed, conversation: record.conversation)?.member == key)
        #expect(all.nodes[1].clients(of: record.conversation).isEmpty)
    }

    @Test(arguments: [false, true]) func `a locked member confirms an explosion for an earlier copy, awake or asleep`(
        isAsleep: Bool
    ) throws {
        var all = try World.joined(2)
        let earlier = try all.removeAndRejoin(1)
        if isAsleep { all.sleep(earlier, of: 1) }
        all.step(1) { core, turn in core.prepareForLock(&turn) }
        all.isLocked[1] = true
        for client in [earlier, all.clients[1]] { all.inboxKeys[client]?.wipe() }
        all.command(0) { try $0.explode(&$1) }
        all.run(for: 1_000)
        let conversation = try #require(all.exploded[0]?.conversation)
        let tombstone = try #require(all.nodes[0].tombstone(conversation))
        #expect(tombstone.confirmed.count == 2 && tombstone.members.count == 2)
    }

    @Test func `a member prepares a receipt for each copy, and the creator keeps early receipts`() throws {
        var all = try World.joined(2)
        let earlier = try all.removeAndRejoin(1)
        let keys = [try #require(all.inboxKeys[earlier]).publicKey, all.keys[1].publicKey]
        let end = all.now + .hour
        all.command(0) { try $0.explode(at: end, &$1) }
        all.run()
        #expect(all.armed[1]?.earlierCopies.map(\.receipt.member) == [keys[0]])
        let notice = try #require(all.armed[1]?.notice)
        let now = all.now
        all.now = end + .second
        all.step(1) { core, turn in core.explodeDue(&turn) }
        all.now = now
        all.run(for: 1_000)
        #expect(all.exploded[1] != nil && notice.count == Limits.noticeByteCount)
        #expect(Set(all.armed[0]?.confirmed.keys.map { $0 } ?? []) == Set(keys))
    }

    @Test func `a joiner never gets earlier messages, even after a restart of their sender`() throws {
        var all = World(3)
        all.create()
        try all.join(1)
        all.isolate(1)
        let early = try all.say("before the third", from: 0)
        try all.join(2)
        let message = try #require(all.archive[0][early]).message
        #expect(message.deliveries.map(\.member) == [all.keys[1].publicKey])
        all.command(0) { machine, _ in machine.restoreOutbox(message) }
        all.run()
        #expect(all.archive[2][early] == nil)
        all.heal(for: 90_000)
        #expect(all.archive[1][early] != nil && all.archive[2][early] == nil)
    }
}
