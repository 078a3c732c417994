import Cryptography
import Messaging
import TestSupport
import Testing

extension World {
    /// Delivers a frame of the attacker to `victim` over their link.
    /// - Returns: `false` when there is no link.
    @discardableResult mutating func inject(_ frame: Frame, from attacker: Int, to victim: Int) -> Bool {
        guard let link = machine(victim)?.link(to: keys[attacker].publicKey) else { return false }
        step(victim) { core, turn in core.receive(frame, on: link, verify: { _ in nil }, &turn) }
        return true
    }

    var conversation: ConversationID { machine(0)!.conversation }

    func isShunned(_ attacker: Int, by victim: Int) -> Bool {
        machine(victim)?.isShunned(keys[attacker].publicKey, now: now) ?? false
    }

    mutating func agree(on terms: LifetimeTerms) {
        command(0) { try $0.propose(terms, &$1) }
        run()
        for node in nodes.indices.dropFirst() { command(node) { try $0.accept(&$1) } }
        run()
    }

    mutating func text(
        _ text: String, id: MessageID? = nil, by attacker: Int, sentAt: Timestamp? = nil,
        lifetime: Lifetime = .ephemeral, agreement: AgreementID? = nil
    ) -> Content {
        Content(
            type: .text, id: id ?? .make(by: keys[attacker].publicKey, in: conversation, &random),
            sentAt: sentAt ?? now, lifetime: lifetime, agreement: agreement, fallback: "", shouldPush: true,
            payload: Array(text.utf8))
    }
}

/// A member that follows no rule: 2 holds a real key in a conversation of 0, its creator, and 1. The honest members
/// keep their agreements, stay connected, and do a bounded amount of work for it.
@Suite("A hostile member") struct HostileMembers {
    private let attacker = 2

    private func scene(_ terms: LifetimeTerms? = nil) throws -> World {
        var all = try World.joined(3)
        all.run()
        if let terms { all.agree(on: terms) }
        return all
    }

    private func expectChat(_ all: inout World, _ comment: Comment? = nil) throws {
        let id = try all.say("still here", from: 0)
        all.run()
        #expect(all.archive[1][id]?.content.displayText == "still here", comment)
    }

    @Test func `a content with a false age or time is kept no longer than agreed`() throws {
        var all = try scene(.oneHour)
        let agreement = try #require(all.machine(0)?.agreement?.id)
        let ages: [Milliseconds] = [0, -1, .min, -365 * .day, .max, 59 * .minute]
        for age in ages {
            for sentAt in [Timestamp(milliseconds: 0), .latest, all.now + 3_650 * .day] {
                for lifetime in [Lifetime.ephemeral, .oneHour, .thirtyDays] {
                    let content = all.text(
                        "lie", by: attacker, sentAt: sentAt, lifetime: lifetime, agreement: agreement)
                    all.inject(.content(content, age: age), from: attacker, to: 0)
                    guard let kept = all.archive[0][content.id] else { continue }
                    let end = try #require(kept.expiresAt)
                    #expect(end <= all.now + 60 * .minute, "age \(age), sent at \(sentAt), \(lifetime)")
                }
            }
        }
        // Under a made-up agreement: kept in memory only, no longer than the content says.
        let alone = all.text("x", by: attacker, lifetime: .thirtyDays, agreement: .random(&all.random))
        all.inject(.content(alone, age: 0), from: attacker, to: 0)
        #expect(all.machine(0)?.agreement?.id == agreement)
        try expectChat(&all)
    }

