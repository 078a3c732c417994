import Cryptography

/// The link between our inbox and one other inbox: dialling, the tie-break of simultaneous dials, keepalive, and
/// redialling (Links.md).
package struct LinkStateMachine: Hashable, Sendable {
    private enum State: Hashable, Sendable {
        /// `nil`: no dial is planned.
        case idle(dialAt: Timestamp?)
        case dialling(count: Int)
        case up(LinkID, dialer: PublicKey, openedAt: Timestamp, heardAt: Timestamp, pingedAt: Timestamp?)
    }

    package enum Action: Hashable, Sendable {
        case dial
        /// Send frames over this link from now on.
        case use(LinkID)
        /// A superseded link: send `closing`, then close.
        case retire(LinkID)
        case ping(LinkID)
        /// Close: the keepalive has timed out.
        case drop(LinkID)
        /// The link in use is relayed: dial a direct one, and keep this one meanwhile.
        case upgrade
    }

    private struct Upgrade: Hashable, Sendable {
        /// When a direct link is dialled; `nil` while dialling.
        var dialAt: Timestamp?
        var failures = 0
    }

    /// A longer wait between dials after a loss or a failure.
    private struct Slowness: Hashable, Sendable {
        var wait: Milliseconds
        var until: Timestamp
    }

    private let own: PublicKey
    private let remote: PublicKey
    private var state: State
    /// `nil` unless the link in use is relayed.
    private var upgrade: Upgrade?
    private var failures = 0
    private var slowness: Slowness?
    /// No dial before this time, for any reason.
    private var notBefore: Timestamp?
    /// Deadline for a frame over the link in use, whose address may be gone.
    private var answerBy: Timestamp?
    /// The peer has just opened another link, so it may have lost the one in use.
    private var isDoubted = false
    /// A frame has come over the link in use.
    private var hasHeard = false
    /// No dials unless there is something to send.
    private var isResting = false
    /// Whether we know an endpoint.
    private var isDialable: Bool
    /// An urgent dial is requested and has not ended.
    private(set) var isHurried = false
    /// When the last link was lost, until a session continues over another one. Starts the session grace.
    package private(set) var lostAt: Timestamp?

    package init(own: PublicKey, remote: PublicKey, isDialable: Bool, now: Timestamp) {
        (self.own, self.remote, self.isDialable) = (own, remote, isDialable)
        state = .idle(dialAt: isDialable ? (own < remote ? now : now + Limits.redialYield) : nil)
    }

    package var link: LinkID? { if case .up(let link, _, _, _, _) = state { link } else { nil } }

    package func isRelayed(_ link: LinkID) -> Bool { self.link == link && upgrade != nil }

    package var nextDeadline: Timestamp? {
        switch state {
        case .idle(let dialAt): return dialAt.map(allowed)
        case .dialling: return nil
        case .up(_, _, _, let heardAt, let pingedAt):
            // The side with the smaller key pings first, and at whole seconds: so few wakes serve all links.
            let ping = Limits.keepaliveInterval + (own < remote ? 0 : .second)
            let seconds = (heardAt + (pingedAt == nil ? ping : Limits.keepaliveTimeout) + 999).milliseconds / .second
            let keepalive = Timestamp(milliseconds: seconds * .second)
            return min(isDoubted ? heardAt : .latest, keepalive, upgrade?.dialAt ?? .latest, answerBy ?? .latest)
        }
    }

    /// Dials when due; pings a silent link, and drops it after a timeout.
    package mutating func advance(now: Timestamp) -> [Action] {
        switch state {
        case .idle(let dialAt?) where allowed(dialAt) <= now:
            state = .dialling(count: 1)
            isResting = false
            return [.dial]
        case .idle, .dialling: return []
        case .up(let link, _, _, let heardAt, _):
            let silence = now - heardAt
            if silence >= Limits.keepaliveTimeout {
                lost(now: now)
                return [.drop(link)]
            }
            if let answerBy, answerBy <= now {
                lost(now: now)
                // If our address is new the peer cannot dial us there.
                if isDialable { state = .idle(dialAt: now) }
                return [.drop(link)]
            }
            var result = isDoubted ? demandAnswer(now: now) : silence >= Limits.keepaliveInterval ? ask(now: now) : []
            if let dialAt = upgrade?.dialAt, dialAt <= now {
                upgrade?.dialAt = nil
                result.append(.upgrade)
            }
            return result
        }
    }

    /// Sends a ping, unless one is unanswered.
    package mutating func ask(now: Timestamp) -> [Action] {
        guard case .up(let link, let dialer, let openedAt, let heardAt, nil) = state else { return [] }
        state = .up(link, dialer: dialer, openedAt: openedAt, heardAt: heardAt, pingedAt: now)
        return [.ping(link)]
    }

    /// A handshake has ended.
    /// - Parameters:
    ///   - dialer: the public key of the side that dialled.
    ///   - isRelayed: it goes through a rendezvous node.
    package mutating func opened(_ link: LinkID, dialer: PublicKey, isRelayed: Bool = false, now: Timestamp) -> [Action]
    {
        isResting = false
        hasHeard = false
        isHurried = false
        if case .up(link, _, _, _, _) = state { return [.use(link)] }
        let wasRelayed = upgrade != nil
        var retired: [Action] = []
        if case .up(let current, let currentDialer, let openedAt, _, _) = state {
            // Both sides keep the link whose dialer has the smaller key. A peer that dials long after the link opened
            // has lost it.
            let isSimultaneous = now - openedAt < Limits.simultaneousDialWindow
            // A direct link replaces a relayed one at any time; a simultaneous relayed link never replaces a direct
            // one.
            let keeps = wasRelayed == isRelayed ? currentDialer < dialer : isRelayed
            if keeps, isSimultaneous {
                isDoubted = answerBy == nil
                return [.retire(link)]
            }
            retired = [.retire(current)]
        }
        upgrade = isRelayed ? Upgrade(dialAt: isDialable ? now + Limits.upgrade.first : nil) : nil
        (answerBy, isDoubted) = (nil, false)
        state = .up(link, dialer: dialer, openedAt: now, heardAt: now, pingedAt: nil)
        return [.use(link)] + retired
    }

    package mutating func heard(_ link: LinkID, now: Timestamp) {
        guard case .up(link, let dialer, let openedAt, _, _) = state else { return }
        hasHeard = true
        (answerBy, isDoubted) = (nil, false)
        failures = 0
        state = .up(link, dialer: dialer, openedAt: openedAt, heardAt: now, pingedAt: nil)
    }

    /// - Returns: whether this was the link in use.
    package mutating func closed(_ link: LinkID, now: Timestamp) -> Bool {
        guard case .up(link, _, _, _, _) = state else { return false }
        lost(now: now)
        return true
    }

    /// No endpoint answered: the next dial waits longer, with jitter.
    package mutating func dialFailed(now: Timestamp, random: inout some RandomNumberGenerator) {
        if let failed = upgrade, failed.dialAt == nil {
            let wait = Limits.upgrade.wait(after: failed.failures)
            let jitter = Milliseconds(random.next(upperBound: UInt64(wait / 4)))
            upgrade = Upgrade(dialAt: isDialable ? now + wait + jitter : nil, failures: failed.failures + 1)
        }
        guard case .dialling(let count) = state else { return }
        guard count <= 1 else {
            state = .dialling(count: count - 1)
            return
        }
        pauseIfSlow(now: now)
        let wait = Limits.redial.wait(after: failures)
        failures += 1
        isHurried = false
        state = .idle(dialAt: isDialable ? now + wait / 2 + Milliseconds(random.next(upperBound: UInt64(wait))) : nil)
    }

    /// There is a reason to dial now: a new address, something to send, or a user command.
    package mutating func hurry(now: Timestamp) {
        if !isDialable, upgrade != nil { upgrade = Upgrade(dialAt: now) }
        isDialable = true
        seekDirect(now: now)
        if case .idle = state { isHurried = true }
        if case .idle(let dialAt) = state, dialAt.map({ $0 > now }) ?? true {
            failures = min(failures, 2)
            state = .idle(dialAt: now)
        }
    }

    /// The machine's addresses have changed: sends a ping and redials soon without an answer. Without a link it dials
    /// at its turn.
    /// - Parameter dials: `nil` when no address is new.
    package mutating func addressesChanged(now: Timestamp, _ dials: inout ChangeDials?) -> [Action] {
        seekDirect(now: now)
        switch state {
        case .idle(let dialAt?):
            guard !isResting, let turn = dials?.turn(before: dialAt, now: now) else { return [] }
            if dials?.beginsAnew == true { failures = min(failures, 2) }
            state = .idle(dialAt: turn)
            return []
        case .idle(nil), .dialling: return []
        case .up: return demandAnswer(now: now)
        }
    }

    /// The storage is unlocked: like ``addressesChanged(now:_:)``, with a dial at once.
    package mutating func unlocked(now: Timestamp) -> [Action] {
        if case .idle(let dialAt?) = state, !isResting, dialAt > now {
            failures = min(failures, 2)
            state = .idle(dialAt: now)
        }
        var dials: ChangeDials?
        return addressesChanged(now: now, &dials)
    }

    /// Sends a ping with a shorter deadline than the keepalive's.
    private mutating func demandAnswer(now: Timestamp) -> [Action] {
        guard case .up(let link, let dialer, let openedAt, let heardAt, _) = state else { return [] }
        state = .up(link, dialer: dialer, openedAt: openedAt, heardAt: heardAt, pingedAt: now)
        isDoubted = false
        answerBy = now + Limits.pingPatience
        return [.ping(link)]
    }

    /// Local discovery has heard the peer, which has no link with us.
    /// - Returns: `dial` to dial there, in addition to other dials or to replace a link that does not answer; `ping` to
    ///   check our link.
    package mutating func found(now: Timestamp) -> [Action] {
        switch state {
        case .idle(let dialAt):
            isDialable = true
            failures = min(failures, 2)
            let soon = own < remote ? now : now + Limits.redialYield
            state = .idle(dialAt: min(dialAt ?? soon, soon))
            return []
        case .dialling(let count):
            guard count < Limits.dialCount else { return [] }
            state = .dialling(count: count + 1)
            return [.dial]
        case .up(_, _, let openedAt, _, let pingedAt):
            if upgrade != nil {
                // The peer is near, yet its link is relayed.
                guard upgrade?.dialAt != nil else { return [] }
                upgrade?.dialAt = nil
                return [.dial]
            }
            guard now - openedAt >= Limits.simultaneousDialWindow else { return [] }
            guard let pingedAt else { return ask(now: now) }
            return now - pingedAt >= Limits.pingPatience ? [.dial] : []
        }
    }

    /// Whether discovery should look for the peer: its link is missing, does not answer, or is relayed.
    package func isMissed(now: Timestamp) -> Bool {
        switch state {
        case .idle, .dialling: !isResting
        case .up(_, _, _, _, let pingedAt): upgrade != nil || pingedAt.map { now - $0 >= Limits.pingPatience } ?? false
        }
    }

    /// The endpoints of one side have changed: if the link is relayed, dials a direct one at once.
    package mutating func seekDirect(now: Timestamp) {
        if let dialAt = upgrade?.dialAt, dialAt > now { upgrade = Upgrade(dialAt: now) }
    }

    /// The peer has gone to sleep: no loss, and no dial for a while, unless ``wanted(at:)`` asks sooner. A dial follows
    /// later, since only a dial finds the tombstone of a peer that is gone.
    /// - Returns: whether this was the link in use.
    package mutating func closedAsleep(_ link: LinkID, now: Timestamp) -> Bool {
        guard case .up(link, _, _, _, _) = state else { return false }
        rest()
        if isDialable { state = .idle(dialAt: now + Limits.redialAsleep) }
        return true
    }

    /// We go to sleep, or have just woken: no dials unless there is something to send.
    package mutating func rest() {
        failures = 0
        (answerBy, isDoubted) = (nil, false)
        isResting = true
        upgrade = nil
        state = .idle(dialAt: nil)
    }

    /// Requests a dial to a sleeping peer, since there is something to send.
    package mutating func wanted(at time: Timestamp) {
        guard isDialable, isResting, case .idle(let dialAt) = state else { return }
        state = .idle(dialAt: min(dialAt ?? time, time))
    }

    /// The session continues, so the last loss no longer counts.
    package mutating func sessionEstablished() { lostAt = nil }

    package mutating func remember(lostAt: Timestamp?) { self.lostAt = lostAt }

    /// A dial is due or under way, or there is a link.
    package func isReaching(now: Timestamp) -> Bool {
        switch state {
        case .idle(let dialAt): dialAt.map { allowed($0) <= now } ?? false
        case .dialling, .up: true
        }
    }

    /// The other side closed without a frame: no dial before this time.
    package mutating func wait(until dialAt: Timestamp) {
        guard case .idle = state else { return }
        state = .idle(dialAt: isDialable ? dialAt : nil)
    }

    /// Sets a longer wait between dials until a time.
    package mutating func dialSlowly(_ wait: Milliseconds, until: Timestamp) {
        slowness = Slowness(wait: wait, until: until)
    }

    private func allowed(_ dialAt: Timestamp) -> Timestamp { max(dialAt, notBefore ?? dialAt) }

    private mutating func pauseIfSlow(now: Timestamp) {
        if let slowness { notBefore = now < slowness.until ? now + slowness.wait : nil }
    }

    private mutating func lost(now: Timestamp) {
        // A link without a session exchange makes up for no loss.
        lostAt = lostAt ?? now
        pauseIfSlow(now: now)
        upgrade = nil
        (answerBy, isDoubted) = (nil, false)
        var wait = own < remote ? Limits.redial.first / 4 : Limits.redialYield
        if !hasHeard {
            // Opened and closed without a frame: the other side cannot serve us now.
            failures += 1
            wait = max(wait, Limits.redial.wait(after: failures))
        }
        state = .idle(dialAt: isDialable ? now + wait : nil)
    }
}
