import Messaging
import Testing
import Transport

@testable import NodeRuntime

private typealias Endpoint = Messaging.Endpoint

@Suite("NAT behaviour") struct NATBehaviourTests {
    private let local = Endpoint(host: "192.168.1.2", port: 7_440)

    /// `answers` holds the asked node and the address at which it saw us, as `host:port`.
    private func behaviour(_ answers: [(String, String)], local: Endpoint?) -> NATBehaviour {
        func endpoint(_ text: String) -> Endpoint { Endpoint("tcp://\(text)") ?? Endpoint(host: "", port: 0) }
        return NATBehaviour(
            answers.map { NATBehaviour.Observation(asked: endpoint($0.0), seen: endpoint($0.1)) }, local: local)
    }

    @Test func `the mapping is classified by the seen addresses and ports, and unknown with too few answers`() {
        let cases: [([(String, String)], NATBehaviour.Mapping, NATBehaviour.Kind)] = [
            ([], .unknown, .unknown), ([("1.1.1.1:1", "5.5.5.2:7440")], .unknown, .unknown),
            ([("1.1.1.1:1", "5.5.5.2:7440"), ("1.1.1.1:2", "5.5.5.2:7440")], .unknown, .unknown),
            ([("1.1.1.1:1", "5.5.5.2:9"), ("2.2.2.2:1", "5.5.5.2:9")], .endpointIndependent, .endpointIndependent),
            ([("1.1.1.1:1", "5.5.5.2:9"), ("2.2.2.2:1", "5.5.5.2:10")], .destinationDependent, .symmetric),
            ([("1.1.1.1:1", "5.5.5.2:9"), ("2.2.2.2:1", "5.5.5.3:9")], .destinationDependent, .symmetric),
            ([("1.1.1.1:1", "5.5.5.2:9"), ("1.1.1.1:2", "5.5.5.2:10")], .addressAndPortDependent, .symmetric),
            (
                [("1.1.1.1:1", "5.5.5.2:9"), ("1.1.1.1:2", "5.5.5.2:9"), ("2.2.2.2:1", "5.5.5.2:10")],
                .addressDependent, .symmetric
            ),
        ]
        for (answers, mapping, kind) in cases {
            let found = behaviour(answers, local: local)
            #expect(found.mapping == mapping && found.kind == kind, "\(answers)")
        }
    }

    @Test func `no NAT if our own address and port are seen; a NAT if either differs`() {
        let own = [("1.1.1.1:1", "192.168.1.2:7440")]
        #expect(behaviour(own, local: local).kind == .none && behaviour(own, local: local).preservesPort == true)
        #expect(behaviour(own, local: Endpoint(host: "192.168.1.2", port: 0)).kind == .none)
        #expect(behaviour(own, local: Endpoint(host: "192.168.1.2", port: 0)).preservesPort == nil)
        #expect(behaviour(own, local: nil).kind == .unknown)
        let moved = behaviour([("1.1.1.1:1", "192.168.1.2:7441")], local: local)
        #expect(moved.kind == .unknown && moved.preservesPort == false)
    }

    private func findings(
        _ answers: [(String, String)], silent: Bool = false, hasRendezvous: Bool = true, hasDatagrams: Bool = true,
        local: String? = "192.168.1.2", mappings: [PortMappingState]? = nil, own: Endpoint? = nil
    ) -> NetworkFindings {
        let behaviour = behaviour(answers, local: own ?? self.local)
        let asked = answers.isEmpty && (silent || !hasDatagrams) ? 1 : 0
        let family = NetworkFindings.Family(
            isIPv4: true, local: local,
            answers: answers.map {
                .init(rendezvous: "hub", asked: self.local, seen: Endpoint("tcp://\($0.1)"), udpMilliseconds: 1)
            } + (0..<asked).map { _ in .init(rendezvous: "hub", asked: self.local, tcpMilliseconds: silent ? nil : 1) },
            behaviour: behaviour)
        return NetworkFindings(
            families: [family], hasRendezvous: hasRendezvous, hasDatagrams: hasDatagrams, portMappings: mappings,
            discovery: nil)
    }

    @Test func `the chance of hole punching, and the advice, in each case`() {
        let cone = [("1.1.1.1:1", "5.5.5.2:9"), ("2.2.2.2:1", "5.5.5.2:9")]
        let symmetric = [("1.1.1.1:1", "5.5.5.2:9"), ("2.2.2.2:1", "5.5.5.2:10")]
        let mapped = PortMappingState(isIPv4: true, standing: .asking, endpoints: [local])
        let cases: [(NetworkFindings, NetworkFindings.Punching, String)] = [
            (findings(cone), .works, "Hole punching works"), (findings(symmetric), .limited, "symmetric"),
            (findings(symmetric, mappings: [mapped]), .unneeded, "port mapping"),
            (findings([cone[0]]), .unknown, "second rendezvous node"),
            (findings([("1.1.1.1:1", "5.5.5.9:7440")], own: Endpoint("tcp://5.5.5.9:7440")), .unneeded, "no NAT"),
            (findings([("192.168.1.3:1", "192.168.1.2:7440")]), .unknown, "own network"),
            (findings([], hasRendezvous: false), .unknown, "No rendezvous node is known"),
            (findings([], silent: true), .unknown, "No rendezvous node answers"),
            (findings([], hasDatagrams: false), .impossible, "without UDP"),
            (findings([], hasRendezvous: false, local: nil), .unknown, "no route"),
        ]
        for (found, punching, words) in cases {
            #expect(
                found.punching == punching && found.advice.first?.contains(words) == true, "\(words): \(found.advice)")
        }
        #expect(findings(symmetric).advice.contains { $0.contains("--map-ports") })
        #expect(!findings(cone).advice.contains { $0.contains("--map-ports") })
    }
}
