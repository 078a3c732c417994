import Cryptography
import Messaging
import TestSupport
import Testing

@Suite("Join rates") struct JoinRateTests {
    @Test func `Five refusals of one tag are sent at once, then one every twelve seconds`() {
        var random = Randomness.seeded(1)
        let (tag, other) = (InviteTag.random(&random), InviteTag.random(&random))
        var rates = JoinRates()
        for _ in 0..<5 { #expect(rates.takesRefusal(tag, now: noon) == true) }
        #expect(rates.takesRefusal(tag, now: noon) == false)
        #expect(rates.takesRefusal(other, now: noon) == true)
        #expect(rates.takesRefusal(tag, now: noon + 11 * .second) == false)
        #expect(rates.takesRefusal(tag, now: noon + 12 * .second) == true)
        #expect(rates.takesRefusal(tag, now: noon + 12 * .second) == false)
        let later = noon + Milliseconds.minute + 12 * .second
        for _ in 0..<5 { #expect(rates.takesRefusal(tag, now: later) == true) }
        #expect(rates.takesRefusal(tag, now: later) == false)
    }

    @Test("Sixty requests by one invite are checked at once, then one a second; invalid requests share one allowance")
    func requests() {
        var random = Randomness.seeded(1)
        var rates = JoinRates()
        let invites = [InviteID.random(&random), nil]
        for invite in invites {
            for _ in 0..<60 { #expect(rates.takesRequest(by: invite, now: noon) == true) }
            #expect(rates.takesRequest(by: invite, now: noon + 999) == false)
            #expect(rates.takesRequest(by: invite, now: noon + 1_000) == true)
            #expect(rates.takesRequest(by: invite, now: noon + 1_000) == false)
        }
        // The holders of one invite do not use up the allowance of others.
        #expect(rates.takesRequest(by: .random(&random), now: noon + 1_000) == true)
    }

    @Test func `The number of counted invites is bounded; the rest share the allowance of invalid requests`() {
        var random = Randomness.seeded(1)
        var rates = JoinRates()
        for _ in 0..<Limits.joinTagCount { #expect(rates.takesRequest(by: .random(&random), now: noon) == true) }
        for _ in 0..<60 { #expect(rates.takesRequest(by: .random(&random), now: noon) == true) }
        #expect(rates.takesRequest(by: .random(&random), now: noon) == false)
        #expect(rates.takesRequest(by: .random(&random), now: noon + 1_000) == true)
    }

    @Test func `The number of counted tags is bounded, and quiet tags make room`() {
        var random = Randomness.seeded(1)
        var rates = JoinRates()
        for _ in 0..<Limits.joinTagCount { #expect(rates.takesRefusal(.random(&random), now: noon) == true) }
        #expect(rates.takesRefusal(.random(&random), now: noon) == false)
        #expect(rates.takesRefusal(.random(&random), now: noon + Limits.joinRefusalRate.interval) == true)
    }
}

private struct Door {
    var pair = Pair()
    private var nextLink: UInt64 = 1_000

    init(singleUse: Bool = true) throws { try pair.createAndInvite(singleUse: singleUse) }

    var creator: Conversation? { pair.machines[0] }

    /// The creator's actions for a first frame of `key`.
    mutating func ask(_ key: IdentityKey, _ request: JoinRequest, verified: VerifiedInvite?) -> [NodeAction] {
        nextLink += 1
        let link = LinkID(nextLink)
        var request = request
        request.member = Member(profile: nil, endpoints: [], version: 1, key: key, &pair.random)
        var turn = turn(pair.random, now: pair.now)
        pair.nodes[0].linkOpened(link, client: pair.clients[0], remote: key.publicKey, weDialled: false, &turn)
        let actions = turn.apart {
            pair.nodes[0].receive(.joinRequest(request), on: link, verify: { _ in verified }, &$0)
        }
        pair.random = turn.random
        return actions.map { action in
            switch action {
            case .close: .close(LinkID(0))
            case .transmit(_, let frame): .transmit(LinkID(0), frame)
            default: action
            }
        }
    }

    mutating func inviteAgain() throws -> VerifiedInvite { try pair.invite() }

    func request(by invite: VerifiedInvite? = nil, secret: [UInt8]? = nil) throws -> JoinRequest {
        let invite = try #require(invite ?? pair.invite)
        var random = pair.random
        let placeholder = Member(profile: nil, endpoints: [], version: 1, key: pair.keys[0], &random)
        return JoinRequest(invite: invite.signed, joinSecret: secret ?? invite.invite.joinSecret, member: placeholder)
    }

    static func refusal(_ actions: [NodeAction]) -> JoinErrorType? {
        for case .transmit(_, .joinError(let error)) in actions { return error.errorType }
        return nil
    }
}

@Suite("Joins at the creator") struct CreatorTests {
    private static let silence: [NodeAction] = [.close(LinkID(0))]

    @Test func `A request without the secret or a valid invite gets no answer, whatever is wrong with it`() throws {
        var door = try Door()
        var random = Randomness.seeded(9)
        let invite = try #require(door.pair.invite)
        let stranger = makeKey(&random)
        let foreign = try VerifiedInvite(
            SignedInvite(payload: [4], signedBy: stranger.secret),
            decoded: makeInvite(stranger, .random(&random), tag: invite.invite.tag, &random))
        func all(_ door: inout Door) throws -> [[NodeAction]] {
            [
                door.ask(makeKey(&random), try door.request(secret: random.bytes(32)), verified: invite),
                door.ask(makeKey(&random), try door.request(secret: []), verified: invite),
                door.ask(makeKey(&random), try door.request(), verified: nil),
                door.ask(makeKey(&random), try door.request(), verified: foreign),
                door.ask(makeKey(&random), try door.request(secret: foreign.invite.joinSecret), verified: foreign),
            ]
        }
        let open = try all(&door)
        door.pair.command(0) { try $0.setLocked(true, &$1) }
        let locked = try all(&door)
        door.pair.now = invite.invite.expiresAt + 1
        let expired = try all(&door)
        for answers in [open, locked, expired] { #expect(answers.allSatisfy { $0 == Self.silence }) }
    }

    @Test("A flood of joiners with one invite: one gets in, five are refused, the others hear nothing until later")
    func flood() throws {
        var door = try Door()
        var random = Randomness.seeded(9)
        let invite = try #require(door.pair.invite)
        var refused = 0
        var silent = 0
        for index in 0..<20 {
            let actions = door.ask(makeKey(&random), try door.request(), verified: invite)
            if index == 0 {
                #expect(actions.contains { if case .transmit(_, .welcome) = $0 { true } else { false } })
            } else if Door.refusal(actions) == .singleUseConsumed {
                refused += 1
            } else if actions == Self.silence {
                silent += 1
            }
        }
        #expect(refused == 5 && silent == 14)
        #expect(door.creator?.currentMembers.count == 1 && door.creator?.droppedCount == 14)
        door.pair.now = door.pair.now + 12 * .second
        #expect(Door.refusal(door.ask(makeKey(&random), try door.request(), verified: invite)) == .singleUseConsumed)
        // The limit holds for all requests: even the admitted joiner has to wait.
        for _ in 0..<100 { _ = door.ask(makeKey(&random), try door.request(secret: []), verified: invite) }
        #expect(door.ask(makeKey(&random), try door.request(), verified: invite) == Self.silence)
    }

    @Test("A removed member cannot join by an old invite with another key; a new invite admits its holder")
    func removed() throws {
        var door = try Door(singleUse: false)
        var random = Randomness.seeded(9)
        let invite = try #require(door.pair.invite)
        func isWelcomed(_ actions: [NodeAction]) -> Bool {
            actions.contains { if case .transmit(_, .welcome) = $0 { true } else { false } }
        }
        let joiner = makeKey(&random)
        #expect(isWelcomed(door.ask(joiner, try door.request(), verified: invite)))
        #expect(isWelcomed(door.ask(makeKey(&random), try door.request(), verified: invite)))
        door.pair.command(0) { try $0.remove(joiner.publicKey, &$1) }
        #expect(door.creator?.currentMembers.count == 1)
        for key in [joiner, makeKey(&random)] {
            #expect(Door.refusal(door.ask(key, try door.request(), verified: invite)) == .genericFailure)
        }
        #expect(door.creator?.currentMembers.count == 1)
        let later = try door.inviteAgain()
        #expect(isWelcomed(door.ask(makeKey(&random), try door.request(by: later), verified: later)))
    }

    @Test func `An invite names the first three endpoints of its creator`() throws {
        var all = try World.joined(1)
        let endpoints = (1...8).map { Endpoint(host: "h\($0)", port: 1) }
        all.command(0) { (machine, first) throws(CommandError) in
            var second = turn(first.random, now: first.now, endpoints: endpoints)
            let invite = try machine.invite(lifetime: .day, singleUse: true, &second)
            #expect(invite.endpoints == Array(endpoints[..<3]))
            first.add(second.actions)
        }
    }

    @Test func `An invite's route ends when it has expired and there is another, or a day later`() throws {
        var all = try World.joined(1)
        func invite(_ all: inout World) {
            all.command(0) { _ = try $0.invite(lifetime: .second, singleUse: true, &$1) }
        }
        func routes(_ all: World) -> Int { all.routes[0].count { if case .invite = $0 { true } else { false } } }
        for _ in 0..<200 {
            for _ in 0..<3 { invite(&all) }
            #expect(routes(all) == 3)
            all.now = all.now + 2 * .second
        }
        all.advance(0)
        #expect(routes(all) == 3)
        all.now = all.now + Limits.joinLifetime
        let client = all.clients[0]
        all.step(0) { core, turn in core.step(client, &turn) { $0.retry(&$1) } }
        #expect(routes(all) == 0)
    }

    @Test func `The checks run in order: the first failure is the answer`() throws {
        var random = Randomness.seeded(9)
        // In a living conversation `consumed` is the answer only if all other checks pass.
        var door = try Door()
        let invite = try #require(door.pair.invite)
        _ = door.ask(makeKey(&random), try door.request(), verified: invite)
        #expect(Door.refusal(door.ask(makeKey(&random), try door.request(), verified: invite)) == .singleUseConsumed)
        door.pair.command(0) { machine, turn in try machine.revoke(invite.invite.id, &turn) }
        #expect(Door.refusal(door.ask(makeKey(&random), try door.request(), verified: invite)) == .genericFailure)
        door.pair.command(0) { try $0.setLocked(true, &$1) }
        #expect(Door.refusal(door.ask(makeKey(&random), try door.request(), verified: invite)) == .genericFailure)
        door.pair.now = invite.invite.expiresAt
        #expect(Door.refusal(door.ask(makeKey(&random), try door.request(), verified: invite)) == .genericFailure)
    }
}

@Suite("A join under way") struct JoinUnderWayTests {
    private func joining(_ pair: inout Pair) throws {
        try pair.createAndInvite()
        try pair.askToJoin()
    }

    @Test func `A link that closes without an answer doubles the wait before the next dial, up to 48 s`() throws {
        var pair = Pair()
        try joining(&pair)
        var waits: [Milliseconds] = []
        for _ in 0..<14 {
            pair.dials[1] = nil
            pair.open(1, to: 0)
            pair.disconnect()
            let next = try #require(pair.nodes[1].joins.first?.nextAttempt)
            waits.append(next - pair.now)
            pair.now = next
            pair.advance(1)
            #expect(pair.dials[1] != nil)
        }
        #expect(waits[0] < 400 && waits[13] >= Limits.redial.longest / 2)
        #expect(waits.allSatisfy { $0 <= Limits.redial.longest * 3 / 2 })
        #expect(pair.nodes[1].joins.first?.attempts == 15)
        // The user asks: the dial is immediate and the backoff starts again.
        pair.open(1, to: 0)
        pair.disconnect()
        let client = pair.clients[1]
        pair.dials[1] = nil
        pair.step(1) { core, turn in core.retryJoin(client, &turn) }
        #expect(pair.dials[1] != nil)
    }

    @Test func `A welcome on a replaced link is ignored; the repeated request on the new link is answered`() throws {
        var pair = Pair()
        try joining(&pair)
        pair.open(1, to: 0)
        // The creator answers, and another link opens before the answer arrives.
        let first = pair.wire[0].link
        pair.deliverOne()
        pair.meet(dialer: 1)
        let second = try #require(pair.machines[1]?.link(to: pair.keys[0].publicKey))
        #expect(second != first && pair.closed.contains(first) && !pair.closed.contains(second))
        #expect(pair.machines[0]?.link(to: pair.keys[1].publicKey) == second)
        for node in 0..<2 { #expect(pair.machines[node]?.isOnline(pair.keys[1 - node].publicKey) == true) }
    }

    @Test func `A failed join is listed, and swept with its keys two days after it began`() throws {
        var pair = Pair()
        try joining(&pair)
        let start = pair.now
        pair.now = start + Limits.joinLifetime
        pair.advance(1)
        #expect(pair.nodes[1].joins.first?.record.state == .joinFailed(.genericFailure))
        #expect(pair.nodes[1].nextDeadline == start + Limits.joinListedLifetime)
        pair.now = start + (Limits.joinListedLifetime - 1)
        pair.advance(1)
        #expect(pair.nodes[1].joins.count == 1)
        pair.now = start + Limits.joinListedLifetime
        var destroyed: [NodeAction] = []
        pair.step(1) { core, turn in
            core.advance(&turn)
            destroyed = turn.actions
        }
        #expect(destroyed == [.destroy(pair.clients[1])] && pair.nodes[1].joins.isEmpty)
    }

    @Test func `A joiner that cancels after its admission frees its place; the single use stays consumed`() throws {
        var pair = Pair()
        try joining(&pair)
        pair.open(1, to: 0)
        pair.deliverOne()
        #expect(pair.machines[0]?.currentMembers.count == 1)
        let client = pair.clients[1]
        pair.wire.removeAll()
        pair.step(1) { core, turn in core.cancelJoin(client, &turn) }
        pair.run()
        #expect(pair.machines[0]?.currentMembers.isEmpty == true)
        #expect(pair.events[0].contains(.memberLeft(pair.keys[1].publicKey)))
        #expect(pair.machines[0]?.invites?.invites.first?.admitted == [pair.keys[1].publicKey])
    }

    @Test("A refusal without a link reaches the creator later, after a restart too", arguments: [true, false])
    func refusedLater(byUser: Bool) throws {
        var pair = Pair()
        try pair.createAndInvite()
        let (client, keys, invite) = (pair.clients[1], pair.keys, try #require(pair.invite))
        pair.step(1) { core, turn in _ = try? core.join(client, invite: invite, profile: nil, asks: true, &turn) }
        pair.open(1, to: 0)
        pair.deliverOne()
        let answer = pair.wire.removeFirst()
        let link = answer.link
        guard case .welcome(var welcome)? = answer.frame else { return #expect(Bool(false), "\(answer)") }
        let proposal = LifetimeProposal(
            conversation: welcome.genesis.conversation, membership: 1, epoch: 1, previous: .none,
            terms: LifetimeTerms(.oneDay), proposedAt: noon, nonce: pair.random.bytes(16), proposer: keys[0].publicKey
        ).signed(by: keys[0], &pair.random)
        welcome.agreement = Agreement(proposal: proposal, accepts: [])
        let question = Frame.welcome(welcome)
        pair.receive(question, 1, on: link)
        #expect(pair.events[1] == [.joinValidated])
        pair.disconnect()
        if !byUser { pair.now = pair.now + Limits.joinAnswerTime }
        pair.step(1) { core, turn in if byUser { core.cancelJoin(client, &turn) } else { core.advance(&turn) } }
        #expect(pair.nodes[1].joins.map(\.record.state) == (byUser ? [] : [.joinFailed(.genericFailure)]))

        let record = try #require(pair.records[client])
        pair.nodes[1] = NodeStateMachine()
        pair.step(1) { core, turn in core.load(record, key: keys[1], &turn) }
        // The second link answers whether the creator knows.
        for _ in 0..<2 {
            pair.now = pair.now + Milliseconds.hour
            pair.dials[1] = nil
            pair.advance(1)
            #expect(pair.dials[1]?.route == .invite(invite.invite.id))
            pair.meet(dialer: 1)
            #expect(pair.machines[0]?.currentMembers.isEmpty == true)
            pair.disconnect()
        }
        #expect(pair.nodes[1].joins.first?.nextDeadline == (byUser ? nil : noon + Limits.joinListedLifetime))
        #expect(pair.nodes[1].clients == (byUser ? [] : [client]))
    }

    @Test("A conversation with the id of one that we have, by another creator, is not entered, awake or asleep")
    func impostor() throws {
        for isAsleep in [false, true] {
            var pair = try Pair.joined()
            let (victim, conversation) = (pair.clients[1], try #require(pair.machines[1]?.conversation))
            if isAsleep { pair.sleep(1) }
            pair.run()
            // A member knows the id, and signs a genesis of its own for it.
            let attacker = makeKey(&pair.random)
            let tag = InviteTag.random(&pair.random)
            let invite = try VerifiedInvite(
                SignedInvite(payload: [7], signedBy: attacker.secret),
                decoded: makeInvite(attacker, conversation, tag: tag, &pair.random))
            let client = ClientID.generate(&pair.random)
            let key = makeKey(&pair.random)
            pair.step(1) { core, turn in core.addUnused(client, key: key, &turn) }
            pair.step(1) { core, turn in _ = try? core.join(client, invite: invite, profile: nil, &turn) }
            let link = LinkID(900)
            pair.step(1) { core, turn in
                core.linkOpened(link, client: client, remote: attacker.publicKey, weDialled: true, &turn)
            }
            let group = GroupState(
                conversation: conversation, version: 2, membership: 2, name: nil, isLocked: false,
                members: [attacker.publicKey, key.publicKey])
            let welcome = Welcome(
                tag: tag,
                genesis: Genesis(conversation: conversation, createdAt: pair.now, key: attacker, &pair.random),
                group: group.signed(by: attacker, &pair.random),
                members: [Member(profile: nil, endpoints: [], version: 1, key: attacker, &pair.random)], expiresAt: nil)
            var answer: [NodeAction] = []
            pair.step(1) { core, turn in
                core.receive(.welcome(welcome), on: link, verify: { _ in nil }, &turn)
                answer = turn.actions
            }
            #expect(answer.prefix(3) == [.save(client), .transmit(link, .joinCancelled), .close(link)])
            // It is listed as failed and swept like any failed join.
            #expect(pair.nodes[1].joins.first { $0.client == client }?.record.state == .joinFailed(.genericFailure))
            #expect(pair.events[1].last == .joinFailed(.genericFailure, tag))
            #expect(pair.nodes[1].client(of: conversation) == victim)
            #expect(pair.nodes[1].isSleeping(victim) == isAsleep)
        }
    }

    @Test func `A joiner that cancels before its request is processed leaves nothing behind`() throws {
        var pair = Pair()
        try joining(&pair)
        pair.open(1, to: 0)
        let client = pair.clients[1]
        pair.wire.removeFirst()
        pair.step(1) { core, turn in core.cancelJoin(client, &turn) }
        pair.run()
        #expect(pair.machines[0]?.currentMembers.isEmpty == true && pair.events[0].isEmpty)
        #expect(pair.nodes[1].joins.isEmpty)
    }

    @Test func `The titles and texts for people are the seed's`() {
        let all: [(JoinErrorType, String, String)] = [
            (.conversationExpired, "Convo no longer exists", "This conversation is no longer available"),
            (.singleUseConsumed, "Invite already used", "This invite was already used by someone else"),
            (.genericFailure, "Couldn't join", "Failed to join conversation"),
            (.unknown("later"), "Couldn't join", "Failed to join conversation"),
        ]
        for (type, title, text) in all { #expect(type.userFacingTitle == title && type.userFacingMessage == text) }
    }
}

@Suite("A blocked contact") struct BlockedContactTests {
    @Test func `Blocking drops what waits for the peer and what it has sent, and closes the link`() throws {
        var random = Randomness.seeded(3)
        let (own, peer) = (makeKey(&random), makeKey(&random))
        let card = ContactCard(
            key: peer.publicKey, routingSecret: random.bytes(32), endpoints: [Endpoint(host: "h", port: 1)])
        var machine = ContactStateMachine(
            client: .generate(&random), key: own, record: ContactRecord(routingSecret: random.bytes(32)), now: noon)
        var turn = turn(random)
        let out = Invitation(id: .random(&turn.random), slug: "s", name: nil)
        _ = machine.send(out, to: card, deadline: noon + .day, &turn)
        _ = machine.linkOpened(LinkID(1), to: peer.publicKey, weDialled: true, turn)
        let received = Invitation(id: .random(&turn.random), slug: "t", name: nil)
        _ = machine.receive(.invitation(received), from: peer.publicKey, on: LinkID(1), turn)
        #expect(machine.record.outgoing.count == 1 && machine.record.received.count == 1)
        #expect(machine.forget(peer.publicKey) == [.save(machine.client), .close(LinkID(1))])
        #expect(machine.record.outgoing.isEmpty && machine.record.received.isEmpty)
        #expect(machine.nextDeadline == nil && !machine.isAwaited(peer.publicKey))
    }

    @Test func `A ping that is given up closes its link, unless something else waits for the peer`() throws {
        for isInvited in [false, true] {
            var random = Randomness.seeded(3)
            let peer = makeKey(&random)
            let card = ContactCard(
                key: peer.publicKey, routingSecret: random.bytes(32), endpoints: [Endpoint(host: "h", port: 1)])
            var machine = ContactStateMachine(
                client: .generate(&random), key: makeKey(&random),
                record: ContactRecord(routingSecret: random.bytes(32)), now: noon)
            var turn = turn(random)
            if isInvited {
                let invitation = Invitation(id: .random(&turn.random), slug: "s", name: nil)
                _ = machine.send(invitation, to: card, deadline: noon + .day, &turn)
            }
            for nonce in 1...2 as ClosedRange<UInt64> { _ = machine.ping(card, nonce: nonce, &turn) }
            let opened = machine.linkOpened(LinkID(1), to: peer.publicKey, weDialled: true, turn)
            #expect(opened.suffix(2) == [.transmit(LinkID(1), .ping(1)), .transmit(LinkID(1), .ping(2))])
            #expect(machine.stopPing(peer.publicKey, nonce: 1) == [])
            #expect(machine.stopPing(peer.publicKey, nonce: 2) == (isInvited ? [] : [.close(LinkID(1))]))
            #expect(machine.isAwaited(peer.publicKey) == isInvited)
        }
    }
}
