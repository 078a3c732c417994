import Foundation
import Testing

@Suite("Mailboxes with real nodes", .script) struct MailboxTests {
    /// `hub` is the mailbox of all others. They have a room under these terms, and can write to each other's boxes.
    private func withHub(
        _ names: [String] = ["ann", "bob"], terms: [String] = ["1d", "--mailbox", "disk"],
        accepts: (TestNode) -> Bool = { _ in true }, _ body: (_ hub: TestNode, _ members: [TestNode]) throws -> Void
    ) throws {
        try withNodes(["hub"] + names) { nodes in
            let (hub, members) = (nodes[0], Array(nodes.dropFirst()))
            for node in nodes { try node.initialise() }
            try hub.start(["--mailbox"])
            for node in members {
                try node.start()
                try hub.add(node)
                try node.add(hub)
                try node.ok("peer", "set", "hub", "mailbox=on")
            }
            try gather(members)
            let proposed = try members[0].run(["lifetime", "propose", "room"] + terms)
            #expect(proposed.code == 0, "\(proposed)")
            for node in members.dropFirst() {
                try node.wait("lifetimeProposed:ours=false")
                guard accepts(node) else {
                    try node.ok("lifetime", "reject", "room")
                    return try body(hub, members)
                }
                try node.ok("lifetime", "accept", "room")
            }
            for node in members {
                try eventually("keys of all slices") {
                    try node.members().list.count { $0["mailbox"].string == "yes" } == names.count - 1
                }
            }
            try body(hub, members)
        }
    }

    private func kept(_ hub: TestNode) throws -> JSON { try hub.ok("mailbox", "status").json["service"] }

    @Test(
        "Two members that are never online together talk both ways: messages show at the start, with their own expiry")
    func neverTogether() throws {
        try withHub { hub, members in
            let (ann, bob) = (members[0], members[1])
            try bob.stop()
            let sent = try ann.ok("send", "room", "while you were away", "--wait", "mailed", "--timeout", "60")
            #expect(sent["state"].string == "mailed")
            try ann.wait("messageState:state=mailed")
            #expect(try ann.ok("outbox", "list")["state"].string == "mailed")
            let table = try ann.show("outbox", "list")
            #expect(table.output.contains("mailed"), "\(table)")
            let own = try message("while you were away", at: ann)
            #expect(own["deliveries"].list.map { $0["state"].string } == ["mailed"], "\(own)")
            let service = try kept(hub)
            #expect(service["put"].integer ?? 0 >= 1 && service["bytes"].integer ?? 0 >= 1_024, "\(service)")
            let expiry = try message("while you were away", at: ann)["expiresAt"].string
            #expect(hub.files(holding: "while you were away").isEmpty)
            try ann.stop()
            try bob.start()
            try eventually("the message") { try bob.texts().contains("while you were away") }
            let shown = try message("while you were away", at: bob)
            #expect(shown["stored"].bool == true && shown["expiresAt"].string?.prefix(16) == expiry?.prefix(16))
            try eventually("it is counted") { try bob.ok("mailbox", "status").json["own"]["taken"].integer ?? 0 >= 1 }
            try eventually("it is gone from the mailbox") { try kept(hub)["discarded"].integer ?? 0 >= 1 }
            try bob.ok("send", "room", "an answer", "--wait", "mailed", "--timeout", "60")
            try bob.stop()
            try ann.start()
            try eventually("the answer, and the acknowledgement") {
                try ann.texts().contains("an answer")
                    && message("while you were away", at: ann)["state"].string == "delivered"
            }
            #expect(try ann.texts().count { $0 == "an answer" } == 1)
            let cursor = try ann.cursor()
            try bob.start()
            try ann.wait("peerOnline", after: cursor)
            // `delivered` includes `mailed`.
            #expect(try ann.ok("send", "room", "both here", "--wait", "mailed")["state"].string == "delivered")
        }
    }

    @Test("Slots on a mailbox's disk survive kill -9 of it and of both members; nothing is lost or shown twice")
    func killed() throws {
        try withHub { hub, members in
            let (ann, bob) = (members[0], members[1])
            bob.crash()
            for index in 0..<3 { try ann.ok("send", "room", "before \(index)", "--wait", "mailed", "--timeout", "60") }
            hub.crash()
            ann.crash()
            try hub.start(["--mailbox"])
            try bob.start()
            try eventually("all of them") { try bob.texts().count { $0.hasPrefix("before") } == 3 }
            try bob.restart(kills: true)
            try ann.start()
            try eventually("all are delivered") {
                try (0..<3).allSatisfy { try message("before \($0)", at: ann)["state"].string == "delivered" }
            }
            #expect(try bob.texts().filter { $0.hasPrefix("before") } == ["before 0", "before 1", "before 2"])
        }
    }

    @Test("An absent member learns of an explosion whose creator has left since, and its receipt arrives")
    func explosion() throws {
        try withHub(["ann", "bob", "cyd"]) { hub, members in
            let (ann, bob, cyd) = (members[0], members[1], members[2])
            try bob.stop()
            try ann.ok("send", "room", "doomed", "--wait", "sent", "--timeout", "60")
            let room = try ann.ok("conversation", "show", "room")["conversation"].string ?? ""
            try ann.ok("explode", "room", "--force")
            try eventually("the notice is in the box") {
                try kept(hub)["kept"].list.contains { $0["peer"].string == "bob" && $0["slots"].integer ?? 0 > 1 }
            }
            try ann.stop()
            try cyd.stop()
            try bob.start()
            try eventually("the end") { try bob.ok("explode", "list").lines.count == 1 }
            #expect(try bob.ok("conversation", "list").lines.isEmpty)
            try bob.stop()
            try ann.start()
            try eventually("the receipt") {
                let status = try ann.ok("explode", "status", room).json
                return status["waiting"].list.isEmpty
            }
        }
    }

    @Test func `A refusal of one member means no mailbox: no box, no slot, and no member names one`() throws {
        let accepts = { (node: TestNode) in node.name != "cyd" }
        try withHub(["ann", "bob", "cyd"], accepts: accepts) { hub, members in
            try members[0].wait("lifetimeRejected")
            try members[2].stop()
            try members[0].ok("send", "room", "for those who are here")
            for node in members.dropLast() {
                let known = try node.members().list
                #expect(known.allSatisfy { $0["mailbox"].string == nil }, "\(known)")
                #expect(try node.ok("mailbox", "status").json["own"]["state"].string == "unused")
            }
            let service = try kept(hub)
            #expect(service["boxes"].integer == 0 && service["put"].integer == 0, "\(service)")
        }
    }

    @Test("Under `ram` nothing is on the mailbox's disk, and all of it ends with the mailbox's process")
    func memoryOnly() throws {
        try withHub(terms: ["ephemeral", "--mailbox", "ram"]) { hub, members in
            let (ann, bob) = (members[0], members[1])
            try bob.stop()
            let before = Set(hub.files(".seg"))
            try ann.ok("send", "room", "for memory alone", "--wait", "mailed", "--timeout", "60")
            #expect(try kept(hub)["memoryBytes"].integer ?? 0 > 0)
            #expect(Set(hub.files(".seg")) == before)
            try bob.start()
            try eventually("the message") { try bob.texts().contains("for memory alone") }
            #expect(try message("for memory alone", at: bob)["stored"].bool == false)
        }
    }
}
