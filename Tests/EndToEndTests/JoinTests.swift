import Foundation
import Testing

@Suite("Joining", .script) struct JoinTests {
    @Test func `A join waits for an absent creator, survives restarts, and completes`() throws {
        try withPair { ann, bob in
            let slug = try inviteToRoom(ann)
            try ann.stop()
            let pending = try bob.fails(4, "join", slug, "--timeout", "0.5")
            #expect(pending["state"].string == "joining")
            try bob.restart()
            let listed = try bob.ok("join", "list")
            #expect(listed.lines.count == 1)
            #expect(listed["state"].string == "joining")
            #expect(listed["join"].string == pending["join"].string)
            try ann.start()
            try bob.wait("joined")
            #expect(try bob.ok("conversation", "list")["name"].string == "room")
            #expect(try bob.ok("join", "list").lines.isEmpty)
            try say("at last", ann)
            #expect(try bob.texts() == ["at last"])
        }
    }

    @Test func `A lock while a join waits ends the command at once with exit code 6, and the join goes on`() throws {
        try withPair { ann, bob in
            let slug = try inviteToRoom(ann)
            try ann.stop()
            let waiting = try Background(bob, ["join", slug, "--timeout", "140"])
            try eventually("it waits") { try bob.ok("join", "list").lines.count == 1 }
            try bob.ok("lock")
            #expect(waiting.end(seconds: 30) == 6)
            #expect(waiting.lines.last?["error"]["kind"].string == "locked", "\(waiting.lines)")
            try bob.ok("unlock")
            #expect(try bob.ok("join", "list").lines.map { $0["state"].string } == ["joining"])
            try ann.start()
            try bob.wait("joined")
        }
    }

    @Test func `Joining twice leads to the same conversation, also after a restart`() throws {
        try withRoom { ann, bob, id in
            let slug = try ann.invite()
            #expect(try bob.ok("join", slug, "--timeout", "90")["conversation"].string == id)
            try bob.restart()
            #expect(try bob.ok("join", slug, "--timeout", "90")["conversation"].string == id)
            #expect(try bob.ok("conversation", "list").lines.count == 1)
            #expect(try ann.ok("conversation", "show", "room")["members"].list.count == 1)
        }
    }

    @Test func `A join by a member removed unawares asks the creator, and joins again`() throws {
        try withRoom { ann, bob, id in
            try bob.stop()
            let member = try ann.members()[0]["member"].string ?? ""
            try ann.ok("conversation", "remove", "room", member)
            let slug = try ann.invite("room", "--single-use")
            try ann.stop()
            try bob.start()
            let unanswered = try bob.fails(4, "join", slug, "--timeout", "2")
            #expect(unanswered.message.contains("still a member"), "\(unanswered)")
            // Whichever of the two requests the creator answers, it has this name.
            let asked = try bob.ok("join", slug, "--as", "bob", "--no-wait", "--timeout", "1")
            #expect(asked["state"].string == "validating")
            try ann.start()
            let joined = try bob.ok("join", slug, "--as", "bob", "--timeout", "90")
            #expect(joined["state"].string == "ready" && joined["conversation"].string == id)
            #expect(try ann.ok("conversation", "show", "room")["members"][0]["profile"].string == "bob")
            let states = try bob.ok("conversation", "list").lines.map { $0["state"].string }
            #expect(states == ["removed", "ready"])
        }
    }

    @Test func `An invite is read without a node, and shows its terms`() throws {
        try withPair { ann, bob in
            try ann.ok("conversation", "create", "--name", "room")
            let invite = try ann.ok("invite", "create", "room", "--expires-in", "2h", "--single-use")
            try bob.stop()
            let seen = try bob.ok("invite", "inspect", invite["slug"].string ?? "")
            #expect(seen["signature"].string == "valid")
            for key in ["tag", "expiresAt", "creator", "lifetime", "name"] {
                #expect(seen[key].string == invite[key].string, "\(key)")
            }
            #expect(seen["singleUse"].bool == true)
            #expect(seen["name"].string == "room")
            try bob.fails(64, "invite", "inspect", "mayfly:join/AAAA")
            try bob.start()
        }
    }
}
