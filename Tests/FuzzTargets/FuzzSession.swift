import Cryptography
import Messaging
import TestSupport

/// A script that acts on an assembly: frames, users, links and the clock.
struct FuzzSession {
    var all: World
    /// Real frames of this conversation, to be changed by a byte or two.
    let templates: [[UInt8]]
    private var proposals: [LifetimeProposal] = []
    private var agreements: [Agreement] = []

    static let templateCount = 32
    static let commandCount = 28
    static let frameCount = 22

    init(_ all: World) throws {
        self.all = all
        var samples = Samples()
        templates = try samples.frames().map(FrameCodec.encode)
    }

    mutating func act(_ input: inout FuzzInput) {
        switch input.index(below: 8) {
        case 0:
            let node = input.index(below: all.nodes.count)
            guard let (link, from) = link(of: node, &input) else { return }
            if let frame = signedFrame(from, to: node, &input) {
                all.deliver(FrameCodec.encode(frame), to: node, on: link)
            }
        case 1: changedFrame(&input)
        case 2: command(&input)
        case 3: all.run(for: Milliseconds(input.short()))
        case 4: changeLinks(&input)
        case 5:
            let steps: [Milliseconds] = [.minute, .hour, .day, 7 * .day, 30 * .day, 366 * .day]
            all.now = all.now + steps[input.index(below: steps.count)]
            all.run(for: .second)
        case 6: knock(&input)
        default:
            // Arbitrary bytes of a stranger or a broken member.
            let node = input.index(below: all.nodes.count)
            guard let (link, _) = link(of: node, &input) else { return }
            all.deliver(input.run(isLong: true), to: node, on: link)
        }
    }

    /// An open link of this node, and the node at its other end.
    private func link(of node: Int, _ input: inout FuzzInput) -> (LinkID, from: Int)? {
        let open = all.links.keys.sorted().filter { all.links[$0]?.contains(node) == true && all.links[$0]?.count == 2 }
        guard !open.isEmpty else { return nil }
        let link = open[input.index(below: open.count)]
        return all.links[link]?.first { $0 != node }.map { (link, $0) }
    }

    private mutating func changedFrame(_ input: inout FuzzInput) {
        let node = input.index(below: all.nodes.count)
        // Half of the frames are really on their way.
        let choice = input.index(below: 2 * templates.count)
        var bytes = templates[choice % templates.count]
        if choice >= templates.count, !all.wire.isEmpty {
            let index = input.index(below: all.wire.count)
            guard let real = all.wire[index].frame else { return }
            bytes = FrameCodec.encode(real)
        }
        for _ in 0..<Int(input.byte() % 4) where !bytes.isEmpty {
            let at = Int(input.short()) % bytes.count
            bytes[at] = input.byte()
        }
        guard let (link, _) = link(of: node, &input) else { return }
        all.deliver(bytes, to: node, on: link)
    }

    private mutating func changeLinks(_ input: inout FuzzInput) {
        let node = input.index(below: all.nodes.count)
        switch input.index(below: 4) {
        case 0: if let (link, _) = link(of: node, &input) { all.close(link, by: node) }
        case 1:
            let other = input.index(below: all.nodes.count)
            if other != node { all.open(node, to: other) }
        case 2:
            let remote = all.keys[input.index(below: all.keys.count)].publicKey
            let isUnknown = input.byte() & 1 == 0
            let client = all.clients[node]
            all.step(node) { core, turn in core.dialFailed(client, to: remote, isUnknownThere: isUnknown, &turn) }
        default: all.wire.removeAll()
        }
    }

    /// Notices, receipts and statements without a handshake.
    private mutating func knock(_ input: inout FuzzInput) {
        let node = input.index(below: all.nodes.count)
        let client = all.clients[node]
        guard let genesis = genesis else { return }
        let by = all.keys[input.index(below: all.keys.count)]
        switch input.index(below: 3) {
        case 0:
            let sealed = notice(genesis, by, &input)
            let isAnswer = input.byte() & 1 == 0
            all.step(node) { core, turn in core.receiveNotice(sealed, for: client, isAnswer: isAnswer, &turn) }
        case 1:
            let receipt = DeletionReceipt(
                conversation: genesis.conversation, destroyedAt: Timestamp(milliseconds: input.signed()), key: by,
                &all.random
            ).sealed(&all.random)
            all.step(node) { core, turn in core.receiveReceipt(receipt, for: genesis.conversation, &turn) }
        default:
            guard let tag = all.invites.last?.invite.tag else { return }
            let statement = ExpiredStatement(
                tag: tag, timestamp: Timestamp(milliseconds: input.signed()), key: by, &all.random)
            all.step(node) { core, turn in core.receive(statement, for: client, &turn) }
        }
    }

