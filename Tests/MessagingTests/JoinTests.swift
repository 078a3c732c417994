import Cryptography
import Messaging
import TestSupport
import Testing

@Suite("Join rates") struct JoinRateTests {
    private var random = Randomness.seeded(1)
    private var rates = JoinRates()

    /// How many of many at one time are answered.
    private mutating func refusals(of tag: InviteTag, _ now: Timestamp) -> Int {
        (0..<100).count { _ in rates.takesRefusal(tag, now: now) }
    }

    private mutating func requests(by invite: InviteID?, _ now: Timestamp) -> Int {
        (0..<100).count { _ in rates.takesRequest(by: invite, now: now) }
    }

    @Test mutating func `Five refusals of one tag are sent at once, then one every twelve seconds`() {
        let (tag, other) = (InviteTag.random(&random), InviteTag.random(&random))
        for (seconds, count) in [(0, 5), (11, 0), (12, 1), (72, 5)] {
            #expect(refusals(of: tag, noon + Milliseconds(seconds) * .second) == count, "\(seconds)")
        }
        #expect(refusals(of: other, noon) == 5)
    }

    @Test("Sixty requests by one invite are checked at once, then one a second; invalid requests share one allowance")
    mutating func requests() {
        for invite in [InviteID.random(&random), nil] {
            for (time, count) in [(0, 60), (999, 0), (1_000, 1)] {
                #expect(requests(by: invite, noon + Milliseconds(time)) == count, "\(time)")
            }
        }
        // The holders of one invite do not use up the allowance of others.
        #expect(requests(by: .random(&random), noon + 1_000) == 60)
    }

