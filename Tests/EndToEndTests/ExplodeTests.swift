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
            func explode(_ name: String, _ more: String...) throws -> [String?] {
                let answer = try ann.run(["explode", name, "--force"] + more)
                return [answer["conversation"].string, answer["state"].string]
            }
            let old = try create("first")
            let exploded: [String?] = [old, "exploded"]
            #expect(try explode("first") == exploded)
            let beginning = String(old.prefix(4))
            #expect(try explode(beginning) == exploded, "nobody else is meant")
            let new = try create(beginning)
            // The full id is no conversation's name.
            #expect(try explode(old) == exploded)
            #expect(try explode(beginning) == [new, "exploded"])
            #expect(try ann.ok("conversation", "list").lines.isEmpty)
            // The alias lives as long as the tombstone, and takes precedence over an id's prefix.
            #expect(try ann.ok("explode", "status", beginning)["conversation"].string == new)
            let scheduled = try create(beginning)
            #expect(try explode(beginning, "--in", "1h") == [scheduled, "scheduled"])
            // A locked node knows no names, so it accepts full ids only.
            try ann.ok("lock")
            try ann.fails(6, "explode", beginning, "--force")
            #expect(try explode(old) == exploded)
            try ann.ok("unlock")
            #expect(try ann.ok("conversation", "list").lines.map { $0["conversation"].string } == [scheduled])
        }
    }

    @Test("An explosion on a terminal asks for the name, and with --wait names each confirming member, or ends with 4")
    func terminal() throws {
        try withRoom { ann, bob, id in
            let terminal = try PseudoTerminal()
            let explode = ["setsid", "--ctty", Program.mayfly, "explode", "room", "--home", ann.home]
            let refused = try terminal.child(explode)
            try terminal.expect("for all 2 members and cannot be undone")
            try terminal.expect("Type room to go on: ")
            try terminal.type("rom\n")
            #expect(refused.wait(seconds: 30) == 1)
            try terminal.expect("nothing was destroyed")
            let agreed = try terminal.child(explode + ["--wait", "--timeout", "60"])
            try terminal.expect("Type room to go on: ")
            try terminal.type("room\n")
            try terminal.expect("bob ✓ ")
            #expect(agreed.wait(seconds: 30) == 0)
            #expect(try ann.ok("explode", "status", id)["confirmed"].list.count == 1)
            try bob.fails(3, "read", id)
            try meet(ann, bob)
            bob.crash()
            let waiting = try ann.show("explode", "room", "--force", "--wait", "--timeout", "1")
            #expect(waiting.code == 4 && waiting.errors.contains("waiting for bob"), "\(waiting)")
            #expect(waiting.output.contains("waiting for   bob"), "\(waiting)")
            try bob.start()
        }
    }

    @Test func `After an explosion its id and name are in the list, and a text to it ends with 3`() throws {
        try withRoom { ann, bob, id in
            #expect(try ann.ok("explode", "list").lines.isEmpty)
            try ann.ok("explode", "room", "--force")
            try ann.wait("deletionReceipt")
            let missing = try ann.fails(7, "explode", "status", "other")
            #expect(missing.json["error"]["hint"].string?.contains("`mayfly explode list") == true, "\(missing)")
            let listed = try ann.ok("explode", "list")
            #expect(listed.lines.count == 1 && listed["conversation"].string == id)
            #expect(listed["state"].string == "exploded" && listed["expiresAt"].time != nil)
            #expect(listed["confirmed"].list.count == 1 && listed["waiting"].list.isEmpty)
            #expect(
                listed.output == (try ann.ok("explode", "status", id)).output, "the list shows what the status shows")
            #expect(listed["name"].string == "room" && listed["by"].string == "me")
            for node in [ann, bob] {
                #expect(try node.ok("explode", "status", "room")["conversation"].string == id)
                #expect(try node.fails(3, "send", "room", "too late").message == "conversation room has exploded")
            }
            let table = try ann.show("explode", "list").output
            for words in [String(id.prefix(12)), "exploded", " bob"] { #expect(table.contains(words), "\(table)") }
            #expect(try bob.ok("explode", "list")["by"].string == "ann")
            try ann.restart()
            // The tombstone has no member's name.
            let names = try #require(listed.output.firstRange(of: /"names":\[[^\]]*\],/))
            #expect(try ann.ok("explode", "list").output == listed.output.replacingCharacters(in: names, with: ""))
            // A living conversation takes precedence.
            let next = try ann.ok("conversation", "create", "--name", "room")["conversation"].string
            #expect(try ann.ok("explode", "status", "room")["conversation"].string == next)
            try ann.ok("explode", "room", "--in", "2h", "--force")
            try ann.ok("inbox", "sleep", "room")
            #expect(try ann.ok("explode", "list").lines.map { $0["state"].string } == ["exploded", "scheduled"])
            #expect(try ann.rpc([("explode.list", ["from": "x"])])[0]["error"]["data"]["kind"].string == "usage")
            try ann.ok("lock")
            try ann.fails(6, "explode", "list")
            try ann.ok("unlock")
        }
    }
}
