import Crypto
import Messaging
import NIOCore
import NIOPosix
import Transport

/// The node's addresses. When they change, links from lost addresses end, and members learn the new ones. The system
/// reports changes; ticks check too.
final class NodeNetwork: CorePart {
    /// Changes arrive in bursts.
    private static let gathering = TimeAmount.milliseconds(50)

    let listening: Listening
    let neighbourhood: Neighbourhood
    let core: ProtocolCore
    private let addresses: OwnAddresses
    private let routes: Routes
    private let streams: RelayStreams
    private let rendezvous: RendezvousNodes
    private let punching: Punching
    private let peers: PeerBook
    private lazy var gateways = GatewaySearch(
        core, addresses: addresses, listening: listening, changed: { [unowned self] in endpointsMayHaveChanged() })

    init(
        _ core: ProtocolCore, _ listening: Listening, _ addresses: OwnAddresses, _ routes: Routes,
        _ streams: RelayStreams, _ rendezvous: RendezvousNodes, _ punching: Punching, _ peers: PeerBook
    ) {
        self.core = core
        self.listening = listening
        self.addresses = addresses
        self.routes = routes
        self.streams = streams
        self.rendezvous = rendezvous
        self.punching = punching
        self.peers = peers
        neighbourhood = Neighbourhood(core, routes, listening)
        addresses.used = { [unowned self] in
            Set(links.all.compactMap { link in link.connection.localAddress.flatMap { LanAddress($0) } })
        }
    }

    // MARK: Local addresses

    func start() {
        watchAddresses()
        neighbourhood.start()
    }

    /// - Returns: ends when gateways have removed the mappings.
    func stop() -> EventLoopFuture<Void>? {
        routes.stopSearch()
        addresses.stopWatching()
        return gateways.stop()
    }

    private func watchAddresses() {
        guard let network = environment.lan else { return }
        // Made and used on the node's loop.
        let bound = NIOLoopBound(self, eventLoop: loop)
        let told: @Sendable () -> Void = { bound.value.addressesMayHaveChanged() }
        network.watch(on: loop, changed: told).assumeIsolated().whenSuccess { channel in
            if self.isStopped { channel.close(promise: nil) } else { self.addresses.watched(by: channel) }
        }
    }

    private func addressesMayHaveChanged() {
        guard !isStopped else { return }
        addresses.planLook(after: Self.gathering) { [weak self] in
            guard let self, !isStopped else { return }
            noteAddresses()
            routes.lan?.look()
            gateways.look()
        }
    }

    func look(asksGateways: Bool) {
        noteAddresses()
        if asksGateways { gateways.look() }
        announce()
    }

    /// The contact inbox has a route: its key is used toward rendezvous nodes, and a derived key toward gateways.
    func contactRegistered() {
        rendezvous.changed()
        gateways.look()
    }

    /// Closes or moves links on lost addresses, dials again, and announces new endpoints. An address that reaches no
    /// other machine, such as a container's, triggers no dial.
    private func noteAddresses() {
        guard let change = addresses.look() else { return }
        endLinks(from: change.lost)
        announce()
        guard change.hasMoved else { return }
        listening.transport?.networkChanged()
        core.turn { core.machine.addressesChanged(hasNew: change.hasNew, &$0) }
        guard routes.lan != nil else { return }
        loop.assumeIsolated().scheduleTask(in: .milliseconds(Limits.pingPatience + 100)) { self.routes.lan?.stir() }
    }

    private func announce() { if addresses.announce() { core.turn { core.machine.endpointsChanged(&$0) } } }

    /// Call this after listeners, mappings or advertised endpoints have changed.
    func listenersChanged() {
        endpointsMayHaveChanged()
        gateways.look()
        core.schedule()
    }

    func relaysMayHaveChanged() {
        addresses.relaysHaveChanged = true
        endpointsMayHaveChanged()
    }

    private func endpointsMayHaveChanged() {
        loop.assumeIsolated().execute {
            guard !self.isStopped else { return }
            self.addresses.forgetAdvertised()
            self.announce()
            self.rendezvous.noteStandings()
        }
    }

    /// A TCP connection from a lost address is dead, although TCP still retries.
    private func endLinks(from lost: Set<LanAddress>) {
        func isDead(_ connection: PeerConnection) -> Bool {
            connection.carrier == .tcp && connection.localAddress.flatMap { LanAddress($0) }.map(lost.contains) ?? false
        }
        for link in links.all where isDead(link.connection) { link.connection.abort() }
        streams.abortLinks(where: isDead)
    }

    // MARK: Queries

    var reachableAt: [Messaging.Endpoint] { addresses.advertised }

    var reachable: ReachableAddresses { addresses.reachable }

    /// `nil` if port mapping is off; empty without a gateway.
    var portMappings: [PortMappingState]? { gateways.states }

    /// Asks only known rendezvous nodes.
    /// - Parameters:
    ///   - timeout: after this time, returns partial results.
    ///   - mapsPorts: whether to request a temporary mapping if port mapping is off.
    func check(timeout: Milliseconds, mapsPorts: Bool) -> EventLoopFuture<NetworkFindings> {
        let check = NetworkCheck(
            core, peers: peers, listening: listening, punching: punching, gateways: gateways,
            discovery: neighbourhood.networks)
        return check.run(timeout: timeout, mapsPorts: mapsPorts)
    }
}
