import Foundation
import Testing

@Suite("Aliases", .script) struct AliasTests {
    @discardableResult private func meet(_ host: TestNode, _ guest: TestNode, _ name: String, _ more: [String] = [])
        throws -> Answer
    {
        let id = try host.ok("conversation", "create", "--name", name)["conversation"].string ?? ""
        let slug = try host.invite(id)
        let joined = try guest.run(["join", slug, "--timeout", "90"] + more)
        #expect(joined.code == 0 && joined["conversation"].string == id, "\(joined)")
        return joined
    }

    private func conversation(_ text: String, _ node: TestNode) throws -> String? {
        try node.ok("conversation", "show", text)["conversation"].string
    }

    /// InboxNotesTests show which names become aliases.
    @Test("A script's `send ops` keeps its conversation, even if peers use the name `ops`") func redirected() throws {
        try withHomes("ann", "bob", "eve") { nodes in
            let (ann, bob, eve) = (nodes[0], nodes[1], nodes[2])
            for node in nodes { try node.start() }
            try meet(ann, bob, "ops")
            let ops = try #require(try conversation("ops", ann))
            func script(_ text: String) throws {
                try ann.ok("send", "ops", text, "--wait", "delivered", "--timeout", "90")
                try bob.wait("message:text=\(text)", in: ops)
            }
            // A second one of that name, and one renamed to it, and to the beginning of an id.
            let second = try meet(eve, ann, "ops")
            #expect(second["alias"].string == "ops-2" && second["name"].string == "ops", "\(second)")
            let other = try meet(eve, ann, "harmless")
            let id = other["conversation"].string ?? ""
            for name in ["OPS", String(ops.prefix(12)), ops, "lab"] {
                let cursor = try ann.cursor()
                try eve.ok("conversation", "rename", id, name)
                try ann.wait("conversationUpdated", in: id, after: cursor)
                try script("renamed \(name.utf8.count)")
                #expect(try conversation(String(ops.prefix(12)), ann) == ops && conversation(ops, ann) == ops)
                #expect(try conversation("harmless", ann) == id, "its own alias stays")
            }
            try eve.ok("conversation", "rename", second["conversation"].string ?? "", "lab")
            try eventually("both are called so") {
                try ann.ok("conversation", "list").lines.count { $0["name"].string == "lab" } == 2
            }
            let ambiguous = try ann.fails(64, "send", "lab", "x")
            #expect(ambiguous.message.contains("(ops-2)") && ambiguous.message.contains("(harmless)"), "\(ambiguous)")
            // A mistyped name: the nearest alias, or the nearest name, of a conversation that is listed.
            for (typed, meant) in [("harmles", "harmless"), ("OSP-2", "ops-2"), ("labb", "lab")] {
                let hint = try ann.fails(7, "send", typed, "x").json["error"]["hint"].string
                #expect(hint == "did you mean `\(meant)`?", "\(typed): \(hint ?? "none")")
            }
            #expect(try !"\(ann.fails(7, "send", "nothing-like-it", "x"))".contains("did you mean"))
            try ann.ok("inbox", "sleep", "ops")
            try script("from sleep")
            try ann.restart(kills: true)
            try script("after a crash")
            let aliases = try ann.ok("conversation", "list").lines.compactMap { $0["alias"].string }
            #expect(Set(aliases) == ["ops", "ops-2", "harmless"])
            #expect(try eve.ok("read", id).lines.allSatisfy { $0["from"].string == "system" }, "nothing came to eve")
        }
    }

