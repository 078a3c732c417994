import Discovery
import Gateways
import Messaging
import NIOCore
import NIOPosix
import PortMapping
import Primitives
import Transport

/// `mayfly netcheck`: what this network lets through, as far as rendezvous nodes can tell.
extension Node {
    /// Addresses that are asked, in all.
    private static let netcheckCount = 8

    /// On the loop alone.
    private final class Check: @unchecked Sendable {
        var answers: [NetworkFindings.Answer] = []
        /// Of the gateways, if they are asked for this.
        var probed: [PortMappingState]?
        var underWay = 0
        let isStopping = StopFlag()
        let promise: EventLoopPromise<Void>
        init(_ promise: EventLoopPromise<Void>) { self.promise = promise }

        func begin() { underWay += 1 }

        func end() {
            underWay -= 1
            if underWay == 0 { promise.succeed(()) }
        }
    }

    /// Asks the rendezvous nodes that are known, and nobody else.
    /// - Parameters:
    ///   - timeout: after which is told what is known by then.
    ///   - mapsPorts: whether gateways that are not asked anyway are asked for a mapping, which is removed at once.
    package func netcheck(timeout: Milliseconds, mapsPorts: Bool) -> EventLoopFuture<NetworkFindings> {
        let check = Check(loop.makePromise(of: Void.self))
        check.begin()
        for target in rendezvousTargets() { resolve(target, check) }
        if mapsPorts, !self.mapsPorts { probeGateways(check) }
        check.end()
        let timer = loop.scheduleTask(in: .milliseconds(timeout)) { check.promise.succeed(()) }
        return check.promise.futureResult.map { [self] in
            timer.cancel()
            check.isStopping.raise()
            return assumeIsolated { $0.findings(check) }
        }
    }

    // MARK: Rendezvous nodes

    private struct Target {
        let name: String?
        let endpoint: Messaging.Endpoint
        let routingSecret: [UInt8]
    }

    /// Our own first, then those that members have told.
    private func rendezvousTargets() -> [Target] {
        var result: [Target] = []
        func add(_ name: String?, _ endpoint: Messaging.Endpoint, _ secret: [UInt8]) {
            guard endpoint.port > 0, result.count < Self.netcheckCount,
                !result.contains(where: { $0.endpoint == endpoint.address })
            else { return }
            result.append(Target(name: name, endpoint: endpoint.address, routingSecret: secret))
        }
        for peer in peers.peers where peer.isRendezvous && !peer.isBlocked {
            guard let card = peer.card else { continue }
            for endpoint in card.endpoints where endpoint.relay == nil { add(peer.name, endpoint, card.routingSecret) }
        }
        for machine in core.conversations {
            for member in machine.currentMembers {
                for endpoint in member.endpoints {
                    if let relay = endpoint.relay { add(nil, endpoint, relay.routingSecret) }
                }
            }
        }
        return result
    }

    private func resolve(_ target: Target, _ check: Check) {
        guard let transport else { return }
        check.begin()
        let endpoint = Transport.Endpoint(host: target.endpoint.host, port: Int(target.endpoint.port))
        transport.addresses(of: endpoint) { [weak self] addresses in
            self?.assumeIsolated { node in
                for address in addresses {
                    let one = Messaging.Endpoint(host: address.host, port: target.endpoint.port)
                    guard check.answers.count < Self.netcheckCount, !check.answers.contains(where: { $0.asked == one })
                    else { continue }
                    check.answers.append(NetworkFindings.Answer(rendezvous: target.name, asked: one))
                    node.ask(address, check.answers.count - 1, target.routingSecret, check)
                }
            }
            check.end()
        }
    }

    private func ask(_ address: Transport.Endpoint, _ index: Int, _ secret: [UInt8], _ check: Check) {
        let begin = loop.now
        let loop = loop
        func elapsed() -> Double { Double((loop.now - begin).nanoseconds) / 1_000_000 }
        if let transport, transport.hasDatagrams {
            check.begin()
            observe(
                at: Messaging.Endpoint(host: address.host, port: UInt16(clamping: address.port)),
                secret,
                by: transport
            ) {
                seen in
                check.answers[index].seen = seen
                if seen != nil { check.answers[index].udpMilliseconds = elapsed() }
                check.end()
            }
        }
        check.begin()
        environment.network.connect(to: address, limits: TransportLimits(), on: loop).assumeIsolated().whenComplete {
            if case .success(let channel) = $0 {
                check.answers[index].tcpMilliseconds = elapsed()
                channel.close(promise: nil)
            }
            check.end()
        }
    }

    // MARK: Gateways

    private func probeGateways(_ check: Check) {
        guard let gateways = environment.gateways else { return }
        check.probed = []
        let key = portMappingKey() ?? randomBytes(32)
        let thread = NIOThreadPool(numberOfThreads: 1)
        thread.start()
        var isIPv4Seen: Set<Bool> = []
        // One address of each family says enough.
        for place in mappingPlaces(gateways.routes()) where isIPv4Seen.insert(place.local.isIPv4).inserted {
            check.begin()
            let flag = check.isStopping
            let index = check.probed?.count ?? 0
            check.probed?.append(
                PortMappingState(isIPv4: place.local.isIPv4, standing: .asking, endpoints: [])
            )
            thread.runIfActive(eventLoop: loop) { gateways.probe(place, key: key) { flag.isRaised } }
                .assumeIsolated()
                .whenComplete { result in
                    if case .success(let standing) = result {
                        var state = PortMappingState(isIPv4: place.local.isIPv4, standing: standing, endpoints: [])
                        if case .mapped(let mapping) = standing { state.endpoints = PortMapper.endpoints(of: mapping) }
                        check.probed?[index] = state
                    }
                    check.end()
                }
        }
        check.promise.futureResult.whenComplete { _ in thread.shutdownGracefully { _ in } }
    }

    // MARK: What was found

    private func findings(_ check: Check) -> NetworkFindings {
        let families = [true, false].map { isIPv4 in
            let answers = check.answers.filter { (LanAddress(text: $0.asked.host)?.isIPv4 ?? true) == isIPv4 }
            let toward =
                answers.lazy.compactMap { LanAddress(text: $0.asked.host) }.first
                ?? (isIPv4 ? LanAddress(192, 0, 2, 1) : LanAddress(high: 0x2001_0db8_0000_0000, low: 1))
            let local = environment.gateways?.source(toward: toward)?.host(interface: 0)
            let port = listening.first { endpoint in
                endpoint.host == (isIPv4 ? "0.0.0.0" : "::") || endpoint.host == local
            }?.port
            let observations = answers.compactMap { answer in
                answer.seen.map { NATBehaviour.Observation(asked: answer.asked, seen: $0) }
            }
            return NetworkFindings.Family(
                isIPv4: isIPv4,
                local: local,
                answers: answers,
                behaviour: NATBehaviour(
                    observations,
                    local: local.map { Messaging.Endpoint(host: $0, port: port ?? 0) }
                )
            )
        }
        return NetworkFindings(
            families: families,
            hasRendezvous: !check.answers.isEmpty || !rendezvousTargets().isEmpty,
            hasDatagrams: transport?.hasDatagrams ?? false,
            portMappings: portMappings ?? check.probed,
            isProbe: portMappings == nil && check.probed != nil,
            discovery: discovery
        )
    }
}