    @Test func `a message under another member's id does not block the real message`() throws {
        var all = try scene()
        // The attacker sees the message before member 1, and is faster.
        all.isolate(0, from: [1])
        let id = try all.say("the real one", from: 0)
        all.run()
        #expect(all.archive[attacker][id] != nil && all.archive[1][id] == nil)
        let (before, sent) = (all.machine(1)?.droppedCount ?? 0, all.sent.count)
        let stolen = all.text("the wrong one", id: id, by: attacker)
        all.inject(.content(stolen, age: 0), from: attacker, to: 1)
        #expect(all.archive[1][id] == nil && all.machine(1)?.droppedCount == before + 1)
        all.run()
        let isAcknowledged = all.sent.dropFirst(sent).contains { frame in
            guard case .acknowledgement(let said) = frame else { return false }
            return (said.stored + said.held).contains(id)
        }
        #expect(!isAcknowledged)
        all.heal(for: 90_000)
        #expect(all.archive[1][id]?.content.displayText == "the real one")
        #expect(all.archive[1][id]?.sender == all.keys[0].publicKey)
        #expect(all.archive[0][id]?.state == .delivered)
    }

    @Test func `a removed member's contents and receipts are not taken`() throws {
        var all = try scene()
        let link = try #require(all.machine(1)?.link(to: all.keys[attacker].publicKey))
        let said = try all.say("for all", from: 1)
        all.run()
        let key = all.keys[attacker].publicKey
        all.command(0) { try $0.remove(key, &$1) }
        all.run()
        #expect(all.machine(1)?.currentMembers.count == 1)
        let content = all.text("I am still here", by: attacker)
        for frame: Frame in [.content(content, age: 0), .receipt(Receipt(.read, [said])), .ping(1)] {
            all.receive(frame, 1, on: link)
        }
        #expect(all.archive[1][content.id] == nil && all.archive[1][said]?.state == .delivered)
        // Replaying the old state with its membership has no effect.
        try expectChat(&all)
        #expect(all.archive[attacker].values.allSatisfy { $0.content.displayText != "still here" })
    }

