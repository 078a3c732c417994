import Messaging

/// NAT behaviour of one address family, derived from rendezvous nodes' observations (RFC 4787, section 4).
package struct NATBehaviour: Hashable, Sendable {
    /// Our UDP address as one node has seen it.
    package struct Observation: Hashable, Sendable {
        package let asked: Endpoint
        package let seen: Endpoint

        package init(asked: Endpoint, seen: Endpoint) {
            self.asked = asked
            self.seen = seen
        }
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
    package init(_ observations: [Observation], local: Endpoint?) {
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
