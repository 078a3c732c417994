import Cryptography

/// The durable state of one join at the joiner (Join.md, "The joiner"; seed 002).
///
/// A ``VerifiedInvite`` comes in, so the seed's states `validating` and `validated` are over when this record exists.
package struct JoinRecord: Hashable, Sendable, Codable {
    package enum State: Hashable, Sendable, Codable {
        /// Initial. Next: any other.
        case joining
        /// After a valid welcome. Next: `joinFailed`, when this node cannot enter the conversation.
        case ready
        /// After the creator's error, after ``Limits/joinLifetime``, or when this node has the conversation from
        /// another creator or has destroyed it. Final.
        case joinFailed(JoinErrorType)
        /// By the user. Final.
        case cancelled
    }

    package var invite: Invite
    /// The invite as the join request carries it.
    package var signed: SignedInvite
    /// Recovered from the invite's signature.
    package var creator: PublicKey
    /// Our name in the conversation.
    package var profile: String?
    package var startedAt: Timestamp
    package var state: State
    /// True when the user must agree to what the conversation keeps, unless the node's policy does.
    package var asks: Bool?
    /// The terms that the user has agreed to keep.
    package var agreed: LifetimeTerms?
    /// True from the creator's welcome, until it says that we are no member.
    package var isAdmitted: Bool?

    package init(_ verified: VerifiedInvite, profile: String?, startedAt: Timestamp, asks: Bool? = nil) {
        invite = verified.invite
        signed = verified.signed
        creator = verified.creatorKey
        self.profile = profile
        (self.startedAt, self.asks) = (startedAt, asks)
        state = .joining
    }

    package var deadline: Timestamp { startedAt + Limits.joinLifetime }

    /// The join ended without our entry, and the creator may still list us.
    var isOwed: Bool { isAdmitted == true && state != .joining && state != .ready }

    /// Whether the creator is dialled: to join, or to be told that we do not enter.
    var isDialling: Bool { state == .joining || isOwed }

    /// - Parameter sender: the key that the link's handshake has authenticated.
    /// - Returns: whether we enter; `false` if the welcome is late, or for another conversation.
    package mutating func receive(_ welcome: Welcome, from sender: PublicKey, to own: PublicKey) -> Bool {
        guard state == .joining, sender == creator, welcome.tag == invite.tag, welcome.genesis.creator == creator,
            welcome.isValid(for: own)
        else { return false }
        state = .ready
        return true
    }

    /// - Returns: whether the error ends the join, or says that the creator lists us no longer.
    package mutating func receive(_ error: JoinError, from sender: PublicKey) -> Bool {
        guard isDialling, sender == creator, error.inviteTag == invite.tag else { return false }
        if state == .joining { state = .joinFailed(error.errorType) }
        isAdmitted = nil
        return true
    }

    /// - Returns: whether the join has timed out.
    package mutating func expire(now: Timestamp) -> Bool {
        guard state == .joining, now >= deadline else { return false }
        state = .joinFailed(.genericFailure)
        return true
    }
}