    var genesis: Genesis? {
        for node in all.nodes.indices { if let machine = all.machine(node) { return machine.record.genesis } }
        return nil
    }

    private func messageID(_ node: Int, _ input: inout FuzzInput) -> MessageID {
        let known = all.archive[node].keys.sorted()
        let choice = Int(input.byte())
        if choice < known.count { return known[choice] }
        return MessageID(unchecked: [UInt8](repeating: UInt8(choice), count: 16))
    }

    private func terms(_ input: inout FuzzInput) -> LifetimeTerms {
        let lifetimes = Lifetime.allCases
        let bits = input.byte()
        return LifetimeTerms(
            lifetimes[input.index(below: lifetimes.count)],
            attachment: bits & 1 == 0 ? nil : lifetimes[input.index(below: lifetimes.count)],
            unopened: bits & 2 == 0 ? nil : input.signed(), timer: bits & 4 == 0 ? .send : .read,
            mailbox: MailboxConsent.allCases[Int(bits >> 3) % MailboxConsent.allCases.count])
    }

    private mutating func proposal(_ from: Int, to node: Int, _ input: inout FuzzInput) -> LifetimeProposal? {
        guard let genesis, let machine = all.machine(node) else { return nil }
        let group = machine.record.group
        let bits = input.byte()
        let standing = machine.agreement?.id
        let proposal = LifetimeProposal(
            conversation: genesis.conversation, membership: bits & 1 == 0 ? group.membership : input.number(),
            epoch: bits & 2 == 0 ? UInt64(proposals.count) + 1 : input.number(),
            previous: bits & 4 == 0 ? standing ?? .none : .none, terms: terms(&input),
            proposedAt: bits & 8 == 0 ? all.now : Timestamp(milliseconds: input.signed()), nonce: all.random.bytes(16),
            proposer: all.keys[from].publicKey
        ).signed(by: all.keys[from], &all.random)
        proposals.append(proposal)
        return proposal
    }

    private mutating func agreement(_ from: Int, to node: Int, _ input: inout FuzzInput) -> Agreement? {
        guard let proposal = input.byte() & 1 == 0 ? proposals.last : proposal(from, to: node, &input) else {
            return nil
        }
        var accepts: [LifetimeAccept] = []
        for key in all.keys where key.publicKey != proposal.proposer {
            accepts.append(LifetimeAccept(proposal, at: all.now, by: key, &all.random))
        }
        let agreement = Agreement(proposal: proposal, accepts: accepts)
        agreements.append(agreement)
        return agreement
    }

    private mutating func group(_ by: IdentityKey, _ input: inout FuzzInput) -> GroupState? {
        guard let genesis, let known = all.machine(0)?.record.group else { return nil }
        let bits = input.byte()
        return GroupState(
            conversation: genesis.conversation,
            version: bits & 1 == 0 ? known.version &+ 1 : Self.version(input.number()),
            membership: bits & 2 == 0 ? known.membership &+ 1 : Self.version(input.number()),
            name: bits & 4 == 0 ? nil : input.text(), isLocked: bits & 8 == 0,
            members: all.keys.enumerated().filter { bits >> (4 + UInt8($0.offset)) & 1 == 0 }.map(\.element.publicKey)
        ).signed(by: by, &all.random)
    }

    private mutating func member(_ from: Int, _ input: inout FuzzInput) -> Member {
        let bits = input.byte()
        let endpoints = (0..<Int(bits & 15)).map { Endpoint(host: "n\(from)", port: UInt16($0)) }
        return Member(
            profile: bits & 16 == 0 ? nil : input.text(), endpoints: bits & 32 == 0 ? [all.endpoint(from)] : endpoints,
            version: Self.version(input.number()), key: all.keys[from], &all.random)
    }

    /// Bounds versions below the maximum. A hostile program may sign with an honest node's key here, and that node
    /// counts on from the version; running out of numbers is not a defect.
    private static func version(_ number: UInt64) -> UInt64 { min(number, 1 << 61) }

