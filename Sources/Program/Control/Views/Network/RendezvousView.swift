import Control
import Messaging
import NodeRuntime

extension RendezvousCounts {
    init(_ counts: RelayCounts, _ terms: RelayTerms) {
        self.init(
            users: counts.users, usersMax: terms.userCount, reservations: counts.reservations,
            reservationsPerUser: terms.reservationsPerUser, streams: counts.streams, streamsMax: terms.streamCount,
            streamsPerUser: terms.streamsPerUser, streamsPerReservation: terms.streamsPerReservation,
            bytesPerSecond: terms.byteRate, bytesPerSecondTotal: terms.byteRateTotal,
            opened: Int64(clamping: counts.opened), bytes: Int64(clamping: counts.byteCount),
            refused: Int64(clamping: counts.refused), violations: Int64(clamping: counts.violations),
            everybody: terms.isOpen)
    }
}

extension NetworkView {
    /// Whether this node is reachable through the peer, with advice if not.
    static func rendezvousCheck(_ name: String, _ standing: RelayReservationStateMachine.Standing?) -> HealthCheck {
        func check(_ state: CheckState, _ message: String, _ hint: String? = nil) -> HealthCheck {
            HealthCheck(name: "rendezvous", state: state, message: "`\(name)` \(message)", hint: hint)
        }
        switch standing {
        case nil: return check(.warning, "is not used", "the node is locked, or the peer has no card")
        case .unreachable:
            return check(
                .warning, "is unreachable",
                "check that its node runs: mayfly peer ping \(name); and that no copy of this home runs")
        case .asking: return check(.warning, "has not answered yet", "look again in a moment")
        case .reserved(let grant):
            return check(
                .ok,
                "relays up to \(grant.streamCount) streams to us, \(grant.byteRate) bytes/s each, "
                    + "for up to \(grant.reservationCount) inboxes")
        case .refused(.notServing): return check(.warning, "is not a rendezvous node", "there: mayfly run --rendezvous")
        case .refused(.unknownPeer):
            return check(.warning, "does not know this node", "there: mayfly peer add NAME CARD, with this node's card")
        case .refused(.full):
            return check(.warning, "serves its maximum number of nodes", "this node retries automatically")
        case .refused(.other): return check(.warning, "refuses for a reason that this version does not know")
        case .refused(nil): return check(.warning, "does not answer", "it may be of an earlier version")
        }
    }
}
