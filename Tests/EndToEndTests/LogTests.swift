import Foundation
import Glibc
import Testing

@Suite("The log", .script) struct LogTests {
    private struct Line: CustomStringConvertible {
        let level: String
        let text: String
        let fields: [String: String]

        /// `TIME LEVEL mayfly: key=value … [NodeRuntime] text`
        init?(_ line: some StringProtocol) {
            let parts = line.split(separator: " ", maxSplits: 2)
            guard parts.count == 3, let end = parts[2].range(of: "[NodeRuntime] ") else { return nil }
            level = String(parts[1])
            text = String(parts[2][end.upperBound...])
            let pairs = parts[2][..<end.lowerBound].split(separator: " ").compactMap { word -> (String, String)? in
                let pair = word.split(separator: "=", maxSplits: 1)
                return pair.count == 2 ? (String(pair[0]), String(pair[1])) : nil
            }
            fields = Dictionary(pairs) { one, _ in one }
        }

        var description: String { "\(level) \(text) \(fields)" }
    }

    private func lines(_ node: TestNode) -> [Line] {
        Program.text(node.log).split(separator: "\n").compactMap { Line($0) }
    }

    private func expect(
        _ level: String, _ text: String, _ fields: [String: String] = [:], of client: String?, at node: TestNode,
        location: SourceLocation = #_sourceLocation
    ) {
        func isThere() -> Bool {
            lines(node).contains { line in
                line.level == level && line.text == text && line.fields["client"] == client
                    && fields.allSatisfy { line.fields[$0.key] == $0.value }
            }
        }
        do { try eventually("\(level) \(text) \(fields) in the log of \(node.name)", seconds: 20) { isThere() } } catch
        { Issue.record("\(error)\n\(Program.text(node.log))", sourceLocation: location) }
    }

    private func client(_ node: TestNode) throws -> String {
        try #require(try node.ok("conversation", "show", "room")["inbox"].string)
    }

    @Test("At info the log tells the fate of each conversation by clientId, at debug also of links, dials and sleep")
    func debug() throws {
        try withHomes { ann, bob in
            for node in [ann, bob] { try node.start(["--log-level", "debug"]) }
            try meet(ann, bob)
            let clients = (ann: try client(ann), bob: try client(bob))
            let cursor = try ann.cursor()
            try ann.ok("lifetime", "propose", "room", "1h")
            try bob.wait("lifetimeProposed:ours=false")
            try bob.ok("lifetime", "reject", "room")
            try ann.wait("lifetimeRejected", after: cursor)
            try agree(ann, bob, "1d")
            try say("a text that is in no log", ann)
            try ann.ok("lock")
            try ann.ok("unlock")
            try ann.ok("inbox", "sleep", "room")
            try ann.ok("inbox", "wake", "room")
            try ann.wait("peerOnline", after: cursor)
            try ann.ok("explode", "room", "--in", "1h", "--force")
            try bob.wait("explosionScheduled")
            try ann.ok("explode", "room", "--force")
            try ann.wait("deletionReceipt")
            try ann.ok("conversation", "create", "--name", "other")
            let other = try ann.ok("conversation", "show", "other")
            let void = try ann.invite("other")
            try ann.ok("invite", "revoke", "other")
            try bob.fails(2, "join", void, "--timeout", "90")
            try ann.ok("conversation", "leave", "other", "--force")
            expect("info", "conversation created", of: clients.ann, at: ann)
            expect("info", "member joined", ["members": "2"], of: clients.ann, at: ann)
            expect("info", "join began", of: clients.bob, at: bob)
            expect("info", "joined", ["members": "2"], of: clients.bob, at: bob)
            for (node, client) in [(ann, clients.ann), (bob, clients.bob)] {
                expect("info", "agreement began", ["lifetime": "1d", "automatic": "false"], of: client, at: node)
                expect("info", "explosion scheduled", of: client, at: node)
                expect("info", "exploded", of: client, at: node)
            }
            expect("info", "explosion confirmed", ["confirmed": "1", "of": "1"], of: clients.ann, at: ann)
            expect("info", "locked", of: nil, at: ann)
            expect("info", "unlocked", of: nil, at: ann)
            let failed = try #require(lines(bob).first { $0.text == "join failed" })
            #expect(failed.level == "info" && failed.fields["kind"] == "generic_failure", "\(failed)")
            #expect(failed.fields["client"].map { $0 != clients.bob } == true)
            expect("debug", "join admitted", of: clients.ann, at: ann)
            expect("debug", "link up", ["path": "direct"], of: clients.ann, at: ann)
            expect("debug", "link down", ["path": "direct"], of: clients.ann, at: ann)
            #expect(lines(ann).contains { $0.text == "link up" && ["tcp", "udp"].contains($0.fields["transport"]) })
            #expect(lines(ann).filter { $0.text == "link down" }.allSatisfy { $0.fields["reason"] != nil })
            expect("debug", "lifetime proposed", ["lifetime": "1h", "ours": "true"], of: clients.ann, at: ann)
            expect("debug", "proposal rejected", of: clients.ann, at: ann)
            expect("debug", "acknowledgements", ["sent": "1", "received": "0"], of: clients.bob, at: bob)
            expect("debug", "acknowledgements", ["sent": "0", "received": "1"], of: clients.ann, at: ann)
            expect("debug", "member online", of: clients.bob, at: bob)
            expect("debug", "inbox asleep", of: clients.ann, at: ann)
            expect("debug", "inbox awake", ["reason": "userInteraction"], of: clients.ann, at: ann)
            #expect(lines(ann).allSatisfy { $0.level != "trace" })
            expect("info", "conversation left", of: other["inbox"].string, at: ann)
            #expect(clients.ann != clients.bob)
            // CanaryTests searches for all other secrets.
            for node in [ann, bob] {
                let ports = [ann, bob].map { ":\($0.port)" }
                for hidden in [ann.host, bob.host, "127.0.0.1"] + ports {
                    #expect(!Program.text(node.log).contains(hidden))
                }
            }
            for node in [ann, bob] { try node.stop() }
        }
    }

    @Test("A failed dial is logged with its kind") func dials() throws {
        try withHomes { ann, bob in
            for node in [ann, bob] { try node.start(["--log-level", "debug"]) }
            try meet(ann, bob)
            let own = try client(ann)
            try bob.stop(seenBy: ann, kills: true)
            expect("debug", "member offline", of: own, at: ann)
            expect("debug", "dial failed", ["kind": "refused"], of: own, at: ann)
            let port = ":\(bob.listen?.split(separator: ":").last ?? "?")"
            #expect(!Program.text(ann.log).contains(port) && !Program.text(ann.log).contains(bob.host))
        }
    }

    @Test("A refusing rendezvous node is logged by its number, once, without its name") func rendezvous() throws {
        try withPair(["--log-level", "info"]) { ann, bob in
            let card = try bob.card()
            try ann.ok("peer", "add", "the-hub", card)
            try ann.ok("peer", "set", "the-hub", "rendezvous=on")
            expect("notice", "rendezvous node", ["number": "1"], of: nil, at: ann)
            let lines = lines(ann).filter { $0.text == "rendezvous node" }
            #expect(lines.count == 1, "\(lines)")
            #expect(!Program.text(ann.log).contains("the-hub"))
        }
    }
}
