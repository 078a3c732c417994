import Foundation
import Glibc
import Testing

@Suite("Port mapping of a node", .script, .enabled(if: GatewayHouse.canBeBuilt, "\(GatewayHouse.reason)"))
struct PortMappingTests {
    private static let listen = ["--listen", "tcp://0.0.0.0:7440"]

    private func withHouse(
        _ methods: GatewayHouse.Methods = .all, _ body: (GatewayHouse, TestNode, TestNode) throws -> Void
    ) throws {
        try withHomes("ann", "bob") { nodes in
            let house = try GatewayHouse(in: nodes[0].directory, methods: methods)
            nodes[0].prefix = ["ip", "netns", "exec", house.inside]
            nodes[1].prefix = ["ip", "netns", "exec", house.outside]
            try body(house, nodes[0], nodes[1])
            for node in nodes { try node.stop() }
        }
    }

    private func mapping(_ node: TestNode, _ family: String = "ipv4") throws -> JSON {
        try node.ok("status")["portMappings"].list.first { $0["family"].string == family } ?? JSON(value: nil)
    }

    private func mapped(_ node: TestNode, _ family: String = "ipv4", seconds: Int = 90) throws {
        try eventually("a mapping", seconds: seconds) { try mapping(node, family)["state"].string == "mapped" }
    }

    private static func seconds() -> Int { Int(Date().timeIntervalSince1970) }

    private func check(_ methods: GatewayHouse.Methods, _ name: String) throws {
        try withHouse(methods) { house, ann, bob in
            try house.startGateway()
            try ann.start(Self.listen + ["--map-ports", "--log-level", "trace"])
            try mapped(ann)
            let found = try mapping(ann)
            #expect(found["method"].string == name && found["outer"][0].string == "tcp://5.5.5.2:7440", "\(found)")
            let left = ((found["until"].time ?? 0) - Int64(Self.seconds()) * 1_000) / 1_000
            #expect((3_000...3_601).contains(left), "an hour at most: \(left) s")
            #expect(try house.mappings().count == 2, "TCP and UDP")
            // Peers get the mapped address and use it: ann cannot connect to bob.
            let card = try ann.ok("peer", "card")["endpoints"].list.compactMap(\.string)
            #expect(card.first == "tcp://5.5.5.2:7440", "\(card)")
            try bob.start()
            try meet(ann, bob)
            try say("from outside", bob)
            try say("from inside", ann)
            let path = try bob.members().list.compactMap { $0["path"].string }
            #expect(path == ["direct"])
            let check = try ann.check("port mapping")
            #expect(check["state"].string == "ok", "\(check)")
            try ann.stop()
            #expect(try house.mappings().isEmpty, "removed at the stop")
            let log = Program.text(ann.log)
            for text in ["5.5.5.", "192.168.", "2a00:"] { #expect(!log.contains(text), "the log holds \(text)") }
            #expect(log.contains("port mapping: the gateway has made a mapping"))
        }
    }

    @Test func `By PCP an outside peer reaches a node through the mapped port, and a stop removes it`() throws {
        try check(.all, "pcp")
    }

    @Test func `By NAT-PMP an outside peer reaches a node through the mapped port, and a stop removes it`() throws {
        try check(.withoutPCP, "nat-pmp")
    }

    @Test func `By UPnP an outside peer reaches a node through the mapped port, and a stop removes it`() throws {
        try check(.upnpOnly, "upnp")
    }

    @Test func `An IPv6 gateway opens a pinhole for outside peers, and the stop closes it`() throws {
        try withHouse { house, ann, bob in
            try house.startGateway()
            try ann.start(["--listen", "tcp://[::]:7440", "--map-ports"])
            try mapped(ann, "ipv6")
            #expect(try mapping(ann, "ipv6")["outer"][0].string == "tcp://[2a00:2::2]:7440")
            #expect(try house.openings().count == 2)
            try bob.start()
            try meet(ann, bob)
            try say("over IPv6", bob)
            try ann.stop()
            #expect(try house.openings().isEmpty)
        }
    }

    @Test("`netcheck --map-ports` tries a mapping and removes it") func probing() throws {
        try withHouse { house, ann, _ in
            try house.startGateway()
            try ann.start(Self.listen)
            let checked = try ann.ok("netcheck", "--map-ports")
            let found = checked["portMappings"][0]
            #expect(found["state"].string == "possible" && found["until"].isNull)
            #expect(checked["advice"].list.contains { $0.string?.contains("run --map-ports") == true }, "\(checked)")
            #expect(found["method"].string == "pcp" && found["outer"][0].string == "tcp://5.5.5.2:7440", "\(found)")
            try eventually("it is gone") { try house.mappings().isEmpty }
            #expect(house.log.contains("PCP MAP: added mapping"))
            #expect(try ann.ok("peer", "card")["endpoints"].list.compactMap(\.string) == ["tcp://192.168.1.2:7440"])
        }
    }
}
