import Cryptography
import Foundation
import Testing

@testable import Messaging

@Suite struct Outboxes {
    private var random = Randomness.seeded(1)

    private func id(_ number: UInt8) -> MessageID { MessageID(unchecked: [UInt8](repeating: number, count: 16)) }

    private func sent(_ ids: [MessageID], age: Milliseconds, isFirst: Bool = true) -> OutboxStateMachine.Actions {
        OutboxStateMachine.Actions(
            sent: isFirst ? ids : [], transmitted: ids.map { NodeAction.AgedMessage(id: $0, age: age) })
    }

    private func outbox(_ count: UInt8, deadline: Timestamp = noon + Milliseconds.day) -> OutboxStateMachine {
        var outbox = OutboxStateMachine()
        for number in 0..<count {
            let isQueued = outbox.enqueue(
                id(number), sentAt: noon, deadline: deadline, isStored: number.isMultiple(of: 2))
            #expect(isQueued)
        }
        return outbox
    }

    @Test mutating func `messages in flight stay within the limit, and an acknowledgement makes room`() {
        var outbox = OutboxStateMachine()
        var ids: [MessageID] = []
        for _ in 0..<Limits.inFlightCount + 1 {
            ids.append(MessageID.random(&random))
            _ = outbox.enqueue(ids.last!, sentAt: noon, deadline: noon + .day, isStored: true)
        }
        #expect(outbox.flush(now: noon, random: &random) == sent(Array(ids.dropLast()), age: 0))
        #expect(outbox.cancel(ids[5]) == true && outbox.cancel(ids[5]) == false)
        #expect(outbox.flush(now: noon, random: &random) == sent([ids[Limits.inFlightCount]], age: 0))
    }

    @Test mutating func `a stored content passes memory-only ones that its member leaves unacknowledged`() {
        var outbox = OutboxStateMachine()
        let limit = Limits.inFlightCount
        let ids = (0..<limit + 3).map { _ in MessageID.random(&random) }
        for (index, id) in ids.enumerated() {
            _ = outbox.enqueue(id, sentAt: noon, deadline: noon + .day, isStored: index > limit)
        }
        #expect(outbox.flush(now: noon, random: &random) == sent(Array(ids[..<limit] + ids[(limit + 1)...]), age: 0))
        #expect(outbox.flush(now: noon, random: &random).isEmpty && outbox.cancel(ids[3]))
        #expect(outbox.flush(now: noon, random: &random) == sent([ids[limit]], age: 0))
        outbox.linkLost()
        #expect(outbox.flush(now: noon, random: &random).transmitted.map(\.id) == ids.filter { $0 != ids[3] })
    }

    @Test mutating func `unacknowledged messages of a lost link are resent in the same order`() {
        var outbox = outbox(4)
        _ = outbox.flush(now: noon, random: &random)
        #expect(outbox.cancel(id(1)) == true)
        outbox.linkLost()
        #expect(outbox.flush(now: noon + 1, random: &random) == sent([id(0), id(2), id(3)], age: 1, isFirst: false))
    }

    @Test mutating func `waits between attempts double from two seconds to fifteen minutes`() {
        var random = Randomness.seeded(3)
        var outbox = outbox(1, deadline: noon + 7 * Milliseconds.day)
        _ = outbox.flush(now: noon, random: &random)
        var now = noon
        var waits: [Milliseconds] = []
        for _ in 0..<14 {
            let next = outbox.nextDeadline!
            waits.append(next - now)
            now = next
            let age = now - noon
            #expect(
                outbox.advance(now: now, isLinked: true, random: &random) == sent([id(0)], age: age, isFirst: false))
        }
        for (index, wait) in waits.enumerated() {
            let full = min(Limits.resend.first << Milliseconds(index), Limits.resend.longest)
            #expect(wait <= full && wait > full * 3 / 4 - 1)
        }
    }

    @Test mutating func `an expired message is reported and not sent`() {
        var outbox = outbox(2, deadline: noon + 100)
        // Without a link there is no other timer.
        _ = outbox.flush(now: noon, random: &random)
        outbox.linkLost()
        #expect(outbox.advance(now: noon + 99, isLinked: false, random: &random).isEmpty)
        #expect(outbox.nextDeadline == noon + 100 && outbox.flush(now: noon + 100, random: &random).isEmpty)
        #expect(
            outbox.advance(now: noon + 100, isLinked: true, random: &random)
                == OutboxStateMachine.Actions(expired: [id(0), id(1)]))
        #expect(outbox.isEmpty && outbox.nextDeadline == nil)
    }

    @Test mutating func `a cancelled message is not sent, and closing removes messages held only in memory`() {
        var outbox = outbox(4)
        #expect(outbox.cancel(id(0)) == true && outbox.cancel(id(0)) == false)
        #expect(outbox.removeAll(onlyInMemory: true) == [id(1), id(3)])
        #expect(outbox.flush(now: noon, random: &random) == sent([id(2)], age: 0))
    }
}

