import Cryptography
import Messaging
import TestSupport
import Testing

@Suite("Mailbox: a conversation's boxes and keys") struct MailboxAgreementTests {
    @Test("a description names the box only while an agreement with a mailbox is in force", arguments: [2, 3])
    func named(count: Int) throws {
        var all = try World.joined(count)
        try all.giveMailboxes()
        for node in 0..<count { all.step(node) { core, turn in core.endpointsChanged(&turn) } }
        all.agree(on: .oneDay)
        for node in 0..<count { #expect(all.box(node) == nil && all.machine(node)?.usesMailbox == false) }
        for terms in [LifetimeTerms.mailed, .oneHour, .inMemory, .ephemeral] {
            all.run(for: .minute)
            all.agree(on: terms)
            for node in 0..<count {
                let seed = try #require(all.machine(node)?.relaySeeds.first)
                let box = terms.mailbox == .no ? nil : all.mailboxes[node]?.box(of: seed)
                #expect(all.box(node) == box)
                #expect(all.machine(node)?.usesMailbox == (box != nil))
                for other in 0..<count where other != node {
                    #expect(all.box(node, as: other) == box)
                    #expect(all.isMailable(node, by: other) == (box != nil))
                }
            }
        }
        // A member that was away since before the end still writes to the box, so it stays for a while.
        #expect(all.machine(0)?.boxUntil.map { $0 > all.now && $0 <= all.now + Limits.sliceHorizon } == true)
    }

    @Test func `if one of three members rejects the mailbox, no box is named or claimed`() throws {
        var all = try World.joined(3)
        try all.giveMailboxes()
        all.command(0) { try $0.propose(.mailed, &$1) }
        all.run()
        all.command(1) { try $0.accept(&$1) }
        all.run()
        for node in 0..<3 { #expect(all.box(node) == nil) }
        all.command(2) { try $0.reject(&$1) }
        all.run()
        for node in 0..<3 { #expect(all.box(node) == nil && all.machine(node)?.boxUntil == nil) }
        #expect(!all.sent.contains { if case .mailbox = $0 { true } else { false } })
        all.isolate(2)
        _ = try all.say("to nobody's mailbox", from: 0)
        all.run(for: 2 * .minute)
        #expect(all.orders.isEmpty)
    }

    @Test func `a member without a mailbox names no box, and no member writes to one`() throws {
        var all = try World.joined(2)
        all.mailboxes[0] = try all.makeMailbox(of: 0)
        all.agree(on: .mailed)
        #expect(all.box(0) != nil && all.box(1) == nil)
        #expect(all.isMailable(0, by: 1) && !all.isMailable(1, by: 0))
        all.isolate(1)
        _ = try all.say("one", from: 0)
        let id = try all.say("two", from: 1)
        all.run(for: 10 * .second)
        #expect(all.orders[0] == nil && all.orders[1]?.map { $0.messages.map(\.id) } == [[id]])
    }

    @Test func `a later member has a box and all keys, and the others have its keys`() throws {
        var all = World(3)
        let client = all.clients[0]
        all.step(0) { core, turn in _ = try? core.createConversation(client, name: "talk", profile: "p", &turn) }
        try all.join(1)
        try all.giveMailboxes()
        all.agree(on: .mailed)
        try all.join(2)
        all.run(for: .minute)
        for node in 0..<3 {
            #expect(all.machine(node)?.agreement?.terms == .mailed)
            for other in 0..<3 where other != node { #expect(all.isMailable(node, by: other), "\(node) by \(other)") }
        }
    }

    @Test func `when a member is removed the others change their boxes and do not tell it`() throws {
        var all = try World.mailing(3)
        let before = [all.box(0), all.box(1)]
        let removed = all.keys[2].publicKey
        all.command(0) { try $0.remove(removed, &$1) }
        all.run(for: .minute)
        #expect(all.machine(2)?.record.isRemoved == true && all.machine(2)?.usesMailbox == false)
        #expect(all.machine(2)?.boxUntil == nil)
        for node in 0..<2 {
            #expect(all.box(node) != nil && all.box(node) != before[node])
            #expect(all.box(node, as: 1 - node) == all.box(node))
            #expect(all.box(node, as: 2) != all.box(node))
            #expect(all.isMailable(node, by: 1 - node))
        }
    }

    @Test("keys are requested only under the agreement, only above the known ones, and within the rate limit")
    func wanted() throws {
        var all = try World.mailing(2)
        let agreement = try #require(all.machine(0)?.agreement?.id)
        func makes(_ frame: Frame) -> [NodeAction] {
            all.frame(frame, from: 1, to: 0).filter { if case .makeSlices = $0 { true } else { false } }
        }
        all.run(for: .minute)
        let link = try #require(all.machine(0)?.link(to: all.keys[1].publicKey))
        var other = agreement.bytes
        other[0] ^= 1
        let dropped = try #require(all.machine(0)?.droppedCount)
        #expect(makes(.mailbox(.want(AgreementID(unchecked: other), above: nil))).isEmpty)
        #expect(all.machine(0)?.droppedCount == dropped + 1)
        for above in [nil, 0, 7] as [UInt32?] {
            #expect(
                makes(.mailbox(.want(agreement, above: above))) == [
                    .makeSlices(all.clients[0], agreement, above: above, link)
                ])
        }
        #expect(makes(.mailbox(.want(agreement, above: nil))).isEmpty, "too often")
        all.now = all.now + Limits.sliceRequestRate.interval
        #expect(makes(.mailbox(.want(agreement, above: nil))).count == 1)
        #expect(makes(.mailbox(.want(agreement, above: nil))).isEmpty)
        // Without a box of our own there are no keys to give.
        all.run(for: .minute)
        all.mailboxes[0] = nil
        all.step(0) { core, turn in core.endpointsChanged(&turn) }
        #expect(makes(.mailbox(.want(agreement, above: nil))).isEmpty)
    }

    @Test func `keys that no honest owner would send are dropped`() throws {
        var all = try World.mailing(2)
        all.run(for: .minute)
        let agreement = try #require(all.machine(0)?.agreement)
        let schedule = SliceSchedule(agreement.terms)
        let present = schedule.slice(at: all.now)
        let key = all.keys[0].publicKey
        func say(_ count: Int, left: Milliseconds, _ id: AgreementID? = nil) -> Bool {
            let keys = SliceKeys(
                agreement: id ?? agreement.id, first: present, present: present, left: left,
                keys: [PublicKey](repeating: key, count: count))
            return all.frame(.mailbox(.keys(keys)), from: 1, to: 0) == [.save(all.clients[0])]
        }
        let known = try #require(all.machine(0)?.record.mailbox)
        #expect(!say(1, left: 0) && !say(1, left: -1) && !say(1, left: schedule.width + 1) && !say(1, left: .max))
        #expect(!say(1, left: 1, AgreementID.none) && !say(Limits.sliceKeyCount + 1, left: 1))
        #expect(all.machine(0)?.record.mailbox == known)
        #expect(say(0, left: 1) && say(1, left: schedule.width) && say(Limits.sliceKeyCount, left: 1))
        // Each key costs a write and a point multiplication, so keys are rate-limited.
        var taken = 0
        for _ in 0..<200 where say(1, left: 1) { taken += 1 }
        #expect(taken <= Limits.sliceFrameRate.burst)
        // An answer without a present key leaves nothing to seal to.
        all = try World.mailing(2)
        all.run(for: .minute)
        #expect(all.isMailable(1, by: 0))
        all.now = all.now + 8 * .day
        #expect(!all.isMailable(1, by: 0), "all of them are over")
    }

    @Test func `an unanswered request for keys is repeated each minute, an answered one is not`() throws {
        var all = try World.mailing(2)
        let link = try #require(all.machine(0)?.link(to: all.keys[1].publicKey))
        func requests(in time: Milliseconds) -> Int {
            all.sent = []
            let end = all.now + time
            while all.now < end {
                // No member answers here, and a silent link is given up.
                all.step(0) { core, turn in core.receive(.pong(0), on: link, verify: { _ in nil }, &turn) }
                all.now = all.now + 10 * .second
                all.step(0) { core, turn in core.advance(&turn) }
            }
            return all.sent.count { if case .mailbox(.want) = $0 { true } else { false } }
        }
        #expect(requests(in: 10 * .minute) == 0, "the first was answered")
        let agreement = try #require(all.machine(0)?.agreement)
        let schedule = SliceSchedule(agreement.terms)
        all.now = all.now + schedule.horizon / 8
        #expect(requests(in: 10 * .minute) == 10)
        func answer(_ keys: [PublicKey]) {
            let slice = schedule.slice(at: all.now)
            let said = SliceKeys(agreement: agreement.id, first: slice, present: slice, left: 1, keys: keys)
            all.step(0) { core, turn in core.receive(.mailbox(.keys(said)), on: link, verify: { _ in nil }, &turn) }
        }
        // An answer without a present key does not count.
        all.now = all.now + 8 * .day
        answer([])
        #expect(requests(in: 10 * .minute) == 10)
        answer([all.keys[1].publicKey])
        #expect(requests(in: 10 * .minute) == 0)
        // Without a box nothing is requested and no timer is set.
        all.now = all.now + schedule.horizon / 8
        let bare = Member(profile: nil, endpoints: [], version: .max, key: all.keys[1], &all.random)
        all.step(0) { core, turn in core.receive(.profile(bare), on: link, verify: { _ in nil }, &turn) }
        #expect(requests(in: 10 * .minute) == 0)
        all.step(0) { core, turn in core.advance(&turn) }
        let deadline = try #require(all.machine(0)?.nextDeadline)
        #expect(deadline > all.now)
    }

    @Test func `keys that run out are requested in time, above the known ones`() throws {
        var all = try World.mailing(2)
        let agreement = try #require(all.machine(0)?.agreement)
        let schedule = SliceSchedule(agreement.terms)
        let last = schedule.last(at: all.now)
        all.sent = []
        all.now = all.now + schedule.horizon / 8
        for (one, other) in [(0, 1), (1, 0)] { _ = all.frame(.ping(1), from: one, to: other) }
        all.run(for: .second)
        let wants = all.sent.filter { $0 == .mailbox(.want(agreement.id, above: last)) }
        #expect(wants.count == 2)
        let now = all.now
        all.now = now + schedule.horizon - 1
        #expect(all.isMailable(1, by: 0) && all.isMailable(0, by: 1), "there are keys for a whole horizon again")
    }
}
