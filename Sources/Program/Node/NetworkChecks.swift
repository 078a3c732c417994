import ArgumentParser
import Control
import Messaging
import NIOCore
import NodeRuntime
import Transport

/// A rendezvous node's answer from one of its addresses.
struct NetcheckAnswer: CodableRecord {
    /// Name of the peer; absent when only a member uses this rendezvous node.
    var rendezvous: String?
    /// Address queried.
    var address = ""
    var port: Int = 0
    /// Our UDP source address as the rendezvous node saw it; absent without an answer.
    var seenAddress: String?
    var seenPort: Int?
    /// Round trip in milliseconds.
    var rttMs: Double?
    /// Time to connect over TCP, in milliseconds; absent without a connection.
    var tcpMs: Double?
}

struct NetcheckFamily: CodableRecord {
    /// `ipv4` or `ipv6`.
    var family = ""
    /// Whether a route to other networks exists.
    var route = false
    /// Our local address on that route.
    var local: String?
    /// Whether UDP answers arrive, and whether TCP connects; null when there was no node to query.
    @OrNull var udp: Bool?
    @OrNull var tcp: Bool?
    /// `none`, `endpoint-independent`, `symmetric` or `unknown`.
    var nat = ""
    /// NAT mapping behaviour (RFC 4787): `endpoint-independent`, `address-dependent`, `address-and-port-dependent`,
    /// `destination-dependent` (one of the two before) or `unknown`.
    var mapping = ""
    /// Whether the outer port equals the local one; null when unknown.
    @OrNull var portPreserved: Bool?
    var answers: [NetcheckAnswer] = []
}

struct NetcheckParams: CodableRecord {
    /// Answers with partial results after this time; greater than 0. Absent means 10 s, or 30 s with `mapPorts`.
    var timeout: Interval?
    /// Ask gateways for a test mapping and remove it at once, if port mapping is off. Absent means false.
    var mapPorts: Bool?
}

struct NetcheckResult: CodableRecord {
    var families: [NetcheckFamily] = []
    /// Whether this node uses UDP links.
    var datagrams = false
    /// Absent when gateways were not queried.
    var portMappings: [PortMappingStatus]?
    /// Networks searched for members, or `off`.
    var discovery = ""
    /// UDP hole punching: `unneeded`, `works`, `limited`, `impossible` or `unknown`.
    var punching = ""
    /// Whether a rendezvous node answered; null when none is known.
    @OrNull var reached: Bool?
    /// Sentences for people.
    var advice: [String] = []
}

extension NodeMethods {
    static let netcheck = NodeMethod<NetcheckParams, NetcheckResult>(
        "netcheck", "Check the NAT of this network, and which paths work.", waits: .always
    ) { params, node in
        let mapsPorts = params.mapPorts ?? false
        // A slow gateway takes seconds for each query.
        let timeout = try positiveTime(params.timeout) ?? (mapsPorts ? 30_000 : 10_000)
        let isLocked = node.status().isLocked
        return .later(
            node.netcheck(timeout: timeout, mapsPorts: mapsPorts).map { NetworkView.netcheck($0, isLocked: isLocked) })
    }
}

struct NetcheckCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        NodeMethods.netcheck,
        discussion: """
            Asks the known rendezvous nodes at which address they see the running node. Reports for IPv4 and IPv6 \
            whether there is a NAT, of what kind, and what works. The gateway is asked only if port mapping is on, or \
            with --map-ports, which removes its mapping at once. No other host is asked. The NAT's filtering is not \
            measured, because that needs unsolicited datagrams.

            The exit code is 5 when rendezvous nodes are known and none answers.

            Examples:
              mayfly netcheck
              mayfly netcheck --json | jq -r '.families[] | "\\(.family) \\(.nat)"'
            """)

    @Option(time: "How long to wait for answers. Default: 10, with --map-ports 30.") var timeout: Interval?
    @Flag(help: "Ask the gateway for a port mapping, and remove it.") var mapPorts = false
    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let params = NetcheckParams(timeout: timeout, mapPorts: mapPorts ? true : nil)
        let wait = (timeout ?? Interval(milliseconds: 30_000)).withGrace
        let value = try connect().call(NodeMethods.netcheck, params, timeout: wait)
        let result = try understand(value, as: NetcheckResult.self)
        let code = result.reached == false ? FailureKind.unreachable.exitCode : 0
        if terminal.json { terminal.result(value, exitCode: code) } else { show(result, terminal) }
        if code != 0 { throw ExitCode(code) }
    }

    private func show(_ result: NetcheckResult, _ terminal: Terminal) {
        for family in result.families {
            let name = family.family == "ipv4" ? "IPv4" : "IPv6"
            guard family.route else {
                terminal.fields([(name, "no route")])
                continue
            }
            terminal.fields([
                (name, family.local ?? "-"),
                ("  UDP", result.datagrams ? word(family.udp) : "off: this node runs with --no-udp"),
                ("  TCP", word(family.tcp)), ("  NAT", nat(family)),
                ("  port", family.portPreserved.map { $0 ? "kept" : "changed" } ?? "unknown"),
            ])
            terminal.table(
                ["  ASKED", "AT", "SEES US AT", "UDP", "TCP"],
                family.answers.map { answer in
                    [
                        "  " + (answer.rendezvous ?? "a member's"), place(answer.address, answer.port),
                        answer.seenAddress.map { place($0, answer.seenPort ?? 0) } ?? "-",
                        !result.datagrams ? "-" : answer.seenAddress == nil ? "silent" : milliseconds(answer.rttMs),
                        answer.tcpMs == nil ? "fails" : milliseconds(answer.tcpMs),
                    ]
                })
        }
        let mappings = result.portMappings.map { $0.map(\.words) } ?? ["off; --map-ports tries it"]
        terminal.fields(
            mappings.map { ("port mapping", $0) } + [
                ("LAN discovery", result.discovery), ("hole punching", result.punching),
            ])
        for sentence in result.advice { terminal.result(safe(sentence)) }
    }

    private func word(_ works: Bool?) -> String { works.map { $0 ? "works" : "no answer" } ?? "unknown" }

    private func nat(_ family: NetcheckFamily) -> String {
        switch family.nat {
        case "none": "none: others see our own address"
        case "unknown" where family.udp == true: "there is one; its kind is unknown: needs a second rendezvous node"
        case "unknown": "unknown"
        default: "\(family.nat), mapping \(family.mapping)"
        }
    }

    private func place(_ address: String, _ port: Int) -> String {
        address.contains(":") ? "[\(address)]:\(port)" : "\(address):\(port)"
    }
}

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
                    rttMs: answer.udpMilliseconds.map { Link.rounded($0) },
                    tcpMs: answer.tcpMilliseconds.map { Link.rounded($0) })
            })
    }

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