@Suite struct Links {
    private let keys: [PublicKey]
    private var random = Randomness.seeded(1)

    init() { keys = [makeKey(&random).publicKey, makeKey(&random).publicKey].sorted() }

    private func machine(_ side: Int, isDialable: Bool = true) -> LinkStateMachine {
        LinkStateMachine(own: keys[side], remote: keys[1 - side], isDialable: isDialable, now: noon)
    }

    @Test func `the member with the smaller key dials at once, the other a little later`() {
        var small = machine(0)
        var large = machine(1)
        #expect(small.advance(now: noon) == [.dial])
        #expect(large.advance(now: noon).isEmpty && large.nextDeadline == noon + Limits.redialYield)
        #expect(large.advance(now: noon + Limits.redialYield) == [.dial])
        var deaf = machine(0, isDialable: false)
        #expect(deaf.nextDeadline == nil)
        deaf.hurry(now: noon)
        #expect(deaf.advance(now: noon) == [.dial])
    }

    @Test func `a later link replaces a link that the peer has lost`() {
        var machine = machine(0)
        // A link that is opened again is not retired.
        for _ in 0..<2 { #expect(machine.opened(LinkID(1), dialer: keys[0], now: noon) == [.use(LinkID(1))]) }
        let later = noon + Limits.simultaneousDialWindow
        #expect(machine.opened(LinkID(2), dialer: keys[1], now: later) == [.use(LinkID(2)), .retire(LinkID(1))])
        let wasInUse = machine.closed(LinkID(1), now: later)
        #expect(!wasInUse)
        #expect(machine.link == LinkID(2))
    }

    @Test mutating func `the wait after a failed dial grows up to 48 s`() {
        var machine = machine(0)
        var now = noon
        var longest: Milliseconds = 0
        for _ in 0..<40 {
            #expect(machine.advance(now: now) == [.dial] && machine.nextDeadline == nil)
            machine.dialFailed(now: now, random: &random)
            let next = machine.nextDeadline!
            longest = max(longest, next - now)
            now = next
        }
        #expect(longest > Limits.redial.longest / 2 && longest <= Limits.redial.longest * 3 / 2)
        // With 11 s for the dial itself: a member is dialled within a minute of its path being free.
        #expect(Limits.redial.longest * 3 / 2 + 11 * .second <= .minute)
        machine.dialFailed(now: now, random: &random)
        machine.hurry(now: now)
        #expect(machine.advance(now: now) == [.dial])
    }

    @Test mutating func `a link set to slow dialling is not dialled sooner for any reason`() {
        for side in [0, 1] {
            var machine = machine(side)
            _ = machine.opened(LinkID(1), dialer: keys[side], now: noon)
            machine.heard(LinkID(1), now: noon)
            machine.dialSlowly(30 * .second, until: noon + .minute)
            let wasInUse = machine.closed(LinkID(1), now: noon)
            #expect(wasInUse)
            var dials: ChangeDials? = ChangeDials()
            dials?.begin(now: noon)
            _ = machine.addressesChanged(now: noon, &dials)
            _ = machine.unlocked(now: noon)
            _ = machine.found(now: noon)
            machine.hurry(now: noon)
            machine.wanted(at: noon)
            #expect(machine.nextDeadline == noon + 30 * .second)
            #expect(machine.advance(now: noon + 30 * .second - 1).isEmpty)
            #expect(!machine.isReaching(now: noon + 30 * .second - 1))
            #expect(machine.advance(now: noon + 30 * .second) == [.dial])
            machine.dialFailed(now: noon + 30 * .second, random: &random)
            #expect(machine.nextDeadline == noon + .minute && machine.advance(now: noon + .minute) == [.dial])
            // The announcement has expired.
            machine.dialFailed(now: noon + .minute, random: &random)
            #expect(machine.nextDeadline! < noon + .minute + 5 * .second)
        }
    }

    @Test func `a link that opens and closes without a session does not make up for a loss`() {
        let (lostAt, later) = (noon + Limits.keepaliveTimeout, noon + 60 * .second)
        for sleeps in [false, true] {
            var machine = machine(0)
            _ = machine.opened(LinkID(1), dialer: keys[0], now: noon)
            _ = machine.advance(now: lostAt)
            _ = machine.opened(LinkID(2), dialer: keys[0], now: later)
            if sleeps { machine.rest() } else { _ = machine.advance(now: later + Limits.keepaliveTimeout) }
            #expect(machine.link == nil && machine.lostAt == lostAt)
        }
    }

    @Test func `pings of many links are due at whole seconds, and at the larger key a second later`() {
        for (side, age, due) in [(0, 0, 15), (0, 1, 16), (0, 1_000, 16), (1, 0, 16), (1, 999, 17)] {
            var machine = machine(side)
            _ = machine.opened(LinkID(1), dialer: keys[side], now: noon + Milliseconds(age))
            #expect(machine.nextDeadline == noon + Milliseconds(due) * .second)
        }
    }

    @Test func `a silent link is pinged, then dropped`() {
        var machine = machine(0)
        _ = machine.opened(LinkID(1), dialer: keys[0], now: noon)
        #expect(machine.advance(now: noon + Limits.keepaliveInterval - 1).isEmpty)
        #expect(machine.advance(now: noon + Limits.keepaliveInterval) == [.ping(LinkID(1))])
        #expect(machine.advance(now: noon + Limits.keepaliveInterval).isEmpty)
        var heard = machine
        heard.heard(LinkID(1), now: noon + Limits.keepaliveInterval)
        #expect(heard.nextDeadline == noon + 2 * Limits.keepaliveInterval)
        #expect(machine.advance(now: noon + Limits.keepaliveTimeout) == [.drop(LinkID(1))])
        #expect(machine.link == nil && machine.lostAt == noon + Limits.keepaliveTimeout)
    }
}

@Suite struct Joiners {
    private var random = Randomness.seeded(1)
    private let creator: IdentityKey
    private let tag: InviteTag
    private let own: IdentityKey

