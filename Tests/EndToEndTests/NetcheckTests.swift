import Foundation
import Testing

@Suite("Netcheck", .script) struct NetcheckTests {
    @Test func `Netcheck reports a missing node, no rendezvous node, a reached one and a lost one`() throws {
        try withHomes("ann", "hub") { nodes in
            let (ann, hub) = (nodes[0], nodes[1])
            let none = try ann.fails(8, "netcheck")
            #expect(none.kind == "no_node" || none.kind == "noNode", "\(none)")
            #expect(none.json["error"]["hint"].string?.contains("mayfly run") == true, "\(none)")
            try ann.start()
            let nothing = try ann.fails(64, "netcheck", "--timeout", "0")
            #expect(nothing.json["error"]["message"].string?.contains("timeout") == true, "\(nothing)")
            let alone = try ann.ok("netcheck", "--timeout", "5")
            #expect(
                alone["reached"].isNull && alone["punching"].string == "unknown" && alone["discovery"].string == "off")
            #expect(alone["portMappings"].isNull)
            #expect(
                alone["advice"].list.compactMap(\.string).contains {
                    $0.contains("rendezvous=on") || $0.contains("route")
                })
            #expect(alone["families"].list.compactMap { $0["family"].string } == ["ipv4", "ipv6"])

            try hub.start(["--rendezvous"])
            try ann.add(hub)
            try ann.ok("peer", "set", "hub", "rendezvous=on")
            let found = try ann.ok("netcheck", "--timeout", "90")
            let family = found["families"][0]
            #expect(
                family["udp"].bool == true && family["tcp"].bool == true && family["nat"].string == "none", "\(family)")
            #expect(family["portPreserved"].bool == true && family["mapping"].string == "unknown")
            let answer = family["answers"][0]
            #expect(answer["rendezvous"].string == "hub" && answer["seenAddress"].string == ann.host)
            #expect(answer["seenPort"].integer == Int64(ann.port) && (answer["rttMs"].double ?? -1) > 0)
            // A rendezvous node on the loopback cannot see our outer address.
            #expect(found["punching"].string == "unknown" && found["reached"].bool == true)
            let shown = try ann.show("netcheck")
            #expect(shown.code == 0 && shown.output.contains("IPv4") && shown.output.contains("hub"), "\(shown)")

            try hub.stop()
            let gone = try ann.fails(5, "netcheck", "--timeout", "3")
            #expect(gone["reached"].bool == false && gone["families"][0]["udp"].bool == false, "\(gone)")
            #expect(gone["advice"].list.compactMap(\.string).contains { $0.contains("No rendezvous node answers") })
            try ann.stop()
        }
    }
}

/// The kinds of NAT, by a real router's translation.
@Suite("Netcheck behind a NAT", .script, .enabled(if: GatewayHouse.canBeBuilt, "\(GatewayHouse.reason)"))
struct NetcheckNATTests {
    /// `ann` behind a router; rendezvous nodes at two addresses outside.
    private func check(_ body: (JSON, TestNode) throws -> Void) throws {
        try withHomes("ann", "one", "two") { nodes in
            let house = try GatewayHouse(in: nodes[0].directory)
            let ann = nodes[0]
            ann.prefix = ["ip", "netns", "exec", house.inside]
            try ann.start(["--listen", "tcp://0.0.0.0:7440"])
            for (hub, address) in zip(nodes.dropFirst(), ["6.6.6.1", "6.6.6.3"]) {
                hub.prefix = ["ip", "netns", "exec", house.outside]
                try hub.start(["--listen", "tcp://\(address):7440", "--rendezvous"])
                try ann.add(hub)
                try ann.ok("peer", "set", hub.name, "rendezvous=on")
            }
            let found = try ann.ok("netcheck")
            #expect(found["families"][0]["local"].string == "192.168.1.2" && found["families"][0]["route"].bool == true)
            try body(found.json, ann)
            #expect(try house.askedCount() == 0, "nobody else is asked")
            for node in nodes { try node.stop() }
        }
    }

    @Test func `An endpoint-independent NAT is recognised: hole punching works`() throws {
        try check { found, ann in
            let family = found["families"][0]
            #expect(family["nat"].string == "endpoint-independent", "\(found)")
            #expect(family["mapping"].string == "endpoint-independent" && family["portPreserved"].bool == true)
            #expect(Set(family["answers"].list.map { $0["seenAddress"].string }) == ["5.5.5.2"])
            #expect(found["punching"].string == "works")
            #expect(!Program.text(ann.log).contains("5.5.5."))
        }
    }
}
