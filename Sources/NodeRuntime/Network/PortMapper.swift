import Cryptography
import Logging
import Messaging
import NIOCore
import NIOPosix
import Synchronization
import Transport

/// Port mappings at this machine's default gateways (Discovery.md): a state machine for each local address toward a
/// gateway, and the thread for requests.
final class PortMapper: Part {
    /// The home's secret, for nonces; `nil` until the first look with port mapping on.
    private var key: [UInt8]?
    /// Requests to gateways block.
    private lazy var thread = {
        let thread = NIOThreadPool(numberOfThreads: 1)
        thread.start()
        return thread
    }()
    private var machines: [IPAddress: PortMappingStateMachine] = [:]
    private var timer: Scheduled<Void>?
    private var underWay = 0
    private var whenIdle: (() -> Void)?
    private let isStopping = StopFlag()
    private var said: [IPAddress: PortMappingStateMachine.Standing] = [:]

    var isOn: Bool { options.mapPorts ?? configuration.mapPorts ?? false }

    /// Call this when gateways or addresses may have changed. Does nothing if port mapping is off or the home is
    /// locked.
    func look() {
        guard isOn, !isStopped, !isStopping.isRaised, let gateways = environment.gateways else { return }
        if key == nil { key = homeKey() }
        guard key != nil else { return }
        var places: [IPAddress: MappingPlace] = [:]
        for place in self.places(gateways.routes()) { places[place.local] = place }
        for local in Set(places.keys).union(machines.keys).sorted() {
            if machines[local] == nil { machines[local] = PortMappingStateMachine() }
            step(local) { $0.set(places[local]) }
            if places[local] == nil {
                machines[local] = nil
                said[local] = nil
            }
        }
        schedule()
    }