    init() {
        creator = makeKey(&random)
        own = makeKey(&random)
        tag = InviteTag.random(&random)
    }

    private func welcome(tag: InviteTag? = nil, by key: IdentityKey? = nil, members: Int = 1) -> Welcome {
        var random = random
        let key = key ?? creator
        let genesis = Genesis(conversation: .random(&random), createdAt: noon, key: key, &random)
        let group = GroupState(
            conversation: genesis.conversation, version: 2, membership: 2, name: nil, isLocked: false,
            members: [key.publicKey, own.publicKey])
        return Welcome(
            tag: tag ?? self.tag, genesis: genesis, group: group.signed(by: key, &random),
            members: (0..<members).map { _ in Member(profile: nil, endpoints: [], version: 1, key: key, &random) },
            expiresAt: nil)
    }

    private func machine() throws -> JoinRecord {
        var random = random
        let invite = makeInvite(creator, .random(&random), tag: tag, &random)
        let signed = SignedInvite(payload: [1, 2, 3], signedBy: creator.secret)
        return JoinRecord(try VerifiedInvite(signed, decoded: invite), profile: nil, startedAt: noon)
    }

    private func error(_ type: JoinErrorType = .genericFailure, tag: InviteTag? = nil) -> JoinError {
        JoinError(errorType: type, inviteTag: tag ?? self.tag, timestamp: noon)
    }

