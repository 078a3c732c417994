import Foundation
import Testing

@Suite("Mailbox commands", .script) struct MailboxCommandTests {
    private func card(_ node: TestNode) throws -> String { try node.ok("peer", "card")["contact"].string ?? "" }

    private func check(_ node: TestNode) throws -> [JSON] {
        try node.run(["doctor"]).lines.filter { $0["name"].string == "mailbox" }
    }

    private func text(_ node: TestNode, _ arguments: String...) throws -> Answer {
        try Program.run([Program.mayfly] + arguments + ["--home", node.home], in: node.directory)
    }

    private func agree(_ ann: TestNode, _ bob: TestNode, mailbox: String) throws {
        try ann.ok("lifetime", "propose", "room", "1d", "--mailbox", mailbox)
        try bob.wait("lifetimeProposed:ours=false,mailbox=\(mailbox)")
        try bob.ok("lifetime", "accept", "room")
        try ann.wait("lifetimeAgreed:mailbox=\(mailbox)")
    }

    private func withHub(_ body: (_ hub: TestNode, _ ann: TestNode, _ bob: TestNode) throws -> Void) throws {
        try withHomes("hub", "ann", "bob") { nodes in
            try nodes[0].start(["--mailbox"])
            for node in nodes[1...] { try node.start() }
            try meet(nodes[1], nodes[2])
            try body(nodes[0], nodes[1], nodes[2])
            for node in nodes { try node.stop() }
        }
    }

    @Test("One peer at a time is the mailbox; the refusal of a second names the first and the remedy") func one() throws
    {
        try withHomes("ann", "hub", "den") { nodes in
            let (ann, hub, den) = (nodes[0], nodes[1], nodes[2])
            for node in nodes { try node.start() }
            try ann.ok("peer", "add", "hub", try card(hub))
            try ann.ok("peer", "add", "den", try card(den))
            try ann.ok("peer", "add", "nocard", "--endpoint", "tcp://127.0.0.1:9")
            #expect(try text(ann, "mailbox", "status").errors.contains("mayfly peer set NAME mailbox=on"))
            let none = try ann.ok("mailbox", "status").json
            #expect(none["own"].isNull && none["service"].isNull, "\(none)")
            #expect(try ann.ok("peer", "show", "hub")["mailbox"].bool == false)
            #expect(try ann.ok("peer", "set", "hub", "mailbox=on")["mailbox"].bool == true)
            #expect(try ann.ok("peer", "set", "hub", "mailbox=on")["mailbox"].bool == true, "twice is once")
            let other = try ann.fails(1, "peer", "set", "den", "mailbox=on")
            #expect(other.message == "hub is the mailbox already", "\(other)")
            #expect(other.json["error"]["hint"].string?.contains("mayfly peer set hub mailbox=off") == true)
            #expect(try ann.fails(64, "peer", "set", "hub", "mailbox=maybe").message.contains("on, off"))
            #expect(try ann.ok("peer", "list").lines.filter { $0["mailbox"].bool == true }.count == 1)
            #expect(try text(ann, "peer", "show", "hub").output.contains("mailbox        yes"))
            let own = try ann.ok("mailbox", "status").json["own"]
            #expect(own["peer"].string == "hub" && own["state"].string == "unused", "\(own)")
            #expect(own["hint"].string?.contains("--mailbox disk") == true)
            #expect(try check(ann).map { $0["state"].string } == ["ok"])
            // The setting survives a restart, and can be moved to another peer.
            try ann.stop()
            try ann.start()
            #expect(try ann.ok("mailbox", "status").json["own"]["peer"].string == "hub")
            try ann.ok("peer", "set", "hub", "mailbox=off")
            #expect(try ann.ok("peer", "set", "den", "mailbox=on")["mailbox"].bool == true)
            try ann.ok("peer", "set", "den", "mailbox=off")
            #expect(try ann.run(["peer", "set", "nocard", "mailbox=on"]).code != 0)
            for node in nodes { try node.stop() }
        }
    }