    @Test("A join sets an alias that is free; it is free again, and in no file, when the join or the conversation ends")
    func ends() throws {
        try withPair { ann, bob in
            try bob.ok("conversation", "create", "--name", "mine")
            let slug = try inviteToRoom(ann)
            try bob.fails(1, "join", slug, "--alias", "MINE")
            try bob.fails(64, "join", slug, "--alias", "4f1c09ab")
            #expect(try bob.ok("join", "list").lines.isEmpty, "nothing has begun")
            try ann.ok("invite", "revoke", "room")
            try bob.fails(2, "join", slug, "--alias", "again", "--timeout", "90")
            let fresh = try ann.invite()
            try ann.stop()
            try bob.fails(4, "join", fresh, "--alias", "again", "--timeout", "0.3")
            try bob.restart()
            try bob.fails(1, "conversation", "create", "--name", "again")
            try ann.start()
            try bob.wait("joined")
            let joined = try bob.ok("join", fresh, "--timeout", "90")
            #expect(joined["alias"].string == "again" && joined["name"].string == "room")
            // A repeated join with another alias takes that one.
            #expect(try bob.ok("join", fresh, "--alias", "other", "--timeout", "90")["alias"].string == "other")
            let names = ["exploded", "scheduled", "left"].map { "alias-\($0)-\(UUID().uuidString)" }
            let ids = try names.map { try meet(ann, bob, "room \($0)", ["--alias", $0])["conversation"].string ?? "" }
            try bob.ok("inbox", "sleep", names[2])
            for node in [ann, bob] { for name in names { #expect(node.files(holding: name).isEmpty) } }
            let before = try bob.cursor()
            try ann.ok("explode", ids[0], "--force")
            try ann.ok("explode", ids[1], "--in", "1s", "--force")
            for id in ids.prefix(2) { try bob.wait("exploded", in: id, after: before) }
            try bob.ok("conversation", "leave", names[2], "--force")
            for (name, code) in zip(names, [3, 3, 7] as [Int32]) { try bob.fails(code, "conversation", "show", name) }
            // The tombstones hold the aliases, sealed; a conversation that was left has none.
            let listed = try bob.ok("explode", "list").lines.compactMap { $0["name"].string }
            #expect(Set(listed) == Set(names.prefix(2)))
            for name in names { #expect(try bob.ok("conversation", "create", "--alias", name)["alias"].string == name) }
            for name in names { #expect(bob.files(holding: name).isEmpty) }
        }
    }

    @Test func `The copy from before a removal has no alias, and leaving it keeps the alias`() throws {
        try withRoom { ann, bob, id in
            try bob.ok("conversation", "alias", "room", "night shift")
            let earlier = try bob.ok("conversation", "show", "room")["inbox"].string ?? ""
            let member = try ann.members()[0]["member"].string ?? ""
            try ann.ok("conversation", "remove", "room", member)
            try bob.wait("removed")
            let slug = try ann.invite()
            try bob.ok("join", slug, "--timeout", "90")
            let copies = try bob.ok("conversation", "list").lines
            #expect(copies.map { $0["alias"].string } == [nil, "night shift"], "\(copies)")
            let table = try bob.show("conversation", "list").output.split(separator: "\n").dropFirst().map {
                $0.split(separator: "  ").map { $0.drop { $0 == " " } }
            }
            #expect(table.map { $0.first ?? "" } == [earlier.prefix(8), id.prefix(12)], "\(table)")
            #expect(table.map { $0.dropFirst(6).first } == ["0", "2"], "both members are counted")
            // The prompt asks for the name in the list, and the named copy is removed.
            let terminal = try PseudoTerminal()
            let leave = ["setsid", "--ctty", Program.mayfly, "conversation", "leave", "--home", bob.home]
            let refused = try terminal.child(leave + ["night shift"])
            try terminal.expect("Type night shift to go on: ")
            try terminal.type("room\n")
            #expect(refused.wait(seconds: 30) == 1)
            try bob.fails(64, "conversation", "leave", earlier)
            let agreed = try terminal.child(leave + [earlier])
            try terminal.expect("Type room to go on: ")
            try terminal.type("room\n")
            #expect(agreed.wait(seconds: 30) == 0)
            let rest = try bob.ok("conversation", "list").lines
            #expect(rest.map { $0["state"].string } == ["ready"] && rest[0]["alias"].string == "night shift")
            #expect(try bob.ok("conversation", "show", "night shift")["state"].string == "ready")
            // The frame of the departure comes before that of the text.
            try bob.ok("send", "night shift", "still here", "--wait", "delivered")
            try ann.ok("explode", "room", "--force", "--wait", "--timeout", "60")
        }
    }
}
