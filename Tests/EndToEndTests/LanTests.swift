import Foundation
import Testing

/// Two machines on one cable, as network namespaces without other routes.
final class Cable {
    let names: [String]

    /// - Parameter bridges: number of container bridges that each machine has before, with addresses from `172.17.0.1`.
    init(bridges: Int = 0) throws {
        let tag = "mf\(UUID().uuidString.prefix(6))"
        names = ["\(tag)a", "\(tag)b"]
        for name in names {
            try Program.tool("ip", "netns", "add", name)
            for number in 17..<17 + bridges {
                try Program.tool("ip", "-n", name, "link", "add", "br\(number)", "type", "bridge")
                try Program.tool("ip", "-n", name, "addr", "add", "172.\(number).0.1/16", "dev", "br\(number)")
                try Program.tool("ip", "-n", name, "link", "set", "br\(number)", "up")
            }
        }
        try Program.tool(
            "ip", "link", "add", "veth0", "netns", names[0], "type", "veth", "peer", "name", "veth0", "netns", names[1])
        for name in names {
            for device in ["lo", "veth0"] { try Program.tool("ip", "-n", name, "link", "set", device, "up") }
        }
    }

    deinit { for name in names { _ = try? Program.tool("ip", "netns", "del", name) } }

    func move(to network: Int) throws {
        for (index, name) in names.enumerated() { try move(name, to: "10.\(network).0.\(index + 1)/24") }
    }

    func move(_ name: String, to address: String?) throws {
        try Program.tool("ip", "-n", name, "-4", "addr", "flush", "dev", "veth0")
        if let address { try Program.tool("ip", "-n", name, "addr", "add", address, "dev", "veth0") }
    }

    /// A file of /proc/net in a machine's namespace.
    func file(_ path: String, _ index: Int = 0) throws -> String {
        try Program.tool("ip", "netns", "exec", names[index], "cat", "/proc/net/\(path)")
    }

    /// Whether a machine has a socket of LAN discovery, or is a member of its groups.
    func isListening(_ index: Int = 0) throws -> Bool {
        // Port 7441; 239.255.109.102 as the kernel writes it, and the IPv6 group.
        let sockets = try file("udp", index) + file("udp6", index)
        let groups = try file("igmp", index) + file("igmp6", index)
        let found = [
            sockets.contains(":1D11 "), groups.uppercased().contains("666DFFEF"),
            groups.contains("ff1200000000000000006d6179666c79"),
        ]
        #expect(found.allSatisfy { $0 } || found.allSatisfy { !$0 }, "\(found)")
        return found[0]
    }
}

