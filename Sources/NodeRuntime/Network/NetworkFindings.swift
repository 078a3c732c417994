import Messaging
import Transport

/// The results of `mayfly netcheck`.
package struct NetworkFindings: Sendable {
    package struct Answer: Sendable {
        /// `nil` for a member's rendezvous node, which has no name here.
        package var rendezvous: String?
        package var asked: Messaging.Endpoint
        /// Our UDP address as the node has seen it, and the time until its answer; `nil` without an answer.
        package var seen: Messaging.Endpoint?
        package var udpMilliseconds: Double?
        /// The time to connect over TCP; `nil` without a connection.
        package var tcpMilliseconds: Double?
    }

    package struct Family: Sendable {
        package var isIPv4: Bool
        /// Our source address; `nil` without a route.
        package var local: String?
        package var answers: [Answer]
        package var behaviour: NATBehaviour

        /// Whether UDP answers arrived; `nil` if no node was asked.
        package var hasUDP: Bool? { answers.isEmpty ? nil : answers.contains { $0.seen != nil } }
        package var hasTCP: Bool? { answers.isEmpty ? nil : answers.contains { $0.tcpMilliseconds != nil } }
    }

    /// Whether NAT hole punching can work (Relay.md).
    package enum Punching: String, Sendable, CaseIterable {
        /// Peers can reach us without it.
        case unneeded
        /// With every peer whose NAT is not symmetric.
        case works
        /// With few peers: those whose NAT accepts every port of an address.
        case limited
        case impossible
        case unknown
    }

    package var families: [Family]
    package var hasRendezvous: Bool
    package var hasDatagrams: Bool
    package var portMappings: [PortMappingState]?
    /// Whether the mapping was only for this check, and is removed.
    package var isProbe = false
    /// The networks used for LAN discovery; `nil` if it is off.
    package var discovery: String?

    /// A lasting mapping exists.
    package var isMapped: Bool { !isProbe && hasMapping }
    private var hasMapping: Bool { (portMappings ?? []).contains { !$0.endpoints.isEmpty } }

    /// Whether any rendezvous node was reached; `nil` if none is known.
    package var isReached: Bool? {
        guard hasRendezvous else { return nil }
        return families.contains { $0.hasUDP == true || $0.hasTCP == true }
    }

    package var punching: Punching {
        let kinds = families.filter { $0.hasUDP == true }.map(\.behaviour.kind)
        if isMapped || (kinds.contains(.none) && !isSeenFromNearAlone) { return .unneeded }
        if !hasDatagrams { return .impossible }
        if kinds.contains(.endpointIndependent) { return .works }
        if kinds.contains(.unknown) || kinds.contains(.none) { return .unknown }
        if kinds.contains(.symmetric) { return .limited }
        return isReached == true ? .impossible : .unknown
    }

    /// Whether the nodes that see no NAT are all on our own network: they see an address that is not global.
    private var isSeenFromNearAlone: Bool {
        families.filter { $0.hasUDP == true && $0.behaviour.kind == .none }.allSatisfy { family in
            family.answers.compactMap { $0.seen.flatMap { IPAddress(text: $0.host) } }.allSatisfy { !$0.isGlobal }
        }
    }

    package var advice: [String] {
        if families.allSatisfy({ $0.local == nil }) {
            return [
                "This machine has no route to other networks. Connect it to a router, and check again. "
                    + "Members on the same local network need no router: `mayfly run --discover lan` finds them."
            ]
        }
        var result: [String] = []
        switch isReached {
        case nil:
            result.append(
                "No rendezvous node is known that can report this node's outer address. Name one with "
                    + "`mayfly peer add NAME CARD` and `mayfly peer set NAME rendezvous=on`.")
        case false?:
            result.append(
                "No rendezvous node answers over UDP or TCP: check that it runs and that no firewall blocks it.")
        case true?: result.append(meaning)
        }
        if case .failed(.notGlobal)? = (portMappings ?? []).first?.standing {
            result.append(
                "The router is itself behind a NAT of the provider or of a second router: a port mapping does not help."
            )
        }
        if isProbe, hasMapping {
            result.append(
                "The gateway makes port mappings: with `mayfly run --map-ports` others reach this node directly.")
        }
        if (portMappings ?? []).contains(where: { $0.standing == .asking }) {
            result.append("The gateway did not answer in time: give it more with `--timeout 60`.")
        }
        let isBehindNAT = punching == .limited || punching == .impossible
        if isBehindNAT, portMappings == nil {
            result.append(
                "Try `mayfly netcheck --map-ports`; if it works, "
                    + "`mayfly run --map-ports` makes this node directly reachable.")
        }
        return result
    }

    private var meaning: String {
        switch punching {
        case .unneeded:
            isMapped
                ? "Others reach this node through the port mapping."
                : "There is no NAT: others reach this machine directly if its firewall allows the port for TCP and UDP."
        case .works:
            "Hole punching works: links become direct, unless the other side's NAT is symmetric or "
                + "the other side has no UDP; those links stay relayed."
        case .limited:
            "The NAT is symmetric: hole punching works to few nodes; most links to nodes behind a NAT stay relayed."
        case .impossible:
            hasDatagrams
                ? "UDP gets no answer, though TCP works: something on the path drops it, or the rendezvous nodes run "
                    + "with --no-udp. Hole punching is not possible: links to nodes that cannot be dialled are relayed."
                : "This node runs without UDP, so links to nodes that cannot be dialled are relayed."
        case .unknown where families.contains { $0.hasUDP == true && $0.behaviour.kind == .none }:
            "The rendezvous nodes that answer see no NAT. But they are on this machine's own network, "
                + "which says nothing about other networks. Name a rendezvous node on another network."
        case .unknown: "To find the kind of NAT, name a second rendezvous node, or give the known one a second address."
        }
    }
}

