import Foundation
import Testing

/// Networks of real machines: one address family, and link-local addresses.
@Suite("Networks of machines", .enabled(if: Program.canMakeNamespaces, "making network namespaces needs root and `ip`"))
struct MachineNetworkTests {
    private let both = ["--listen", "tcp://0.0.0.0:7440", "tcp://[::]:7440"]

    private func withMachines(body: (Cable, TestNode, TestNode) throws -> Void) throws {
        let cable = try Cable()
        try withHomes("ann", "bob") { nodes in
            for (node, name) in zip(nodes, cable.names) { node.prefix = ["ip", "netns", "exec", name] }
            try body(cable, nodes[0], nodes[1])
            for node in nodes { try node.stop() }
        }
    }

    private func endpoints(_ node: TestNode) throws -> [String] {
        try node.ok("peer", "card")["endpoints"].list.compactMap(\.string)
    }

    @Test("Two IPv6-only machines meet with the default listeners of `init`") func onlyIPv6() throws {
        try withMachines { cable, ann, bob in
            for (index, name) in cable.names.enumerated() {
                try Program.tool("ip", "-n", name, "addr", "add", "fd77::\(index + 1)/64", "dev", "veth0", "nodad")
            }
            let made = try Program.run(
                [Program.mayfly, "init", "--json", "--home", "\(ann.directory)/default"], in: ann.directory)
            let listen = made.json["listen"].list.compactMap(\.string)
            #expect(listen == ["tcp://0.0.0.0:7440", "tcp://[::]:7440"], "\(made)")
            for node in [ann, bob] { try node.start(["--listen"] + listen) }
            #expect(try ann.check("addresses")["message"].string == "others are told tcp://[fd77::1]:7440")
            try meet(ann, bob)
            try ann.restart(["--listen", "tcp://0.0.0.0:7440"])
            let found = try ann.check("addresses")
            #expect(found["state"].string == "warning" && found["hint"].string?.contains("[::]") == true, "\(found)")
        }
    }

    /// Runs its arguments where the kernel has no IPv6: socket(2) answers EAFNOSUPPORT.
    private static let withoutIPv6 = """
        import ctypes, os, platform, struct, sys
        number = {"x86_64": 41, "aarch64": 198}[platform.machine()]
        rules = [(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16), (0x15, 0, 1, 10),
                 (0x06, 0, 0, 0x00050000 | 97), (0x06, 0, 0, 0x7FFF0000)]
        code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *rule) for rule in rules))
        class Program(ctypes.Structure):
            _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_void_p)]
        program = Program(len(rules), ctypes.addressof(code))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):
            sys.exit("prctl: %d" % ctypes.get_errno())
        os.execvp(sys.argv[1], sys.argv[1:])
        """

    @Test("Without IPv6 in the kernel, or with it disabled, a node that listens on both families serves IPv4")
    func onlyIPv4() throws {
        try withMachines { cable, ann, bob in
            try cable.move(to: 77)
            ann.prefix += ["python3", "-c", Self.withoutIPv6]
            for name in ["all", "default", "lo", "veth0"] {
                try Program.tool(
                    "ip", "netns", "exec", cable.names[1], "sh", "-c",
                    "echo 1 >/proc/sys/net/ipv6/conf/\(name)/disable_ipv6")
            }
            for node in [ann, bob] { try node.start(both) }
            #expect(try ann.ok("status")["listen"].list.compactMap(\.string) == ["tcp://0.0.0.0:7440"])
            try meet(ann, bob)
            try ann.stop()
            // Without another listener the node has nothing to serve.
            let failure = try ann.tryStart(["--listen", "tcp://[::]:7440"])
            #expect(failure?.code == 1, "\(String(describing: failure))")
        }
    }

    @Test(arguments: [1_300, 900]) func `Texts pass a path that swallows long packets without ICMP`(limit: Int) throws {
        try withMachines { cable, ann, bob in
            try cable.move(to: 77)
            for name in cable.names {
                // The kernel's own packets of many segments would be too long, too.
                try Program.tool("ip", "-n", name, "link", "set", "dev", "veth0", "gso_max_segs", "1")
                for rule in [
                    "add table inet path", "add chain inet path input { type filter hook input priority 0; }",
                    "add rule inet path input iif veth0 meta length > \(limit) drop",
                ] { try Program.tool("ip", "netns", "exec", name, "nft", rule) }
            }
            for node in [ann, bob] { try node.start(both) }
            try meet(ann, bob)
            try say(String(repeating: "long ", count: 4_000), ann)
            try say("back", bob)
        }
    }

    @Test("A link-local listener is told to no peer: init, run and doctor report it and name --discover lan")
    func linkLocal() throws {
        try withMachines { cable, ann, _ in
            let listen = ["--listen", "tcp://[fe80::7%veth0]:7440"]
            try Program.tool("ip", "-n", cable.names[0], "addr", "add", "fe80::7/64", "dev", "veth0", "nodad")
            try Program.tool("ip", "-n", cable.names[0], "addr", "add", "169.254.3.4/16", "dev", "veth0")
            let made = try Program.run(
                ann.prefix + [Program.mayfly, "init", "--json", "--home", "\(ann.directory)/other"] + listen,
                in: ann.directory)
            #expect(made.code == 0 && made.errors.contains("--discover lan"), "\(made)")
            var starts = 0
            for listener in [listen, ["--listen", "tcp://169.254.3.4:7440"], both] {
                try ann.start(listener)
                starts += 1
                // The line is logged once the node serves.
                try eventually("the log says so") {
                    Program.text(ann.log).components(separatedBy: "--discover lan").count > starts
                }
                let found = try ann.check("addresses")
                #expect(found["hint"].string?.contains("--discover lan") == true, "\(listener): \(found)")
                #expect(found["message"].string?.contains("not told") == true, "\(listener): \(found)")
                let told = try endpoints(ann)
                #expect(!told.contains { $0.contains("fe80") || $0.contains("169.254") }, "\(told)")
                try ann.stop()
            }
            try ann.start(listen + ["--discover", "lan"])
            #expect(try ann.check("addresses")["state"].string == "ok")
        }
    }
}
