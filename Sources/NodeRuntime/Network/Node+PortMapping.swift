import Discovery
import Gateways
import Logging
import Messaging
import NIOCore
import NIOPosix
import PortMapping
import Primitives
import Synchronization
import Transport

/// Port mapping as the node runs it: a machine for each address of ours toward a gateway, and the thread that asks.
struct PortMappings {
    let gateways: any GatewayNetwork
    /// Gateways take their time to answer, and the libraries wait for them.
    let thread: NIOThreadPool
    /// Of the home's, for nonces.
    let key: [UInt8]
    var machines: [LanAddress: PortMappingStateMachine] = [:]
    var timer: Scheduled<Void>?
    /// Questions and removals that are under way.
    var underWay = 0
    /// Told when nothing is under way any more.
    var whenIdle: (() -> Void)?
    let isStopping = StopFlag()
    /// What was said in the log last, of each.
    var said: [LanAddress: PortMappingStateMachine.Standing] = [:]
}

/// Raised once; what waits for a gateway looks at it.
final class StopFlag: Sendable {
    private let isRaisedNow = Atomic(false)
    var isRaised: Bool { isRaisedNow.load(ordering: .relaxed) }
    func raise() { isRaisedNow.store(true, ordering: .relaxed) }
}

/// Others reach us through the default gateway, if it lets us ask for that (PortMapping.md).
extension Node {
    var mapsPorts: Bool { options.mapPorts ?? configuration.mapPorts ?? false }

