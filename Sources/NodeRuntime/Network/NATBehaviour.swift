import Messaging

/// What the answers of others say about the NAT between us and them, for one address family (RFC 4787, section 4).
package struct NATBehaviour: Hashable, Sendable {
    /// From where one of them has seen us, over UDP.
    package struct Observation: Hashable, Sendable {
        package let asked: Endpoint
        package let seen: Endpoint

        package init(asked: Endpoint, seen: Endpoint) {
            self.asked = asked
            self.seen = seen
        }
    }

    /// What the outer address and port depend on.
    package enum Mapping: String, Sendable, CaseIterable {
        /// The same for all whom we send to.
        case endpointIndependent = "endpoint-independent"
        case addressDependent = "address-dependent"
        case addressAndPortDependent = "address-and-port-dependent"
        /// One of the two before: those who were asked do not share an address.
        case destinationDependent = "destination-dependent"
        /// Fewer than two addresses have answered.
        case unknown
    }

    package enum Kind: String, Sendable, CaseIterable {
        /// Others see our own address and port.
        case none
        case endpointIndependent = "endpoint-independent"
        case symmetric
        case unknown
    }

    package let mapping: Mapping
    package let kind: Kind
    /// Whether the outer port is ours; `nil` if that is not known.
    package let preservesPort: Bool?

    /// - Parameters:
    ///   - local: our address and port; port 0 if it is not known.
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
        // Ports of one address show only that it does not depend on the port.
        if isOne { return hosts.count >= 2 ? .endpointIndependent : .unknown }
        let byHost = Dictionary(grouping: observations, by: \.asked.host).values
        if byHost.contains(where: { Set($0.map(\.seen)).count > 1 }) { return .addressAndPortDependent }
        return byHost.contains { Set($0.map(\.asked.port)).count > 1 } ? .addressDependent : .destinationDependent
    }
}
