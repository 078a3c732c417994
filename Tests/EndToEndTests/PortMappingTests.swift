import Foundation
import Glibc
import Testing

/// A node behind a real router program that makes mappings on request.
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
            let path = try bob.ok("conversation", "members", "room").json["members"].list.compactMap {
                $0["path"].string
            }
            #expect(path == ["direct"])
            let check = try ann.run(["doctor"]).lines.first { $0["name"].string == "port mapping" }
            #expect(check?["state"].string == "ok", "\(check?.description ?? "none")")
            try ann.stop()
            #expect(try house.mappings().isEmpty, "removed at the stop")
            let log = Program.text(ann.log)
            for text in ["5.5.5.", "192.168.", "2a00:"] { #expect(!log.contains(text), "the log holds \(text)") }
            #expect(log.contains("port mapping: the gateway has made a mapping"))
        }
    }

    @Test("By PCP an outside peer reaches a node through the mapped port, and a stop removes it") func pcp() throws {
        try check(.all, "pcp")
    }

    @Test("By NAT-PMP an outside peer reaches a node through the mapped port, and a stop removes it") func natPMP()
        throws
    { try check(.withoutPCP, "nat-pmp") }

    @Test("By UPnP an outside peer reaches a node through the mapped port, and a stop removes it") func upnp() throws {
        try check(.upnpOnly, "upnp")
    }

    @Test("An IPv6 gateway opens a pinhole for outside peers, and the stop closes it") func pinhole() throws {
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

    @Test("Without --map-ports no gateway is asked; the configuration can enable it, the command line disable it")
    func off() throws {
        try withHouse { house, ann, _ in
            try house.startGateway()
            for arguments in [[], ["--no-map-ports"]] {
                try ann.start(Self.listen + arguments)
                #expect(try ann.ok("status")["portMappings"].isNull)
                try ann.ok("netcheck", "--timeout", "1")
                try ann.stop()
                #expect(try house.askedCount() == 0)
            }
            let config = Program.text("\(ann.home)/config.json")
            try ann.replace(
                "config.json", with: config.replacingOccurrences(of: "{\n", with: "{\n  \"mapPorts\": true,\n"))
            try ann.start(Self.listen + ["--no-map-ports"])
            try ann.ok("netcheck", "--timeout", "1")
            try ann.stop()
            #expect(try house.askedCount() == 0)
            try ann.start(Self.listen)
            try mapped(ann)
            #expect(try house.askedCount() > 0)
        }
    }

    @Test("A lease is renewed at half its time, after a restart of the gateway, and after a change of address")
    func upkeep() throws {
        try withHouse { house, ann, bob in
            // The shortest lease of this gateway, so that its half is 30 s.
            try house.startGateway(lease: 61)
            try ann.start(Self.listen + ["--map-ports"])
            try mapped(ann)
            let first = try mapping(ann)["until"].time ?? 0
            #expect(first - Int64(Self.seconds()) * 1_000 <= 62_000)
            try eventually("a renewal") { (try mapping(ann)["until"].time ?? 0) >= first + 20_000 }
            #expect(try mapping(ann)["state"].string == "mapped" && house.mappings().count == 2)
            // The router loses its power, and returns.
            try house.crashGateway()
            #expect(try house.mappings().isEmpty)
            try house.startGateway(lease: 61)
            try eventually("the mapping is back") { try house.mappings().count == 2 }
            try Program.tool("ip", "-n", house.inside, "addr", "flush", "dev", "eth0", "scope", "global")
            try Program.tool("ip", "-n", house.inside, "addr", "add", "192.168.1.77/24", "dev", "eth0")
            try Program.tool("ip", "-n", house.inside, "route", "replace", "default", "via", "192.168.1.1")
            try eventually("the new address is mapped") {
                try house.mappings().contains { $0.contains("192.168.1.77") }
            }
            try mapped(ann)
            let outer = try mapping(ann)["outer"][0].string ?? ""
            #expect(outer.hasPrefix("tcp://5.5.5.2:"))
            try bob.start()
            try meet(ann, bob)
            try say("still there", bob)
        }
    }

    @Test("A killed node leaves a lease of an hour at most, and takes it up again when it restarts") func killed()
        throws
    {
        try withHouse { house, ann, _ in
            try house.startGateway()
            try ann.start(Self.listen + ["--map-ports"])
            try mapped(ann)
            ann.crash()
            #expect(try house.mappings().count == 2)
            let left = house.leaseEnds().map { $0 - Self.seconds() }
            #expect(left.count == 2 && left.allSatisfy { (3_000...3_600).contains($0) }, "\(left)")
            try ann.start(Self.listen + ["--map-ports"])
            try mapped(ann)
            #expect(try mapping(ann)["outer"][0].string == "tcp://5.5.5.2:7440" && house.mappings().count == 2)
            try ann.stop()
            #expect(try house.mappings().isEmpty)
        }
    }

    /// Answers each request of PCP, each kind of error in turn; the outer address is that of another NAT.
    private static let liar = """
        import os, socket, struct
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind(("192.168.1.1", 5351))
        while True:
            request, peer = server.recvfrom(1500)
            if len(request) < 60 or request[0] != 2:
                continue
            for cut in range(0, 60, 7):
                # A one at the fourth place, and it would say that this version is not spoken: an answer (section 9).
                server.sendto((os.urandom(3) + bytes([2]) + os.urandom(52))[:cut], peer)
                server.sendto((bytes([2, 0x81]) + os.urandom(58))[:cut], peer)
            head = bytes([2, 0x81, 0, 0]) + struct.pack("!II", 0xffffffff, 1) + bytes(12)
            # Not our nonce, and not our port.
            server.sendto(head + os.urandom(12) + request[36:44] + bytes(10) + b"\\xff\\xff\\x05\\x05\\x05\\x05", peer)
            server.sendto(head + request[24:44] + bytes(10) + b"\\xff\\xff\\x0a\\x09\\x09\\x09", peer)
        """

    @Test("A private outer address is not advertised: `status` reports that the gateway is behind a NAT")
    func doubleNAT() throws {
        try withHouse { house, ann, _ in
            try house.startGateway(script: Self.liar)
            try ann.start(Self.listen + ["--map-ports"])
            try eventually("a refusal") { try mapping(ann)["state"].string == "failed" }
            #expect(try mapping(ann)["reason"].string?.contains("behind a NAT") == true)
            let card = try ann.ok("peer", "card")["endpoints"].list.compactMap(\.string)
            #expect(card == ["tcp://192.168.1.2:7440"], "\(card)")
            let checked = try ann.ok("netcheck", "--timeout", "2")
            #expect(checked["advice"].list.contains { $0.string?.contains("behind a NAT") == true }, "\(checked)")
            let begin = ContinuousClock.now
            try ann.stop()
            #expect(ContinuousClock.now - begin < .seconds(50))
        }
    }

    /// Speaks only NAT-PMP, and answers after the library has asked again: each answer comes twice.
    private static let slow = """
        import socket, struct, threading
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind(("192.168.1.1", 5351))
        while True:
            request, peer = server.recvfrom(1500)
            head = bytes([0, 0x80 | request[1], 0, 1 if request[0] else 0]) + struct.pack("!I", 9)
            body = b"" if request[0] else socket.inet_aton("5.5.5.2") if request[1] == 0 else request[4:12]
            threading.Timer(0.3, server.sendto, (head + body, peer)).start()
        """

    @Test("A gateway that only speaks NAT-PMP, and answers repeated requests late, is understood") func slowGateway()
        throws
    {
        try withHouse { house, ann, _ in
            try house.startGateway(script: Self.slow)
            try ann.start(Self.listen + ["--map-ports"])
            try mapped(ann)
            let found = try mapping(ann)
            #expect(found["method"].string == "nat-pmp" && found["outer"].list.count == 1, "\(found)")
            #expect(found["outer"][0].string == "tcp://5.5.5.2:7440")
        }
    }

    /// Speaks only UPnP. Its device description has no end: as fast as it is read, or a byte a second.
    private static func endless(_ pause: String) -> String {
        """
        import socket, struct, threading, time
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(("192.168.1.1", 5000))
        pcp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        pcp.bind(("192.168.1.1", 5351))
        server = socket.create_server(("192.168.1.1", 5000))
        def talk(peer):
            peer.recv(4096)
            count = 0
            try:
                peer.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/xml\\r\\n\\r\\n")
                print("asked", flush=True)
                while True:
                    count += peer.send(b"x" * 65536) if not \(pause) else peer.send(b"x")
                    time.sleep(\(pause))
            except OSError:
                print("left after", count >> 20, "MiB", flush=True)
        def accept():
            while True:
                threading.Thread(target=talk, args=(server.accept()[0],), daemon=True).start()
        threading.Thread(target=accept, daemon=True).start()
        search = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        search.bind(("", 1900))
        search.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                          socket.inet_aton("239.255.255.250") + socket.inet_aton("192.168.1.1"))
        while True:
            _, peer = search.recvfrom(1500)
            search.sendto(b"HTTP/1.1 200 OK\\r\\nST: urn:schemas-upnp-org:device:InternetGatewayDevice:1\\r\\n"
                          b"USN: uuid:1\\r\\nLOCATION: http://192.168.1.1:5000/d.xml\\r\\n\\r\\n", peer)
        """
    }

    @Test("A gateway with an endless description costs neither the node's memory nor delays its stop")
    func endlessGateway() throws {
        for pause in ["0", "1"] {
            try withHouse(.upnpOnly) { house, ann, _ in
                try house.startGateway(script: Self.endless(pause))
                try ann.start(Self.listen + ["--map-ports"])
                let before = ann.residentByteCount
                try eventually("it is asked by UPnP") { house.log.contains("asked") }
                if pause == "0" {
                    try eventually("it is left alone", seconds: 60) { house.log.contains("left after") }
                    try eventually("a refusal", seconds: 60) { try mapping(ann)["state"].string == "failed" }
                }
                #expect(ann.residentByteCount < before + (24 << 20))
                let begin = ContinuousClock.now
                try ann.stop()
                #expect(ContinuousClock.now - begin < .seconds(50))
                if pause == "1" { try eventually("nobody is left to listen") { house.log.contains("left after") } }
            }
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
