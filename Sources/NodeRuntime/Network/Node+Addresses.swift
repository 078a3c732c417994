import Discovery
import Gateways
import Messaging
import NIOCore
import NIOPosix
import Noise
import PortMapping
import Primitives
import Transport

/// The machine's addresses come and go, and with them what stands on them. The system says so at once; where it does not,
/// they are looked at with every tick.
extension Node {
    /// Changes come many at once.
    private static let gathering = TimeAmount.milliseconds(50)

    func watchAddresses() {
        guard let network = environment.lan else { return }
        let told: @Sendable () -> Void = { [weak self] in
            self?.assumeIsolated { $0.addressesMayHaveChanged() }
        }
        network.watch(on: loop, changed: told).assumeIsolated().whenSuccess { [weak self] channel in
            guard let self else { return channel.close(promise: nil) }
            self.assumeIsolated { node in
                if node.isStopped { channel.close(promise: nil) } else { node.addresses.watched(by: channel) }
            }
        }
    }

    /// They are looked at when all changes are over.
    private func addressesMayHaveChanged() {
        guard !isStopped else { return }
        addresses.planLook(on: loop, after: Self.gathering) { [weak self] in
            self?.assumeIsolated { node in
                guard !node.isStopped else { return }
                node.noteAddresses()
                node.lan?.look()
                node.lookAtGateways()
            }
        }
    }

    /// What stands on an address that is gone ends or moves, who does not answer is dialled anew, and all learn where we
    /// are now. Nothing happens while the addresses are the same.
    func noteAddresses() {
        guard let lost = addresses.look() else { return }
        endLinks(from: lost)
        transport?.networkChanged()
        announceEndpoints()
        turn { core.addressesChanged(&$0) }
        guard lan != nil else { return }
        loop.assumeIsolated().scheduleTask(in: .milliseconds(Limits.pingPatience + 100)) {
            self.assumeIsolated { $0.lan?.stir() }
        }
    }

    /// Tells the members of all conversations where we are now.
    func announceEndpoints() {
        if addresses.announce(advertisedDirectly) { turn { core.endpointsChanged(&$0) } }
    }

    /// ``directlyAdvertised`` as of the last tick.
    var advertisedDirectly: [Messaging.Endpoint] { addresses.advertised { directlyAdvertised } }

    /// Where others can reach this node directly: through its gateways, and at what it was told to advertise, else what it
    /// listens on; a wildcard stands for the addresses of this machine's interfaces.
    var directlyAdvertised: [Messaging.Endpoint] {
        let mapped = portMapper?.endpoints ?? []
        let own = configuration.advertise.isEmpty ? listenedAt : configuration.advertise
        return Array((mapped + own.filter { !mapped.contains($0) }).prefix(Limits.endpointCount))
    }

    private var listenedAt: [Messaging.Endpoint] {
        var result: [Messaging.Endpoint] = []
        // Before it listens, what it will listen on, as far as that is known.
        let endpoints = listening.isEmpty ? configuration.listen.filter { $0.port != 0 } : listening
        for endpoint in endpoints {
            let isWildcard = endpoint.host == "0.0.0.0" || endpoint.host == "::"
            guard isWildcard else {
                result.append(endpoint)
                continue
            }
            for host in addresses.hosts(ipv6: endpoint.host == "::") {
                result.append(Messaging.Endpoint(host: host, port: endpoint.port))
            }
        }
        // A machine without a network can still talk to itself.
        if result.isEmpty {
            result = endpoints.map { Messaging.Endpoint(host: $0.host == "::" ? "::1" : "127.0.0.1", port: $0.port) }
        }
        return result
    }

    /// A connection from an address that this machine has no longer is dead, whatever TCP still hopes for.
    private func endLinks(from lost: Set<String>) {
        func isDead(_ connection: PeerConnection) -> Bool {
            connection.carrier == .tcp && connection.localAddress?.ipAddress.map(lost.contains) ?? false
        }
        for id in links.keys.sorted() {
            if let connection = links[id]?.connection, isDead(connection) { connection.abort() }
        }
        for id in relayGuests.keys.sorted() {
            if let connection = relayGuests[id]?.connection, isDead(connection) { connection.abort() }
        }
    }

    // MARK: Gateways

    var mapsPorts: Bool { options.mapPorts ?? configuration.mapPorts ?? false }

    /// Gateways and addresses may have changed. Does nothing unless ports are mapped; without an unlocked home nothing is
    /// opened, and nobody is asked.
    func lookAtGateways() {
        guard mapsPorts, !isStopped else { return }
        if portMapper == nil, let gateways = environment.gateways, let key = portMappingKey() {
            portMapper = PortMapper(
                gateways,
                key: key,
                loop: loop,
                boottime: environment.boottime,
                log: log,
                events: PortMapper.Events(
                    places: { [unowned self] routes in mappingPlaces(routes) },
                    changed: { [unowned self] in endpointsMayHaveChanged() }
                )
            )
        }
        portMapper?.look()
    }

    /// Nobody but this home can compute it, and a home does so always anew.
    func portMappingKey() -> [UInt8]? {
        guard let contact = core.contact?.client, let identity = inboxes[contact]?.key, !identity.isWiped else {
            return nil
        }
        let shared = identity.secret.sharedSecret(with: identity.publicKey)
        let key = shared.withBytes { HKDF.derive(secret: $0, info: Array("mayfly/1 port mapping".utf8)) }
        return key.withBytes { Array($0) }
    }

    /// What there is to map: our addresses toward gateways, as far as we listen there.
    func mappingPlaces(_ routes: [GatewayRoute]) -> [MappingPlace] {
        routes.flatMap { route in
            route.locals.prefix(MappingLimits.addressCount).compactMap { local in
                let listener = listening.first { endpoint in
                    endpoint.host == (local.isIPv4 ? "0.0.0.0" : "::") || endpoint.host == local.host(interface: 0)
                }
                guard let port = listener?.port, port > 0 else { return nil }
                return MappingPlace(
                    gateway: route.gateway,
                    interface: route.interface,
                    local: local,
                    port: port,
                    hasDatagrams: transport?.hasDatagrams ?? false
                )
            }
        }
    }

    /// `nil` when ports are not to be mapped; empty without a gateway.
    package var portMappings: [PortMappingState]? {
        guard mapsPorts, environment.gateways != nil else { return nil }
        return portMapper?.states(now: now) ?? []
    }
}
