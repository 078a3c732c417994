import Discovery
import Logging
import Messaging
import NIOCore
import Noise
import Primitives
import Transport

/// LAN discovery as the node runs it: the machine, its sockets and the one timer.
struct LanSearch {
    var machine: LanDiscovery
    let transport: LanTransport
    let network: any LanNetwork
    /// Names of the interfaces that are used; `nil` for all.
    let names: Set<String>?
    /// Those that are not there now.
    var missing: Set<String> = []
    var timer: Scheduled<Void>?
    var timerDeadline: Int64?
    /// The interfaces are looked at then, whatever the system says of them.
    var looksAt: Int64 = 0
    /// The creators of conversations that we are joining.
    var creators: [UInt64: LinkName] = [:]

    static let lookInterval: Int64 = 30_000
    /// An address that has just come may not be ready yet.
    static let retryPause: Int64 = 1_000
}

/// Members of our conversations that are on the same network are found without being told where (LanDiscovery.md).
extension Node {
    var discoverySetting: DiscoverySetting {
        options.discover ?? configuration.discover.flatMap { DiscoverySetting($0) } ?? .off
    }

    /// Opens the sockets, if that was asked for; nothing is opened otherwise.
    func startDiscovery() {
        guard lan == nil, !isStopped, case .lan(let names) = discoverySetting, let network = environment.lan else {
            return
        }
        let transport = LanTransport(
            loop: loop,
            network: network,
            port: options.lanPort,
            receive: { [unowned self] source, bytes in assumeIsolated { $0.lanReceived(bytes, from: source) } },
            troubled: { [unowned self] role, error in assumeIsolated { $0.lanTroubled(role, error) } }
        )
        lan = LanSearch(
            machine: LanDiscovery(now: now.milliseconds),
            transport: transport,
            network: network,
            names: names.map(Set.init)
        )
        for number in routeTargets.keys.sorted() { listen(for: number) }
        lookAtInterfaces()
    }

    func stopDiscovery() {
        lan?.timer?.cancel()
        lan?.transport.close()
        lan = nil
    }

    // MARK: Pairs

    /// A member's route is there, or can be dialled by now; or an invite's, by which a joiner looks for us.
    func listen(for number: UInt64) {
        guard lan != nil, case .inbox(let client, let route)? = routeTargets[number] else { return }
        switch route {
        case .member(let remote):
            guard let listening = routing.lan(ofMember: number) else { return }
            let announcing = inboxes[client]?.dialTokens[remote]?.lan
            lan?.machine.add(number, listening: listening, announcing: announcing)
            stirDiscovery()
        case .invite(let id): lan?.machine.add(number, listening: Self.lanSecret(id), announcing: nil)
        // A card may be in anybody's hands: who has it must not learn whether we are near.
        case .contact: break
        }
    }

    private static func lanSecret(_ invite: InviteID) -> LanSecret {
        RoutingSecret.derive(shared: SecretBytes(copying: invite.bytes), purpose: "invite").lan
    }

    /// The creators of conversations that we are joining have no route of ours; they are looked for all the same.
    private func noteCreators(_ time: Messaging.Timestamp) {
        let missed = core.missedCreators(now: time)
        let clients = Set(missed.map(\.client))
        for (number, creator) in lan?.creators ?? [:] where !clients.contains(creator.client) {
            lan?.creators[number] = nil
            lan?.machine.remove(number)
        }
        let known = Set((lan?.creators ?? [:]).values.map(\.client))
        for join in missed where !known.contains(join.client) {
            let number = nextRoute
            nextRoute += 1
            lan?.creators[number] = LinkName(client: join.client, remote: join.creator)
            lan?.machine.add(number, listening: nil, announcing: Self.lanSecret(join.invite))
        }
    }

    /// An inbox has gone to sleep: it looks for nobody.
    func stopLooking(_ inbox: Inbox) {
        guard lan != nil else { return }
        for number in inbox.routes.values { lan?.machine.setAnnouncing(number, nil) }
    }

    func stopListening(for number: UInt64) { lan?.machine.remove(number) }

    /// Somebody may be missing now.
    func stirDiscovery() {
        guard lan != nil else { return }
        var random = Randomness.system
        lan?.machine.stir(now: now.milliseconds, using: &random)
        scheduleDiscovery()
    }

    // MARK: Time

    private func scheduleDiscovery() {
        guard let search = lan, !isStopped else { return }
        let deadline = min(search.machine.nextDeadline ?? search.looksAt, search.looksAt)
        if search.timer != nil, let planned = search.timerDeadline, planned <= deadline { return }
        search.timer?.cancel()
        let wait = TimeAmount.milliseconds(max(1, deadline - now.milliseconds))
        lan?.timerDeadline = deadline
        lan?.timer = loop.assumeIsolated().scheduleTask(in: wait) {
            self.assumeIsolated { node in
                node.lan?.timer = nil
                node.advanceDiscovery()
            }
        }
    }

