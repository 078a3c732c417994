import Discovery
import Logging
import Messaging
import Noise
import Primitives
import Transport

/// What the search for members on this network is told of, and asks for.
extension Node {
    var discoverySetting: DiscoverySetting {
        options.discover ?? configuration.discover.flatMap { DiscoverySetting($0) } ?? .off
    }

    /// Opens the sockets, if that was asked for; nothing is opened otherwise.
    func startDiscovery() {
        guard lan == nil, !isStopped, case .lan(let names) = discoverySetting, let network = environment.lan else {
            return
        }
        lan = LanSearch(
            network,
            port: options.lanPort,
            interfaces: names,
            loop: loop,
            log: log,
            events: LanSearch.Events(
                now: { [unowned self] in now },
                missedCreators: { [unowned self] time in
                    core.missedCreators(now: time).map { join in
                        let name = LinkName(client: join.client, remote: join.creator)
                        return LanSearch.MissedCreator(name: name, invite: join.invite)
                    }
                },
                missedMembers: { [unowned self] time in
                    core.missedMembers(now: time).compactMap { inboxes[$0.client]?.routes[.member($0.member)] }
                },
                takeNumber: { [unowned self] in
                    defer { nextRoute += 1 }
                    return nextRoute
                },
                listeningPort: { [unowned self] address in listeningPort(at: address) },
                found: { [unowned self] number, creator, endpoint in found(number, creator, at: endpoint) }
            )
        )
        for number in routeTargets.keys.sorted() { listen(for: number) }
        lan?.look()
    }

    /// A member's route is there, or can be dialled by now; or an invite's, by which a joiner looks for us.
    func listen(for number: UInt64) {
        guard let lan, case .inbox(let client, let route)? = routeTargets[number] else { return }
        switch route {
        case .member(let remote):
            guard let listening = routing.lan(ofMember: number) else { return }
            lan.add(number, listening: listening, announcing: inboxes[client]?.dialTokens[remote]?.lan)
            lan.stir()
        case .invite(let id): lan.add(number, invite: id)
        // A card may be in anybody's hands: who has it must not learn whether we are near.
        case .contact: break
        }
    }

    private func found(_ number: UInt64, _ creator: LinkName?, at endpoint: Messaging.Endpoint) {
        let (client, remote): (ClientID, PublicKey)
        if case .inbox(let inbox, .member(let member))? = routeTargets[number] {
            (client, remote) = (inbox, member)
        } else if let creator {
            (client, remote) = (creator.client, creator.remote)
        } else {
            // A joiner, which dials us.
            return
        }
        log.debug("a member is on this network", metadata: ["client": "\(client)"])
        turn { core.found(client, remote, at: endpoint, &$0) }
    }

    /// Where we take links under an address of ours. Under IPv6 the link-local address is enough to be found by, and says
    /// nothing that the network does not know.
    private func listeningPort(at address: LanAddress) -> UInt16? {
        for endpoint in listening {
            let isWildcard = endpoint.host == (address.isIPv4 ? "0.0.0.0" : "::")
            if isWildcard, address.isIPv4 || address.isLinkLocal { return endpoint.port }
            if address.host(interface: 0).map({ Self.withoutScope($0) }) == Self.withoutScope(endpoint.host) {
                return endpoint.port
            }
        }
        return nil
    }

    /// `fe80::1%3` is `fe80::1` on interface 3.
    private static func withoutScope(_ host: String) -> Substring { host.prefix { $0 != "%" } }

    /// Interfaces that are to be used and are not there.
    package var missingInterfaces: [String] { (lan?.missing ?? []).sorted() }

    /// Networks on which members are looked for; `nil` when that is off.
    package var discovery: String? { lan == nil ? nil : discoverySetting.description }
}
