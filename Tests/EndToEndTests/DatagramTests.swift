import Foundation
import Testing

@Suite("UDP", .script) struct DatagramTests {
    private func withDatagramRoom(_ body: (_ ann: TestNode, _ bob: TestNode, _ relay: DatagramRelay) throws -> Void)
        throws
    {
        try withDirectory { directory in
            let (ann, bob) = (TestNode(name: "ann", directory: directory), TestNode(name: "bob", directory: directory))
            defer { for node in [ann, bob] { node.crash() } }
            try ann.initialise()
            try ann.start()
            let relay = try DatagramRelay(to: ann)
            defer { relay.close() }
            // It advertises the relay's port, which is closed for TCP.
            try ann.stop()
            try ann.configure(["advertise": [relay.endpoint]])
            try ann.start()
            // bob is unreachable: he advertises a closed port.
            try bob.initialise(["--advertise", "tcp://127.0.0.1:9"])
            try bob.start()
            try meet(ann, bob)
            try body(ann, bob, relay)
            for node in [ann, bob] { try node.stop() }
        }
    }

    private func link(_ node: TestNode) throws -> JSON {
        try node.members().list.map { $0["link"] }.first { !$0.isNull } ?? JSON(value: nil)
    }

    @Test func `Without TCP two nodes meet, chat and agree over UDP, and report the path`() throws {
        try withDatagramRoom { ann, bob, relay in
            try agree(ann, bob, "1d")
            for index in 0..<10 { try say("over UDP \(index)", index % 2 == 0 ? ann : bob) }
            for node in [ann, bob] {
                let link = try link(node)
                #expect(link["transport"].string == "udp" && link["family"].string == "ipv4", "\(link)")
                #expect(link["since"].time != nil && (link["rttMs"].double ?? -1) > 0, "\(link)")
                #expect(link["postQuantum"].bool == true, "\(link)")
                #expect(link["bytesIn"].integer ?? 0 > 1_000 && link["bytesOut"].integer ?? 0 > 1_000, "\(link)")
            }
            #expect(try ann.texts() == bob.texts() && relay.passed > 20)
        }
    }

    @Test func `A chat over UDP goes on over the same link when a NAT changes one side's address`() throws {
        try withDatagramRoom { ann, bob, relay in
            try say("before", ann)
            let cursor = try ann.cursor()
            let since = try link(ann)["since"].time
            for index in 0..<3 {
                relay.move()
                try say("from bob after move \(index)", bob)
                try say("from ann after move \(index)", ann)
            }
            // The link was not lost in between: no other handshake, no member offline.
            #expect(abs((try link(ann)["since"].time ?? 0) - (since ?? 0)) < 1_000)
            let events = try ann.events(after: cursor)
            #expect(!events.contains { $0["event"].string == "peerOffline" })
        }
    }

    @Test func `With --no-udp a node has no UDP socket and is dialled over TCP`() throws {
        try withHomes { ann, bob in
            try ann.start(["--no-udp"])
            try bob.start()
            try meet(ann, bob)
            try say("over TCP", ann)
            #expect(try link(ann)["transport"].string == "tcp" && link(bob)["transport"].string == "tcp")
            #expect(!hasSocket(ann) && hasSocket(bob))
            for node in [ann, bob] { try node.stop() }
        }
    }

    private func hasSocket(_ node: TestNode) -> Bool {
        let suffix = String(format: ":%04X", Int(node.port))
        return (Program.text("/proc/net/udp") + Program.text("/proc/net/udp6")).split(separator: "\n").contains {
            line in line.split(separator: " ").dropFirst().first?.hasSuffix(suffix) ?? false
        }
    }
}
