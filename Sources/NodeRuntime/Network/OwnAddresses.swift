import Messaging
import NIOCore
import Transport

/// The machine's interfaces and our reachable endpoints, cached: a system query takes longer than a turn. On the node's
/// loop alone.
final class OwnAddresses: Part {
    struct Change {
        let lost: Set<IPAddress>
        /// An address that reaches other machines has appeared or disappeared.
        let hasMoved: Bool
        let hasNew: Bool
    }

    private struct Seen: Hashable {
        let all: Set<IPAddress>
        /// Usable for links to other machines without an interface scope.
        let outward: Set<IPAddress>

        init(_ interfaces: [LanInterface]) {
            all = Set(interfaces.flatMap { $0.addresses.map(\.address) })
            outward = Set(interfaces.outward.flatMap { $0.addresses.map(\.address) }.filter { !$0.isLinkLocal })
        }
    }

    /// Our addresses that links have used since the start.
    private var met: Set<IPAddress> = []
    private var interfacesNow: [LanInterface]?
    private var interfacesBefore: [LanInterface] = []
    private var refreshedAt: Timestamp?
    private var seen: Seen?
    private var watch: (any Channel)?
    private var advertisedNow: [Messaging.Endpoint]?
    private var relayPlacesNow: [RelayPlace]?
    private var announced: [Messaging.Endpoint]?
    /// Relayed endpoints have changed since the last announcement.
    var relaysHaveChanged = false

    /// After a failed query, the previous interfaces.
    private var interfaces: [LanInterface] {
        if let interfacesNow { return interfacesNow }
        if let found = environment.lan?.interfaces() { interfacesBefore = found }
        interfacesNow = interfacesBefore
        return interfacesBefore
    }

    func forgetInterfaces() { interfacesNow = nil }

    /// The system reports changes. A query per minute covers lost reports.
    func refresh(at now: Timestamp) {
        if watch?.isActive ?? false, let refreshedAt, now - refreshedAt < .minute { return }
        refreshedAt = now
        forgetInterfaces()
    }

    /// Whether an address is on a network of this machine, loopback excluded.
    func isNeighbour(_ address: SocketAddress) -> Bool {
        guard let address = IPAddress(address) else { return false }
        return interfaces.contains { $0.kind != .loopback && $0.isNear(address) }
    }

    /// Whether a dial to this endpoint reaches this node.
    func isOwn(_ endpoint: Messaging.Endpoint) -> Bool {
        guard let address = endpoint.lanAddress else { return false }
        return shell.listening.endpoints.contains { listener in
            guard listener.port == endpoint.port else { return false }
            guard let isIPv4 = listener.wildcardIsIPv4 else { return listener.lanAddress == address }
            guard address.isIPv4 == isIPv4 else { return false }
            return address.isLoopback || !address.isUnicast
                || interfaces.contains { $0.addresses.contains { $0.address == address } }
        }
    }

    /// Compares the addresses with the last look.
    /// - Returns: `nil` when they are the same, or at the first look.
    func look() -> Change? {
        let now = Seen(interfaces)
        defer { seen = now }
        guard let seen, seen != now else { return nil }
        forgetAdvertised()
        return Change(
            lost: seen.all.subtracting(now.all), hasMoved: seen.outward != now.outward,
            hasNew: !now.outward.isSubset(of: seen.outward))
    }

    func watched(by channel: any Channel) { if isStopped { channel.close(promise: nil) } else { watch = channel } }

    func stopWatching() { watch?.close(promise: nil) }

    func forgetAdvertised() {
        advertisedNow = nil
        relayPlacesNow = nil
    }

    func forgetRelayPlaces() { relayPlacesNow = nil }

    /// ``direct`` as of the last change, at most ten seconds old.
    var advertised: [Messaging.Endpoint] {
        if let advertisedNow { return advertisedNow }
        let endpoints = direct
        advertisedNow = endpoints
        return endpoints
    }

    /// Direct endpoints of this node: mapped ones first, then the advertised or listening ones.
    var direct: [Messaging.Endpoint] {
        let mapped = shell.portMapper.endpoints.prefix(Limits.endpointCount)
        return mapped + reachable(besides: mapped.count).told.filter { !mapped.contains($0) }
    }

    /// The endpoints that peers are told, and those they are not, computed now.
    var reachable: ReachableAddresses {
        reachable(besides: min(shell.portMapper.endpoints.count, Limits.endpointCount))
    }

    /// - Parameter count: the number of endpoints that precede.
    private func reachable(besides count: Int) -> ReachableAddresses {
        let room = Limits.endpointCount - count
        if !configuration.advertised.isEmpty {
            return ReachableAddresses(advertised: configuration.advertised, interfaces: interfaces, room: room)
        }
        let bound = shell.listening.endpoints
        return ReachableAddresses(
            // Before listening: the configured endpoints with known ports.
            listeners: bound.isEmpty ? configuration.listen.filter { $0.port != 0 } : bound, interfaces: interfaces,
            room: room,
            met: { [self] in
                met.formUnion(links.all.compactMap { $0.connection.localAddress.flatMap { IPAddress($0) } })
                return met
            })
    }

    func relayPlaces(_ compute: () -> [RelayPlace]) -> [RelayPlace] {
        if let relayPlacesNow { return relayPlacesNow }
        let places = compute()
        relayPlacesNow = places
        return places
    }

    /// Marks ``advertised`` as announced.
    /// - Returns: whether to tell linked members. At the start each new link announces by itself.
    func announce() -> Bool {
        let endpoints = advertised
        guard endpoints != announced || relaysHaveChanged else { return false }
        let isNews = announced != nil
        announced = endpoints
        relaysHaveChanged = false
        return isNews
    }
}