    @Test("A consent shows where the mailbox stores, in text, in JSON and in events") func consent() throws {
        try withRoom { ann, bob, _ in
            try ann.ok("lifetime", "propose", "room", "1d", "--mailbox", "disk")
            let event = try bob.wait("lifetimeProposed:ours=false,mailbox=disk")
            #expect(event["lifetime"].string == "1d" && event["mailbox"].string == "disk")
            #expect(try bob.ok("lifetime", "show", "room")["proposal"]["mailbox"].string == "disk")
            #expect(try text(bob, "lifetime", "show", "room").output.contains("1d, mailbox on disk by ann"))
            let accepted = try bob.ok("lifetime", "accept", "room", "--renew")
            #expect(accepted["policy"].string == "accept-up-to:1d:disk", "\(accepted)")
            try ann.wait("lifetimeAgreed:mailbox=disk,lifetime=1d")
            for node in [ann, bob] {
                #expect(try node.ok("lifetime", "show", "room")["agreement"]["mailbox"].string == "disk")
                #expect(try node.ok("lifetime", "agreements", "room")["agreement"]["mailbox"].string == "disk")
                #expect(try node.ok("conversation", "show", "room")["mailbox"].string == "disk")
                #expect(try text(node, "lifetime", "agreements", "room").output.contains("1d, mailbox on disk"))
                #expect(try text(node, "conversation", "show", "room").output.contains("1d, mailbox on disk"))
                let member = try node.ok("conversation", "members", "room")["members"][0]
                #expect(member["mailbox"].isNull, "\(member)")
                let found = try check(node)
                #expect(found.map { $0["state"].string } == ["warning"], "\(found)")
                #expect(found.first?["hint"].string?.contains("mailbox=on") == true, "\(found)")
            }
        }
    }

    @Test("A mailbox in memory under ephemeral is shown as text, too; without a mailbox the field is absent")
    func ephemeral() throws {
        try withRoom { ann, bob, _ in
            let cursor = try bob.cursor()
            try ann.ok("lifetime", "propose", "room", "ephemeral", "--mailbox", "ram")
            try bob.wait("lifetimeProposed:ours=false,mailbox=ram", after: cursor)
            #expect(try text(bob, "lifetime", "show", "room").output.contains("ephemeral, mailbox in memory by ann"))
            try bob.ok("lifetime", "accept", "room")
            try ann.wait("lifetimeAgreed:mailbox=ram,lifetime=ephemeral")
            let later = try bob.cursor()
            try ann.ok("lifetime", "propose", "room", "1h", "--mailbox", "no")
            let event = try bob.wait("lifetimeProposed:ours=false,lifetime=1h", after: later)
            #expect(event["mailbox"].isNull, "\(event)")
            #expect(try bob.ok("lifetime", "show", "room")["proposal"]["mailbox"].isNull)
        }
    }