    @Test mutating func `a joiner accepts only a valid welcome for its tag from the creator`() throws {
        let stranger = makeKey(&random)
        var forged = welcome()
        forged.genesis.createdAt = noon + 1
        let wrong: [(String, Welcome, from: IdentityKey)] = [
            ("from a stranger", welcome(), stranger), ("signed by a stranger", welcome(by: stranger), creator),
            ("for another tag", welcome(tag: .random(&random)), creator), ("two of them", welcome(members: 2), creator),
            ("without its creator", welcome(members: 0), creator), ("another genesis", forged, creator),
        ]
        var machine = try machine()
        for (name, welcome, sender) in wrong {
            #expect(machine.receive(welcome, from: sender.publicKey, to: own.publicKey) == false, "\(name)")
        }
        #expect(machine.state == .joining)
        #expect(machine.receive(welcome(), from: creator.publicKey, to: own.publicKey) == true)
        #expect(machine.state == .ready)
        #expect(machine.receive(welcome(), from: creator.publicKey, to: own.publicKey) == false)
    }

    @Test mutating func `a joiner believes an error only from its creator, for its tag, while joining`() throws {
        var machine = try machine()
        #expect(machine.receive(error(), from: makeKey(&random).publicKey) == false)
        #expect(machine.receive(error(tag: .random(&random)), from: creator.publicKey) == false)
        var cancelled = machine
        cancelled.state = .cancelled
        #expect(cancelled.receive(error(), from: creator.publicKey) == false)
        #expect(cancelled.receive(welcome(), from: creator.publicKey, to: own.publicKey) == false)
        #expect(machine.receive(error(.unknown("later")), from: creator.publicKey) == true)
        #expect(machine.state == .joinFailed(.unknown("later")))
        #expect(machine.receive(welcome(), from: creator.publicKey, to: own.publicKey) == false)
    }

    @Test mutating func `a joiner that asks enters what keeps messages only when its user or its policy agrees`() throws
    {
        var record = try machine()
        record.asks = true
        var welcome = self.welcome()
        func agreement(_ lifetime: Lifetime) -> Agreement {
            let proposal = LifetimeProposal(
                conversation: welcome.genesis.conversation, membership: 1, epoch: 1, previous: .none,
                terms: LifetimeTerms(lifetime), proposedAt: noon, nonce: random.bytes(16), proposer: creator.publicKey
            ).signed(by: creator, &random)
            return Agreement(proposal: proposal, accepts: [LifetimeAccept(proposal, at: noon, by: own, &random)])
        }
        var turn = turn(random)
        var links = UInt64(0)
        func entered(_ joiner: inout JoiningStateMachine, _ turn: inout Turn) -> Bool {
            links += 1
            _ = joiner.linkOpened(LinkID(links), &turn)
            let outcome = joiner.receive(.welcome(welcome), from: creator.publicKey, on: LinkID(links), turn)
            return if case .entered = outcome { true } else { false }
        }
        var joiner = JoiningStateMachine(client: .generate(&random), key: own, record: record, now: noon)
        var (lenient, empty, silent) = (joiner, joiner, joiner)
        let hasEnteredEmpty = entered(&empty, &turn)
        #expect(hasEnteredEmpty, "nothing is kept, so nothing is asked")
        for lifetime in [Lifetime.oneDay, .sevenDays] {
            welcome.agreement = agreement(lifetime)
            // An answer to other terms is none to these.
            let hasEntered = entered(&joiner, &turn)
            let shown = welcome.agreement
            #expect(!hasEntered && joiner.record.state == .joining && joiner.offer?.agreement == shown)
            // Repeated, the welcome has no effect. Other terms do not take the place of those that the user sees.
            for (given, effects) in [(shown, 0), (agreement(.thirtyDays), 1)] {
                welcome.agreement = given
                let outcome = joiner.receive(.welcome(welcome), from: creator.publicKey, on: LinkID(links), turn)
                let count = if case .pending(let actions) = outcome { actions.count } else { -1 }
                #expect(count == effects && joiner.offer?.agreement == shown)
            }
            welcome.agreement = shown
            joiner.agree(&turn)
        }
        #expect(turn.actions.contains(.close(LinkID(links))) && joiner.nextAttempt == turn.now && joiner.offer == nil)
        let byUser = entered(&joiner, &turn)
        turn.defaultPolicy = .acceptUpTo(.sevenDays)
        let byPolicy = entered(&lenient, &turn)
        #expect(byUser && byPolicy)

        // Without an answer the creator is told, so that the others' agreement does not wait for it.
        turn.defaultPolicy = .ask
        #expect(!entered(&silent, &turn))
        var later = MessagingTests.turn(random, now: noon + Limits.joinAnswerTime)
        #expect(silent.nextDeadline.map { $0 <= later.now } == true)
        let end = silent.advance(&later)
        let told = if case .failed(_, let actions) = end { actions } else { [NodeAction]() }
        #expect(told == [.transmit(LinkID(links), .joinCancelled), .close(LinkID(links))])
    }

