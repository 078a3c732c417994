import Crypto
import Logging
import Messaging
import Transport

/// LAN discovery: serves ``LanSearch``, and reports found members to the core.
final class Neighbourhood: Part {

    private var setting: DiscoverySetting { services.discovery ?? .off }

    /// Opens the sockets if LAN discovery is on.
    func start() {
        guard shell.routes.lan == nil, !isStopped, case .lan(let names) = setting, let network = environment.lan else {
            return
        }
        shell.routes.search { takeNumber in
            LanSearch(
                network, port: options.lanPort, interfaces: names, loop: loop, log: log,
                events: LanSearch.Events(
                    now: { [services] in services.now },
                    missedCreators: { [core] time in
                        core.machine.missedCreators(now: time).map { join in
                            let name = LinkName(client: join.client, remote: join.creator)
                            return LanSearch.MissedCreator(name: name, invite: join.invite)
                        }
                    },
                    missedMembers: { [core, inboxes] time in
                        core.machine.missedMembers(now: time).compactMap {
                            inboxes[$0.client]?.routes[.member($0.member)]
                        }
                    }, takeNumber: takeNumber,
                    listeningPort: { [unowned self] address in shell.listening.port(at: address) },
                    found: { [unowned self] number, creator, endpoint in found(number, creator, at: endpoint) }))
        }
    }

    private func found(_ number: UInt64, _ creator: LinkName?, at endpoint: Messaging.Endpoint) {
        let (client, remote): (ClientID, PublicKey)
        if case .inbox(let inbox, .member(let member))? = shell.routes.target(of: number) {
            (client, remote) = (inbox, member)
        } else if let creator {
            (client, remote) = (creator.client, creator.remote)
        } else {
            // The found node is a joiner, which dials us.
            return
        }
        log.debug("a member is on this network", metadata: ["client": "\(client)"])
        core.turn { core.machine.found(client, remote, at: endpoint, &$0) }
    }

    /// Configured interfaces that are absent now.
    var missingInterfaces: [String] { (shell.routes.lan?.missing ?? []).sorted() }

    /// The networks used for LAN discovery; `nil` if it is off.
    var networks: String? { shell.routes.lan == nil ? nil : setting.description }
}
