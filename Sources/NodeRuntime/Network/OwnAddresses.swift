import Messaging
import NIOCore
import Transport

/// The machine's interfaces, and where others reach us, as of the last look: asking the system takes longer than a turn. On
/// the node's loop alone.
final class OwnAddresses: NodePart {
    /// What has become of the machine's addresses.
    struct Change {
        let lost: Set<LanAddress>
        /// An address by which other machines can be reached has come or gone.
        let hasMoved: Bool
        /// One has come.
        let hasNew: Bool
    }

    /// The addresses of a look.
    private struct Seen: Hashable {
        let all: Set<LanAddress>
        /// Links to other machines can use them without being told the interface.
        let outward: Set<LanAddress>

        init(_ interfaces: [LanInterface]) {
            all = Set(interfaces.flatMap { $0.addresses.map(\.address) })
            outward = Set(interfaces.outward.flatMap { $0.addresses.map(\.address) }.filter { !$0.isLinkLocal })
        }
    }

    let services: NodeServices
    private let listening: Listening
    /// Where others reach us through gateways.
    var mapped: () -> [Messaging.Endpoint] = { [] }
    /// Our addresses that links use now.
    var used: () -> Set<LanAddress> = { [] }
    /// Our addresses that links have used since the start, as far as they were asked for.
    private var met: Set<LanAddress> = []
    private var interfacesNow: [LanInterface]?
    private var interfacesBefore: [LanInterface] = []
    private var refreshedAt: Timestamp?
    private var seen: Seen?
    /// A look is planned.
    private var isLookPlanned = false
    private var watch: (any Channel)?
    private var advertisedNow: [Messaging.Endpoint]?
    private var relayPlacesNow: [RelayPlace]?
    /// What the members of our conversations were told last.
    private var announced: [Messaging.Endpoint]?
    /// Our ways through rendezvous nodes are others than those that were announced.
    var relaysHaveChanged = false

    init(_ services: NodeServices, _ listening: Listening) {
        self.services = services
        self.listening = listening
    }

    // MARK: The machine's

    /// While the system cannot be asked they are those of before.
    private var interfaces: [LanInterface] {
        if let interfacesNow { return interfacesNow }
        if let found = environment.lan?.interfaces() { interfacesBefore = found }
        interfacesNow = interfacesBefore
        return interfacesBefore
    }

    func forgetInterfaces() { interfacesNow = nil }

    /// The system tells of changes. A look a minute finds those whose message was lost.
    func refresh(at now: Timestamp) {
        if watch?.isActive ?? false, let refreshedAt, now - refreshedAt < .minute { return }
        refreshedAt = now
        forgetInterfaces()
    }

    /// Whether an address is of a network that this machine is on, other than its own loopback.
    func isNeighbour(_ address: SocketAddress) -> Bool {
        guard let address = LanAddress(address) else { return false }
        return interfaces.contains { $0.kind != .loopback && $0.isNear(address) }
    }

    /// Whether a dial to this endpoint reaches this node.
    func isOwn(_ endpoint: Messaging.Endpoint) -> Bool {
        guard let address = endpoint.lanAddress else { return false }
        return listening.endpoints.contains { listener in
            guard listener.port == endpoint.port else { return false }
            guard let isIPv4 = listener.wildcardIsIPv4 else { return listener.lanAddress == address }
            guard address.isIPv4 == isIPv4 else { return false }
            return address.isLoopback || !address.isUnicast
                || interfaces.contains { $0.addresses.contains { $0.address == address } }
        }
    }

    /// Looks at the addresses.
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

    // MARK: Changes

    func watched(by channel: any Channel) { watch = channel }

    func stopWatching() { watch?.close(promise: nil) }

    /// Changes come many at once: one look for all of them.
    func planLook(after pause: TimeAmount, _ look: @escaping () -> Void) {
        guard !isLookPlanned else { return }
        isLookPlanned = true
        loop.assumeIsolated().scheduleTask(in: pause) { [weak self] in
            guard let self else { return }
            isLookPlanned = false
            forgetInterfaces()
            look()
        }
    }

    // MARK: Where others reach us

    func forgetAdvertised() {
        advertisedNow = nil
        relayPlacesNow = nil
    }

    func forgetRelayPlaces() { relayPlacesNow = nil }

    /// ``direct`` as of the last tick.
    var advertised: [Messaging.Endpoint] {
        if let advertisedNow { return advertisedNow }
        let endpoints = direct
        advertisedNow = endpoints
        return endpoints
    }

    /// Where others can reach this node directly: through its gateways, and at what it was told to advertise, else where it
    /// listens.
    var direct: [Messaging.Endpoint] {
        let mapped = mapped().prefix(Limits.endpointCount)
        return mapped + reachable(besides: mapped.count).told.filter { !mapped.contains($0) }
    }

    /// What others are told and what they are not, as of now.
    var reachable: ReachableAddresses { reachable(besides: min(mapped().count, Limits.endpointCount)) }

    /// - Parameter count: endpoints that are told before.
    private func reachable(besides count: Int) -> ReachableAddresses {
        let room = Limits.endpointCount - count
        if !configuration.advertised.isEmpty {
            return ReachableAddresses(advertised: configuration.advertised, interfaces: interfaces, room: room)
        }
        let bound = listening.endpoints
        return ReachableAddresses(
            // Before it listens, what it will listen on, as far as that is known.
            listeners: bound.isEmpty ? configuration.listen.filter { $0.port != 0 } : bound, interfaces: interfaces,
            room: room,
            met: { [self] in
                met.formUnion(used())
                return met
            })
    }

    func relayPlaces(_ compute: () -> [RelayPlace]) -> [RelayPlace] {
        if let relayPlacesNow { return relayPlacesNow }
        let places = compute()
        relayPlacesNow = places
        return places
    }

    /// Takes ``advertised`` to be announced now.
    /// - Returns: whether members that have a link must be told. At the start every link tells by itself.
    func announce() -> Bool {
        let endpoints = advertised
        guard endpoints != announced || relaysHaveChanged else { return false }
        let isNews = announced != nil
        announced = endpoints
        relaysHaveChanged = false
        return isNews
    }
}