    @Test func `a replayed agreement or an accept of another value never extends the lifetime`() throws {
        var all = try scene(.thirtyDays)
        let old = try #require(all.machine(0)?.agreement)
        all.now = all.now + Limits.proposalRate.interval
        all.agree(on: .oneHour)
        #expect(all.machine(0)?.lifetime == .oneHour)
        all.inject(.lifetime(.agreement(old)), from: attacker, to: 0)
        all.inject(.lifetime(.proposal(old.proposal)), from: attacker, to: 1)
        for accept in old.accepts { all.inject(.lifetime(.accept(accept)), from: attacker, to: 0) }
        all.run()
        // A replayed older agreement may cost the attacker the current one, but never restores the longer lifetime.
        for node in 0..<2 { #expect(all.machine(node)?.lifetime != .thirtyDays) }
        all.now = all.now + Limits.proposalRate.interval
        all.command(0) { try $0.propose(.oneDay, &$1) }
        all.run()
        let open = try #require(all.machine(0)?.pendingProposal?.proposal)
        var wrong = LifetimeAccept(open, at: all.now, by: all.keys[attacker], &all.random)
        wrong.lifetime = .thirtyDays
        all.inject(.lifetime(.accept(wrong)), from: attacker, to: 0)
        #expect(all.machine(0)?.pendingProposal?.proposal.id == open.id)
        #expect(all.machine(0)?.lifetime != .oneDay && all.machine(0)?.lifetime != .thirtyDays)
    }

    @Test(arguments: ["accept", "state", "description", "departure", "explosion"])
    func `a sender of invalid signatures costs a few checks, then is ignored for a while`(_ kind: String) throws {
        var all = try scene()
        if kind == "accept" {
            all.command(1) { try $0.propose(.oneDay, &$1) }
            all.run()
        }
        var random = all.random
        func garbage() throws -> SchnorrSignature { try SchnorrSignature(random.bytes(64)) }
        var frames: [Frame] = []
        let group = try #require(all.machine(0)?.record.group)
        for number in 1...8 {
            switch kind {
            case "accept":
                let open = try #require(all.machine(1)?.pendingProposal?.proposal)
                var accept = LifetimeAccept(open, at: all.now, by: all.keys[attacker], &random)
                accept.signature = try garbage()
                frames.append(.lifetime(.accept(accept)))
            case "state":
                var state = group
                state.version += UInt64(number)
                state.membership += UInt64(number)
                state.members = [all.keys[0].publicKey, all.keys[1].publicKey]
                state.signature = try garbage()
                frames.append(.group(GroupUpdate(state: state, members: [], departures: [])))
            case "description":
                let member = Member(
                    key: all.keys[attacker].publicKey, profile: "x", endpointTexts: [], version: .max - UInt64(number),
                    signature: try garbage())
                frames.append(.profile(member))
            case "departure":
                let word = Departure(
                    conversation: all.conversation, member: all.keys[0].publicKey, signature: try garbage())
                frames.append(.memberLeft(word))
            default: frames.append(.explosion(all.notice(at: all.now, isImmediate: true, by: attacker)))
            }
        }
        all.random = random
        let key = all.keys[attacker].publicKey
        let link = try #require(all.machine(1)?.link(to: key))
        for frame in frames {
            // Directly to the core, as a frame in flight when the link was closed.
            all.receive(frame, 1, on: link)
        }
        #expect(all.machine(1)?.forgedCount ?? 0 <= Limits.forgeryRate.burst + 1, "a check each, and then none")
        if kind == "explosion" {
            #expect(all.machine(1)?.link(to: key) == nil)
        } else {
            #expect(all.isShunned(attacker, by: 1) && all.machine(1)?.link(to: key) == nil)
            all.run(for: Limits.forgeryPause / 2)
            #expect(!all.isOnline(1, attacker), "not heard, whoever dials")
        }
        try expectChat(&all)
        all.run(for: 3 * Limits.forgeryPause)
        #expect(all.isOnline(1, attacker), "a pause, no sentence for life")
        #expect(all.machine(1)?.record.group.members.count == 3 && all.machine(1)?.lifetime == .ephemeral)
    }

    @Test func `only the creator's notice for this conversation can end it`() throws {
        var all = try scene()
        let foreign = Genesis(conversation: .random(&all.random), createdAt: noon, key: all.keys[0], &all.random)
        let sealed = [
            // By a member; by the creator, for another conversation; by a member, far ahead.
            all.notice(at: all.now, isImmediate: true, by: attacker),
            ExplodeNotice(genesis: foreign, expiresAt: all.now, key: all.keys[0], &all.random).sealed(&all.random),
            all.notice(at: all.now + 3_650 * .day, by: attacker),
        ]
        for notice in sealed {
            all.inject(.explosion(notice), from: attacker, to: 1)
            all.notify(1, notice)
        }
        all.inject(.explosion(all.random.bytes(Limits.noticeByteCount)), from: attacker, to: 1)
        #expect(all.exploded[1] == nil && all.machine(1)?.record.schedule == nil)
        try expectChat(&all)
    }

    @Test func `a schedule brought forward a thousand times is written a few times, and the earliest counts`() throws {
        var all = try scene()
        let begin = all.now
        var known: Set<Timestamp> = []
        for number in 0..<1_000 {
            let time = begin + 2 * .hour - Milliseconds(number) * 5 * .second
            all.inject(.explosion(all.notice(at: time)), from: 0, to: 1)
            if let end = all.machine(1)?.record.schedule?.expiresAt { known.insert(end) }
        }
        #expect(known.count == Limits.scheduleRate.burst)
        all.run(for: 2 * Limits.scheduleRate.interval)
        let end = try #require(all.machine(1)?.record.schedule?.expiresAt)
        #expect(end <= begin + 2 * .hour - 999 * 5 * .second + .second)
        // All members end at the same time, whatever each was sent.
        all.run(for: end - all.now + .second)
        for node in 0..<3 { #expect(all.exploded[node] != nil, "\(node)") }
    }

    /// The creator's successive notices, each passed on by another member.
    private func bringForward(_ delays: [Milliseconds], _ all: inout World) {
        for delay in delays { all.inject(.explosion(all.notice(at: all.now + delay)), from: attacker, to: 1) }
    }

    @Test func `an earlier end that is due before its delayed writing still takes place`() throws {
        var all = try scene()
        bringForward([2 * .day, .day, .hour, 2 * .second], &all)
        #expect(all.exploded[1] == nil)
        all.run(for: 3 * .second)
        #expect(all.exploded[1] != nil)
    }

    @Test func `an earlier end that waits for its writing survives the inbox's sleep`() throws {
        var all = try scene()
        bringForward([4 * .day, 3 * .day, 2 * .day, .hour], &all)
        all.isolate(1)
        all.sleep(all.clients[1], of: 1)
        #expect(all.nodes[1].isSleeping(all.clients[1]))
        all.now = all.now + 6 * .second
        all.wake(1, .activityRanking)
        all.run(for: .second)
        #expect(try #require(all.machine(1)?.record.schedule).expiresAt <= all.now + .hour)
    }

    private func file(_ byteCount: Int64) -> Messaging.Attachment {
        Messaging.Attachment(
            name: "f", mediaType: "a/b", byteCount: byteCount, hash: [UInt8](repeating: 1, count: 32), text: "")
    }

    private func announce(_ all: inout World, byteCount: Int64) -> MessageID {
        var content = all.text("", by: attacker)
        content.type = .attachment
        content.payload = []
        content.body = .attachment(file(byteCount))
        all.inject(.content(content, age: 0), from: attacker, to: 1)
        return content.id
    }

    @Test func `an announced file that is never sent does not keep the inbox awake`() throws {
        var all = try scene()
        _ = announce(&all, byteCount: 1 << 20)
        let client = all.clients[1]
        #expect(all.nodes[1].protection(client).contains(.undelivered))
        // The sender keeps its link alive and sends nothing of the file.
        for number in 0..<6 {
            all.run(for: Limits.transferPatience / 5)
            all.inject(.ping(UInt64(number)), from: attacker, to: 1)
        }
        #expect(all.isOnline(1, attacker))
        #expect(!all.nodes[1].protection(client).contains(.undelivered))
    }

    @Test func `a member that requests a file and reads nothing does not keep the inbox awake`() throws {
        var all = try scene()
        var sent: MessageID?
        all.command(1) { (machine, turn) throws(CommandError) in
            let prepared = try machine.prepareAttachment(byteCount: 100_000, &turn)
            sent = try machine.send(file(100_000), prepared, &turn).content.id
        }
        let id = try #require(sent)
        all.inject(.attachmentRequest(id, first: 0, count: 3), from: attacker, to: 1)
        all.run(for: Limits.transferPatience + .second)
        all.inject(.ping(1), from: attacker, to: 1)
        #expect(all.machine(1)?.isTransferring == false)
    }

    @Test func `an unrequested chunk is not inflated, and a requested decompression bomb counts as forgery`() throws {
        var all = try scene()
        let id = announce(&all, byteCount: 100_000)
        let bomb = Deflate.compress([UInt8](repeating: 0, count: 100_000), level: 9)
        // Chunks of an unknown file, and beyond the end.
        for chunk in [
            AttachmentChunk(message: .random(&all.random), index: 0, isDeflated: true, bytes: bomb),
            AttachmentChunk(message: id, index: 99, isDeflated: true, bytes: bomb),
        ] { all.inject(.attachmentChunk(chunk), from: attacker, to: 1) }
        #expect(all.machine(1)?.forgedCount == 0)
        for _ in 0...Limits.forgeryRate.burst {
            let chunk = AttachmentChunk(message: id, index: 0, isDeflated: true, bytes: bomb)
            all.inject(.attachmentChunk(chunk), from: attacker, to: 1)
        }
        #expect(all.machine(1)?.forgedCount == Limits.forgeryRate.burst + 1 && all.isShunned(attacker, by: 1))
        try expectChat(&all)
    }
}
