import Primitives

/// Our reservation at one rendezvous node.
///
///     unlinked ──link──▶ asked ──reserved──▶ reserved
///                          └──refused, no answer──▶ refused ──5 min──▶ asked
///     asked, reserved, refused ──link lost──▶ unlinked
///     reserved ──refused──▶ refused
///
/// What was reserved is advertised for a minute longer than it is there: with the link it comes back as it was.
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
        case ask(LinkID)
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

    package init() {}

    package var standing: Standing {
        switch state {
        case .unlinked: .unreachable
        case .asked: .asking
        case .reserved: grant.map { .reserved($0) } ?? .asking
        case .refused(_, let refusal, _): .refused(refusal)
        }
    }

    /// What is to be advertised.
    package var advertised: ReservationID? { grant?.reservation }

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
        state = .asked(link, at: now)
        return [.ask(link)]
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
        case .asked(link, _), .refused(link, _, _), .reserved(link):
            let isNews = self.grant?.reservation != grant.reservation
            self.grant = grant
            grantEnds = nil
            state = .reserved(link)
            return isNews ? [.changed] : []
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
        case .asked(let link, let at) where now - at >= Limits.reservationPatience:
            state = .refused(link, nil, at: now)
        case .refused(let link, _, let at) where now - at >= Limits.reservationRetry:
            state = .asked(link, at: now)
            result.append(.ask(link))
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
