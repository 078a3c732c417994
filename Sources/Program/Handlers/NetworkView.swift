import Control
import Messaging
import NIOCore
import NodeRuntime
import Transport

enum NetworkView {
    static func netcheck(_ findings: NetworkFindings, isLocked: Bool) -> NetcheckResult {
        NetcheckResult(
            families: findings.families.map(family), datagrams: findings.hasDatagrams,
            portMappings: findings.portMappings.map { states in
                portMappings(states, isLocked: isLocked && !findings.isProbe).map { status in
                    var status = status
                    if findings.isProbe, status.state == .mapped { status.state = .possible }
                    return status
                }
            }, discovery: findings.discovery ?? "off", punching: findings.punching.rawValue,
            reached: findings.isReached, advice: findings.advice)
    }

    private static func family(_ found: NetworkFindings.Family) -> NetcheckFamily {
        NetcheckFamily(
            family: found.isIPv4 ? "ipv4" : "ipv6", route: found.local != nil, local: found.local, udp: found.hasUDP,
            tcp: found.hasTCP, nat: found.behaviour.kind.rawValue, mapping: found.behaviour.mapping.rawValue,
            portPreserved: found.behaviour.preservesPort,
            answers: found.answers.map { answer in
                NetcheckAnswer(
                    rendezvous: answer.rendezvous, address: answer.asked.host, port: Int(answer.asked.port),
                    seenAddress: answer.seen?.host, seenPort: answer.seen.map { Int($0.port) },
                    rttMs: answer.udpMilliseconds.map { PeerView.rounded($0) },
                    tcpMs: answer.tcpMilliseconds.map { PeerView.rounded($0) })
            })
    }
}

extension NetworkView {
    /// Checks which addresses the node advertises, and why it omits others.
    /// - Parameters:
    ///   - isFound: members on this network find the node by multicast.
    static func addressesCheck(_ reachable: ReachableAddresses, isFound: Bool) -> HealthCheck {
        let told = reachable.told.map(\.description)
        var words = told.isEmpty ? "others are told no address" : "others are told \(told.joined(separator: " "))"
        let linkLocal = reachable.untold.filter { $0.reason == .linkLocal }
        let others = reachable.untold.filter { $0.reason != .linkLocal }
        if !others.isEmpty { words += "; omitted, because there are too many: \(list(others))" }
        if !linkLocal.isEmpty { words += "; not told, because they are link-local: \(list(linkLocal))" }
        if !linkLocal.isEmpty, !isFound { return .warning("addresses", words, linkLocalHint) }
        if others.contains(where: { $0.reason == .tooMany }) {
            return .warning(
                "addresses", words, "set the dialable addresses as `advertise` in \(NodeConfiguration.fileName)")
        }
        if reachable.isThisMachineAlone, !isFound {
            return .warning(
                "addresses", words + ", because this machine listens on no other address",
                "connect it to a network, or listen on both tcp://0.0.0.0:PORT and tcp://[::]:PORT")
        }
        return .ok("addresses", words)
    }

    static let linkLocalHint = "members on that network find this node with `mayfly run --discover lan` on both sides"

    /// Note on link-local listeners for `init` and `run`; `nil` when there are none.
    static func linkLocalNote(_ reachable: ReachableAddresses) -> String? {
        guard reachable.untold.contains(where: { $0.reason == .linkLocal }) else { return nil }
        return "others are not told link-local addresses; \(linkLocalHint)"
    }

    private static func list(_ untold: [ReachableAddresses.Untold]) -> String {
        untold.map { address in address.endpoint.description + (address.interface.map { " (\($0))" } ?? "") }.joined(
            separator: ", ")
    }
}

extension NetworkView {
    static func portMappings(_ node: isolated Node) -> [PortMappingStatus]? {
        node.portMappings.map { portMappings($0, isLocked: node.status().isLocked) }
    }

    /// - Parameter isLocked: a locked node queries no gateway.
    static func portMappings(_ states: [PortMappingState], isLocked: Bool) -> [PortMappingStatus] {
        guard states.isEmpty else { return states.map(portMapping) }
        let reason = isLocked ? "the storage is locked" : "no gateway, or no listener on its network"
        return [PortMappingStatus(family: "ipv4", state: .failed, reason: reason)]
    }

    private static func portMapping(_ state: PortMappingState) -> PortMappingStatus {
        var result = PortMappingStatus(family: state.isIPv4 ? "ipv4" : "ipv6", state: .asking)
        switch state.standing {
        case .none, .asking: break
        case .failed(let failure):
            result.state = .failed
            result.reason = failure.reason
        case .mapped(let mapping):
            result.state = .mapped
            result.method = mapping.method.rawValue
            result.outer = state.endpoints.map(\.description)
            result.until = state.expiresAt
        }
        return result
    }

    /// Only a warning: connections may still arrive by another path.
    static func portMappingCheck(_ mapping: PortMappingStatus) -> HealthCheck {
        switch mapping.state {
        case .mapped, .possible:
            let message = "\(mapping.family): mapped by \(mapping.method ?? "-")"
            return .ok("port mapping", message)
        case .asking: return .ok("port mapping", "\(mapping.family): the gateway is being asked")
        case .failed:
            return .warning(
                "port mapping", "\(mapping.family): none: \(mapping.reason ?? "-")",
                "allow UPnP or PCP on the router, set a port forwarding by hand, or use a rendezvous node")
        }
    }
}

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
                "check that its node runs: `mayfly peer ping \(name)`; and that no copy of this home runs")
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