/// Members find each other on one network by multicast only.
@Suite(
    "LAN discovery of two nodes", .script,
    .enabled(if: Program.canMakeNamespaces, "making network namespaces needs root and `ip`")) struct LanTests
{
    /// Two stopped nodes that have met on 10.77.0.0/24.
    private func withStrangers(body: (Cable, TestNode, TestNode) throws -> Void) throws {
        let cable = try Cable()
        try cable.move(to: 77)
        try withHomes("ann", "bob") { nodes in
            for (node, name) in zip(nodes, cable.names) {
                node.prefix = ["ip", "netns", "exec", name]
                try node.start(["--listen", "tcp://0.0.0.0:7440"])
            }
            try meet(nodes[0], nodes[1])
            for node in nodes { try node.stop() }
            try body(cable, nodes[0], nodes[1])
            for node in nodes { try node.stop() }
        }
    }

    private func path(_ node: TestNode) throws -> String? {
        try node.ok("conversation", "list")["members"][0]["path"].string
    }

    @Test("Two nodes with outdated addresses and no route find each other, chat, and go on after each move")
    func moving() throws {
        try withStrangers { cable, ann, bob in
            try cable.move(to: 78)
            for node in [ann, bob] { try node.start(["--listen", "tcp://0.0.0.0:7440", "--discover", "lan"]) }
            try say("found", ann)
            try say("found, too", bob)
            #expect(try path(ann) == "lan")
            #expect(try path(bob) == "lan")
            try cable.move(to: 79)
            try say("after both have moved", ann)
            try cable.move(cable.names[0], to: "10.79.0.17/24")
            try say("from my new address", ann)
            try cable.move(cable.names[1], to: "10.79.0.18/24")
            try say("to your new address", ann)
            #expect(try ann.texts() == bob.texts())
            for name in cable.names { try cable.move(name, to: nil) }
            try cable.move(to: 80)
            try say("back", bob)
            // Addresses of others are not stored on the disk.
            for node in [ann, bob] {
                for text in ["10.78.0", "10.79.0", "10.80.0"] { #expect(node.files(holding: text).isEmpty) }
                #expect(!Program.text(node.log).contains("10."))
            }
        }
    }

    @Test("With only link-local addresses of IPv6 two nodes find each other and chat") func linkLocal() throws {
        try withStrangers { cable, ann, bob in
            for name in cable.names { try cable.move(name, to: nil) }
            for node in [ann, bob] { try node.start(["--listen", "tcp://[::]:7440", "--discover", "lan"]) }
            try say("from fe80", ann)
            try say("to fe80", bob)
            #expect(try path(ann) == "lan")
        }
    }

    @Test("An invite with outdated addresses still works: the joiner finds its creator") func joining() throws {
        let cable = try Cable()
        try cable.move(to: 77)
        try withHomes("ann", "bob") { nodes in
            let (ann, bob) = (nodes[0], nodes[1])
            for (node, name) in zip(nodes, cable.names) { node.prefix = ["ip", "netns", "exec", name] }
            try ann.start(["--listen", "tcp://0.0.0.0:7440", "--discover", "lan"])
            try ann.ok("conversation", "create", "--name", "room", "--as", "ann")
            let slug = try ann.ok("invite", "create", "room")["slug"].string ?? ""
            try cable.move(to: 78)
            try bob.start(["--listen", "tcp://0.0.0.0:7440", "--discover", "lan"])
            #expect(try bob.ok("join", slug, "--as", "bob", "--timeout", "90")["state"].string == "ready")
            try say("welcome", ann)
            for node in nodes { try node.stop() }
        }
    }

    @Test("Without --discover there is no socket, no group and no datagram; with it there is, until the node stops")
    func off() throws {
        try withStrangers { cable, ann, bob in
            try cable.move(to: 78)
            for arguments in [[], ["--discover", "off"], ["--discover", "lan:eth7"]] {
                try ann.start(["--listen", "tcp://0.0.0.0:7440"] + arguments)
                try ann.ok("send", "room", "into the void")
                #expect(try !cable.isListening(), "\(arguments)")
                try ann.stop()
            }
            try ann.start(["--listen", "tcp://0.0.0.0:7440", "--discover", "lan:veth0"])
            try eventually("the group is joined") { try cable.isListening() }
            #expect(try ann.ok("status")["discovery"].string == "lan:veth0")
            try ann.stop()
            #expect(try !cable.isListening())
            // The same by configuration.
            let path = "\(ann.home)/config.json"
            let text = Program.text(path).replacingOccurrences(of: "{\n", with: "{\n  \"discover\": \"lan\",\n")
            try ann.replace("config.json", with: text)
            try ann.start(["--listen", "tcp://0.0.0.0:7440"])
            try eventually("the group is joined") { try cable.isListening() }
            #expect(try !cable.isListening(1))
            #expect(!bob.isRunning)
        }
    }

    /// Sends valid, meaningless datagrams from an address as fast as it can. It runs between a minimum and a maximum of
    /// seconds, until a file exists.
    private static let flood = """
        import os, socket, sys, time
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
        least, most = (time.time() + float(seconds) for seconds in sys.argv[2:4])
        sent = 0
        while (now := time.time()) < least or now < most and not os.path.exists(sys.argv[4]):
            for _ in range(64):
                body = os.urandom(1034)
                sender.sendto(bytes([1, 1 + (sent & 1)]) + body, ("239.255.109.102", 7441))
                sent += 1
        print(sent)
        """

    @Test("A flood of announcements from the same network costs the chat and the memory nothing") func flooding() throws
    {
        try withStrangers { cable, ann, bob in
            try cable.move(to: 78)
            for node in [ann, bob] { try node.start(["--listen", "tcp://0.0.0.0:7440", "--discover", "lan"]) }
            try say("before", ann)
            let script = "\(ann.directory)/flood.py"
            try Self.flood.write(toFile: script, atomically: true, encoding: .utf8)
            let before = (ann.residentByteCount, processorTime(ann))
            let output = "\(ann.directory)/flood.out"
            let enough = "\(ann.directory)/flood.enough"
            let begin = ContinuousClock.now
            let flooder = try Child(
                ["ip", "netns", "exec", cable.names[1], "python3", script, "10.78.0.2", "5", "90", enough],
                input: try Descriptor("/dev/null", O_RDONLY), output: try Descriptor(output, O_WRONLY | O_CREAT),
                errors: try Descriptor("/dev/null", O_WRONLY))
            var count = 0
            while flooder.isRunning {
                count += 1
                try say("among the flood \(count)", count % 2 == 0 ? ann : bob)
                if count == 2 { _ = FileManager.default.createFile(atPath: enough, contents: nil) }
            }
            let seconds = Int((.now - begin) / .seconds(1))
            let sent = Program.text(output).trimmingCharacters(in: .whitespacesAndNewlines)
            let growth = (ann.residentByteCount - before.0) >> 10
            let spent = processorTime(ann) - before.1
            print(
                "LAN flood: \(sent) datagrams in \(seconds) s, \(count) messages, \(growth) KiB, "
                    + "\(spent) s of processor time")
            #expect(count >= 2 && (Int(sent) ?? 0) > 1_000)
            #expect(growth < 32 << 10)
        }
    }

    /// In seconds; proc(5), fields 14 and 15, in hundredths.
    private func processorTime(_ node: TestNode) -> Double {
        let fields = Program.text("/proc/\(node.pid)/stat").split(separator: ")").last?.split(separator: " ") ?? []
        return fields.count > 12 ? ((Double(fields[11]) ?? 0) + (Double(fields[12]) ?? 0)) / 100 : 0
    }

    @Test("An invalid network name is refused, on the command line and in the configuration") func refusals() throws {
        try withHomes("ann") { nodes in
            let ann = nodes[0]
            for text in ["wan", "lan:", "lan:a,,b", "lan:eth0/1", "LAN", "lan:sixteen-letters-"] {
                let answer = try ann.fails(64, "run", "--discover", text)
                #expect(answer.message.contains(text) || answer.errors.contains(text), "\(answer)")
            }
            let config = Program.text("\(ann.home)/config.json")
            try ann.replace(
                "config.json", with: config.replacingOccurrences(of: "{\n", with: "{\n  \"discover\": \"wan\",\n"))
            let answer = try #require(try ann.tryStart())
            #expect(answer.code == 1)
            let message = "\(answer)"
            #expect(message.contains("line 2") && message.contains("found wan"), "\(answer)")
        }
    }
}
