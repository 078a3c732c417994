import Crypto
import Messaging
import NIOCore
import NIOPosix
import Transport

/// The node's addresses. When they change, links from lost addresses end, and members learn the new ones. The system reports
/// changes; every tick looks as well.
final class NodeNetwork: CorePart {
    /// Changes come many at once.
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

    // MARK: The machine's addresses

    func start() {
        watchAddresses()
        neighbourhood.start()
    }

    /// - Returns: ends when gateways have removed what was mapped.
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

    /// They are looked at when all changes are over.
    private func addressesMayHaveChanged() {
        guard !isStopped else { return }
        addresses.planLook(after: Self.gathering) { [weak self] in
            guard let self, !isStopped else { return }
            noteAddresses()
            routes.lan?.look()
            gateways.look()
        }
    }

    /// With every tick.
    func look(asksGateways: Bool) {
        noteAddresses()
        if asksGateways { gateways.look() }
        announce()
    }

    /// The contact inbox is there: rendezvous nodes are used under its key, and gateways are asked under one that follows
    /// from it.
    func contactRegistered() {
        rendezvous.changed()
        gateways.look()
    }

    /// What stands on an address that is gone ends or moves, who does not answer is dialled anew, and all learn where we
    /// are now. An address by which no other machine is reached, such as a container's cable has, moves and dials nothing.
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

    /// Tells the members of all conversations where we are now.
    private func announce() { if addresses.announce() { core.turn { core.machine.endpointsChanged(&$0) } } }

    /// Others reach us elsewhere, or the user tells them something else.
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

    /// A connection from an address that this machine has no longer is dead, whatever TCP still hopes for.
    private func endLinks(from lost: Set<LanAddress>) {
        func isDead(_ connection: PeerConnection) -> Bool {
            connection.carrier == .tcp && connection.localAddress.flatMap { LanAddress($0) }.map(lost.contains) ?? false
        }
        for link in links.all where isDead(link.connection) { link.connection.abort() }
        streams.abortLinks(where: isDead)
    }

    // MARK: What is asked

    /// Where others reach us directly, as we tell them.
    var reachableAt: [Messaging.Endpoint] { addresses.advertised }

    /// What others are told of where we listen, and what they are not.
    var reachable: ReachableAddresses { addresses.reachable }

    /// `nil` when ports are not to be mapped; empty without a gateway.
    var portMappings: [PortMappingState]? { gateways.states }

    /// Asks the rendezvous nodes that are known, and nobody else: what this network lets through.
    /// - Parameters:
    ///   - timeout: after which is told what is known by then.
    ///   - mapsPorts: whether gateways that are not asked anyway are asked for a mapping, which is removed at once.
    func check(timeout: Milliseconds, mapsPorts: Bool) -> EventLoopFuture<NetworkFindings> {
        let check = NetworkCheck(
            core, peers: peers, listening: listening, punching: punching, gateways: gateways,
            discovery: neighbourhood.networks)
        return check.run(timeout: timeout, mapsPorts: mapsPorts)
    }
}