    private mutating func notice(_ genesis: Genesis, _ by: IdentityKey, _ input: inout FuzzInput) -> [UInt8] {
        let bits = input.byte()
        let ahead = Milliseconds(input.short()) * .second
        return ExplodeNotice(
            genesis: genesis, expiresAt: bits & 1 == 0 ? all.now + ahead : Timestamp(milliseconds: input.signed()),
            isImmediate: bits & 2 == 0, key: by, &all.random
        ).sealed(&all.random)
    }

    private mutating func start(_ from: Int, to node: Int, _ input: inout FuzzInput) -> SessionStart {
        let bits = input.byte()
        var start = SessionStart(
            reset: bits & 1 == 0, inForce: bits & 2 == 0 ? all.machine(node)?.agreement?.id : agreements.last?.id,
            head: bits & 4 == 0 ? nil : agreement(from, to: node, &input),
            renewable: bits & 8 == 0 ? nil : terms(&input), epoch: input.number(),
            open: bits & 16 == 0 ? nil : proposals.last?.id)
        start.undelivered = input.number()
        (start.run, start.copies) = (UInt64(bits >> 5 & 3), bits & 128 != 0)
        if bits & 32 != 0 { start.member = member(from, &input) }
        if bits & 64 != 0 { start.groupDigest = Array(input.run().prefix(8)) }
        return start
    }

    private mutating func content(_ node: Int, _ input: inout FuzzInput) -> Content {
        let bits = input.byte()
        let lifetimes = Lifetime.allCases
        let bodies: [(ContentType, ContentBody)] = [
            (.text, .opaque), (.reply, .reply(Reply(replyTo: messageID(node, &input), text: "x"))),
            (.reaction, .reaction(Reaction(message: messageID(node, &input), emoji: "👍", isRemoved: bits & 1 == 0))),
            (
                .attachment,
                .attachment(
                    Attachment(
                        name: "f", mediaType: "",
                        byteCount: Int64(min(input.number(), UInt64(Attachment.byteCountLimit))),
                        hash: [UInt8](repeating: 0, count: 32), text: ""))
            ), (ContentType("example.org/poll:1.0"), .opaque),
        ]
        let (type, body) = bodies[input.index(below: bodies.count)]
        return Content(
            type: type, id: bits & 2 == 0 ? MessageID.random(&all.random) : messageID(node, &input),
            sentAt: bits & 4 == 0 ? all.now : Timestamp(milliseconds: input.signed()),
            lifetime: lifetimes[input.index(below: lifetimes.count)],
            agreement: bits & 8 == 0 ? all.machine(node)?.agreement?.id : nil, fallback: "", shouldPush: true,
            payload: body == .opaque ? Array("hi".utf8) : [], body: body)
    }