    @Test("Unknown terms and policies are refused with the known ones") func refused() throws {
        try withRoom { ann, _, _ in
            let disk = try ann.fails(64, "lifetime", "propose", "room", "ephemeral", "--mailbox", "disk")
            #expect(disk.kind == "usage" && disk.json["error"]["hint"].string?.contains("--mailbox ram") == true)
            let floppy = try ann.fails(64, "lifetime", "propose", "room", "1d", "--mailbox", "floppy")
            #expect(floppy.message.contains("ram"), "\(floppy)")
            #expect(try ann.ok("lifetime", "show", "room")["state"].string == "none")
            for tail in ["floppy", "", "no", "ram:ram"] {
                let policy = "accept-up-to:1d:\(tail)"
                #expect(
                    try ann.fails(64, "lifetime", "policy", "room", policy).message.contains("accept-up-to:7d:disk"))
            }
            for policy in ["accept-up-to:1d:ram", "accept-up-to:7d:disk", "accept-up-to:1d"] {
                #expect(try ann.ok("lifetime", "policy", "room", policy)["policy"].string == policy)
            }
            let never = try ann.fails(64, "watch", "--until", "lifetimeAgreed:mailbox=floppy")
            #expect(never.json["error"]["hint"].string == "it is one of ram, disk", "\(never)")
            #expect(try ann.fails(64, "send", "room", "hi", "--wait", "posted").message.contains("mailed"))
        }
    }

    @Test("A policy without a mailbox does not accept one, and a policy with the disk accepts memory") func policies()
        throws
    {
        try withRoom { ann, bob, _ in
            try bob.ok("lifetime", "policy", "room", "accept-up-to:7d")
            var cursor = try ann.cursor()
            try ann.ok("lifetime", "propose", "room", "1d", "--mailbox", "ram")
            try bob.wait("lifetimeProposed:ours=false,mailbox=ram")
            #expect(try bob.ok("lifetime", "show", "room")["state"].string == "pending")
            try bob.ok("lifetime", "reject", "room")
            try ann.wait("lifetimeRejected", after: cursor)
            try bob.ok("lifetime", "policy", "room", "accept-up-to:7d:disk")
            cursor = try ann.cursor()
            // A proposer waits after a rejection.
            try eventually("a new proposal") {
                try ann.run(["lifetime", "propose", "room", "1d", "--mailbox", "ram"]).code == 0
            }
            try ann.wait("lifetimeAgreed:mailbox=ram", after: cursor)
        }
    }

    @Test("Both sides show the mailbox's state, and a refusal shows the operator's remedy") func standing() throws {
        try withHub { hub, ann, bob in
            let nobody = try check(hub)
            #expect(nobody.map { $0["state"].string } == ["warning"], "\(nobody)")
            #expect(nobody.first?["hint"].string?.contains("mayfly peer add NAME CARD") == true, "\(nobody)")
            try ann.ok("peer", "add", "hub", try card(hub))
            try ann.ok("peer", "set", "hub", "mailbox=on")
            try agree(ann, bob, mailbox: "disk")
            try eventually("a refusal") { try ann.ok("mailbox", "status").json["own"]["state"].string == "refused" }
            let refused = try ann.ok("mailbox", "status").json["own"]
            #expect(refused["reason"].string == "unknownPeer" && refused["boxes"].integer == 1, "\(refused)")
            #expect(refused["hint"].string?.contains("mayfly peer add NAME CARD") == true, "\(refused)")
            #expect(refused["boxesMax"].isNull && refused["longest"].isNull)
            #expect(try text(ann, "mailbox", "status").output.contains("hub does not know this node"))
            let found = try check(ann)
            #expect(found.map { $0["state"].string } == ["warning"], "\(found)")

            try hub.ok("peer", "add", "ann", try card(ann))
            // The mailbox is asked again after a while, and at once when it is named anew.
            try ann.ok("peer", "set", "hub", "mailbox=off")
            try ann.ok("peer", "set", "hub", "mailbox=on")
            try eventually("a grant") { try ann.ok("mailbox", "status").json["own"]["state"].string == "granted" }
            let own = try ann.ok("mailbox", "status").json["own"]
            #expect(own["slotsPerBox"].integer == 256 && own["bytesPerBox"].integer == 4 << 20, "\(own)")
            #expect(own["longest"].integer == 30 * 86_400 && own["hint"].isNull && own["taken"].integer == 0)
            #expect(try check(ann).map { $0["state"].string } == ["ok"])
            #expect(try check(hub).map { $0["state"].string } == ["ok"])
            #expect(try ann.ok("status")["mailbox"]["own"]["state"].string == "granted")
            #expect(try text(ann, "status").output.contains("our mailbox  hub keeps messages for 1 conversation"))

            let service = try hub.ok("mailbox", "status").json["service"]
            #expect(service["serving"].bool == true && service["owners"].integer == 1, "\(service)")
            #expect(service["boxes"].integer == 1 && service["boxesMax"].integer == 128)
            #expect(service["boxesUnread"].integer == 0 && service["slots"].integer == 0)
            #expect(service["kept"].list.map { $0["peer"].string } == ["ann"], "\(service)")
            let part = try hub.ok("status")["mailbox"]
            #expect(part["own"].isNull && part["service"]["boxes"].integer == 1 && part["service"]["kept"].isNull)
            let shown = try text(hub, "mailbox", "status")
            for words in ["1 of 128, of 1 node", "256 of a box", "4.0 MiB of a box", "30d at most", "BOX OF"] {
                #expect(shown.output.contains(words), "\(words): \(shown)")
            }
            // Only the peer's name identifies the owner there, and nothing the conversation.
            let id = try ann.ok("conversation", "show", "room")["conversation"].string ?? ""
            #expect(!shown.output.contains(id.prefix(12)) && !"\(service)".contains(id.prefix(12)))
            let figures = try hub.ok("metrics")["text"].string ?? ""
            #expect(figures.contains("mayfly_mailbox_boxes 1\n"), "\(figures)")
            #expect(figures.contains(#"mayfly_mailbox_bytes{place="disk"} 0"#), "\(figures)")
            #expect(try ann.ok("metrics")["text"].string?.contains("mayfly_mailbox_granted 1\n") == true)

            try hub.stop()
            try eventually("the loss is seen") {
                try ann.ok("mailbox", "status").json["own"]["state"].string == "unreachable"
            }
            let lost = try ann.ok("mailbox", "status").json["own"]
            #expect(lost["hint"].string?.contains("mayfly peer ping hub") == true, "\(lost)")
        }
    }

    @Test("A message to an absent member is mailed, shown as `mailed`, and then delivered") func mailed() throws {
        try withHub { hub, ann, bob in
            for node in [ann, bob] {
                try node.ok("peer", "add", "hub", try card(hub))
                try hub.ok("peer", "add", node.name, try card(node))
                try node.ok("peer", "set", "hub", "mailbox=on")
            }
            try agree(ann, bob, mailbox: "disk")
            for node in [ann, bob] {
                try eventually("the other can be mailed") {
                    try node.ok("conversation", "members", "room")["members"][0]["mailbox"].string == "yes"
                }
            }
            let peers = Program.text("\(ann.home)/peers.json")
            #expect(peers.contains(#""mailbox""#))
            try ann.stop()
            let sent = try bob.ok("send", "room", "while you were away", "--wait", "mailed", "--timeout", "60")
            #expect(sent["state"].string == "mailed", "\(sent)")
            try bob.wait("messageState:state=mailed")
            let entry = try bob.ok("outbox", "list")
            #expect(entry["state"].string == "mailed", "\(entry)")
            #expect(try text(bob, "outbox", "list").output.contains("mailed"))
            let read = try message("while you were away", at: bob)
            #expect(read["state"].string == "mailed", "\(read)")
            #expect(read["deliveries"].list.map { $0["state"].string } == ["mailed"], "\(read)")
            let service = try hub.ok("mailbox", "status").json["service"]
            #expect(service["put"].integer ?? 0 >= 1 && service["bytes"].integer ?? 0 >= 1_024, "\(service)")
            #expect(hub.files(holding: "while you were away").isEmpty)

            try bob.stop()
            try ann.start()
            try eventually("it has come") { try ann.texts().contains("while you were away") }
            try eventually("it is counted") { try ann.ok("mailbox", "status").json["own"]["taken"].integer ?? 0 >= 1 }
            try eventually("it is gone from the mailbox") {
                let service = try hub.ok("mailbox", "status").json["service"]
                return service["discarded"].integer ?? 0 >= 1
            }
            try bob.start()
            try eventually("it is acknowledged") {
                try message("while you were away", at: bob)["state"].string == "delivered"
            }
            // `delivered` includes `mailed`.
            #expect(try bob.ok("send", "room", "both here", "--wait", "mailed")["state"].string == "delivered")
        }
    }
}
