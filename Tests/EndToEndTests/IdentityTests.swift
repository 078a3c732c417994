import Foundation
import Testing

/// One inbox, one conversation (seed 003), and the pool of one that waits for the next (seed 001).
@Suite("Identity")
struct IdentityTests {
    private func unused(_ node: TestNode) throws -> [String] {
        try node.ok("inbox", "list").lines.filter { $0["state"].string == "unused" }.compactMap { $0["inbox"].string }
    }

    @Test("Creating and joining consume the pooled inbox, and the pool of one is filled again in the background")
    func pool() throws {
        try withPair { ann, bob in
            var seen: Set<String> = []
            for name in ["one", "two", "three"] {
                try eventually("a pool of one") { try unused(ann).count == 1 }
                let waiting = try unused(ann)[0]
                #expect(seen.insert(waiting).inserted, "no identity is used twice")
                let made = try ann.ok("conversation", "create", "--name", name)
                #expect(made["inbox"].string == waiting)
                #expect(try ann.ok("conversation", "show", name)["inbox"].string == waiting)
            }
            // It is no conversation, and is shown as none.
            #expect(try ann.ok("conversation", "list").lines.count == 3)
            #expect(try ann.ok("status")["inboxes"]["unused"].integer == 1)
            let waiting = try #require(try unused(bob).first)
            let slug = try ann.ok("invite", "create", "one")["slug"].string ?? ""
            #expect(try bob.ok("join", slug, "--no-wait")["join"].string == waiting)
            try bob.wait("joined")
            #expect(try bob.ok("conversation", "list")["inbox"].string == waiting)
            try eventually("a pool of one") { try unused(bob).count == 1 }
            #expect(try unused(bob) != [waiting])
        }
    }

    @Test("The pooled inbox survives a restart, and the clientId of an inbox never changes")
    func restart() throws {
        try withRoom { ann, _, _ in
            try eventually("a pool of one") { try unused(ann).count == 1 }
            let waiting = try unused(ann)
            let inbox = try ann.ok("conversation", "show", "room")["inbox"].string
            for isClean in [true, false] {
                if isClean { try ann.stop() } else { ann.crash() }
                try ann.start()
                #expect(try unused(ann) == waiting)
                #expect(try ann.ok("conversation", "show", "room")["inbox"].string == inbox)
            }
            #expect(try ann.ok("conversation", "create", "--name", "next")["inbox"].string == waiting.first)
        }
    }

    @Test("With an empty pool an inbox is made at once: as many conversations as asked for, each with its own")
    func empty() throws {
        try withHomes("ann") { nodes in
            let ann = nodes[0]
            try ann.start()
            let requests = (0..<40).map {
                #"{"jsonrpc":"2.0","id":\#($0),"method":"conversation.create","params":{"name":"c\#($0)"}}"#
            }
            let answers = try ann.ok("rpc", input: requests.joined(separator: "\n") + "\n").lines
            let inboxes = Set(answers.compactMap { $0["result"]["inbox"].string })
            let ids = Set(answers.compactMap { $0["result"]["conversation"].string })
            #expect(answers.count == 40 && inboxes.count == 40 && ids.count == 40)
            try eventually("a pool of one") { try unused(ann).count == 1 }
            #expect(try ann.ok("conversation", "list").lines.count == 40)
        }
    }

    @Test("Two conversations of the same two nodes have nothing in common that a member or a wire could see")
    func unlinked() throws {
        try withPair { ann, bob in
            var members: [String] = []
            for name in ["one", "two"] {
                try ann.ok("conversation", "create", "--name", name)
                let invite = try ann.ok("invite", "create", name)
                try bob.ok("join", invite["slug"].string ?? "", "--timeout", "90")
                members.append(try bob.ok("conversation", "show", name)["members"][0]["member"].string ?? "")
                members.append(try ann.ok("conversation", "show", name)["members"][0]["member"].string ?? "")
                members.append(invite["creator"].string ?? "")
                members.append(invite["tag"].string ?? "")
            }
            #expect(Set(members).count == members.count && !members.contains(""))
            // Nor has the contact card.
            let card = try ann.ok("peer", "card")["contact"].string ?? ""
            #expect(members.allSatisfy { !card.contains($0) })
        }
    }
}
