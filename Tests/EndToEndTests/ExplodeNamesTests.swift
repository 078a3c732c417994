import Testing

/// A conversation's name that is also a prefix of an exploded one's id.
extension ExplodeTests {
    @Test("A conversation whose name is the prefix of an exploded one's id is the one meant") func named() throws {
        try withHomes("ann") { nodes in
            let ann = nodes[0]
            try ann.start()
            func create(_ name: String) throws -> String {
                try ann.ok("conversation", "create", "--name", name)["conversation"].string ?? ""
            }
            let old = try create("first")
            let exploded = try ann.ok("explode", "first", "--force")
            let beginning = String(old.prefix(4))
            #expect(try ann.ok("explode", "status", beginning)["state"].string == "exploded", "nobody else is meant")
            #expect(try ann.ok("explode", beginning, "--force")["expiresAt"].string == exploded["expiresAt"].string)
            let new = try create(beginning)
            let status = try ann.ok("explode", "status", beginning)
            #expect(status["state"].string == "none" && status["conversation"].string == new)
            // The full id is no conversation's name.
            #expect(try ann.ok("explode", "status", old)["state"].string == "exploded")
            #expect(try ann.ok("explode", old, "--force")["conversation"].string == old)
            #expect(try ann.ok("conversation", "list").lines.map { $0["conversation"].string } == [new])
            let destroyed = try ann.ok("explode", beginning, "--force")
            #expect(destroyed["conversation"].string == new && destroyed["state"].string == "exploded")
            #expect(try ann.ok("conversation", "list").lines.isEmpty)
            try ann.fails(3, "read", new)
            // The alias lives as long as the tombstone, and takes precedence over an id's prefix.
            #expect(try ann.ok("explode", "status", beginning)["conversation"].string == new)
            let scheduled = try create(beginning)
            let plan = try ann.ok("explode", beginning, "--in", "1h", "--force")
            #expect(plan["conversation"].string == scheduled && plan["state"].string == "scheduled")
            #expect(try ann.ok("explode", "status", beginning)["state"].string == "scheduled")
            // A locked node knows no names, so it accepts full ids only.
            try ann.ok("lock")
            try ann.fails(6, "explode", beginning, "--force")
            #expect(try ann.ok("explode", old, "--force")["conversation"].string == old)
            try ann.ok("unlock")
            #expect(try ann.ok("conversation", "list").lines.map { $0["conversation"].string } == [scheduled])
            try ann.fails(7, "explode", "nothing", "--force")
        }
    }
}
