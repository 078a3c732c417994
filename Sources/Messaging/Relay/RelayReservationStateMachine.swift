import Crypto

/// Our reservations at one rendezvous node: one for each inbox, as far as it grants them.
///
///     unlinked ──link──▶ asked ──reserved──▶ reserved ──more or fewer inboxes──▶ reserved
///                          └──refused, no answer──▶ refused ──5 min──▶ asked
///     asked, reserved, refused ──link lost──▶ unlinked
///     reserved ──refused──▶ refused
///
/// The first request names as many labels as fit into one; the others follow when the grant says how many there may be.
/// Both sides count in the order in which labels are named, so that they agree without a word which of them are reserved:
/// the first of `wanted`. What was reserved is advertised for a while longer than it is there: with the link it comes back
/// as it was.
package struct RelayReservationStateMachine: Hashable, Sendable {
    private enum State: Hashable, Sendable {
        /// Entered at start, and when the link is lost. Goes to `asked`.
        case unlinked
        /// Entered with a link, and by time. Goes to `reserved`, `refused` and `unlinked`.
        case asked(LinkID, at: Timestamp)
        /// Goes to `refused` and `unlinked`.
        case reserved(LinkID)
        /// By words, or by silence. Goes to `asked`, `reserved` and `unlinked`.
        case refused(LinkID, RelayRefusal?, at: Timestamp)
    }

    /// What follows from an event.
    package enum Action: Hashable, Sendable {
        /// Not more than ``Limits/relayLabelCount`` labels each.
        case ask(LinkID, [RelayLabel])
        case withdraw(LinkID, [RelayLabel])
        /// Where we can be reached may be another place now.
        case changed
    }

    /// How it stands, for the user.
    package enum Standing: Hashable, Sendable {
        /// No link.
        case unreachable
        /// Linked, and no answer yet.
        case asking
        case reserved(RelayGrant)
        /// `nil`: it does not answer.
        case refused(RelayRefusal?)
    }

    private var state = State.unlinked
    /// What we have, or had until a moment ago.
    private var grant: RelayGrant?
    /// When that is forgotten.
    private var grantEnds: Timestamp?
    /// In the order in which they are named; those beyond the grant wait for room.
    private var wanted: [RelayLabel] = []
    /// Named over the present link, and not withdrawn.
    private var named: [RelayLabel] = []

    /// - Parameter remembered: what was granted before the node was started anew: it is taken to be there again.
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

    /// What we have, or had until a moment ago; `nil`: nothing is to be advertised.
    package var advertised: RelayGrant? { grant }

    /// Those that are reserved, or soon are: the first that are wanted.
    package var advertisedLabels: ArraySlice<RelayLabel> { wanted.prefix(advertisedCount) }

    private var advertisedCount: Int { grant.map { min($0.reservationCount, wanted.count) } ?? 0 }

    /// More are wanted than there may be.
    private var isShort: Bool { grant.map { wanted.count > $0.reservationCount } ?? false }

    /// There is no room for another label.
    package var isFull: Bool { grant.map { wanted.count >= $0.reservationCount } ?? true }

    /// Whether streams may come over this link.
    package func isReserved(on link: LinkID) -> Bool { state == .reserved(link) }

    /// When ``advance(now:)`` has something to do; `nil` for never.
    package var nextDeadline: Timestamp? {
        let next: Timestamp? =
            switch state {
            case .unlinked, .reserved: nil
            case .asked(_, let at): at + Limits.reservationPatience
            case .refused(_, _, let at): at + Limits.reservationRetry
            }
        return [next, grantEnds].compactMap { $0 }.min()
    }

    /// A link is there, or another takes its place.
    package mutating func opened(_ link: LinkID, now: Timestamp) -> [Action] {
        // Its streams went over the other one.
        keepGrant(now: now)
        return ask(link, now: now)
    }

    private mutating func ask(_ link: LinkID, now: Timestamp) -> [Action] {
        state = .asked(link, at: now)
        named = Array(wanted.prefix(Limits.relayLabelCount))
        return [.ask(link, named)]
    }

    /// These labels are to be reserved, each of them once.
    package mutating func want(_ labels: [RelayLabel]) -> [Action] {
        let before = Set(advertisedLabels)
        let wasShort = isShort
        let set = Set(labels)
        // Who has a place keeps it.
        let kept = wanted.filter(set.contains)
        let known = Set(kept)
        wanted = kept + labels.filter { !known.contains($0) }
        var result: [Action] = []
        if case .reserved(let link) = state { result = fill(link) }
        guard wasShort || isShort, before != Set(advertisedLabels) else { return result }
        // Where there is room, an inbox has told its members of its place by itself.
        return result + [.changed]
    }

    /// Withdraws what is not wanted any more, and names what is new, as far as the grant goes.
    private mutating func fill(_ link: LinkID) -> [Action] {
        let wanted = advertisedLabels
        let set = Set(wanted)
        let gone = named.filter { !set.contains($0) }
        let known = Set(named)
        let new = wanted.filter { !known.contains($0) }
        named = named.filter(set.contains) + new
        return Self.pieces(gone).map { .withdraw(link, $0) } + Self.pieces(new).map { .ask(link, $0) }
    }

    private static func pieces(_ labels: [RelayLabel]) -> [[RelayLabel]] {
        stride(from: 0, to: labels.count, by: Limits.relayLabelCount).map {
            Array(labels[$0..<min($0 + Limits.relayLabelCount, labels.count)])
        }
    }

    /// - Returns: nothing for a link that is not the one in use.
    package mutating func closed(_ link: LinkID, now: Timestamp) -> [Action] {
        switch state {
        case .asked(link, _), .refused(link, _, _), .reserved(link):
            keepGrant(now: now)
            state = .unlinked
        case .unlinked, .asked, .reserved, .refused: break
        }
        return []
    }

    package mutating func reserved(_ grant: RelayGrant, on link: LinkID) -> [Action] {
        switch state {
        // It answers each of our questions, and changes its mind with none.
        case .asked(link, _), .refused(link, nil, _):
            let before = Set(advertisedLabels)
            let isNews = self.grant == nil
            self.grant = grant
            grantEnds = nil
            state = .reserved(link)
            // Those that did not fit were not taken.
            named = Array(named.prefix(grant.reservationCount))
            let isChanged = isNews || before != Set(advertisedLabels)
            return fill(link) + (isChanged ? [.changed] : [])
        case .unlinked, .asked, .reserved, .refused: return []
        }
    }

    package mutating func refused(_ refusal: RelayRefusal, on link: LinkID, now: Timestamp) -> [Action] {
        switch state {
        case .asked(link, _), .refused(link, _, _), .reserved(link):
            state = .refused(link, refusal, at: now)
            return forgetGrant()
        case .unlinked, .asked, .reserved, .refused: return []
        }
    }

    /// Asks again, and forgets what is over.
    package mutating func advance(now: Timestamp) -> [Action] {
        var result: [Action] = []
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

    private mutating func forgetGrant() -> [Action] {
        grantEnds = nil
        guard grant != nil else { return [] }
        grant = nil
        return [.changed]
    }
}