/// NAT behaviour of one address family, derived from rendezvous nodes' observations (RFC 4787, section 4).
package struct NATBehaviour: Hashable, Sendable {
    /// Our UDP address as one node has seen it.
    package struct Observation: Hashable, Sendable {
        package let asked: Messaging.Endpoint
        package let seen: Messaging.Endpoint
    }

    package enum Mapping: String, Sendable, CaseIterable {
        case endpointIndependent = "endpoint-independent"
        case addressDependent = "address-dependent"
        case addressAndPortDependent = "address-and-port-dependent"
        /// Address-dependent or address-and-port-dependent; the nodes asked have different addresses, so the two look
        /// alike.
        case destinationDependent = "destination-dependent"
        /// Fewer than two addresses answered.
        case unknown
    }

    package enum Kind: String, Sendable, CaseIterable {
        /// No NAT: the nodes see our own address and port.
        case none
        case endpointIndependent = "endpoint-independent"
        case symmetric
        case unknown
    }

    package let mapping: Mapping
    package let kind: Kind
    package let preservesPort: Bool?

    /// - Parameter local: our address and port; port 0 if unknown.
    package init(_ observations: [Observation], local: Messaging.Endpoint?) {
        mapping = Self.mapping(observations)
        let hasKnownPort = local.map { $0.port != 0 } ?? false
        preservesPort =
            observations.isEmpty || !hasKnownPort ? nil : observations.allSatisfy { $0.seen.port == local?.port }
        if observations.isEmpty {
            kind = .unknown
        } else if observations.allSatisfy({ $0.seen.host == local?.host }), preservesPort ?? true {
            kind = .none
        } else {
            switch mapping {
            case .endpointIndependent: kind = .endpointIndependent
            case .addressDependent, .addressAndPortDependent, .destinationDependent: kind = .symmetric
            case .unknown: kind = .unknown
            }
        }
    }

    private static func mapping(_ observations: [Observation]) -> Mapping {
        let hosts = Set(observations.map(\.asked.host))
        let isOne = Set(observations.map(\.seen)).count <= 1
        // Several ports of one address only show independence of the port.
        if isOne { return hosts.count >= 2 ? .endpointIndependent : .unknown }
        let byHost = Dictionary(grouping: observations, by: \.asked.host).values
        if byHost.contains(where: { Set($0.map(\.seen)).count > 1 }) { return .addressAndPortDependent }
        return byHost.contains { Set($0.map(\.asked.port)).count > 1 } ? .addressDependent : .destinationDependent
    }
}
