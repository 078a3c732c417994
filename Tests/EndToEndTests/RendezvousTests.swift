import Foundation
import Testing

@Suite("Rendezvous", .script) struct RendezvousTests {
    /// A closed port, advertised as by a node behind a NAT.
    private static let nowhere = "tcp://127.0.0.1:9"

    /// Over UDP the two would soon punch a path past the third.
    private static let relayedOnly = ["--no-udp"]

    /// `hub` serves; `ann` is reached through it, and directly only at `advertise`; `bob` does not use it and is
    /// unreachable. None of them has met another yet.
    private func withHub(
        advertise: String = nowhere, _ body: (_ hub: TestNode, _ ann: TestNode, _ bob: TestNode) throws -> Void
    ) throws {
        try withNodes(["hub", "ann", "bob"]) { nodes in
            let (hub, ann, bob) = (nodes[0], nodes[1], nodes[2])
            try hub.initialise()
            try hub.start(["--rendezvous", "--log-level", "trace"])
            try ann.initialise(["--advertise", advertise])
            try bob.initialise(["--advertise", Self.nowhere])
            for node in [ann, bob] { try node.start(Self.relayedOnly) }
            try introduce(hub, ann)
            try body(hub, ann, bob)
            for node in nodes { try node.stop() }
        }
    }

    private func check(_ node: TestNode) throws -> JSON {
        try node.ok("status")["checks"].list.first { $0["name"].string == "rendezvous" } ?? JSON(value: nil)
    }

    private func reserved(_ node: TestNode) throws {
        try eventually("a reservation") { try check(node)["state"].string == "ok" }
    }

    private func path(_ node: TestNode) throws -> String? {
        try node.members().list.compactMap { $0["path"].string }.first
    }

