import Messaging
import Transport

/// Chooses the endpoints that peers are told, from listeners and interfaces (<doc:Links>). Without I/O.
package struct ReachableAddresses: Hashable, Sendable {
    package struct Untold: Hashable, Sendable {
        package let endpoint: Messaging.Endpoint
        package let interface: String?
        package let reason: Reason
    }

    package enum Reason: Hashable, Sendable {
        /// `fe80::/10` and `169.254/16`: elsewhere the address means another machine, or none.
        case linkLocal
        /// A description holds a limited number of endpoints.
        case tooMany
        /// As ``tooMany``, for an address used only by containers of this machine.
        case ofContainers
    }

    /// Best first: addresses with a route to other networks, the first of each interface and family, the rest,
    /// container bridges. An invite holds only the first few, and a second address of an interface reaches no further
    /// peer.
    package private(set) var told: [Messaging.Endpoint] = []
    package private(set) var untold: [Untold] = []
    /// Only loopback addresses exist, so peers are told one.
    package private(set) var isThisMachineAlone = false

    private struct Candidate {
        let endpoint: Messaging.Endpoint
        var interface: String?
        var rank = 2
        var address: IPAddress?
    }

    /// - Parameters:
    ///   - listeners: the listening endpoints; a wildcard stands for all addresses of its family.
    ///   - room: the maximum number of endpoints told.
    ///   - met: our addresses that links have used; they are preferred when room is short.
    package init(
        listeners: [Messaging.Endpoint], interfaces: [LanInterface], room: Int = Limits.endpointCount,
        met: () -> Set<IPAddress> = { [] }
    ) {
        let owners = Owners(interfaces)
        var candidates: [Candidate] = []
        var loopbacks: [Messaging.Endpoint] = []
        var linkLocal: [Candidate] = []
        for listener in listeners {
            guard let isIPv4 = listener.wildcardIsIPv4 else {
                let candidate = owners.candidate(listener)
                if candidate.address?.isLinkLocal == true {
                    untold.append(Untold(endpoint: listener, interface: candidate.interface, reason: .linkLocal))
                } else if candidate.address?.isLoopback ?? (listener.host == "localhost") {
                    loopbacks.append(listener)
                } else {
                    candidates.append(candidate)
                }
                continue
            }
            loopbacks.append(Messaging.Endpoint(host: isIPv4 ? "127.0.0.1" : "::1", port: listener.port))
            for candidate in owners.candidates(isIPv4: isIPv4, port: listener.port) {
                if candidate.address?.isLinkLocal == true {
                    linkLocal.append(candidate)
                } else {
                    candidates.append(candidate)
                }
            }
        }
        if candidates.isEmpty {
            // A machine without a network can still connect to itself.
            told = Array(loopbacks.prefix(room))
            isThisMachineAlone = !told.isEmpty
            untold += linkLocal.map { Untold(endpoint: $0.endpoint, interface: $0.interface, reason: .linkLocal) }
            return
        }
        choose(candidates, room: room, met: met)
    }

    /// - Parameter advertised: the user's endpoints, in order.
    package init(advertised: [Messaging.Endpoint], interfaces: [LanInterface], room: Int = Limits.endpointCount) {
        let owners = Owners(interfaces)
        for endpoint in advertised {
            let candidate = owners.candidate(endpoint)
            if candidate.address?.isLinkLocal == true {
                untold.append(Untold(endpoint: endpoint, interface: candidate.interface, reason: .linkLocal))
            } else if told.count < room {
                told.append(endpoint)
            } else {
                untold.append(Untold(endpoint: endpoint, interface: candidate.interface, reason: .tooMany))
            }
        }
    }

    /// For a home whose node does not run: ports chosen by the system are unknown.
    package init(_ configuration: NodeConfiguration, _ interfaces: [LanInterface]) {
        if configuration.advertised.isEmpty {
            self.init(listeners: configuration.listen.filter { $0.port != 0 }, interfaces: interfaces)
        } else {
            self.init(advertised: configuration.advertised, interfaces: interfaces)
        }
    }

    private mutating func choose(_ candidates: [Candidate], room: Int, met: () -> Set<IPAddress>) {
        let ranked = Self.ranked(candidates)
        guard ranked.count > room else {
            told = ranked.map(\.endpoint)
            return
        }
        let met = met()
        // The result keeps the order of ranks, so that links do not change the announced order.
        let order = ranked.indices.sorted { left, right in
            func place(_ index: Int) -> (Int, Int) {
                let isMet = ranked[index].address.map { met.contains($0) } ?? false
                return (ranked[index].rank == 0 ? 0 : isMet ? 1 : 2, index)
            }
            return place(left) < place(right)
        }
        let chosen = Set(order.prefix(room))
        for (index, candidate) in ranked.enumerated() {
            if chosen.contains(index) {
                told.append(candidate.endpoint)
            } else {
                let reason = candidate.rank == Self.containerRank ? Reason.ofContainers : .tooMany
                untold.append(Untold(endpoint: candidate.endpoint, interface: candidate.interface, reason: reason))
            }
        }
    }

    private static func ranked(_ candidates: [Candidate]) -> [Candidate] {
        struct Way: Hashable {
            let interface: String
            let isIPv4: Bool
        }
        var ways: Set<Way> = []
        let order = candidates.indices.sorted { (candidates[$0].rank, $0) < (candidates[$1].rank, $1) }
        return order.map { index in
            var candidate = candidates[index]
            if let interface = candidate.interface, let address = candidate.address, candidate.rank < containerRank,
                !ways.insert(Way(interface: interface, isIPv4: address.isIPv4)).inserted, candidate.rank > 0
            {
                candidate.rank = repeatedRank
            }
            return candidate
        }.enumerated().sorted { ($0.element.rank, $0.offset) < ($1.element.rank, $1.offset) }.map(\.element)
    }

    private static let repeatedRank = 3
    private static let containerRank = 4

    private struct Owners {
        private let interfaces: [LanInterface]
        private let outward: Set<UInt32>

        init(_ interfaces: [LanInterface]) {
            self.interfaces = interfaces
            outward = Set(interfaces.outward.map(\.index))
        }

        private func rank(_ own: LanInterface.Own, _ interface: LanInterface) -> Int {
            if own.isDefault { return 0 }
            if interface.addresses.contains(where: \.isDefault) { return 1 }
            // A service address may be on the loopback interface.
            return outward.contains(interface.index) || interface.kind == .loopback ? 2 : containerRank
        }

        func candidates(isIPv4: Bool, port: UInt16) -> [Candidate] {
            interfaces.flatMap { interface in
                interface.addresses.compactMap { own -> Candidate? in
                    guard own.address.isIPv4 == isIPv4, !own.address.isLoopback,
                        let host = own.address.host(interface: interface.index)
                    else { return nil }
                    return Candidate(
                        endpoint: Messaging.Endpoint(host: host, port: port), interface: interface.name,
                        rank: rank(own, interface), address: own.address)
                }
            }
        }

        /// A host name has no address here; the user chose it.
        func candidate(_ endpoint: Messaging.Endpoint) -> Candidate {
            guard let address = endpoint.lanAddress else { return Candidate(endpoint: endpoint, rank: 0) }
            for interface in interfaces {
                guard let own = interface.addresses.first(where: { $0.address == address }) else { continue }
                return Candidate(
                    endpoint: endpoint, interface: interface.name, rank: rank(own, interface), address: address)
            }
            return Candidate(endpoint: endpoint, address: address)
        }
    }
}

extension Messaging.Endpoint {
    /// The address without its zone; `nil` for a name.
    package var lanAddress: IPAddress? { IPAddress(text: String(host.prefix { $0 != "%" })) }

    /// Whether the wildcard is for IPv4 or IPv6; `nil` for other addresses.
    package var wildcardIsIPv4: Bool? {
        switch host {
        case "0.0.0.0": true
        case "::": false
        default: nil
        }
    }
}
