import Foundation
import Testing

/// The commands of Join.md; its rules are shown by MessagingTests.
@Suite("Joining", .script) struct JoinTests {
    @Test func `A join waits for an absent creator, is listed and retried, survives a restart, and completes`() throws {
        try withPair { ann, bob in
            let slug = try inviteToRoom(ann)
            try ann.stop()
            let waiting = try Background(bob, ["join", slug, "--timeout", "140"])
            try eventually("it waits") { try bob.ok("join", "list").lines.count == 1 }
            try bob.ok("lock")
            #expect(waiting.end(seconds: 30) == 6)
            #expect(waiting.lines.last?["error"]["kind"].string == "locked", "\(waiting.lines)")
            try bob.ok("unlock")
            let pending = try bob.fails(4, "join", slug, "--timeout", "0.5")
            #expect(pending["state"].string == "joining")
            try bob.restart()
            var before: Int64 = 0
            try eventually("three attempts, and a time for the next") {
                let listed = try bob.ok("join", "list")
                #expect(listed.lines.count == 1 && listed["state"].string == "joining")
                #expect(listed["join"].string == pending["join"].string)
                before = listed["attempts"].integer ?? 0
                return before >= 3 && listed["nextAttempt"].time != nil
            }
            let id = try #require(pending["join"].string)
            let retried = try bob.ok("join", "retry", String(id.prefix(8)))
            #expect(retried["state"].string == "joining" && retried["attempts"].integer ?? 0 > before)
            try bob.fails(7, "join", "retry", "ffff")
            try ann.start()
            try bob.wait("joined")
            #expect(try bob.ok("conversation", "list")["name"].string == "room")
            #expect(try bob.ok("join", "list").lines.isEmpty)
            try say("at last", ann)
            #expect(try bob.texts() == ["at last"])
        }
    }

    @Test("kill -9 between the admission and the welcome: the same joiner gets its welcome, another does not")
    func crash() throws {
        try withRelay(["bob", "carol"]) { ann, others, relay in
            let (bob, carol) = (others[0], others[1])
            let made = try ann.ok("conversation", "create", "--name", "room")
            let slug = try ann.invite("room", "--single-use")
            relay.holdAnswers()
            let id = try bob.ok("join", slug, "--no-wait")["join"].string ?? ""
            try ann.wait("memberJoined")
            try eventually("the welcome") { relay.heldByteCount > 0 }
            ann.crash()
            relay.cut()
            #expect(try bob.ok("join", "list")["state"].string == "joining")
            try ann.start()
            #expect(try ann.ok("conversation", "show", "room")["members"].list.count == 1)
            let refused = try carol.fails(2, "join", slug, "--timeout", "90")
            #expect(refused["errorType"].string == "single_use_consumed")
            // On a busy machine the join may have completed by now, and there is none left to retry.
            #expect([0, 7].contains(try bob.run(["join", "retry", id]).code))
            try bob.wait("joined")
            #expect(try bob.ok("conversation", "list")["conversation"].string == made["conversation"].string)
            try bob.wait("peerOnline")
            try say("the same welcome", ann)
            #expect(try ann.ok("conversation", "show", "room")["members"].list.count == 1)
        }
    }

    @Test func `A refusal while the joiner is offline is repeated when the joiner returns`() throws {
        try withRelay(["bob"]) { ann, others, relay in
            let bob = others[0]
            let slug = try inviteToRoom(ann)
            try ann.ok("invite", "revoke", "room")
            relay.holdAnswers()
            try bob.ok("join", slug, "--no-wait")
            try eventually("the refusal") { relay.heldByteCount > 0 }
            try bob.stop()
            relay.cut()
            try bob.start()
            let failed = try bob.wait("joinFailed")
            #expect(failed["errorType"].string == "generic_failure")
            #expect(failed["title"].string == "Couldn't join")
            #expect(failed["message"].string == "Failed to join conversation")
            let listed = try bob.ok("join", "list")
            #expect(listed["state"].string == "joinFailed")
            let id = try #require(listed["join"].string)
            #expect(try bob.fails(1, "join", "retry", id).message.contains("ended"))
            try bob.ok("join", "cancel", id)
            #expect(try bob.ok("join", "list").lines.isEmpty)
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

    @Test func `One invite is revoked by its id or its text; the others still work`() throws {
        try withPair { ann, bob in
            try ann.ok("conversation", "create", "--name", "room")
            let invites = try (0..<3).map { _ in try ann.ok("invite", "create", "room") }
            let ids = invites.map { $0["id"].string ?? "" }
            #expect(Set(ids).count == 3)
            #expect(Set(try ann.ok("invite", "list", "room").lines.compactMap { $0["id"].string }) == Set(ids))
            let tag = try ann.ok("invite", "revoke", "room", String(ids[0].prefix(12)))["tag"].string
            #expect(tag == invites[2]["tag"].string)
            try ann.ok("invite", "revoke", "room", invites[1]["slug"].string ?? "")
            #expect(try ann.ok("invite", "list", "room").lines.compactMap { $0["id"].string } == [ids[2]])
            try ann.fails(7, "invite", "revoke", "room", "ffffffffffff")
            for index in 0..<2 {
                let refused = try bob.fails(2, "join", invites[index]["slug"].string ?? "", "--timeout", "90")
                #expect(refused["errorType"].string == "generic_failure")
            }
            try bob.ok("join", invites[2]["slug"].string ?? "", "--timeout", "90")
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

    @Test("On a terminal an invite comes with the command to paste and a QR code; a script gets only the invite")
    func terminal() throws {
        try withNode { ann in
            try ann.ok("conversation", "create", "--name", "room")
            let command = [Program.mayfly, "invite", "create", "room", "--home", ann.home]
            let large = try PseudoTerminal(size: (80, 60))
            let shown = try large.child(command)
            try large.expect("mayfly join 'mayfly:join/")
            try large.expect("expires:")
            try large.expect("\u{1b}[30;107m")
            try large.expect("█")
            #expect(shown.wait(seconds: 30) == 0)
            // A terminal without a size counts as 80 by 24.
            for size in [(80, 24), (72, 60), nil] as [(UInt16, UInt16)?] {
                let small = try PseudoTerminal(size: size)
                let told = try small.child(command)
                try small.expect("expires:")
                try small.expect("QR code:  needs ")
                try small.expect("invite create room --code --home \(ann.home)` makes a code to say aloud")
                #expect(told.wait(seconds: 30) == 0 && !small.text.contains("█"), "\(small.text)")
            }
            let plain = try ann.show("invite", "create", "room")
            #expect(plain.output.hasPrefix("mayfly:join/") && plain.output.split(separator: "\n").count == 1)
            #expect(!plain.errors.contains("█"))
            let answer = try ann.run(["invite", "create", "room"])
            #expect(answer.lines.count == 1 && answer["slug"].string?.hasPrefix("mayfly:join/") == true, "\(answer)")
            #expect(answer.errors.isEmpty, "with --json there is no note")
        }
    }
}
