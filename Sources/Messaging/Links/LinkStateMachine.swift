import Crypto

/// The link between one inbox and one other inbox: dialling, the choice when both dial at once, keepalive, and dialling
/// again (Links.md).
///
///     idle ──due──▶ dialling ──opened──▶ up ──lost──▶ idle (after a wait)
///                      ├──failed──▶ idle (after a longer wait)
///                      └──found elsewhere──▶ dialling there, too
///     an incoming link opens from any state ──▶ up
///     up ──either side goes to sleep──▶ idle, without a time: dialled when there is something to send
///     up, relayed ──direct link opens──▶ up; until then one is looked for now and then
package struct LinkStateMachine: Hashable, Sendable {
    private enum State: Hashable, Sendable {
        /// Entered at start and after a loss or a failure. May go to `dialling` at `dialAt`, and to `up`.
        case idle(dialAt: Timestamp?)
        /// Entered when due. May go to `idle`, when all dials have failed, and to `up`.
        case dialling(count: Int)
        /// Entered when a handshake has ended. May go to `idle`.
        case up(LinkID, dialer: PublicKey, openedAt: Timestamp, heardAt: Timestamp, pingedAt: Timestamp?)
    }

    /// What follows from an event, in order.
    package enum Action: Hashable, Sendable {
        case dial
        /// Frames go over this link from now on.
        case use(LinkID)
        /// The other one of two links: say that nothing follows, then close.
        case retire(LinkID)
        case ping(LinkID)
        /// Silent for too long.
        case drop(LinkID)
        /// The link in use is relayed: look for a direct one, and keep it meanwhile.
        case upgrade
    }

    /// Of a relayed link in use.
    private struct Upgrade: Hashable, Sendable {
        /// When a direct way is looked for; `nil` while it is being dialled.
        var dialAt: Timestamp?
        /// Dials that came to nothing.
        var failures = 0
    }

    /// Dials that follow a loss or a failure are far apart.
    private struct Slowness: Hashable, Sendable {
        var wait: Milliseconds
        var until: Timestamp
    }

    private let own: PublicKey
    private let remote: PublicKey
    private var state: State
    /// `nil` unless there is a link in use, and it is relayed.
    private var upgrade: Upgrade?
    private var failures = 0
    private var slowness: Slowness?
    /// No reason to dial is good enough before this time.
    private var notBefore: Timestamp?
    /// The link in use is given up if nothing comes over it by then: it may stand on an address that is gone.
    private var answerBy: Timestamp?
    /// The peer has just opened another link: it may have lost the one in use.
    private var isDoubted = false
    /// Something has come over the link in use: whoever is there wants it.
    private var hasHeard = false
    /// Nobody is dialled for the sake of a link alone.
    private var isResting = false
    /// Whether we know where to dial.
    private var isDialable: Bool
    /// There was a reason to dial at once, and no dial has ended since.
    private(set) var isHurried = false
    /// When the last link was lost, until a session goes on over another one; for the session grace.
    package private(set) var lostAt: Timestamp?

    package init(own: PublicKey, remote: PublicKey, isDialable: Bool, now: Timestamp) {
        self.own = own
        self.remote = remote
        self.isDialable = isDialable
        state = .idle(dialAt: isDialable ? (own < remote ? now : now + Limits.redialYield) : nil)
    }

    /// The link in use.
    package var link: LinkID? { if case .up(let link, _, _, _, _) = state { link } else { nil } }

    /// Whether this is the link in use, and relayed.
    package func isRelayed(_ link: LinkID) -> Bool { self.link == link && upgrade != nil }

    /// When ``advance(now:)`` has something to do; `nil` for never.
    package var nextDeadline: Timestamp? {
        switch state {
        case .idle(let dialAt): dialAt.map(allowed)
        case .dialling: nil
        case .up(_, _, _, let heardAt, let pingedAt):
            min(
                isDoubted ? heardAt : .latest,
                heardAt + (pingedAt != nil ? Limits.keepaliveTimeout : Limits.keepaliveInterval),
                upgrade?.dialAt ?? .latest, answerBy ?? .latest)
        }
    }

    /// Dials when it is time; asks a silent link, and drops it.
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
                // If our place is new the peer cannot dial us there.
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

    /// Asks the other side whether it is still there, unless it has been asked already.
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
        let next = isRelayed ? Upgrade(dialAt: isDialable ? now + Limits.upgradeFirst : nil) : nil
        if case .up(let current, let currentDialer, let openedAt, _, _) = state {
            // Both sides keep the link whose dialer has the smaller key. A peer that dials long after has lost the
            // current one, whatever we believe of it.
            let isSimultaneous = now - openedAt < Limits.simultaneousDialWindow
            // A direct one takes the place of a relayed one at any time, and never the other way round at the same time.
            let keeps = wasRelayed == isRelayed ? currentDialer < dialer : isRelayed
            if keeps, isSimultaneous {
                isDoubted = answerBy == nil
                return [.retire(link)]
            }
            upgrade = next
            (answerBy, isDoubted) = (nil, false)
            state = .up(link, dialer: dialer, openedAt: now, heardAt: now, pingedAt: nil)
            return [.use(link), .retire(current)]
        }
        upgrade = next
        (answerBy, isDoubted) = (nil, false)
        state = .up(link, dialer: dialer, openedAt: now, heardAt: now, pingedAt: nil)
        return [.use(link)]
    }

    /// A frame has come: the silence begins anew.
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

    /// No endpoint answered: the next dial waits longer, at random.
    package mutating func dialFailed(now: Timestamp, random: inout some RandomNumberGenerator) {
        if let failed = upgrade, failed.dialAt == nil {
            let wait = min(Limits.upgradeFirst << Milliseconds(min(failed.failures, 10)), Limits.upgradeLongest)
            let jitter = Milliseconds(random.next(upperBound: UInt64(wait / 4)))
            upgrade = Upgrade(dialAt: isDialable ? now + wait + jitter : nil, failures: failed.failures + 1)
        }
        guard case .dialling(let count) = state else { return }
        guard count <= 1 else {
            state = .dialling(count: count - 1)
            return
        }
        pauseIfSlow(now: now)
        let wait = min(Limits.redialFirst << Milliseconds(min(failures, 20)), Limits.redialLongest)
        failures += 1
        isHurried = false
        state = .idle(dialAt: isDialable ? now + wait / 2 + Milliseconds(random.next(upperBound: UInt64(wait))) : nil)
    }

    /// There is a reason to try now: a new address, something to send, the user asks.
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

    /// The machine's addresses have changed: the peer is asked, and dialled anew if it does not answer soon; if there is no
    /// link it is dialled at its turn.
    /// - Parameter dials: `nil` when there is no address to dial from that was not there before.
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

    /// The storage is open again: what ``addressesChanged(now:_:)`` does, with a dial at once.
    package mutating func unlocked(now: Timestamp) -> [Action] {
        if case .idle(let dialAt?) = state, !isResting, dialAt > now {
            failures = min(failures, 2)
            state = .idle(dialAt: now)
        }
        var dials: ChangeDials?
        return addressesChanged(now: now, &dials)
    }

    /// Asks the other side whether it is still there: it has less time than after a mere silence.
    private mutating func demandAnswer(now: Timestamp) -> [Action] {
        guard case .up(let link, let dialer, let openedAt, let heardAt, _) = state else { return [] }
        state = .up(link, dialer: dialer, openedAt: openedAt, heardAt: heardAt, pingedAt: now)
        isDoubted = false
        answerBy = now + Limits.pingPatience
        return [.ping(link)]
    }

    /// The peer has said on this network where it is, and that it has no link with us.
    /// - Returns: `dial` to dial it there, besides what is being dialled or in the place of a link that does not answer;
    ///   `ping` to see whether our link is still good.
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
                // It is near, and reached through somebody else.
                guard upgrade?.dialAt != nil else { return [] }
                upgrade?.dialAt = nil
                return [.dial]
            }
            guard now - openedAt >= Limits.simultaneousDialWindow else { return [] }
            guard let pingedAt else { return ask(now: now) }
            return now - pingedAt >= Limits.pingPatience ? [.dial] : []
        }
    }

    /// There is no link though one is wanted, or one that does not answer, or only a relayed one.
    package func isMissed(now: Timestamp) -> Bool {
        switch state {
        case .idle, .dialling: !isResting
        case .up(_, _, _, _, let pingedAt): upgrade != nil || pingedAt.map { now - $0 >= Limits.pingPatience } ?? false
        }
    }

    /// One of the two is at another place now: if the link is relayed, a direct way is looked for at once.
    package mutating func seekDirect(now: Timestamp) {
        if let dialAt = upgrade?.dialAt, dialAt > now { upgrade = Upgrade(dialAt: now) }
    }

    /// The peer has gone to sleep: no loss, and it is left in peace for a while; an incoming link or ``wanted(at:)`` ends
    /// that sooner. Not for ever: it may be gone, and its tombstone is asked by a dial only.
    /// - Returns: whether this was the link in use.
    package mutating func closedAsleep(_ link: LinkID, now: Timestamp) -> Bool {
        guard case .up(link, _, _, _, _) = state else { return false }
        rest()
        if isDialable { state = .idle(dialAt: now + Limits.redialAsleep) }
        return true
    }

    /// We go to sleep, or have just been woken: nothing is dialled until somebody wants it.
    package mutating func rest() {
        // The last loss was made good by the link that is closed now.
        if case .up = state { lostAt = nil }
        failures = 0
        (answerBy, isDoubted) = (nil, false)
        isResting = true
        upgrade = nil
        state = .idle(dialAt: nil)
    }

    /// There is something to send to a peer that is left in peace.
    package mutating func wanted(at time: Timestamp) {
        guard isDialable, isResting, case .idle(let dialAt) = state else { return }
        state = .idle(dialAt: min(dialAt ?? time, time))
    }

    /// Both have said where they stand: the last loss is made good.
    package mutating func sessionEstablished() { lostAt = nil }

    /// What a sleeping inbox remembered.
    package mutating func remember(lostAt: Timestamp?) { self.lostAt = lostAt }

    /// A dial is due or under way, or there is a link.
    package func isReaching(now: Timestamp) -> Bool {
        switch state {
        case .idle(let dialAt): dialAt.map { allowed($0) <= now } ?? false
        case .dialling: true
        case .up: true
        }
    }

    /// The other side has closed without a word: it is not dialled before this time.
    package mutating func wait(until dialAt: Timestamp) {
        guard case .idle = state else { return }
        state = .idle(dialAt: isDialable ? dialAt : nil)
    }

    /// Until then this long passes between dials.
    package mutating func dialSlowly(_ wait: Milliseconds, until: Timestamp) {
        slowness = Slowness(wait: wait, until: until)
    }

    private func allowed(_ dialAt: Timestamp) -> Timestamp { max(dialAt, notBefore ?? dialAt) }

    /// A link or a dial has ended.
    private mutating func pauseIfSlow(now: Timestamp) {
        if let slowness { notBefore = now < slowness.until ? now + slowness.wait : nil }
    }

    private mutating func lost(now: Timestamp) {
        lostAt = now
        pauseIfSlow(now: now)
        upgrade = nil
        (answerBy, isDoubted) = (nil, false)
        var wait = own < remote ? Limits.redialFirst / 4 : Limits.redialYield
        if !hasHeard {
            // Opened and closed without a word: the other side cannot take us now.
            failures += 1
            wait = max(wait, min(Limits.redialFirst << Milliseconds(min(failures, 20)), Limits.redialLongest))
        }
        state = .idle(dialAt: isDialable ? now + wait : nil)
    }
}