    @Test
    mutating func `Counted invites and tags are bounded: further invites share an allowance, quiet tags make room`() {
        for _ in 0..<Limits.joinTagCount {
            #expect(rates.takesRequest(by: .random(&random), now: noon) == true)
            #expect(rates.takesRefusal(.random(&random), now: noon) == true)
        }
        for _ in 0..<60 { #expect(rates.takesRequest(by: .random(&random), now: noon) == true) }
        #expect(rates.takesRequest(by: .random(&random), now: noon) == false)
        #expect(rates.takesRequest(by: .random(&random), now: noon + 1_000) == true)
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

    func request(by invite: VerifiedInvite? = nil, secret: [UInt8]? = nil) throws -> JoinRequest {
        let invite = try #require(invite ?? pair.invite)
        var random = pair.random
        let placeholder = Member(profile: nil, endpoints: [], version: 1, key: pair.keys[0], &random)
        return JoinRequest(invite: invite.signed, joinSecret: secret ?? invite.invite.joinSecret, member: placeholder)
    }

    /// The error that refuses a new joiner with the right secret.
    mutating func refusal(of key: IdentityKey? = nil, _ invite: VerifiedInvite) throws -> JoinErrorType? {
        let key = key ?? makeKey(&pair.random)
        for case .transmit(_, .joinError(let error)) in ask(key, try request(), verified: invite) {
            return error.errorType
        }
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
        let answers = try (0..<20).map { _ in door.ask(makeKey(&random), try door.request(), verified: invite) }
        #expect(answers[0].contains { if case .transmit(_, .welcome) = $0 { true } else { false } })
        func isConsumed(_ action: NodeAction) -> Bool {
            if case .transmit(_, .joinError(let error)) = action {
                error.errorType == .singleUseConsumed
            } else {
                false
            }
        }
        #expect(answers.dropFirst().count { $0.contains(where: isConsumed) } == 5)
        #expect(answers.count { $0 == Self.silence } == 14)
        #expect(door.creator?.currentMembers.count == 1 && door.creator?.droppedCount == 14)
        door.pair.now = door.pair.now + 12 * .second
        #expect(try door.refusal(invite) == .singleUseConsumed)
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
        for key in [joiner, makeKey(&random)] { #expect(try door.refusal(of: key, invite) == .genericFailure) }
        #expect(door.creator?.currentMembers.count == 1)
        let later = try door.pair.invite()
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
        // In a living conversation `consumed` is the answer only if all other checks pass.
        var door = try Door()
        let invite = try #require(door.pair.invite)
        _ = try door.refusal(invite)
        #expect(try door.refusal(invite) == .singleUseConsumed)
        door.pair.command(0) { machine, turn in try machine.revoke(invite.invite.id, &turn) }
        #expect(try door.refusal(invite) == .genericFailure)
        door.pair.command(0) { try $0.setLocked(true, &$1) }
        #expect(try door.refusal(invite) == .genericFailure)
        door.pair.now = invite.invite.expiresAt
        #expect(try door.refusal(invite) == .genericFailure)
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
        pair.advance(1)
        #expect(pair.destroyed == [1] && pair.nodes[1].joins.isEmpty)
    }

    @Test(arguments: [true, false])
    func `A joiner that cancels frees its place once it is admitted, and leaves nothing behind before`(isAdmitted: Bool)
        throws
    {
        var pair = Pair()
        try joining(&pair)
        pair.open(1, to: 0)
        let client = pair.clients[1]
        if isAdmitted { pair.deliverOne() }
        #expect(pair.machines[0]?.currentMembers.count == (isAdmitted ? 1 : 0))
        pair.wire.removeAll()
        pair.step(1) { core, turn in core.cancelJoin(client, &turn) }
        pair.run()
        #expect(pair.machines[0]?.currentMembers.isEmpty == true)
        #expect(pair.events[0].contains(.memberLeft(pair.keys[1].publicKey)) == isAdmitted)
        #expect(isAdmitted || (pair.events[0].isEmpty && pair.nodes[1].joins.isEmpty))
        // The single use stays consumed.
        #expect(pair.machines[0]?.invites?.invites.first?.admitted == (isAdmitted ? [pair.keys[1].publicKey] : []))
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

    @Test
    func `The titles and texts for people are the seed's, and a later version's error is generic, under its name`() {
        let all: [(JoinErrorType, String, String)] = [
            (.conversationExpired, "Convo no longer exists", "This conversation is no longer available"),
            (.singleUseConsumed, "Invite already used", "This invite was already used by someone else"),
            (.genericFailure, "Couldn't join", "Failed to join conversation"),
            (.unknown("later"), "Couldn't join", "Failed to join conversation"),
        ]
        for (type, title, text) in all { #expect(type.userFacingTitle == title && type.userFacingMessage == text) }
        for raw in ["conversation_expired", "generic_failure", "single_use_consumed", "something_new", ""] {
            #expect(JoinErrorType(rawValue: raw).rawValue == raw)
        }
    }
}

@Suite("A blocked contact") struct BlockedContactTests {
    private let peer: IdentityKey
    private let card: ContactCard
    private var machine: ContactStateMachine
    private var now: Turn

    init() {
        var random = Randomness.seeded(3)
        peer = makeKey(&random)
        card = ContactCard(
            key: peer.publicKey, routingSecret: random.bytes(32), endpoints: [Endpoint(host: "h", port: 1)])
        machine = ContactStateMachine(
            client: .generate(&random), key: makeKey(&random), record: ContactRecord(routingSecret: random.bytes(32)),
            now: noon)
        now = turn(random)
    }

    private mutating func invite() {
        let invitation = Invitation(id: .random(&now.random), slug: "s", name: nil)
        _ = machine.send(invitation, to: card, deadline: noon + .day, &now)
    }

    @Test mutating func `Blocking drops what waits for the peer and what it has sent, and closes the link`() throws {
        invite()
        _ = machine.linkOpened(LinkID(1), to: peer.publicKey, weDialled: true, now)
        let received = Invitation(id: .random(&now.random), slug: "t", name: nil)
        _ = machine.receive(.invitation(received), from: peer.publicKey, on: LinkID(1), now)
        #expect(machine.record.outgoing.count == 1 && machine.record.received.count == 1)
        #expect(machine.forget(peer.publicKey) == [.save(machine.client), .close(LinkID(1))])
        #expect(machine.record.outgoing.isEmpty && machine.record.received.isEmpty)
        #expect(machine.nextDeadline == nil && !machine.isAwaited(peer.publicKey))
    }

    @Test(arguments: [false, true])
    mutating func `A ping that is given up closes its link, unless something else waits for the peer`(isInvited: Bool) {
        if isInvited { invite() }
        for nonce in 1...2 as ClosedRange<UInt64> { _ = machine.ping(card, nonce: nonce, &now) }
        let opened = machine.linkOpened(LinkID(1), to: peer.publicKey, weDialled: true, now)
        #expect(opened.suffix(2) == [.transmit(LinkID(1), .ping(1)), .transmit(LinkID(1), .ping(2))])
        #expect(machine.stopPing(peer.publicKey, nonce: 1) == [])
        #expect(machine.stopPing(peer.publicKey, nonce: 2) == (isInvited ? [] : [.close(LinkID(1))]))
        #expect(machine.isAwaited(peer.publicKey) == isInvited)
    }
}
