import Foundation
import Testing

/// Terms beyond one value, caps, and provable agreements (Lifetime.md).
@Suite("Lifetime terms", .script) struct LifetimeTermsTests {
    private func date(_ json: JSON) throws -> Date {
        let text = try #require(json.string)
        let formatter = ISO8601DateFormatter()
        formatter.formatOptions = [.withInternetDateTime, .withFractionalSeconds]
        return try #require(formatter.date(from: text) ?? ISO8601DateFormatter().date(from: text))
    }

    @Test("A mailbox is proposed, accepted and shown; a policy for a lifetime asks, and a refusal leaves none")
    func mailbox() throws {
        try withRoom { ann, bob, _ in
            // Each proposes at most three times, including the renewal: a fourth would meet the rate limit.
            for node in [ann, bob] { try node.ok("lifetime", "policy", "room", "accept-up-to:30d") }
            try bob.ok("lifetime", "propose", "room", "1d", "--mailbox", "ram")
            try ann.wait("lifetimeProposed:ours=false,lifetime=1d,mailbox=ram")
            #expect(try ann.ok("lifetime", "show", "room")["proposal"]["mailbox"].string == "ram")
            #expect(try ann.show("lifetime", "show", "room").output.contains("1d, mailbox in memory by bob"))
            try ann.ok("lifetime", "reject", "room")
            try bob.wait("lifetimeRejected:reason=user_declined")
            for node in [ann, bob] {
                let shown = try node.ok("lifetime", "show", "room")
                #expect(shown["state"].string == "none" && shown["agreement"].isNull && shown["proposal"].isNull)
                #expect(try node.ok("conversation", "show", "room")["mailbox"].isNull)
            }

            try ann.ok("lifetime", "propose", "room", "1d", "--mailbox", "disk")
            try bob.wait("lifetimeProposed:ours=false,lifetime=1d,mailbox=disk")
            #expect(try bob.show("lifetime", "show", "room").output.contains("1d, mailbox on disk by ann"))
            let accepted = try bob.ok("lifetime", "accept", "room", "--renew")
            #expect(accepted["policy"].string == "accept-up-to:30d" && accepted["renewed"].bool == true)
            try ann.wait("lifetimeAgreed:lifetime=1d,mailbox=disk")
            for node in [ann, bob] {
                #expect(try node.ok("lifetime", "show", "room")["agreement"]["mailbox"].string == "disk")
                #expect(try node.ok("conversation", "show", "room")["mailbox"].string == "disk")
                let proven = try #require(try node.ok("lifetime", "agreements", "room").lines.last)
                #expect(proven["agreement"]["mailbox"].string == "disk" && proven["verified"].bool == true)
                #expect(proven["proposal"]["mailbox"].string == "disk")
                #expect(try node.show("lifetime", "agreements", "room").output.contains("1d, mailbox on disk"))
                #expect(try node.show("conversation", "show", "room").output.contains("1d, mailbox on disk"))
                let note = try node.ok("read", "room").lines.compactMap { $0["text"].string }.last
                #expect(note == "Messages will be deleted after 1 Day (mailbox on disk)")
                #expect(try node.members()[0]["mailbox"].isNull)
                let found = try node.run(["doctor"]).lines.filter { $0["name"].string == "mailbox" }
                #expect(found.map { $0["state"].string } == ["warning"], "\(found)")
                #expect(found.first?["hint"].string?.contains("mailbox=on") == true, "\(found)")
            }
        }
    }

    @Test func `A cap shortens the lifetime of the local copy only`() throws {
        try withRoom { ann, bob, _ in
            try agree(ann, bob, "7d")
            #expect(try bob.ok("lifetime", "cap", "room")["cap"].string == "none")
            try bob.ok("lifetime", "cap", "room", "1h")
            try say("short here", ann)
            let theirs = try date(message("short here", at: ann)["expiresAt"])
            let ours = try date(message("short here", at: bob)["expiresAt"])
            #expect(theirs.timeIntervalSince(ours) > 5 * 86_400)
            try bob.ok("lifetime", "cap", "room", "ephemeral")
            try say("nothing here", ann)
            #expect(try message("nothing here", at: bob)["stored"].bool == false)
            #expect(try message("nothing here", at: ann)["stored"].bool == true)
            #expect(bob.files(holding: "nothing here").isEmpty)
            try bob.ok("lifetime", "cap", "room", "default")
            try bob.ok("lifetime", "cap", "--default", "30d")
            try say("as agreed", ann)
            let agreed = try date(message("as agreed", at: bob)["expiresAt"])
            #expect(agreed.timeIntervalSince(ours) > 5 * 86_400, "a longer cap changes nothing")
        }
    }

    @Test func `Every stored message names its agreement, whose signatures can be shown later`() throws {
        try withRoom { ann, bob, _ in
            try agree(ann, bob, "1d")
            try say("first", ann)
            let first = try #require(try message("first", at: bob)["agreement"].string)
            try agree(ann, bob, "7d")
            try say("second", ann)
            let second = try #require(try message("second", at: bob)["agreement"].string)
            #expect(first != second)
            for node in [ann, bob] {
                let shown = try node.ok("lifetime", "show", "room", "--agreement", String(first.prefix(12)))
                #expect(shown["verified"].bool == true && shown["state"].string == "ended")
                #expect(shown["agreement"]["id"].string == first)
                #expect(shown["agreement"]["members"].list.count == 2)
                #expect(shown["proposal"]["signature"].string?.count == 128)
                #expect(shown["accepts"].list.first?["signature"].string?.count == 128)
                let all = try node.ok("lifetime", "agreements", "room").lines
                #expect(all.compactMap { $0["agreement"]["id"].string } == [first, second])
                #expect(all.last?["state"].string == "inForce")
            }
            try bob.fails(7, "lifetime", "show", "room", "--agreement", "ffffffff")
        }
    }

    @Test func `Invalid terms are refused, with valid ones to write instead`() throws {
        try withRoom { ann, bob, _ in
            try ann.fails(64, "lifetime", "propose", "room", "1d", "--unopened", "30s")
            try ann.fails(64, "lifetime", "propose", "room", "1d", "--unopened", "31d")
            try ann.fails(64, "lifetime", "propose", "room", "ephemeral", "--timer", "read")
            let disk = try ann.fails(64, "lifetime", "propose", "room", "ephemeral", "--mailbox", "disk")
            #expect(disk.kind == "usage" && disk.json["error"]["hint"].string?.contains("--mailbox ram") == true)
            try bob.stop()
            try ann.wait("peerOffline")
            let unmailed = try ann.fails(1, "send", "room", "hi", "--wait", "mailed")
            #expect(try unmailed.message.contains("not agreed on a mailbox") && ann.texts().isEmpty, "\(unmailed)")
            #expect(try ann.ok("lifetime", "show", "room")["state"].string == "none")
        }
    }
}