    @Test func `a join is given up after a day`() throws {
        var machine = try machine()
        #expect(machine.expire(now: machine.deadline + -1) == false && machine.expire(now: machine.deadline) == true)
        #expect(machine.expire(now: machine.deadline) == false && machine.state == .joinFailed(.genericFailure))
    }
}

@Suite struct Issuers {
    private var random = Randomness.seeded(1)
    private let creator: IdentityKey
    private let conversation: ConversationID
    private var issuer: InviteBook
    private let verified: VerifiedInvite

    init() throws {
        creator = makeKey(&random)
        conversation = .random(&random)
        let tag = InviteTag.random(&random)
        issuer = InviteBook(tag: tag)
        let invite = makeInvite(creator, conversation, tag: tag, &random)
        verified = try VerifiedInvite(SignedInvite(payload: [1, 2, 3], signedBy: creator.secret), decoded: invite)
        let isIssued = issuer.issue(
            InviteBook.IssuedInvite(id: invite.id, tag: tag, expiresAt: invite.expiresAt, singleUse: true))
        #expect(isIssued)
    }

    private func decide(
        _ issuer: InviteBook, joiner: PublicKey, opensToken: Bool = true, isMember: Bool = false, memberCount: Int = 1,
        now: Timestamp = noon
    ) -> InviteBook.Answer {
        var random = random
        let request = JoinRequest(
            invite: verified.signed, joinSecret: verified.invite.joinSecret,
            member: Member(profile: nil, endpoints: [], version: 1, key: creator, &random))
        return issuer.decide(
            request, verified: verified, opensToken: opensToken, joiner: joiner, isMember: isMember,
            memberCount: memberCount, now: now)
    }

    @Test mutating func `a single-use invite admits only the first joiner, also when it asks again`() throws {
        let first = makeKey(&random).publicKey
        let second = makeKey(&random).publicKey
        var issuer = issuer
        #expect(decide(issuer, joiner: first) == .admit)
        issuer.recordAdmission(of: first, by: verified.invite.id)
        #expect(decide(issuer, joiner: first, isMember: true, memberCount: 2) == .welcomeAgain)
        #expect(decide(issuer, joiner: second, memberCount: 2) == .refuse(.singleUseConsumed))
        // A restart from its record gives the same answers.
        issuer = try JSONDecoder().decode(InviteBook.self, from: JSONEncoder().encode(issuer))
        #expect(decide(issuer, joiner: first, isMember: true, memberCount: 2) == .welcomeAgain)
        #expect(decide(issuer, joiner: second) == .refuse(.singleUseConsumed))
        // A member that has left is not admitted by the same invite again.
        #expect(decide(issuer, joiner: first) == .refuse(.singleUseConsumed))
    }

