import Crypto
import Logging
import Messaging
import Transport

/// LAN discovery: answers what ``LanSearch`` asks, and tells the core of members that were found.
final class Neighbourhood: CorePart {
    let core: ProtocolCore
    private let routes: Routes
    private let listening: Listening

    init(_ core: ProtocolCore, _ routes: Routes, _ listening: Listening) {
        self.core = core
        self.routes = routes
        self.listening = listening
    }

    private var setting: DiscoverySetting {
        options.discover ?? configuration.discover.flatMap { DiscoverySetting($0) } ?? .off
    }

    /// Opens the sockets, if that was asked for; nothing is opened otherwise.
    func start() {
        guard routes.lan == nil, !isStopped, case .lan(let names) = setting, let network = environment.lan else {
            return
        }
        routes.search { takeNumber in
            LanSearch(
                network,
                port: options.lanPort,
                interfaces: names,
                loop: loop,
                log: log,
                events: LanSearch.Events(
                    now: { [services] in services.now },
                    missedCreators: { [core] time in
                        core.machine.missedCreators(now: time).map { join in
                            let name = LinkName(client: join.client, remote: join.creator)
                            return LanSearch.MissedCreator(name: name, invite: join.invite)
                        }
                    },
                    missedMembers: { [core] time in
                        core.machine.missedMembers(now: time).compactMap {
                            core.inboxes[$0.client]?.routes[.member($0.member)]
                        }
                    },
                    takeNumber: takeNumber,
                    listeningPort: { [unowned self] address in listeningPort(at: address) },
                    found: { [unowned self] number, creator, endpoint in found(number, creator, at: endpoint) }
                )
            )
        }
    }

    private func found(_ number: UInt64, _ creator: LinkName?, at endpoint: Messaging.Endpoint) {
        let (client, remote): (ClientID, PublicKey)
        if case .inbox(let inbox, .member(let member))? = routes.target(of: number) {
            (client, remote) = (inbox, member)
        } else if let creator {
            (client, remote) = (creator.client, creator.remote)
        } else {
            // A joiner, which dials us.
            return
        }
        log.debug("a member is on this network", metadata: ["client": "\(client)"])
        core.turn { core.machine.found(client, remote, at: endpoint, &$0) }
    }

    /// Where we take links under an address of ours. Under IPv6 the link-local address is enough to be found by, and says
    /// nothing that the network does not know.
    private func listeningPort(at address: LanAddress) -> UInt16? {
        for endpoint in listening.endpoints {
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
    var missingInterfaces: [String] { (routes.lan?.missing ?? []).sorted() }

    /// Networks on which members are looked for; `nil` when that is off.
    var networks: String? { routes.lan == nil ? nil : setting.description }
}
