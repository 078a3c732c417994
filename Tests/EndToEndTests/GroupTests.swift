import Foundation
import Testing

@Suite("Groups", .script) struct GroupTests {
    @Test("a joiner is linked to all members, and a message reaches all") func fanOut() throws {
        try withGroup("ann", "bob", "eve", "max") { nodes in
            for node in nodes {
                let text = "from \(node.name)"
                let sent = try node.ok("send", "room", text, "--wait", "delivered", "--timeout", "90")
                #expect(sent["state"].string == "delivered")
                for other in nodes where other.name != node.name {
                    try other.wait("message:text=\(text)")
                    #expect(try message(text, at: other)["from"].string == node.name)
                }
            }
            let members = try nodes[3].ok("conversation", "members", "room")["members"].list
            #expect(members.compactMap { $0["profile"].string }.sorted() == ["ann", "bob", "eve"])
            #expect(members.allSatisfy { $0["online"].bool == true })
        }
    }

    @Test("`delivered` means delivered to the last member") func delivered() throws {
        try withGroup("ann", "bob", "eve") { nodes in
            try nodes[2].stop()
            try nodes[0].fails(4, "send", "room", "for all", "--wait", "delivered", "--timeout", "0.5")
            try nodes[1].wait("message:text=for all")
            #expect(try message("for all", at: nodes[0])["state"].string == "sent")
            try nodes[2].start()
            try nodes[2].wait("message:text=for all")
            try nodes[0].wait("messageState:state=delivered")
        }
    }

    @Test("the creator renames, locks and unlocks; all see it, and no other member may") func nameAndLock() throws {
        try withGroup("ann", "bob", "eve") { nodes in
            try nodes[1].fails(1, "conversation", "rename", "room", "mine")
            try nodes[1].fails(1, "conversation", "lock", "room")
            let slug = try nodes[0].ok("invite", "create", "room")["slug"].string ?? ""
            try nodes[0].ok("conversation", "rename", "room", "hall")
            try nodes[0].ok("conversation", "lock", "hall")
            for node in nodes[1...] {
                try node.wait("conversationUpdated:locked=true")
                let shown = try node.ok("conversation", "show", "hall")
                #expect(shown["name"].string == "hall" && shown["locked"].bool == true)
            }
            try nodes[0].fails(1, "invite", "create", "hall")
            try nodes[0].ok("conversation", "unlock", "hall")
            try nodes[1].wait("conversationUpdated:locked=false")
            try nodes[0].ok("invite", "create", "hall")
            try withHomes("max") { more in
                try more[0].start()
                try more[0].fails(2, "join", slug, "--timeout", "90")
            }
        }
    }

    @Test("a member's own name in one conversation stays in it") func profiles() throws {
        try withGroup("ann", "bob", "eve") { nodes in
            try nodes[1].ok("conversation", "profile", "room", "robert")
            for node in [nodes[0], nodes[2]] { try node.wait("profileChanged:profile=robert") }
            try say("who am I?", nodes[1])
            try nodes[2].wait("message:text=who am I?")
            #expect(try message("who am I?", at: nodes[2])["from"].string == "robert")
        }
    }

    @Test("a removed member is told, gets nothing more and keeps no link") func removal() throws {
        try withGroup("ann", "bob", "eve") { nodes in
            try nodes[0].fails(7, "conversation", "remove", "room", "nobody")
            try nodes[0].ok("conversation", "remove", "room", "eve")
            try nodes[2].wait("removed")
            try nodes[1].wait("memberRemoved")
            try nodes[1].ok("send", "room", "without eve", "--wait", "delivered", "--timeout", "90")
            #expect(try nodes[2].ok("conversation", "show", "room")["state"].string == "removed")
            try nodes[2].fails(1, "send", "room", "hello?")
            #expect(try !nodes[2].texts().contains("without eve"))
            try nodes[2].ok("conversation", "leave", "room", "--force")
            try nodes[2].fails(7, "conversation", "show", "room")
        }
    }

    @Test("a member that was away when it was removed is told on its return") func removedWhileAway() throws {
        try withGroup("ann", "bob", "eve") { nodes in
            try nodes[2].stop()
            try nodes[0].ok("conversation", "remove", "room", "eve")
            try nodes[0].stop()
            try nodes[0].start()
            try nodes[2].start()
            try nodes[2].wait("removed")
        }
    }