/// An inbox with a pending join: its link to the invite's creator.
package struct JoiningStateMachine: Sendable {
    package let client: ClientID
    package let key: IdentityKey
    /// The seed of the first reservation in the conversation.
    let relaySeed: RelaySeed
    package private(set) var record: JoinRecord
    private var link: LinkStateMachine
    /// Links that ended without an answer; each makes the next wait longer.
    private var unanswered = 0
    /// Dials since the start of the node or of the join.
    package private(set) var attempts = 0
    /// Our profile in the request on the newest link.
    private var own: Member?
    /// Endpoints of the creator on the local network.
    private var heard = HeardPlaces()
    /// The welcome to a conversation that keeps what the user has not agreed to yet.
    package private(set) var offer: Welcome?
    /// The question ends then: the creator has admitted us, and the agreement of all members waits for our signature.
    private var offerEndsAt: Timestamp?

    package init(client: ClientID, key: IdentityKey, record: JoinRecord, now: Timestamp) {
        self.client = client
        self.key = key
        relaySeed = RelaySeed(key: key, generation: 0)
        self.record = record
        link = LinkStateMachine(own: key.publicKey, remote: record.creator, isDialable: true, now: now)
        link.hurry(now: now)
    }

    package var nextDeadline: Timestamp? {
        record.state == .joining
            ? earliest(record.deadline, link.nextDeadline, offerEndsAt)
            : earliest(forgottenAt, record.isOwed ? link.nextDeadline : nil)
    }

    /// When an ended join is erased, keys included. A creator answers holders of its invite for so long.
    private var forgottenAt: Timestamp {
        let listed = record.startedAt + Limits.joinListedLifetime
        guard record.isOwed else { return listed }
        let inviteEnd = min(record.invite.expiresAt, record.startedAt + Limits.inviteMaximumLifetime)
        return max(listed, inviteEnd + Limits.joinLifetime)
    }

    /// When the creator is dialled next; `nil` while it is being dialled or a link is up.
    package var nextAttempt: Timestamp? { record.state == .joining && link.link == nil ? link.nextDeadline : nil }

    package enum Outcome: Sendable {
        case pending([NodeAction])
        /// The conversation to enter, the agreement that entering consents to, and the link of the welcome.
        case entered(ConversationRecord, Agreement?, LinkID)
        case failed(JoinErrorType, [NodeAction])
        /// The join ended long ago, or the creator knows that we do not enter: the inbox is erased.
        case forgotten
    }

    /// Sends the join request after the handshake with the creator.
    package mutating func linkOpened(_ link: LinkID, _ turn: inout Turn) -> [NodeAction] {
        guard record.isDialling else { return [.close(link)] }
        return perform(self.link.opened(link, dialer: key.publicKey, now: turn.now), &turn)
    }

    /// - Parameter found: where local discovery has heard the creator: a dial tries nothing else.
    private mutating func perform(_ actions: [LinkStateMachine.Action], found: Endpoint? = nil, _ turn: inout Turn)
        -> [NodeAction]
    {
        var result: [NodeAction] = []
        for action in actions {
            switch action {
            case .dial, .upgrade:
                attempts += 1
                let known = heard.endpoints(now: turn.now, before: record.invite.endpoints)
                let dial = NodeAction.Dial(
                    remote: record.creator, endpoints: found.map { [$0] } ?? known, route: .invite(record.invite.id))
                result.append(.dial(client, dial))
            case .use(let link):
                let member = Member(
                    profile: record.profile, endpoints: turn.fittingEndpoints(of: relaySeed),
                    version: max(UInt64(clamping: turn.now.milliseconds), (own?.version ?? 0) + 1), key: key,
                    &turn.random)
                own = member
                let request = JoinRequest(invite: record.signed, joinSecret: record.invite.joinSecret, member: member)
                result.append(.transmit(link, .joinRequest(request)))
            case .ping(let link): result.append(.transmit(link, .ping(found == nil ? 0 : turn.random.next())))
            case .retire(let link), .drop(let link): result.append(.close(link))
            }
        }
        return result
    }

    /// Handles the creator's answer, or a frame that it sends to us as to a member.
    package mutating func receive(_ frame: Frame, from sender: PublicKey, on link: LinkID, _ turn: Turn) -> Outcome {
        self.link.heard(link, now: turn.now)
        switch frame {
        case .welcome where record.isOwed: return .pending([.transmit(link, .joinCancelled), .close(link)])
        case .welcome(let welcome):
            // A welcome counts on the link of its request only; a link that replaces it repeats the request. Entering
            // is consent, which needs our key. Without it, the creator is asked again.
            guard let own, self.link.link == link, !key.isWiped else { return .pending([.close(link)]) }
            var joined = record
            guard joined.receive(welcome, from: sender, to: key.publicKey) else { return .pending([.close(link)]) }
            if let terms = welcome.agreement?.terms, record.asks == true, terms.allowsSomething, terms != record.agreed,
                !turn.defaultPolicy.accepts(terms)
            {
                // The user agrees to the terms that were shown, and to no others.
                guard offer.map({ $0.agreement?.terms == terms }) ?? true else { return .pending([.close(link)]) }
                let isNew = offer == nil
                // The link stays, so that a cancellation releases our place at once.
                offer = welcome
                guard isNew else { return .pending([]) }
                offerEndsAt = turn.now + Limits.joinAnswerTime
                record.isAdmitted = true
                let event = Event(client: client, conversation: nil, at: turn.now, kind: .joinValidated)
                return .pending([.save(client), .notify(event)])
            }
            record = joined
            var entered = ConversationRecord(
                genesis: welcome.genesis, group: welcome.group, own: own, members: welcome.members, issuer: nil)
            entered.schedule = welcome.scheduledExplosion.map { ExplosionSchedule($0, now: turn.now) }
            return .entered(entered, welcome.agreement, link)
        case .joinError(let error): return receive(error, from: sender, [.close(link)]) ?? .pending([.close(link)])
        case .ping(let nonce): return .pending([.transmit(link, .pong(nonce))])
        // A creator that has already admitted us treats us as a member, then answers our request.
        case .session, .group, .profile, .pong, .unknown: return .pending([])
        default: return .pending([.close(link)])
        }
    }

    /// - Returns: `nil` if the error changes nothing.
    private mutating func receive(_ error: JoinError, from sender: PublicKey, _ actions: [NodeAction]) -> Outcome? {
        let wasOwed = record.isOwed
        guard record.receive(error, from: sender) else { return nil }
        guard wasOwed else { return .failed(error.errorType, actions) }
        return record.state == .cancelled ? .forgotten : .pending([.save(client)] + actions)
    }

    /// No answer came: the link was lost, or the creator is locked or over its limit. Each redial waits longer.
    package mutating func linkClosed(_ link: LinkID, _ turn: inout Turn) {
        guard self.link.closed(link, now: turn.now) else { return }
        let wait = Limits.redial.wait(after: unanswered)
        unanswered += 1
        self.link.wait(until: turn.now + wait / 2 + Milliseconds(turn.random.next(upperBound: UInt64(wait))))
    }

    /// - Parameter isUnknownThere: a node did not know the invite's token, so the conversation may be gone. Over UDP
    ///   such a node is silent, so there it also means no answer.
    package mutating func dialFailed(isUnknownThere: Bool, _ turn: inout Turn) -> [NodeAction] {
        link.dialFailed(now: turn.now, random: &turn.random)
        guard isUnknownThere, record.isDialling else { return [] }
        return [.knock(.askByInvite(client, record.invite.id, record.invite.endpoints))]
    }

    /// A tombstone has answered our question.
    package mutating func receive(_ statement: ExpiredStatement) -> Outcome {
        guard statement.isValid(creator: record.creator) else { return .pending([]) }
        let actions = link.link.map { [NodeAction.close($0)] } ?? []
        return receive(statement.joinError, from: record.creator, actions) ?? .pending([])
    }

    /// The user keeps what the conversation keeps. The creator is asked for the same welcome over a new link.
    package mutating func agree(_ turn: inout Turn) {
        guard let offer else {
            record.asks = nil
            return
        }
        (record.agreed, self.offer, offerEndsAt) = (offer.agreement?.terms, nil, nil)
        if let open = link.link, link.closed(open, now: turn.now) { turn.close(open) }
        retry(&turn)
    }

    package mutating func retry(_ turn: inout Turn) {
        unanswered = 0
        link.hurry(now: turn.now)
    }

    /// The invite for finding the creator on the local network; `nil` while not needed.
    package func missedInvite(now: Timestamp) -> InviteID? {
        record.isDialling && link.isMissed(now: now) ? record.invite.id : nil
    }

    /// The creator announced its endpoint on the local network: dials try it first from now on.
    package mutating func found(at endpoint: Endpoint, _ turn: inout Turn) -> [NodeAction] {
        guard record.isDialling else { return [] }
        heard.note(endpoint, now: turn.now)
        return perform(link.found(now: turn.now), found: endpoint, &turn)
    }

    /// This node cannot enter the conversation of the welcome.
    package mutating func refuse(_ error: JoinErrorType) {
        if record.state == .ready { record.state = .joinFailed(error) }
    }

    /// - Returns: whether the inbox stays until the creator knows.
    package mutating func cancel() -> Bool {
        record.state = .cancelled
        (offer, offerEndsAt) = (nil, nil)
        return record.isOwed
    }

    /// Dials and pings, and fails the join at its deadline. An admitted joiner that stays out dials on, to say so.
    package mutating func advance(_ turn: inout Turn) -> Outcome {
        if record.expire(now: offerEndsAt.map { $0 <= turn.now ? record.deadline : turn.now } ?? turn.now) {
            var result: [NodeAction] = []
            // Not `map`: Swift 6.3.1 fails to compile it here with optimisation (ownership error in CopyPropagation).
            if let open = link.link {
                if offer != nil { result.append(.transmit(open, .joinCancelled)) }
                result.append(.close(open))
            }
            (offer, offerEndsAt) = (nil, nil)
            return .failed(.genericFailure, result)
        }
        guard record.state == .joining || turn.now < forgottenAt else { return .forgotten }
        guard record.isDialling else { return .pending([]) }
        return .pending(perform(link.advance(now: turn.now), &turn))
    }
}