    mutating func signedFrame(_ from: Int, to node: Int, _ input: inout FuzzInput) -> Frame? {
        let key = all.keys[from]
        switch input.index(below: Self.frameCount) {
        case 0: return .session(start(from, to: node, &input))
        case 1, 2:
            let age = input.byte() & 1 == 0 ? 0 : max(0, input.signed())
            return .content(content(node, &input), age: age)
        case 3:
            let choice = input.byte()
            let id = messageID(node, &input)
            return choice & 6 == 6 ? .expiredOnArrival(id) : .acknowledgement(id, stored: choice & 1 == 0)
        case 4: return proposal(from, to: node, &input).map { .lifetime(.proposal($0)) }
        case 5:
            let known = all.machine(node)?.pendingProposal?.proposal ?? proposals.last
            guard let known else { return nil }
            return .lifetime(
                .accept(LifetimeAccept(known, at: Timestamp(milliseconds: input.signed()), by: key, &all.random)))
        case 6:
            let id = all.machine(node)?.pendingProposal?.proposal.id ?? proposals.last?.id
            guard let id else { return nil }
            return .lifetime(input.byte() & 1 == 0 ? .reject(id, .userDeclined) : .withdraw(id))
        case 7: return agreement(from, to: node, &input).map { .lifetime(.agreement($0)) }
        case 8:
            return (agreements.last?.id).map {
                .lifetime(.ended($0, renewable: input.byte() & 1 == 0 ? nil : terms(&input)))
            }
        case 9:
            guard let genesis else { return nil }
            return .explosion(notice(genesis, key, &input))
        case 10:
            let state = group(input.byte() & 1 == 0 ? all.keys[0] : key, &input)
            let members = (0..<Int(input.byte() % 4)).map { _ in member(from, &input) }
            var departures: [Departure] = []
            if input.byte() & 1 == 1, let genesis {
                departures = [Departure(of: key.publicKey, conversation: genesis.conversation, key: key, &all.random)]
            }
            return .group(GroupUpdate(state: state, members: members, departures: departures))
        case 11: return .profile(member(from, &input))
        case 12:
            guard let genesis else { return nil }
            return .memberLeft(Departure(of: key.publicKey, conversation: genesis.conversation, key: key, &all.random))
        case 13:
            return .attachmentRequest(
                messageID(node, &input), first: Int(truncatingIfNeeded: input.number() & 0xffff_ffff),
                count: Int(truncatingIfNeeded: input.number() & 0xffff_ffff))
        case 14:
            return .attachmentChunk(
                AttachmentChunk(
                    message: messageID(node, &input), index: Int(truncatingIfNeeded: input.number() & 0xffff_ffff),
                    isDeflated: input.byte() & 1 == 0, bytes: input.run()))
        case 15: return .attachmentGone(messageID(node, &input))
        case 16:
            let kinds: [Receipt.Kind] = [.read, .tooLarge, .damaged]
            return .receipt(Receipt(kinds[input.index(below: 3)], [messageID(node, &input), messageID(node, &input)]))
        case 17: return joinFrame(from, &input)
        case 18: return welcome(from, to: node, &input)
        case 19: return input.byte() & 1 == 0 ? .closing(asleep: input.byte() & 1 == 0) : .joinCancelled
        case 20: return input.byte() & 1 == 0 ? .ping(input.number()) : .pong(input.number())
        default:
            let slug =
                input.byte() & 1 == 0 ? "mayfly:join/x" : all.invites.last.map { InviteSlug.encode($0.signed) } ?? ""
            return .invitation(Invitation(id: messageID(node, &input), slug: slug, name: input.text()))
        }
    }

    private mutating func joinFrame(_ from: Int, _ input: inout FuzzInput) -> Frame? {
        guard let invite = all.invites.last else { return nil }
        if input.byte() & 1 == 0 {
            let types: [JoinErrorType] = [.conversationExpired, .genericFailure, .singleUseConsumed, .unknown("later")]
            return .joinError(
                JoinError(
                    errorType: types[input.index(below: 4)], inviteTag: invite.invite.tag,
                    timestamp: Timestamp(milliseconds: input.signed() / 1_000 * 1_000)))
        }
        let secret = input.byte() & 1 == 0 ? invite.invite.joinSecret : [UInt8](repeating: 1, count: 32)
        return .joinRequest(JoinRequest(invite: invite.signed, joinSecret: secret, member: member(from, &input)))
    }

    private mutating func welcome(_ from: Int, to node: Int, _ input: inout FuzzInput) -> Frame? {
        guard let invite = all.invites.last, let genesis, let group = group(all.keys[from], &input) else { return nil }
        let bits = input.byte()
        var members: [Member] = []
        for index in all.keys.indices where index != node || bits & 8 != 0 { members.append(member(index, &input)) }
        let notice = bits & 1 == 0 ? nil : notice(genesis, all.keys[from], &input)
        return .welcome(
            Welcome(
                tag: invite.invite.tag, genesis: genesis, group: group, members: members,
                expiresAt: notice.flatMap { ExplodeNotice(opening: $0, conversation: genesis.conversation)?.expiresAt },
                notice: notice, agreement: bits & 2 == 0 ? nil : agreement(from, to: node, &input)))
    }
}

