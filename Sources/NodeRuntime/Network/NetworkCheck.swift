import Cryptography
import Messaging
import NIOCore
import NIOPosix
import Transport

/// `mayfly netcheck`: what this network permits, as observed by rendezvous nodes.
final class NetworkCheck: Part {
    private static let netcheckCount = 8

    /// Answers may come after the stop.
    private let retained: Shell
    /// The networks used for LAN discovery; `nil` if it is off.
    private let discovery: String?
    private var answers: [NetworkFindings.Answer] = []
    /// Results of gateways asked only for this check.
    private var probed: [PortMappingState]?
    private var underWay = 0
    private let isStopping = StopFlag()
    private let promise: EventLoopPromise<Void>

    override init(_ shell: Shell) {
        retained = shell
        discovery = shell.network.discovery
        promise = shell.services.loop.makePromise(of: Void.self)
        super.init(shell)
    }

    /// - Parameters:
    ///   - timeout: after this time, returns partial results.
    ///   - mapsPorts: whether to request a temporary mapping if port mapping is off.
    func run(timeout: Milliseconds, mapsPorts: Bool) -> EventLoopFuture<NetworkFindings> {
        begin()
        for target in rendezvousTargets() { resolve(target) }
        if mapsPorts, !shell.portMapper.isOn { probeGateways() }
        end()
        let timer = loop.assumeIsolated().scheduleTask(in: .milliseconds(timeout)) { self.promise.succeed(()) }
        return promise.futureResult.assumeIsolated().map {
            timer.cancel()
            self.isStopping.raise()
            return self.findings()
        }.nonisolated()
    }

    private func begin() { underWay += 1 }

    private func end() {
        underWay -= 1
        if underWay == 0 { promise.succeed(()) }
    }

    private struct Target {
        let name: String?
        let endpoint: Messaging.Endpoint
        let routingSecret: [UInt8]
    }

    /// Our own rendezvous nodes first, then those of members.
    private func rendezvousTargets() -> [Target] {
        var result: [Target] = []
        func add(_ name: String?, _ endpoint: Messaging.Endpoint, _ secret: [UInt8]) {
            guard endpoint.port > 0, result.count < Self.netcheckCount,
                !result.contains(where: { $0.endpoint == endpoint.address })
            else { return }
            result.append(Target(name: name, endpoint: endpoint.address, routingSecret: secret))
        }
        for peer in shell.book.peers where peer.isRendezvous && !peer.isBlocked {
            guard let card = peer.card else { continue }
            for endpoint in card.endpoints where endpoint.relay == nil { add(peer.name, endpoint, card.routingSecret) }
        }
        for machine in core.machine.conversations {
            for member in machine.currentMembers {
                for endpoint in member.endpoints {
                    if let relay = endpoint.relay { add(nil, endpoint, relay.routingSecret) }
                }
            }
        }
        return result
    }

    private func resolve(_ target: Target) {
        guard let transport = shell.listening.transport else { return }
        self.begin()
        transport.addresses(of: Transport.Endpoint(target.endpoint)) { addresses in
            for address in addresses {
                let one = Messaging.Endpoint(host: address.host, port: target.endpoint.port)
                guard self.answers.count < Self.netcheckCount, !self.answers.contains(where: { $0.asked == one }) else {
                    continue
                }
                self.answers.append(NetworkFindings.Answer(rendezvous: target.name, asked: one))
                self.ask(address, self.answers.count - 1, target.routingSecret)
            }
            self.end()
        }
    }

    private func ask(_ address: Transport.Endpoint, _ index: Int, _ secret: [UInt8]) {
        let begin = loop.now
        let loop = loop
        func elapsed() -> Double { Double((loop.now - begin).nanoseconds) / 1_000_000 }
        if shell.listening.hasDatagrams {
            self.begin()
            shell.punching.observe(at: Messaging.Endpoint(address), secret) { seen in
                self.answers[index].seen = seen
                if seen != nil { self.answers[index].udpMilliseconds = elapsed() }
                self.end()
            }
        }
        self.begin()
        environment.network.connect(to: address, limits: TransportLimits(), on: loop).assumeIsolated().whenComplete {
            if case .success(let channel) = $0 {
                self.answers[index].tcpMilliseconds = elapsed()
                channel.close(promise: nil)
            }
            self.end()
        }
    }

    private func probeGateways() {
        guard let network = environment.gateways else { return }
        self.probed = []
        let key = shell.portMapper.homeKey() ?? randomBytes(32)
        let thread = NIOThreadPool(numberOfThreads: 1)
        thread.start()
        var isIPv4Seen: Set<Bool> = []
        // One address per family is enough.
        for place in shell.portMapper.places(network.routes()) where isIPv4Seen.insert(place.local.isIPv4).inserted {
            self.begin()
            let flag = isStopping
            let index = self.probed?.count ?? 0
            self.probed?.append(PortMappingState(isIPv4: place.local.isIPv4, standing: .asking, endpoints: []))
            thread.runIfActive(eventLoop: loop) { network.probe(place, key: key) { flag.isRaised } }.assumeIsolated()
                .whenComplete { result in
                    if case .success(let standing) = result {
                        var state = PortMappingState(isIPv4: place.local.isIPv4, standing: standing, endpoints: [])
                        if case .mapped(let mapping) = standing { state.endpoints = PortMapper.endpoints(of: mapping) }
                        self.probed?[index] = state
                    }
                    self.end()
                }
        }
        self.promise.futureResult.whenComplete { _ in thread.shutdownGracefully { _ in } }
    }

    private func findings() -> NetworkFindings {
        let families = [true, false].map { isIPv4 in
            let answers = self.answers.filter { (IPAddress(text: $0.asked.host)?.isIPv4 ?? true) == isIPv4 }
            let toward =
                answers.lazy.compactMap { IPAddress(text: $0.asked.host) }.first ?? IPAddress.elsewhere(isIPv4: isIPv4)
            let source = toward.source?.host(interface: 0)
            let wildcard = isIPv4 ? "0.0.0.0" : "::"
            // UDP uses the listener's address, which may differ from the route's source address.
            let listener =
                shell.listening.endpoints.first { $0.host == wildcard || $0.host == source }
                ?? shell.listening.endpoints.first { endpoint in
                    IPAddress(text: endpoint.host).map { ($0.isIPv4, $0.isLoopback) == (isIPv4, toward.isLoopback) }
                        ?? false
                }
            let local = source.map { source in listener.map { $0.host == wildcard ? source : $0.host } ?? source }
            let port = listener?.port
            let observations = answers.compactMap { answer in
                answer.seen.map { NATBehaviour.Observation(asked: answer.asked, seen: $0) }
            }
            return NetworkFindings.Family(
                isIPv4: isIPv4, local: local, answers: answers,
                behaviour: NATBehaviour(
                    observations, local: local.map { Messaging.Endpoint(host: $0, port: port ?? 0) }))
        }
        return NetworkFindings(
            families: families, hasRendezvous: !self.answers.isEmpty || !rendezvousTargets().isEmpty,
            hasDatagrams: shell.listening.hasDatagrams, portMappings: shell.portMapper.states ?? probed,
            isProbe: shell.portMapper.states == nil && self.probed != nil, discovery: discovery)
    }
}