    @Test("leaving asks for the name on a terminal, and needs --force without one") func leaveAsks() throws {
        try withRoom { ann, bob, id in
            try ann.ok("conversation", "create", "--name", "other")
            let leave = ["setsid", "--ctty", Program.mayfly, "conversation", "leave"]
            let terminal = try PseudoTerminal()
            let refused = try terminal.child(leave + ["room", "--home", bob.home])
            try terminal.expect("Type room to go on: ")
            try terminal.type("rom\n")
            #expect(refused.wait(seconds: 30) == 1)
            try terminal.expect("nothing was destroyed")
            #expect(try bob.ok("conversation", "show", "room")["conversation"].string == id)
            let agreed = try terminal.child(leave + ["room", "--home", bob.home])
            try terminal.expect("Type room to go on: ")
            try terminal.type("room\n")
            #expect(agreed.wait(seconds: 30) == 0)
            try bob.fails(7, "conversation", "show", "room")
            let forced = try terminal.child(leave + ["room", "--force", "--home", ann.home])
            #expect(forced.wait(seconds: 30) == 0)
            try ann.fails(64, "conversation", "leave", "other")
            try ann.ok("conversation", "leave", "other", "--force")
            #expect(try ann.ok("conversation", "list").lines.isEmpty)
        }
    }

    @Test("commands of the creator are refused for members, with a harmless hint") func notCreator() throws {
        try withRoom { _, bob, _ in
            for command in [["invite", "create", "room"], ["conversation", "rename", "room", "x"]] {
                let refused = try bob.run(command)
                #expect(refused.code == 1 && refused.message.contains("creator"), "\(refused)")
                #expect(refused.json["error"]["hint"].string?.contains("leave") == false, "\(refused)")
            }
            let refused = try bob.fails(1, "explode", "room", "--force")
            #expect(refused.json["error"]["hint"].string?.contains("conversation leave") == true, "\(refused)")
        }
    }

    @Test("a leaver's links are closed by all, and absent members hear of it from another member") func leaving() throws
    {
        try withGroup("ann", "bob", "eve", "max") { nodes in
            try nodes[0].stop()
            try nodes[3].ok("conversation", "leave", "room", "--force")
            for node in nodes[1...2] { try node.wait("memberLeft") }
            try nodes[0].start()
            try nodes[0].wait("memberLeft")
            let members = try nodes[0].ok("conversation", "members", "room")["members"].list
            #expect(members.compactMap { $0["profile"].string }.sorted() == ["bob", "eve"])
        }
    }

    @Test("an absent member learns name and members from any member, without the creator") func catchUp() throws {
        try withGroup("ann", "bob", "eve") { nodes in
            try nodes[2].stop()
            try nodes[0].ok("conversation", "rename", "room", "hall")
            try nodes[1].wait("conversationUpdated:name=hall")
            try nodes[0].stop()
            try nodes[2].start()
            try nodes[2].wait("conversationUpdated:name=hall")
        }
    }

    @Test("a member that moved to another port is found through another member") func moved() throws {
        try withGroup("ann", "bob", "eve") { nodes in
            for node in nodes[1...2] {
                let before = try nodes[0].cursor()
                try node.stop()
                try nodes[0].wait("peerOffline", after: before)
                try node.start(["--listen", node.anyPort])
                try nodes[0].wait("peerOnline", after: before)
            }
            try nodes[1].ok("send", "room", "found you", "--wait", "delivered", "--timeout", "90")
            try nodes[2].wait("message:text=found you")
        }
    }

    @Test("an explosion reaches every member") func explosion() throws {
        try withGroup("ann", "bob", "eve") { nodes in
            let id = try nodes[0].ok("conversation", "show", "room")["conversation"].string ?? ""
            try nodes[0].ok("explode", "room", "--force")
            for node in nodes[1...] {
                try node.wait("exploded")
                try node.fails(3, "conversation", "show", id)
            }
            try nodes[0].wait("deletionReceipt")
            try eventually("all have confirmed") { try nodes[0].ok("explode", "status", id)["waiting"].list.isEmpty }
        }
    }
}

/// Running nodes, all invited to `room` by the first, each linked to each.
func withGroup(_ names: String..., body: ([TestNode]) throws -> Void) throws {
    try withDirectory { directory in
        let nodes = names.map { TestNode(name: $0, directory: directory) }
        defer { for node in nodes { node.crash() } }
        for node in nodes {
            try node.initialise()
            try node.start()
        }
        try gather(nodes)
        try body(nodes)
    }
}

/// The first of the running nodes invites all others to `room`; each is linked to each.
func gather(_ nodes: [TestNode]) throws {
    try nodes[0].ok("conversation", "create", "--name", "room", "--as", nodes[0].name)
    for count in 2...nodes.count {
        let slug = try nodes[0].ok("invite", "create", "room", "--single-use")["slug"].string ?? ""
        try nodes[count - 1].ok("join", slug, "--as", nodes[count - 1].name, "--timeout", "90")
        for node in nodes[..<count] {
            try eventually("\(node.name) is linked to all") {
                let members = try node.ok("conversation", "members", "room")["members"].list
                return members.count == count - 1 && members.allSatisfy { $0["online"].bool == true }
            }
        }
    }
}