extension FuzzSession {
    mutating func command(_ input: inout FuzzInput) {
        let node = input.index(below: all.nodes.count)
        let client = all.clients[node]
        let known = all.archive[node].keys.sorted()
        let id =
            known.isEmpty
            ? MessageID(unchecked: [UInt8](repeating: 0, count: 16)) : known[input.index(below: known.count)]
        let other = all.keys[input.index(below: all.keys.count)].publicKey
        switch input.index(below: Self.commandCount) {
        case 0:
            let text = input.text()
            all.command(node) { (machine, turn) throws(CommandError) in _ = try machine.send(text, &turn) }
        case 1:
            let lifetimes = Lifetime.allCases
            let terms = LifetimeTerms(lifetimes[input.index(below: lifetimes.count)])
            all.command(node) { (machine, turn) throws(CommandError) in try machine.propose(terms, &turn) }
        case 2: all.command(node) { (machine, turn) throws(CommandError) in try machine.accept(&turn) }
        case 3: all.command(node) { (machine, turn) throws(CommandError) in try machine.reject(&turn) }
        case 4: all.command(node) { (machine, turn) throws(CommandError) in try machine.withdraw(&turn) }
        case 5:
            let policies: [LifetimePolicy?] = [nil, .ask, .refuse, .acceptUpTo(.oneDay)]
            let policy = policies[input.index(below: 4)]
            all.command(node) { machine, turn in machine.setPolicy(policy, &turn) }
        case 6:
            let caps: [LifetimeCap?] = [nil, LifetimeCap.none, .atMost(.oneHour), .atMost(.ephemeral)]
            let cap = caps[input.index(below: 4)]
            all.command(node) { machine, turn in machine.setCap(cap, &turn) }
        case 7: all.command(node) { (machine, turn) throws(CommandError) in _ = try machine.reply("ja", to: id, &turn) }
        case 8:
            let isRemoved = input.byte() & 1 == 0
            all.command(node) { (machine, turn) throws(CommandError) in
                _ = try machine.react("👍", to: id, isRemoved: isRemoved, &turn)
            }
        case 9: sendFile(node, &input)
        case 10:
            let time = input.byte() & 1 == 0 ? nil : Timestamp(milliseconds: input.signed())
            let isTraceless = input.byte() & 1 == 0
            all.command(node) { (machine, turn) throws(CommandError) in
                try machine.explode(at: time, isTraceless: isTraceless, &turn)
            }
        case 11:
            let name = input.text()
            all.command(node) { (machine, turn) throws(CommandError) in try machine.rename(name, &turn) }
        case 12:
            let isLocked = input.byte() & 1 == 0
            all.command(node) { (machine, turn) throws(CommandError) in try machine.setLocked(isLocked, &turn) }
        case 13: all.command(node) { (machine, turn) throws(CommandError) in try machine.remove(other, &turn) }
        case 14:
            let profile = input.text()
            all.command(node) { (machine, turn) throws(CommandError) in try machine.setProfile(profile, &turn) }
        case 15: all.command(node) { machine, turn in machine.leave(&turn) }
        case 16:
            let isOn: Bool? = [nil, true, false][input.index(below: 3)]
            all.command(node) { machine, turn in machine.setReadReceipts(isOn, &turn) }
        case 17: all.command(node) { machine, turn in machine.markRead(known.map { ($0, other) }, &turn) }
        case 18: all.command(node) { (machine, turn) throws(CommandError) in try machine.cancel(id, &turn) }
        case 19: all.command(node) { machine, turn in machine.close(&turn) }
        case 20: all.command(node) { machine, turn in machine.retry(&turn) }
        case 21: all.step(node) { core, turn in _ = try? core.sleep(client, &turn) }
        case 22: all.wake(node, .userInteraction)
        case 23: all.wake(node, .pushNotification)
        case 24: all.command(node) { machine, _ in machine.releaseMemory() }
        case 25:
            all.command(node) { (machine, turn) throws(CommandError) in
                _ = try machine.invite(lifetime: .hour, singleUse: false, &turn)
            }
        case 26: all.command(node) { (machine, turn) throws(CommandError) in try machine.revokeAll(&turn) }
        default:
            var isCancelled = false
            all.step(node) { core, turn in
                _ = turn.apart { isCancelled = core.cancelJoin(client, &$0) }
                if !isCancelled { core.retryJoin(client, &turn) }
            }
            if isCancelled { all.routes[node] = [] }
        }
    }

    private mutating func sendFile(_ node: Int, _ input: inout FuzzInput) {
        let byteCount = Int64(input.short()) << 4
        all.command(node) { (machine, turn) throws(CommandError) in
            let prepared = try machine.prepareAttachment(byteCount: byteCount, &turn)
            let attachment = Attachment(
                name: "f", mediaType: "text/plain", byteCount: byteCount, hash: [UInt8](repeating: 0, count: 32),
                text: "")
            _ = try machine.send(attachment, prepared, &turn)
        }
    }
}
