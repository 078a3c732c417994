import Crypto
import Messaging
import NIOCore
import Transport

/// Port mappings at this machine's gateways: the endpoints to map, and the one ``PortMapper``.
final class GatewaySearch: Part {
    /// `nil` if port mapping is off.
    private var mapper: PortMapper?

    var isOn: Bool { options.mapPorts ?? configuration.mapPorts ?? false }

    /// Call this when gateways or addresses may have changed. Does nothing if port mapping is off or the home is
    /// locked.
    func look() {
        guard isOn, !isStopped else { return }
        if mapper == nil, let gateways = environment.gateways, let key = key() {
            let mapper = PortMapper(
                gateways, key: key, loop: loop, boottime: environment.boottime, log: log,
                events: PortMapper.Events(
                    places: { [unowned self] routes in places(routes) },
                    changed: { [unowned self] in shell.network.endpointsMayHaveChanged() }))
            self.mapper = mapper
        }
        mapper?.look()
    }

    /// Mapped endpoints of this node.
    var endpoints: [Messaging.Endpoint] { mapper?.endpoints ?? [] }

    /// Removes the mappings.
    /// - Returns: ends when they are removed or the gateway times out; `nil` without requests.
    func stop() -> EventLoopFuture<Void>? { mapper?.stop() }

    /// A secret of this home, which it derives again after each start.
    func key() -> [UInt8]? {
        guard let contact = core.machine.contact?.client, let identity = inboxes[contact]?.key, !identity.isWiped else {
            return nil
        }
        let shared = identity.secret.sharedSecret(with: identity.publicKey)
        let key = shared.withBytes { HKDF.derive(secret: $0, info: Array("mayfly/1 port mapping".utf8)) }
        return key.withBytes { Array($0) }
    }

    /// The endpoints to map: our listening addresses toward gateways.
    func places(_ routes: [GatewayRoute]) -> [MappingPlace] {
        let endpoints = shell.listening.endpoints
        return routes.flatMap { route in
            route.locals.prefix(MappingLimits.addressCount).compactMap { local in
                let listener = endpoints.first { endpoint in
                    endpoint.host == (local.isIPv4 ? "0.0.0.0" : "::") || endpoint.host == local.host(interface: 0)
                }
                guard let port = listener?.port, port > 0 else { return nil }
                return MappingPlace(
                    gateway: route.gateway, interface: route.interface, local: local, port: port,
                    hasDatagrams: shell.listening.hasDatagrams)
            }
        }
    }

    /// `nil` if port mapping is off; empty without a gateway.
    var states: [PortMappingState]? {
        guard isOn, environment.gateways != nil else { return nil }
        return mapper?.states(now: now) ?? []
    }
}
