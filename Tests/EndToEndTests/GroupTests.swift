import Foundation
import Testing

@Suite("Groups", .script) struct GroupTests {
    @Test("a message reaches all members, a member's own name stays in its conversation, and only the creator renames")
    func fanOut() throws {
        try withGroup("ann", "bob", "eve") { nodes in
            for node in nodes {
                let text = "from \(node.name)"
                let sent = try node.ok("send", "room", text, "--wait", "delivered", "--timeout", "90")
                #expect(sent["state"].string == "delivered")
                for other in nodes where other.name != node.name {
                    try other.wait("message:text=\(text)")
                    #expect(try message(text, at: other)["from"].string == node.name)
                }
            }
            let members = try nodes[2].ok("conversation", "members", "room")["members"].list
            #expect(members.compactMap { $0["profile"].string }.sorted() == ["ann", "bob"])
            #expect(members.allSatisfy { $0["online"].bool == true })
            try nodes[1].ok("conversation", "profile", "room", "robert")
            for node in [nodes[0], nodes[2]] { try node.wait("profileChanged:profile=robert") }
            try say("who am I?", nodes[1])
            try nodes[2].wait("message:text=who am I?")
            #expect(try message("who am I?", at: nodes[2])["from"].string == "robert")
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

    @Test("a removed member is told, gets nothing more and keeps no link") func removal() throws {
        try withGroup("ann", "bob", "eve", "max") { nodes in
            let (ann, bob, eve, max) = (nodes[0], nodes[1], nodes[2], nodes[3])
            // An absent member hears from another one who has left.
            try ann.stop()
            try eve.ok("conversation", "leave", "room", "--force")
            for node in [bob, max] { try node.wait("memberLeft") }
            try ann.start()
            try ann.wait("memberLeft")
            let members = try ann.ok("conversation", "members", "room")["members"].list
            #expect(members.compactMap { $0["profile"].string }.sorted() == ["bob", "max"])
            try ann.fails(7, "conversation", "remove", "room", "nobody")
            try ann.ok("conversation", "remove", "room", "max")
            try max.wait("removed")
            try bob.wait("memberRemoved")
            try bob.ok("send", "room", "without max", "--wait", "delivered", "--timeout", "90")
            #expect(try max.ok("conversation", "show", "room")["state"].string == "removed")
            try max.fails(1, "send", "room", "hello?")
            #expect(try !max.texts().contains("without max"))
            try max.ok("conversation", "leave", "room", "--force")
            try max.fails(7, "conversation", "show", "room")
            // A member that is away is told on its return.
            try bob.stop()
            try ann.ok("conversation", "remove", "room", "bob")
            try ann.restart()
            try bob.start()
            try bob.wait("removed")
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

    @Test("`delivered` means to the last member; an absent or moved member learns what it missed from any other")
    func moved() throws {
        try withGroup("ann", "bob", "eve") { nodes in
            let (ann, bob, eve) = (nodes[0], nodes[1], nodes[2])
            try eve.stop()
            try ann.fails(4, "send", "room", "for all", "--wait", "delivered", "--timeout", "0.5")
            try bob.wait("message:text=for all")
            #expect(try message("for all", at: ann)["state"].string == "sent")
            try eve.start()
            try eve.wait("message:text=for all")
            try ann.wait("messageState:state=delivered")
            try eve.stop()
            try ann.ok("conversation", "rename", "room", "hall")
            try bob.wait("conversationUpdated:name=hall")
            try ann.stop()
            try eve.start()
            try eve.wait("conversationUpdated:name=hall")
            try ann.start()
            try eventually("ann is linked to all") {
                try ann.ok("conversation", "members", "room")["members"].list.allSatisfy { $0["online"].bool == true }
            }
            for node in [bob, eve] {
                let before = try node.stop(seenBy: ann)
                try node.start(["--listen", node.anyPort])
                try ann.wait("peerOnline", after: before)
            }
            try bob.ok("send", "room", "found you", "--wait", "delivered", "--timeout", "90")
            try eve.wait("message:text=found you")
        }
    }
}

func withGroup(_ names: String..., body: ([TestNode]) throws -> Void) throws {
    try withNodes(names) { nodes in
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