    /// A secret of this home, which it derives again after each start.
    func homeKey() -> [UInt8]? {
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

    private func schedule() {
        timer?.cancel()
        timer = nil
        guard !isStopping.isRaised, let deadline = machines.values.compactMap(\.nextDeadline).min() else { return }
        let wait = TimeAmount.milliseconds(max(1, deadline - environment.boottime()))
        timer = loop.assumeIsolated().scheduleTask(in: wait) { [weak self] in self?.advance() }
    }

    private func advance() {
        guard !isStopping.isRaised else { return }
        for local in machines.keys.sorted() { step(local) { $0.advance(now: environment.boottime()) } }
        schedule()
    }

    private func step(_ local: IPAddress, _ event: (inout PortMappingStateMachine) -> [PortMappingStateMachine.Action])
    {
        guard var machine = machines[local] else { return }
        let actions = event(&machine)
        machines[local] = machine
        perform(actions, of: local)
    }

    private func perform(_ actions: [PortMappingStateMachine.Action], of local: IPAddress) {
        for action in actions {
            switch action {
            case .ask(let number, let question):
                inBackground { gateways, key, flag in
                    gateways.ask(question, key: key, isGivenUp: { flag.isRaised })
                } then: { [unowned self] outcome in
                    step(local) { $0.answered(number, outcome, now: environment.boottime()) }
                    schedule()
                }
            case .remove(let mapping):
                inBackground { gateways, key, _ in
                    gateways.remove(mapping, key: key)
                } then: { _ in
                }
            case .changed: if !isStopped { shell.network.endpointsMayHaveChanged() }
            }
        }
        tell(of: local)
    }

    private func inBackground<Result: Sendable>(
        _ work: @escaping @Sendable (any GatewayNetwork, [UInt8], StopFlag) -> Result, then: @escaping (Result) -> Void
    ) {
        guard let gateways = environment.gateways, let key else { return }
        underWay += 1
        let flag = isStopping
        // Running work retains the shell, so that removals complete.
        thread.runIfActive(eventLoop: loop) { work(gateways, key, flag) }.assumeIsolated().whenComplete {
            [shell] result in
            withExtendedLifetime(shell) {
                if case .success(let result) = result { then(result) }
                self.underWay -= 1
                if self.underWay == 0 { self.whenIdle?() }
            }
        }
    }

    /// Logs whether a mapping exists, or why not; never an address.
    private func tell(of local: IPAddress) {
        guard let standing = machines[local]?.standing else { return }
        let before = said[local]
        switch standing {
        case .mapped(let mapping):
            if case .mapped? = before { return }
            log.info("port mapping: the gateway has made a mapping", metadata: ["method": "\(mapping.method.rawValue)"])
        case .failed(let failure):
            if case .failed(failure)? = before { return }
            log.notice("port mapping: not available", metadata: ["reason": "\(failure.reason)"])
        case .none, .asking: return
        }
        said[local] = standing
    }

    /// Removes the mappings.
    /// - Returns: ends when they are removed or the gateway times out; `nil` without requests.
    func stop() -> EventLoopFuture<Void>? {
        guard key != nil else { return nil }
        let promise = loop.makePromise(of: Void.self)
        timer?.cancel()
        isStopping.raise()
        for local in machines.keys.sorted() { step(local) { $0.stop() } }
        if underWay == 0 {
            promise.succeed(())
        } else {
            whenIdle = { promise.succeed(()) }
            let patience = TimeAmount.milliseconds(MappingLimits.stopPatience)
            loop.scheduleTask(in: patience) { promise.succeed(()) }
        }
        let thread = thread
        promise.futureResult.assumeIsolated().whenComplete { _ in
            // A thread still waiting for a gateway ends with the process.
            thread.shutdownGracefully { _ in }
        }
        return promise.futureResult
    }

    var endpoints: [Messaging.Endpoint] {
        machines.keys.sorted().compactMap { machines[$0]?.mapping }.flatMap(Self.endpoints)
    }

    static func endpoints(of mapping: Mapping) -> [Messaging.Endpoint] {
        guard let host = mapping.outer.host(interface: 0) else { return [] }
        return mapping.ports.map { Messaging.Endpoint(host: host, port: $0) }
    }

    /// By address, IPv4 first; `nil` if port mapping is off.
    var states: [PortMappingState]? {
        guard isOn, environment.gateways != nil else { return nil }
        let now = now
        return machines.keys.sorted { ($0.isIPv4 ? 0 : 1, $0) < ($1.isIPv4 ? 0 : 1, $1) }.compactMap { local in
            guard let machine = machines[local] else { return nil }
            let endpoints = machine.mapping.map(Self.endpoints) ?? []
            return PortMappingState(
                isIPv4: local.isIPv4, standing: machine.standing, endpoints: endpoints,
                expiresAt: machine.mapping.map { now + ($0.expiresAt - environment.boottime()) })
        }
    }
}

package struct PortMappingState: Sendable {
    package var isIPv4: Bool
    package var standing: PortMappingStateMachine.Standing
    /// Empty without a mapping.
    package var endpoints: [Messaging.Endpoint]
    /// When the mapping ends unless renewed.
    package var expiresAt: Messaging.Timestamp?
}

/// Tells blocking requests to gateways to end.
final class StopFlag: Sendable {
    private let isRaisedNow = Atomic(false)
    var isRaised: Bool { isRaisedNow.load(ordering: .relaxed) }
    func raise() { isRaisedNow.store(true, ordering: .relaxed) }
}

extension MappingFailure {
    /// For display; contains no address, so fit for logs.
    package var reason: String {
        switch self {
        case .unsupported: "the gateway offers no port mapping"
        case .silent: "the gateway does not answer"
        case .malformed: "the gateway's answer is malformed"
        case .permanentOnly: "the gateway offers only permanent mappings"
        case .refused(let code): "the gateway refuses, code \(code)"
        case .notGlobal: "the gateway has no public address: it is itself behind a NAT"
        }
    }
}
