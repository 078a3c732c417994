import Cryptography
import Messaging
import NIOCore
import Transport

/// The network side of NAT hole punching: finding this node's public addresses, and sending packets.
final class Punching: Part {
    /// Collects UDP addresses of this node: its own, and those observed by its rendezvous nodes and the member's.
    func gatherCandidates(_ client: ClientID, _ remote: PublicKey) {
        let own = shell.addresses.direct.filter { (try? SocketAddress(ipAddress: $0.host, port: Int($0.port))) != nil }
        let members = core.machine.conversation(client)?.currentMembers.first { $0.key == remote }?.endpoints ?? []
        var relays: [(endpoint: Messaging.Endpoint, secret: [UInt8])] = []
        let places = core.machine.contact.map { $0.relayPlaces.endpoints(of: $0.cardSeed) } ?? []
        for endpoint in places + members {
            let isKnown = relays.contains { ($0.endpoint.host, $0.endpoint.port) == (endpoint.host, endpoint.port) }
            if let relay = endpoint.relay, !isKnown { relays.append((endpoint, relay.routingSecret)) }
        }
        let gathering = Gathering(loop) { [weak self] seen in
            guard let self else { return }
            let candidates = seen + own.filter { !seen.contains($0) }
            core.turn { core.machine.step(client, &$0) { $0.gathered(candidates, for: remote, &$1) } }
        }
        let asked = relays.prefix(Self.observerCount)
        gathering.begin(asked.count)
        for (relay, secret) in asked { observe(at: relay, secret) { gathering.answered($0) } }
    }

    private static let observerCount = 4

    /// Collects answers until all rendezvous nodes have answered, or until a timeout after the first answer: they
    /// mostly agree. On the loop alone.
    private final class Gathering: @unchecked Sendable {
        private let loop: any EventLoop
        private var finish: (([Messaging.Endpoint]) -> Void)?
        private var seen: [Messaging.Endpoint] = []
        private var underWay = 0

        init(_ loop: any EventLoop, finish: @escaping ([Messaging.Endpoint]) -> Void) {
            self.loop = loop
            self.finish = finish
        }

        func begin(_ count: Int) {
            underWay = count
            end(after: count == 0 ? 0 : Limits.observePatience)
        }

        func answered(_ endpoint: Messaging.Endpoint?) {
            if let endpoint, !seen.contains(endpoint) { seen.append(endpoint) }
            underWay -= 1
            if underWay == 0 { end() } else if endpoint != nil { end(after: Limits.observeGrace) }
        }

        private func end(after time: Milliseconds) {
            loop.assumeIsolated().scheduleTask(in: .milliseconds(time)) { self.end() }
        }

        private func end() {
            finish?(seen)
            finish = nil
        }
    }

    /// Asks a rendezvous node for our UDP address as it sees it.
    func observe(
        at endpoint: Messaging.Endpoint, _ routingSecret: [UInt8], _ completion: @escaping (Messaging.Endpoint?) -> Void
    ) {
        guard let transport = shell.listening.transport else { return completion(nil) }
        let secret = RoutingSecret.derive(card: routingSecret)
        // Taken from the end: today's token first. The any-day token serves nodes whose clock differs by more than a
        // day.
        var tokens = [nil, now.day].map { secret.sharedToken(day: $0, using: &random) }
        func ask() {
            guard let token = tokens.popLast() else { return completion(nil) }
            transport.observe(at: Transport.Endpoint(endpoint), token: token) { seen in
                guard let seen else { return ask() }
                completion(Messaging.Endpoint(seen))
            }
        }
        ask()
    }

    func punch(_ nonce: PunchNonce, _ candidates: [Messaging.Endpoint]) {
        shell.listening.transport?.punch(nonce.bytes, to: LinkTransport.reachable(candidates))
    }
}

extension LinkTransport {
    /// Filters the peer's addresses: no multicast, broadcast, unspecified or link-local address without an interface.
    static func reachable(_ candidates: [Messaging.Endpoint]) -> [Transport.Endpoint] {
        candidates.prefix(Limits.punchCandidateCount).compactMap { candidate in
            guard candidate.relay == nil, candidate.port > 0,
                let address = try? SocketAddress(ipAddress: candidate.host, port: Int(candidate.port)),
                !address.isMulticast, !["0.0.0.0", "::", "255.255.255.255"].contains(candidate.host),
                candidate.host.contains("%") || IPAddress(address)?.isLinkLocal != true
            else { return nil }
            return Transport.Endpoint(candidate)
        }
    }
}
