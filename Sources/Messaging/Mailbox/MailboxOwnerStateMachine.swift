/// Our boxes at our mailbox. One link under a key of its own claims them; over it the mailbox announces new slots.
///
///     idle ──wanted, its time──▶ dialling ──link──▶ asked ──granted──▶ granted ──more or fewer boxes──▶ granted
///       ▲                          │                 └──refused, no answer──▶ idle
///       └──failed, link lost, nothing wanted─────────────┘
package struct MailboxOwnerStateMachine: Hashable, Sendable {
    private enum State: Hashable, Sendable {
        /// Dials at this time, if boxes are wanted.
        case idle(until: Timestamp)
        case dialling
        case asked(LinkID, at: Timestamp)
        case granted(LinkID, MailboxGrant)
    }

    package enum Action: Hashable, Sendable {
        case dial
        case claim(LinkID, [BoxLabel])
        case drop(LinkID, [BoxLabel])
        case ping(LinkID)
        case close(LinkID)
    }

    package enum Standing: Hashable, Sendable {
        case unused
        case unreachable
        case asking
        case granted(MailboxGrant)
        case refused(MailboxRefusal)
    }

    private var state: State
    private var wanted: [BoxLabel] = []
    private var claimed: [BoxLabel] = []
    private var refusal: MailboxRefusal?
    private var failures = 0
    /// When the link in use got its grant. A short link counts as a failure: another copy of our home may compete for
    /// it.
    private var grantedAt: Timestamp?
    private var heardAt = Timestamp(milliseconds: 0)
    /// When boxes that the mailbox has not granted are claimed again.
    private var reclaimAt: Timestamp?
    private var isAsked = false
    /// Claims that the mailbox has not answered.
    private var claimCount = 0

    package init(now: Timestamp) { state = .idle(until: now) }

    package var standing: Standing {
        if wanted.isEmpty { return .unused }
        return switch state {
        case .idle, .dialling: refusal.map { .refused($0) } ?? .unreachable
        case .asked: .asking
        case .granted(_, let grant): .granted(grant)
        }
    }

    package var link: LinkID? {
        switch state {
        case .idle, .dialling: nil
        case .asked(let link, _), .granted(let link, _): link
        }
    }

    package var isGranted: Bool { if case .granted = state { true } else { false } }

    package var nextDeadline: Timestamp? {
        switch state {
        case .idle(let until): wanted.isEmpty ? nil : until
        case .dialling: nil
        case .asked(_, let at): at + Limits.reservationPatience
        case .granted: min(silenceEnd, reclaimAt ?? .latest)
        }
    }

    private var silenceEnd: Timestamp {
        heardAt + (isAsked ? Limits.mailboxKeepalive + Limits.reservationPatience : Limits.mailboxKeepalive)
    }

    /// Sets the boxes to claim: the first ``Limits/boxLabelCount`` labels.
    /// - Parameter kept: labels that are not claimed again; their boxes stay until the mailbox forgets them.
    /// - Precondition: no label twice.
    package mutating func want(_ labels: [BoxLabel], keeping kept: Set<BoxLabel> = [], now: Timestamp) -> [Action] {
        wanted = Array(labels.prefix(Limits.boxLabelCount))
        let set = Set(wanted)
        switch state {
        case .idle, .dialling: return advance(now: now)
        case .asked(let link, _), .granted(let link, _):
            let gone = claimed.filter { !set.contains($0) && !kept.contains($0) }
            let known = Set(claimed)
            let new = wanted.filter { !known.contains($0) }
            claimed = wanted
            var result: [Action] = []
            if !gone.isEmpty { result.append(.drop(link, gone)) }
            if !new.isEmpty {
                claimCount += 1
                result.append(.claim(link, new))
            }
            guard wanted.isEmpty else { return result }
            state = .idle(until: now)
            return result + [.close(link)]
        }
    }

    package mutating func opened(_ link: LinkID, now: Timestamp) -> [Action] {
        guard state == .dialling else { return [.close(link)] }
        guard !wanted.isEmpty else {
            state = .idle(until: now)
            return [.close(link)]
        }
        state = .asked(link, at: now)
        heardAt = now
        isAsked = false
        claimCount = 1
        claimed = wanted
        return [.claim(link, wanted)]
    }

    package mutating func dialFailed(now: Timestamp) {
        guard state == .dialling else { return }
        rest(now: now)
    }

    package mutating func closed(_ link: LinkID, now: Timestamp) {
        guard self.link == link else { return }
        rest(now: now)
    }

    private mutating func rest(now: Timestamp) {
        if let grantedAt, now - grantedAt >= Limits.shortLink { failures = 0 }
        grantedAt = nil
        let wait = Limits.mailboxRedial.wait(after: failures)
        failures += 1
        state = .idle(until: now + wait)
        claimed = []
        reclaimAt = nil
    }

    package mutating func heard(_ link: LinkID, now: Timestamp) {
        guard self.link == link else { return }
        heardAt = now
        isAsked = false
    }

    @discardableResult package mutating func granted(_ grant: MailboxGrant, on link: LinkID, now: Timestamp) -> [Action]
    {
        guard self.link == link else { return [] }
        guard claimCount > 0 else {
            rest(now: now)
            return [.close(link)]
        }
        claimCount -= 1
        reclaimAt = grant.boxCount < claimed.count ? now + Limits.reclaimPause : nil
        grantedAt = grantedAt ?? now
        refusal = nil
        state = .granted(link, grant)
        return []
    }

    package mutating func refused(_ refusal: MailboxRefusal, on link: LinkID, now: Timestamp) -> [Action] {
        guard self.link == link else { return [] }
        self.refusal = refusal
        // A refusal may follow a grant.
        failures = grantedAt == nil ? max(failures, 6) : 6
        grantedAt = nil
        rest(now: now)
        return [.close(link)]
    }

    package mutating func advance(now: Timestamp) -> [Action] {
        switch state {
        case .idle(let until):
            guard !wanted.isEmpty, until <= now else { return [] }
            state = .dialling
            return [.dial]
        case .dialling: return []
        case .asked(let link, let at):
            guard now - at >= Limits.reservationPatience else { return [] }
            rest(now: now)
            return [.close(link)]
        case .granted(let link, _):
            if let due = reclaimAt, due <= now {
                reclaimAt = nil
                claimCount += 1
                return [.claim(link, wanted)]
            }
            guard silenceEnd <= now else { return [] }
            guard isAsked else {
                isAsked = true
                return [.ping(link)]
            }
            rest(now: now)
            return [.close(link)]
        }
    }
}
