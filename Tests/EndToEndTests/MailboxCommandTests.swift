import Foundation
import Testing

@Suite("Mailbox commands", .script) struct MailboxCommandTests {
    @Test func `One peer at a time is the mailbox; the refusal of a second names the first and the remedy`() throws {
        try withHomes("ann", "hub", "den") { nodes in
            let (ann, hub, den) = (nodes[0], nodes[1], nodes[2])
            for node in nodes { try node.start() }
            for node in [hub, den] { try ann.add(node) }
            try ann.ok("peer", "add", "nocard", "--endpoint", "tcp://127.0.0.1:9")
            #expect(try ann.show("mailbox", "status").errors.contains("mayfly peer set NAME mailbox=on"))
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
            #expect(try ann.show("peer", "show", "hub").output.contains("mailbox        yes"))
            let own = try ann.ok("mailbox", "status").json["own"]
            #expect(own["peer"].string == "hub" && own["state"].string == "unused", "\(own)")
            #expect(own["hint"].string?.contains("--mailbox disk") == true)
            #expect(try ann.check("mailbox")["state"].string == "ok")
            // The setting survives a restart, and can be moved to another peer.
            try ann.restart()
            #expect(try ann.ok("mailbox", "status").json["own"]["peer"].string == "hub")
            try ann.ok("peer", "set", "hub", "mailbox=off")
            #expect(try ann.ok("peer", "set", "den", "mailbox=on")["mailbox"].bool == true)
            try ann.ok("peer", "set", "den", "mailbox=off")
            #expect(try ann.run(["peer", "set", "nocard", "mailbox=on"]).code != 0)
            for node in nodes { try node.stop() }
        }
    }

    @Test func `Both sides show the mailbox's state, and a refusal shows the operator's remedy`() throws {
        try withHomes("hub", "ann", "bob") { nodes in
            let (hub, ann, bob) = (nodes[0], nodes[1], nodes[2])
            try hub.start(["--mailbox"])
            for node in [ann, bob] { try node.start() }
            try meet(ann, bob)
            let nobody = try hub.check("mailbox")
            #expect(
                nobody["state"].string == "warning"
                    && nobody["hint"].string?.contains("mayfly peer add NAME CARD") == true, "\(nobody)")
            try ann.add(hub)
            try ann.ok("peer", "set", "hub", "mailbox=on")
            try ann.ok("lifetime", "propose", "room", "1d", "--mailbox", "disk")
            try bob.wait("lifetimeProposed:ours=false,mailbox=disk")
            try bob.ok("lifetime", "accept", "room")
            try eventually("a refusal") { try ann.ok("mailbox", "status").json["own"]["state"].string == "refused" }
            let refused = try ann.ok("mailbox", "status").json["own"]
            #expect(refused["reason"].string == "unknownPeer" && refused["boxes"].integer == 1, "\(refused)")
            #expect(refused["hint"].string?.contains("mayfly peer add NAME CARD") == true, "\(refused)")
            #expect(refused["boxesMax"].isNull && refused["longest"].isNull)
            #expect(try ann.show("mailbox", "status").output.contains("hub does not know this node"))
            #expect(try ann.check("mailbox")["state"].string == "warning")

            try hub.add(ann)
            // The mailbox is asked again after a while, and at once when it is named anew.
            try ann.ok("peer", "set", "hub", "mailbox=off")
            try ann.ok("peer", "set", "hub", "mailbox=on")
            try eventually("a grant") { try ann.ok("mailbox", "status").json["own"]["state"].string == "granted" }
            let own = try ann.ok("mailbox", "status").json["own"]
            #expect(own["slotsPerBox"].integer == 256 && own["bytesPerBox"].integer == 4 << 20, "\(own)")
            #expect(own["longest"].integer == 30 * 86_400 && own["hint"].isNull && own["taken"].integer == 0)
            #expect(try ann.check("mailbox")["state"].string == "ok")
            #expect(try hub.check("mailbox")["state"].string == "ok")
            #expect(try ann.ok("status")["mailbox"]["own"]["state"].string == "granted")
            #expect(try ann.show("status").output.contains("our mailbox  hub keeps messages for 1 conversation"))

            let service = try hub.ok("mailbox", "status").json["service"]
            #expect(service["serving"].bool == true && service["owners"].integer == 1, "\(service)")
            #expect(service["boxes"].integer == 1 && service["boxesMax"].integer == 128)
            #expect(service["boxesUnread"].integer == 0 && service["slots"].integer == 0)
            #expect(service["kept"].list.map { $0["peer"].string } == ["ann"], "\(service)")
            let part = try hub.ok("status")["mailbox"]
            #expect(part["own"].isNull && part["service"]["boxes"].integer == 1 && part["service"]["kept"].isNull)
            let shown = try hub.show("mailbox", "status")
            for words in ["1 of 128, of 1 node", "256 of a box", "4 MiB of a box", "30d at most", "BOX OF"] {
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
}