    @Test func `Two unreachable nodes meet, agree, chat and send files through a third`() throws {
        try withHub { hub, ann, bob in
            let card = try ann.ok("peer", "card")["endpoints"].list.compactMap(\.string)
            #expect(card.first == Self.nowhere && card.last?.hasPrefix("relay://") == true, "\(card)")
            let id = try meet(ann, bob)
            try agree(ann, bob, "1d")
            for index in 0..<6 { try say("sealed words \(index)", index % 2 == 0 ? ann : bob) }
            for node in [ann, bob] { #expect(try path(node) == "relayed") }
            try bob.add(ann)
            #expect(try bob.ok("peer", "ping", "ann", "--timeout", "60")["path"].string == "relayed")
            let indirect = try bob.fails(4, "peer", "ping", "ann", "--direct", "--timeout", "4")
            #expect(indirect.json["error"]["hint"].string?.contains("netcheck") == true, "\(indirect)")
            let file = "\(ann.directory)/file"
            var random = SystemRandomNumberGenerator()
            let bytes = (0..<600_000).map { _ in UInt8.random(in: 0...255, using: &random) }
            #expect(FileManager.default.createFile(atPath: file, contents: Data(bytes)))
            try ann.ok("send", "room", "--file", file, "--wait", "delivered", "--timeout", "90")
            try bob.wait("messageState:state=received")
            #expect(try ann.texts() == bob.texts())

            // The streams of the pings end after their answers.
            try eventually("one stream is left") { try hub.ok("status")["rendezvous"]["streams"].integer == 1 }
            let status = try hub.ok("status")["rendezvous"]
            #expect(status["users"].integer == 1, "\(status)")
            #expect(status["bytes"].integer ?? 0 > 600_000 && status["violations"].integer == 0, "\(status)")

            // The third has seen sealed bytes only, and stored none.
            #expect(try hub.ok("conversation", "list").lines.isEmpty)
            let names = try [ann, bob].flatMap { node in try node.members().list.compactMap { $0["member"].string } }
            let reservation = card.last?.split(separator: "/").last.map { String($0.suffix(20)) } ?? ""
            #expect(names.count == 2 && reservation.count == 20)
            let log = Program.text(hub.log)
            for text in ["sealed words", id, String(id.prefix(12)), reservation, "127.0.0.1:", ann.host, bob.host]
                + names
            {
                #expect(!log.contains(text), "the log of the rendezvous node holds \(text)")
                #expect(hub.files(holding: text).allSatisfy { ["config.json", "peers.json"].contains($0) }, "\(text)")
            }
            #expect(hub.files(holding: "sealed words").isEmpty)
        }
    }

    @Test("The chat goes on when the reached node, the rendezvous node and the reaching node are restarted")
    func restarts() throws {
        try withHub { hub, ann, bob in
            // bob is reachable only through the rendezvous node, too. After its restart each has its earlier knowledge
            // of the other, or none.
            try introduce(hub, bob)
            try meet(ann, bob)
            try say("before", bob)
            try ann.restart(Self.relayedOnly)
            try say("after ann", bob)
            try hub.stop()
            // Neither can reach the other; both report it and lose nothing.
            try ann.ok("send", "room", "while it is away")
            try eventually("the loss") { try check(ann)["state"].string == "warning" }
            #expect(try check(ann)["message"].string?.contains("unreachable") == true)
            try hub.start(["--rendezvous"])
            try say("after hub", bob)
            try eventually("what was said meanwhile") { try bob.texts().contains("while it is away") }
            for node in [ann, bob] { try reserved(node) }
            try bob.stop()
            try ann.ok("send", "room", "while bob is away")
            try bob.start(Self.relayedOnly)
            try say("after bob", ann)
            try eventually("what was said meanwhile") { try bob.texts().contains("while bob is away") }
            // Ephemeral: each has what arrived while it ran, once.
            #expect(
                try ann.texts() == ["after ann", "while it is away", "after hub", "while bob is away", "after bob"])
            #expect(try bob.texts().sorted() == ["after bob", "while bob is away"])
            for node in [ann, bob] { #expect(try path(node) == "relayed") }
        }
    }

    @Test("When a direct path opens the link moves there by itself, and the chat loses and duplicates nothing")
    func upgrade() throws {
        // Closed until later.
        let way = try Relay()
        defer { way.close() }
        try withHub(advertise: way.endpoint) { _, ann, bob in
            try meet(ann, bob)
            try agree(ann, bob, "1d")
            for node in [ann, bob] { #expect(try path(node) == "relayed") }
            try way.open(to: ann)
            var said: [String] = []
            let end = ContinuousClock.now + .seconds(90)
            while try path(ann) != "direct" || path(bob) != "direct" {
                guard ContinuousClock.now < end else { throw HarnessError("no direct link came about") }
                for node in [ann, bob] {
                    said.append("\(node.name) \(said.count)")
                    try node.ok("send", "room", said[said.count - 1])
                }
            }
            for node in [ann, bob] { try say("at last, \(node.name)", node) }
            for node in [ann, bob] {
                try eventually("all of \(said.count)") { try node.texts().count >= said.count + 2 }
                #expect(try node.texts().filter { !$0.hasPrefix("at last") }.sorted() == said.sorted())
                let events = try node.events()
                #expect(!events.contains { $0["event"].string == "peerOffline" }, "nobody was away")
            }
        }
    }

    @Test func `An absent member learns of the explosion through the rendezvous node`() throws {
        // The rendezvous node is behind the relay.
        let arguments = Self.relayedOnly + ["--rendezvous"]
        try withRelay(["cleo", "bob"], advertise: Self.nowhere, arguments: arguments) { hub, others, relay in
            let (cleo, bob) = (others[0], others[1])
            try introduce(hub, cleo)
            for isBatched in [false, true] {
                try meet(cleo, bob)
                try agree(cleo, bob, "1d")
                try say("to be gone", cleo)
                try bob.stop()
                try cleo.ok("explode", "room", "--force")
                // The refusal of the old token then arrives with the end of its connection, and is read.
                if isBatched { relay.batchAnswers() }
                try bob.start(arguments)
                try eventually("bob asks and is told", seconds: 90) { try bob.ok("conversation", "list").lines.isEmpty }
                try bob.wait("exploded")
            }
        }
    }

    @Test func `A wrong configuration is reported on the side that has to correct it`() throws {
        try withHomes("hub", "ann", "bob") { nodes in
            let (hub, ann, bob) = (nodes[0], nodes[1], nodes[2])
            try hub.start()
            try ann.start(Self.relayedOnly)
            let card = try hub.card()
            try ann.ok("peer", "add", "hub", card)
            try ann.ok("peer", "add", "place", "--endpoint", Self.nowhere)
            let refusal = try ann.fails(64, "peer", "set", "hub", "rendezvous=maybe")
            #expect(refusal.message.contains("on, off"))
            #expect(try ann.run(["peer", "set", "place", "rendezvous=on"]).code != 0, "it has no card")
            let shown = try ann.ok("peer", "set", "hub", "rendezvous=on")
            #expect(shown["rendezvous"].bool == true)
            func expect(_ words: String) throws {
                try eventually(words) { try check(ann)["message"].string?.contains(words) == true }
                #expect(try check(ann)["state"].string == "warning")
                let checks = try ann.run(["doctor"]).lines.filter { $0["name"].string == "rendezvous" }
                #expect(checks.count == 1 && checks.first?["hint"].string?.isEmpty == false, "\(checks)")
            }
            try expect("is not a rendezvous node")
            try hub.stop()
            try expect("is unreachable")
            try hub.start(["--rendezvous"])
            try expect("does not know this node")
            #expect(try ann.ok("peer", "card")["endpoints"].list.count == 1)
            // Reported on the other side, corrected by the next question.
            try hub.add(ann)
            try ann.ok("peer", "set", "hub", "rendezvous=off")
            #expect(try check(ann).isNull)
            try ann.ok("peer", "set", "hub", "rendezvous=on")
            try reserved(ann)
            #expect(try ann.ok("peer", "card")["endpoints"].list.count == 2)
            // Blocked there, it has lost its reservation.
            try hub.ok("peer", "block", "ann")
            try eventually("the end of the reservation") { try check(ann)["state"].string == "warning" }
            #expect(try hub.ok("status")["rendezvous"]["users"].integer == 0)

            // Numbers of the configuration are validated.
            try bob.configure(["rendezvous": ["streams": 0]])
            let failure = try bob.tryStart()
            #expect(failure?.message.contains("rendezvous.streams") == true, "\(failure?.description ?? "it serves")")
            for node in [hub, ann] { try node.stop() }
        }
    }
}