    /// If that was asked for and the home is unlocked; without either nothing is opened, and nobody is asked.
    private func startPortMapping() {
        guard let gateways = environment.gateways, let key = portMappingKey() else { return }
        let thread = NIOThreadPool(numberOfThreads: 1)
        thread.start()
        mappings = PortMappings(gateways: gateways, thread: thread, key: key)
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

    /// Gateways and addresses may have changed. Does nothing unless ports are mapped.
    func lookAtGateways() {
        guard mapsPorts, !isStopped else { return }
        if mappings == nil { startPortMapping() }
        guard let known = mappings else { return }
        var places: [LanAddress: MappingPlace] = [:]
        for place in mappingPlaces(known.gateways.routes()) { places[place.local] = place }
        for local in Set(places.keys).union(known.machines.keys).sorted() {
            var machine = mappings?.machines[local] ?? PortMappingStateMachine()
            let actions = machine.set(places[local], now: mappingTime)
            mappings?.machines[local] = machine
            perform(actions, of: local)
            if places[local] == nil {
                mappings?.machines[local] = nil
                mappings?.said[local] = nil
            }
        }
        scheduleMappings()
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

    /// Leases end while the machine sleeps, too.
    private var mappingTime: Int64 { environment.boottime() }

    private func scheduleMappings() {
        guard let known = mappings, !isStopped else { return }
        known.timer?.cancel()
        mappings?.timer = nil
        guard let deadline = known.machines.values.compactMap(\.nextDeadline).min() else { return }
        let wait = TimeAmount.milliseconds(max(1, deadline - mappingTime))
        mappings?.timer = loop.assumeIsolated().scheduleTask(in: wait) {
            self.assumeIsolated { node in
                guard !node.isStopped else { return }
                for local in (node.mappings?.machines ?? [:]).keys.sorted() {
                    node.stepMapping(local) { $0.advance(now: node.mappingTime) }
                }
                node.scheduleMappings()
            }
        }
    }

    private func stepMapping(
        _ local: LanAddress,
        _ event: (inout PortMappingStateMachine) -> [PortMappingStateMachine.Action]
    ) {
        guard var machine = mappings?.machines[local] else { return }
        let actions = event(&machine)
        mappings?.machines[local] = machine
        perform(actions, of: local)
    }

    private func perform(_ actions: [PortMappingStateMachine.Action], of local: LanAddress) {
        for action in actions {
            switch action {
            case .ask(let number, let question):
                inBackground { gateways, key, flag in
                    gateways.ask(question, key: key, isGivenUp: { flag.isRaised })
                } then: { node, outcome in
                    node.stepMapping(local) { $0.answered(number, outcome, now: node.mappingTime) }
                    node.scheduleMappings()
                }
            case .remove(let mapping):
                inBackground { gateways, key, _ in
                    gateways.remove(mapping, key: key)
                } then: { _, _ in
                }
            case .changed: endpointsMayHaveChanged()
            }
        }
        tellOfMapping(local)
    }

    private func inBackground<Result: Sendable>(
        _ work: @escaping @Sendable (any GatewayNetwork, [UInt8], StopFlag) -> Result,
        then: @escaping @Sendable (isolated Node, Result) -> Void
    ) {
        guard let known = mappings else { return }
        mappings?.underWay += 1
        let (gateways, key, flag) = (known.gateways, known.key, known.isStopping)
        known.thread.runIfActive(eventLoop: loop) { work(gateways, key, flag) }
            .assumeIsolated()
            .whenComplete { result in
                self.assumeIsolated { node in
                    if case .success(let result) = result { then(node, result) }
                    node.mappings?.underWay -= 1
                    if node.mappings?.underWay == 0 { node.mappings?.whenIdle?() }
                }
            }
    }

    /// In the log is whether there is a mapping, and why not; never an address.
    private func tellOfMapping(_ local: LanAddress) {
        guard let standing = mappings?.machines[local]?.standing else { return }
        let before = mappings?.said[local]
        switch standing {
        case .mapped(let mapping):
            if case .mapped? = before { return }
            log.info("port mapping: the gateway lets others in", metadata: ["method": "\(mapping.method.rawValue)"])
        case .failed(let failure):
            if case .failed(failure)? = before { return }
            log.notice("port mapping: there is none", metadata: ["reason": "\(failure.reason)"])
        case .none, .asking: return
        }
        mappings?.said[local] = standing
    }

    /// Removes what is mapped.
    /// - Returns: when that is done, or the gateway takes too long.
    func stopPortMapping() -> EventLoopFuture<Void> {
        guard mappings != nil else { return loop.makeSucceededVoidFuture() }
        let promise = loop.makePromise(of: Void.self)
        mappings?.timer?.cancel()
        mappings?.isStopping.raise()
        for local in (mappings?.machines ?? [:]).keys.sorted() { stepMapping(local) { $0.stop() } }
        if mappings?.underWay == 0 {
            promise.succeed(())
        } else {
            mappings?.whenIdle = { promise.succeed(()) }
            let patience = TimeAmount.milliseconds(MappingLimits.stopPatience)
            loop.scheduleTask(in: patience) { promise.succeed(()) }
        }
        let thread = mappings?.thread
        promise.futureResult.assumeIsolated().whenComplete { _ in
            // Who still waits for a gateway ends with the process.
            thread?.shutdownGracefully { _ in }
        }
        return promise.futureResult
    }

    // MARK: How it stands

    /// Where others reach us by what is mapped.
    var mappedEndpoints: [Messaging.Endpoint] {
        guard let machines = mappings?.machines else { return [] }
        var result: [Messaging.Endpoint] = []
        for local in machines.keys.sorted() {
            if let mapping = machines[local]?.mapping { result += Self.endpoints(of: mapping) }
        }
        return result
    }

    static func endpoints(of mapping: Mapping) -> [Messaging.Endpoint] {
        guard let host = mapping.outer.host(interface: 0) else { return [] }
        return mapping.ports.map { Messaging.Endpoint(host: host, port: $0) }
    }

    /// One address of ours and what became of its mapping.
    package struct PortMappingState: Sendable {
        package var isIPv4: Bool
        package var standing: PortMappingStateMachine.Standing
        /// Where others reach us; empty without a mapping.
        package var endpoints: [Messaging.Endpoint]
        /// When the mapping ends if it is not renewed.
        package var expiresAt: Messaging.Timestamp?

        package init(
            isIPv4: Bool,
            standing: PortMappingStateMachine.Standing,
            endpoints: [Messaging.Endpoint],
            expiresAt: Messaging.Timestamp? = nil
        ) {
            self.isIPv4 = isIPv4
            self.standing = standing
            self.endpoints = endpoints
            self.expiresAt = expiresAt
        }
    }

    /// `nil` when ports are not to be mapped; empty without a gateway.
    package var portMappings: [PortMappingState]? {
        guard mapsPorts, environment.gateways != nil else { return nil }
        let machines = mappings?.machines ?? [:]
        return machines.keys.sorted { ($0.isIPv4 ? 0 : 1, $0) < ($1.isIPv4 ? 0 : 1, $1) }.compactMap { local in
            guard let machine = machines[local] else { return nil }
            var state = PortMappingState(isIPv4: local.isIPv4, standing: machine.standing, endpoints: [])
            if let mapping = machine.mapping {
                state.endpoints = Self.endpoints(of: mapping)
                state.expiresAt = now + (mapping.expiresAt - mappingTime)
            }
            return state
        }
    }
}

extension MappingFailure {
    /// For people; without an address, for logs, too.
    package var reason: String {
        switch self {
        case .unsupported: "the gateway offers none"
        case .silent: "the gateway does not answer"
        case .malformed: "the gateway's answer makes no sense"
        case .permanentOnly: "the gateway makes mappings without an end only"
        case .refused(let code): "the gateway refuses, code \(code)"
        case .notGlobal: "the gateway has no public address: it is itself behind a NAT"
        }
    }
}