    @Test mutating func `a revoked, rotated, locked, expired or foreign invite is refused`() {
        let joiner = makeKey(&random).publicKey
        var (revoked, rotated, locked) = (issuer, issuer, issuer)
        #expect(revoked.revoke(verified.invite.id) == true && revoked.revoke(InviteID.random(&random)) == false)
        rotated.tag = .random(&random)
        locked.isLocked = true
        for (name, issuer) in [
            ("revoked", revoked), ("rotated", rotated), ("locked", locked),
            ("foreign", InviteBook(tag: verified.invite.tag)),
        ] { #expect(decide(issuer, joiner: joiner) == .refuse(.genericFailure), "\(name)") }
        locked.isLocked = false
        #expect(decide(locked, joiner: joiner) == .admit)
        #expect(decide(issuer, joiner: joiner, now: verified.invite.expiresAt) == .refuse(.genericFailure))
        #expect(decide(issuer, joiner: joiner, opensToken: false) == .refuse(.conversationExpired))
        #expect(decide(issuer, joiner: joiner, memberCount: Limits.memberCount) == .refuse(.genericFailure))
    }

    @Test mutating func `the number of invites is limited, and expired ones make room`() {
        var issuer = InviteBook(tag: verified.invite.tag)
        func issue(_ now: Timestamp) -> Bool {
            issuer.issue(
                InviteBook.IssuedInvite(
                    id: .random(&random), tag: verified.invite.tag, expiresAt: now + .day, singleUse: true))
        }
        for _ in 0..<Limits.inviteCount { #expect(issue(noon) == true) }
        #expect(issuer.prune(now: noon).isEmpty && issue(noon) == false)
        // For a while holders of expired invites are told that they are late.
        var told = issuer
        #expect(told.prune(now: noon + .day, grace: .day).isEmpty)
        #expect(told.prune(now: noon + 2 * Milliseconds.day, grace: .day).count == Limits.inviteCount)
        // The same for used invites, once no joiner can still wait for its welcome.
        for invite in issuer.invites { issuer.recordAdmission(of: makeKey(&random).publicKey, by: invite.id) }
        let later = noon + Milliseconds.day + Limits.joinLifetime
        let over = issuer.invites.map(\.id)
        #expect(issuer.prune(now: later - 1).isEmpty && issuer.prune(now: later) == over)
        #expect(issue(later) == true)
        #expect(issuer.invites.count == 1)
    }
}

func makeInvite(_ creator: IdentityKey, _ conversation: ConversationID, tag: InviteTag, _ random: inout Randomness)
    -> Invite
{
    Invite(
        tag: tag, conversationToken: ConversationToken.seal(conversation, key: creator.secret, nonce: random.bytes(12)),
        creator: InboxID(creator.publicKey), joinSecret: random.bytes(32),
        endpoints: [Endpoint(host: "192.0.2.1", port: 7440)], name: "n", description: "d", lifetime: .oneDay,
        conversationExpiresAt: nil, expiresAt: noon + .day, singleUse: true)
}

@Suite struct Explosions {
    private var random = Randomness.seeded(1)
    private let creator: IdentityKey
    private let member: IdentityKey
    private let genesis: Genesis

    init() {
        creator = makeKey(&random)
        member = makeKey(&random)
        genesis = Genesis(conversation: .random(&random), createdAt: noon, key: creator, &random)
    }

    private func machine(_ role: ExplosionRecord.Role = .creator) -> ExplosionRecord {
        ExplosionRecord(
            conversation: genesis.conversation, role: role, explodedAt: noon,
            keepUntil: noon + Limits.tombstoneLifetime, notice: [1], receipt: role == .member ? [2] : nil,
            members: [member.publicKey])
    }

    @Test mutating func `a member's receipt confirms once, and a forged, foreign or stranger's receipt never`() {
        var machine = machine()
        let right = DeletionReceipt(conversation: genesis.conversation, destroyedAt: noon, key: member, &random)
        var forged = right
        forged.destroyedAt = noon + 1
        let stranger = DeletionReceipt(
            conversation: genesis.conversation, destroyedAt: noon, key: makeKey(&random), &random)
        let foreign = DeletionReceipt(conversation: .random(&random), destroyedAt: noon, key: member, &random)
        for receipt in [forged, stranger, foreign] { #expect(machine.receive(receipt) == false) }
        #expect(machine.waiting == [member.publicKey] && machine.receive(right) == true)
        #expect(machine.waiting.isEmpty && machine.receive(right) == false)
        var told = self.machine(.member)
        #expect(told.waiting.isEmpty && told.receive(right) == false)
        #expect(machine.answer(toQuestionOf: member.publicKey) == [1])
    }

    @Test mutating func `a notice of another signer, genesis or time is not valid`() {
        let byMember = ExplodeNotice(genesis: genesis, expiresAt: noon, key: member, &random)
        #expect(!byMember.isValid(for: genesis))
        var changed = ExplodeNotice(genesis: genesis, expiresAt: noon, key: creator, &random)
        changed.expiresAt = changed.expiresAt + Milliseconds.second
        #expect(!changed.isValid(for: genesis))
        let other = Genesis(conversation: .random(&random), createdAt: noon, key: creator, &random)
        #expect(!ExplodeNotice(genesis: other, expiresAt: noon, key: creator, &random).isValid(for: genesis))
    }

    @Test mutating func `what is sealed about an explosion opens whole, and with its own key or conversation only`() {
        let (conversation, other) = (genesis.conversation, ConversationID.random(&random))
        let notice = ExplodeNotice(genesis: genesis, expiresAt: noon, key: creator, &random)
        let receipt = DeletionReceipt(conversation: conversation, destroyedAt: noon, key: member, &random)
        let statement = ExpiredStatement(tag: .random(&random), timestamp: noon, key: creator, &random)
        let (seal, token) = (random.bytes(32), random.bytes(16))
        func opened(_ sealed: [UInt8], _ seal: [UInt8], _ token: [UInt8]) -> ExpiredStatement? {
            ExpiredStatement(opening: sealed, key: SecretBytes(copying: seal), token: token)
        }
        func isAuthentic(_ sealed: [UInt8], _ seal: [UInt8], _ token: [UInt8]) -> Bool {
            KnockQuestion.isAuthentic(sealed, key: SecretBytes(copying: seal), token: token)
        }
        let seals = [
            notice.sealed(&random), receipt.sealed(&random),
            statement.sealed(key: SecretBytes(copying: seal), token: token, &random),
            KnockQuestion.seal(key: SecretBytes(copying: seal), token: token, &random),
        ]
        #expect(ExplodeNotice(opening: seals[0], conversation: conversation) == notice && notice.isValid(for: genesis))
        expectOpensOnlyWhole(seals[0]) { ExplodeNotice(opening: $0, conversation: conversation) != nil }
        #expect(ExplodeNotice(opening: seals[0], conversation: other) == nil)
        #expect(DeletionReceipt(opening: seals[1], conversation: conversation) == receipt && receipt.isSignatureValid)
        expectOpensOnlyWhole(seals[1]) { DeletionReceipt(opening: $0, conversation: conversation) != nil }
        #expect(opened(seals[2], seal, token) == statement && statement.isValid(creator: creator.publicKey))
        #expect(!statement.isValid(creator: member.publicKey))
        expectOpensOnlyWhole(seals[2]) { opened($0, seal, token) != nil }
        expectOpensOnlyWhole(seals[3]) { isAuthentic($0, seal, token) }
        for (seal, token) in [(random.bytes(32), token), (seal, random.bytes(16))] {
            #expect(opened(seals[2], seal, token) == nil && !isAuthentic(seals[3], seal, token))
        }
        // A stranger cannot tell a notice from a question.
        #expect(seals[0].count == Limits.noticeByteCount && seals[3].count == Limits.noticeByteCount)
        #expect(seals[0] != notice.sealed(&random))
        #expect(seals[2].count == ExpiredStatement.sealedByteCount && seals[2].count < Limits.noticeByteCount)
    }
}