    private func advanceDiscovery() {
        guard !isStopped, lan != nil else { return }
        let time = now
        noteCreators(time)
        let creatorNumbers = (lan?.creators ?? [:]).keys.sorted()
        var random = Randomness.system
        let actions = lan?.machine.advance(
            now: time.milliseconds,
            missing: { missingPairs(time) + creatorNumbers },
            using: &random
        )
        perform(actions ?? [])
        if let looksAt = lan?.looksAt, looksAt <= time.milliseconds { lookAtInterfaces() }
        scheduleDiscovery()
    }

    private func missingPairs(_ time: Messaging.Timestamp) -> [UInt64] {
        core.missedMembers(now: time).compactMap { inboxes[$0.client]?.routes[.member($0.member)] }
    }

    // MARK: What is heard

    private func lanReceived(_ bytes: [UInt8], from source: LanSource) {
        guard !isStopped, lan != nil else { return }
        var random = Randomness.system
        let actions = lan?.machine.receive(bytes, from: source, now: now.milliseconds, using: &random) ?? []
        perform(actions)
    }

    private func perform(_ actions: [LanDiscovery.Action]) {
        for action in actions {
            switch action {
            case .announce(let bytes, let place): lan?.transport.announce(bytes, from: place)
            case .answer(let bytes, let place, let source): lan?.transport.answer(bytes, from: place, to: source)
            case .found(let number, let source, let port): found(number, source, port)
            }
        }
    }

    private func found(_ number: UInt64, _ source: LanSource, _ port: UInt16) {
        guard let host = source.address.host(interface: source.interface) else { return }
        let (client, remote): (ClientID, PublicKey)
        if case .inbox(let inbox, .member(let member))? = routeTargets[number] {
            (client, remote) = (inbox, member)
        } else if let creator = lan?.creators[number] {
            (client, remote) = (creator.client, creator.remote)
        } else {
            // A joiner, which dials us.
            return
        }
        log.debug("a member is on this network", metadata: ["client": "\(client)"])
        let endpoint = Messaging.Endpoint(host: host, port: port)
        turn { core.found(client, remote, at: endpoint, &$0) }
    }

    // MARK: Interfaces

    /// Does nothing unless members are looked for.
    func interfacesMayHaveChanged() {
        if lan != nil { lookAtInterfaces() }
    }

    private func lookAtInterfaces() {
        guard let search = lan, !isStopped else { return }
        var interfaces = search.network.interfaces()
        if let names = search.names {
            interfaces.removeAll { !names.contains($0.name) }
            noteMissing(names.subtracting(interfaces.map(\.name)))
        }
        for index in interfaces.indices {
            for other in interfaces[index].addresses.indices {
                let port = listeningPort(at: interfaces[index].addresses[other].address)
                interfaces[index].addresses[other].port = port
            }
        }
        var random = Randomness.system
        lan?.machine.setInterfaces(interfaces, now: now.milliseconds, using: &random)
        let places = lan?.machine.places ?? []
        let isWell = search.transport.update(interfaces, places: places)
        lan?.looksAt = now.milliseconds + (isWell ? LanSearch.lookInterval : LanSearch.retryPause)
        scheduleDiscovery()
    }

    /// One may come later, as one on a cable does.
    private func noteMissing(_ names: Set<String>) {
        for name in names.subtracting(lan?.missing ?? []).sorted() {
            let text = "LAN discovery: there is no such interface with an address now"
            log.notice("\(text)", metadata: ["interface": "\(name)"])
        }
        lan?.missing = names
    }

    /// Those that are to be used and are not there.
    package var missingInterfaces: [String] { (lan?.missing ?? []).sorted() }

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

    private func lanTroubled(_ role: LanSocketRole, _ error: (any Error)?) {
        guard let error else {
            log.info("LAN discovery: an interface can be used again", metadata: ["interface": "\(role.interface)"])
            var random = Randomness.system
            lan?.machine.placeOpened(now: now.milliseconds, using: &random)
            return scheduleDiscovery()
        }
        // Once for each, and again only after it was well: what comes back every minute fills a disk with words.
        log.notice(
            "LAN discovery: an interface cannot be used now, it is tried again",
            metadata: ["interface": "\(role.interface)", "error": "\((error as? IOError)?.errnoCode ?? 0)"]
        )
        let soon = now.milliseconds + LanSearch.retryPause
        if let looksAt = lan?.looksAt, looksAt > soon { lan?.looksAt = soon }
        scheduleDiscovery()
    }

    // MARK: Links

    /// A link has opened: should it be lost, that is news.
    func noteLink(of client: ClientID, _ connection: PeerConnection) {
        guard lan != nil, let number = inboxes[client]?.routes[.member(connection.peer.publicKey)] else { return }
        lan?.machine.linked(number)
    }

    /// `fe80::1%3` is `fe80::1` on interface 3.
    private static func withoutScope(_ host: String) -> Substring { host.prefix { $0 != "%" } }

    /// Networks on which members are looked for; `nil` when that is off.
    package var discovery: String? { lan == nil ? nil : discoverySetting.description }
}
