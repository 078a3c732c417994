import Foundation
import Testing

/// Two machines on one cable, as network namespaces without other routes.
final class Cable {
    let names: [String]

    init() throws {
        let tag = "mf\(UUID().uuidString.prefix(6))"
        names = ["\(tag)a", "\(tag)b"]
        for name in names { try Program.tool("ip", "netns", "add", name) }
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

    func file(_ path: String, _ index: Int = 0) throws -> String {
        try Program.tool("ip", "netns", "exec", names[index], "cat", "/proc/net/\(path)")
    }

    /// Whether a machine has a socket of LAN discovery, or is a member of its groups.
    func isListening(_ index: Int = 0) throws -> Bool {
        // Port 7441; 239.255.109.102 as the kernel writes it, and the IPv6 group.
        var found: [Bool] = []
        // The files are read one after the other, and the node may open or close its sockets meanwhile.
        try eventually("sockets and groups agree") {
            let sockets = try file("udp", index) + file("udp6", index)
            let groups = try file("igmp", index) + file("igmp6", index)
            found = [
                sockets.contains(":1D11 "), groups.uppercased().contains("666DFFEF"),
                groups.contains("ff1200000000000000006d6179666c79"),
            ]
            return Set(found).count == 1
        }
        return found[0]
    }
}

func withMachines(_ body: (Cable, TestNode, TestNode) throws -> Void) throws {
    let cable = try Cable()
    try cable.move(to: 77)
    try withHomes("ann", "bob") { nodes in
        for (node, name) in zip(nodes, cable.names) {
            node.prefix = ["ip", "netns", "exec", name]
            try node.start(["--listen", "tcp://0.0.0.0:7440"])
        }
        try body(cable, nodes[0], nodes[1])
        for node in nodes { try node.stop() }
    }
}

@Suite(
    "LAN discovery of two nodes", .script,
    .enabled(if: Program.canMakeNamespaces, "making network namespaces needs root and `ip`")) struct LanTests
{
    private func withStrangers(body: (Cable, TestNode, TestNode) throws -> Void) throws {
        try withMachines { cable, ann, bob in
            try meet(ann, bob)
            for node in [ann, bob] { try node.stop() }
            try body(cable, ann, bob)
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
            try ann.configure(["discover": "lan"])
            try ann.start(["--listen", "tcp://0.0.0.0:7440"])
            try eventually("the group is joined") { try cable.isListening() }
            #expect(try !cable.isListening(1))
            #expect(!bob.isRunning)
        }
    }
}
