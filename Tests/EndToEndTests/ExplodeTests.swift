import Foundation
import Testing

@Suite("Explode", .script) struct ExplodeTests {
    @Test("An absent member learns of the explosion after kill -9 and a restart of its creator, and confirms it")
    func offline() throws {
        try withRoom(lifetime: "1d") { ann, bob, id in
            try say("gone soon", ann)
            try bob.stop(seenBy: ann)
            try ann.ok("explode", "room", "--force")
            try ann.restart(kills: true)
            try ann.fails(3, "read", id)
            #expect(try ann.ok("conversation", "list").lines.isEmpty)
            let waiting = try ann.ok("explode", "status", id)
            #expect(waiting["waiting"].list.count == 1 && waiting["confirmed"].list.isEmpty)
            try ann.stop()
            try bob.start()
            #expect(try bob.texts() == ["gone soon"])
            try ann.start()
            try explosionReaches(bob, ann)
            try bob.fails(3, "read", id)
            try eventually("the files are gone") { bob.files(".seg").isEmpty }
            let status = try ann.ok("explode", "status", id)
            #expect(status["confirmed"].list.count == 1 && status["waiting"].list.isEmpty)
        }
    }

    @Test func `A member may only leave, not explode; a script needs --force to explode`() throws {
        try withRoom { ann, bob, _ in
            for command in [["invite", "create", "room"], ["conversation", "rename", "room", "x"]] {
                let refused = try bob.run(command)
                #expect(refused.code == 1 && refused.message.contains("creator"), "\(refused)")
                #expect(refused.json["error"]["hint"].string?.contains("leave") == false, "\(refused)")
            }
            let refused = try bob.fails(1, "explode", "room", "--force")
            #expect(refused.kind == "failed")
            #expect(refused.json["error"]["hint"].string?.contains("conversation leave room") == true, "\(refused)")
            try ann.fails(64, "explode", "room")
            try ann.fails(7, "explode", "nothing", "--force")
            try say("still here", bob)
            #expect(try ann.texts() == ["still here"])
        }
    }

    @Test func `A conversation whose name is the prefix of an exploded one's id is the one meant`() throws {
        try withNode { ann in
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
