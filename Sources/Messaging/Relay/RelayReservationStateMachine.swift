/// Our reservations at one rendezvous node: one for each inbox, up to the grant.
///
///     unlinked ──link──▶ asked ──reserved──▶ reserved ──more or fewer inboxes──▶ reserved
///                          └──refused, no answer──▶ refused ──5 min──▶ asked
///     asked, reserved, refused ──link lost──▶ unlinked
///     reserved ──refused──▶ refused
///
/// The grant is a number n: the first n labels named are reserved, so both sides agree on them without a list. The
/// first request names one frame of labels; the others follow the grant. After a lost link we advertise them for
/// ``Limits/reservationGrace``, because the same reservations return with the link.
package struct RelayReservationStateMachine: Hashable, Sendable {
    private enum State: Hashable, Sendable {
        case unlinked
        case asked(LinkID, at: Timestamp)
        case reserved(LinkID)
        /// Refused, or `nil` after a timeout.
        case refused(LinkID, RelayRefusal?, at: Timestamp)
    }

    package enum Standing: Hashable, Sendable {
        case unreachable
        case asking
        case reserved(RelayGrant)
        /// `nil`: it does not answer.
        case refused(RelayRefusal?)
    }

    private var state = State.unlinked
    /// The present grant, or a recent one during the grace period.
    private var grant: RelayGrant?
    private var grantEnds: Timestamp?
    /// In the order in which they are named; labels beyond the grant wait.
    private var wanted: [RelayLabel] = []
    /// Named over the present link, and not withdrawn.
    private var named: [RelayLabel] = []

    /// - Parameter remembered: the grant before a restart; assumed to be valid still.
    package init(remembered: RelayGrant? = nil, now: Timestamp) {
        grant = remembered
        grantEnds = remembered.map { _ in now + Limits.reservationGrace }
    }

    package var standing: Standing {
        switch state {
        case .unlinked: .unreachable
        case .asked: .asking
        case .reserved: grant.map { .reserved($0) } ?? .asking
        case .refused(_, let refusal, _): .refused(refusal)
        }
    }

    /// `nil`: advertise nothing.
    package var advertised: RelayGrant? { grant }

    package var advertisedLabels: ArraySlice<RelayLabel> { wanted.prefix(grant?.reservationCount ?? 0) }

    private var isShort: Bool { grant.map { wanted.count > $0.reservationCount } ?? false }

    package var isFull: Bool { grant.map { wanted.count >= $0.reservationCount } ?? true }

    package func isReserved(on link: LinkID) -> Bool { state == .reserved(link) }

    package var nextDeadline: Timestamp? {
        let next: Timestamp? =
            switch state {
            case .unlinked, .reserved: nil
            case .asked(_, let at): at + Limits.reservationPatience
            case .refused(_, _, let at): at + Limits.reservationRetry
            }
        return earliest(next, grantEnds)
    }

    package mutating func opened(_ link: LinkID, now: Timestamp) -> [NodeAction] {
        // The streams went over the old link.
        keepGrant(now: now)
        return ask(link, now: now)
    }

    private mutating func ask(_ link: LinkID, now: Timestamp) -> [NodeAction] {
        state = .asked(link, at: now)
        named = Array(wanted.prefix(Limits.relayLabelCount))
        return [.forward(link, .relayRequest(.reserve(named)))]
    }

    /// Sets the labels to reserve.
    /// - Precondition: no label twice.
    package mutating func want(_ labels: [RelayLabel]) -> [NodeAction] {
        let before = Set(advertisedLabels)
        let wasShort = isShort
        let set = Set(labels)
        // A label that has a reservation keeps it.
        let kept = wanted.filter(set.contains)
        let known = Set(kept)
        wanted = kept + labels.filter { !known.contains($0) }
        var result: [NodeAction] = []
        if case .reserved(let link) = state { result = fill(link) }
        // Only where room is or was short: otherwise each inbox has published its endpoints itself.
        guard wasShort || isShort, before != Set(advertisedLabels) else { return result }
        return result + [.endpointsMayHaveChanged]
    }

    private mutating func fill(_ link: LinkID) -> [NodeAction] {
        let wanted = advertisedLabels
        let set = Set(wanted)
        let gone = named.filter { !set.contains($0) }
        let known = Set(named)
        let new = wanted.filter { !known.contains($0) }
        named = named.filter(set.contains) + new
        return Self.pieces(gone).map { .forward(link, .relayRequest(.withdraw($0))) }
            + Self.pieces(new).map { .forward(link, .relayRequest(.reserve($0))) }
    }

    private static func pieces(_ labels: [RelayLabel]) -> [[RelayLabel]] {
        stride(from: 0, to: labels.count, by: Limits.relayLabelCount).map {
            Array(labels[$0..<min($0 + Limits.relayLabelCount, labels.count)])
        }
    }

    package mutating func closed(_ link: LinkID, now: Timestamp) -> [NodeAction] {
        switch state {
        case .asked(link, _), .refused(link, _, _), .reserved(link):
            keepGrant(now: now)
            state = .unlinked
        case .unlinked, .asked, .reserved, .refused: break
        }
        return []
    }

    package mutating func reserved(_ grant: RelayGrant, on link: LinkID) -> [NodeAction] {
        switch state {
        // Each request gets an answer, so a late answer after our timeout counts too.
        case .asked(link, _), .refused(link, nil, _):
            let before = Set(advertisedLabels)
            let isNews = self.grant == nil
            self.grant = grant
            grantEnds = nil
            state = .reserved(link)
            // Labels beyond the grant were not accepted.
            named = Array(named.prefix(grant.reservationCount))
            let isChanged = isNews || before != Set(advertisedLabels)
            return fill(link) + (isChanged ? [.endpointsMayHaveChanged] : [])
        case .unlinked, .asked, .reserved, .refused: return []
        }
    }

    package mutating func refused(_ refusal: RelayRefusal, on link: LinkID, now: Timestamp) -> [NodeAction] {
        switch state {
        case .asked(link, _), .refused(link, _, _), .reserved(link):
            state = .refused(link, refusal, at: now)
            return forgetGrant()
        case .unlinked, .asked, .reserved, .refused: return []
        }
    }

    package mutating func advance(now: Timestamp) -> [NodeAction] {
        var result: [NodeAction] = []
        switch state {
        case .asked(let link, let at) where now - at >= Limits.reservationPatience: state = .refused(link, nil, at: now)
        case .refused(let link, _, let at) where now - at >= Limits.reservationRetry: result += ask(link, now: now)
        case .unlinked, .asked, .reserved, .refused: break
        }
        if let grantEnds, grantEnds <= now { result += forgetGrant() }
        return result
    }

    private mutating func keepGrant(now: Timestamp) {
        if case .reserved = state { grantEnds = now + Limits.reservationGrace }
    }

    private mutating func forgetGrant() -> [NodeAction] {
        grantEnds = nil
        guard grant != nil else { return [] }
        grant = nil
        return [.endpointsMayHaveChanged]
    }
}
