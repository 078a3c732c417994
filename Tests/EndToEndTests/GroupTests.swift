import Foundation
import Testing

@Suite("Groups", .script) struct GroupTests {
    @Test func `a removed member is told, gets nothing more and keeps no link`() throws {
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

    @Test func `leaving asks for the name on a terminal, and needs --force without one`() throws {
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
