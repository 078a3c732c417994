import Testing

@Suite("Outbox", .script) struct OutboxTests {
    @Test func `A message to an absent node is queued, survives a restart and a kill -9, and arrives once`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            try say("first", ann)
            try bob.stop(seenBy: ann)
            let sent = try ann.ok("send", "room", "second")
            #expect(sent["state"].string == "queued")
            #expect(sent["stored"].bool == true)
            let id = sent["message"].string ?? ""
            try ann.fails(4, "send", "room", "third", "--wait", "delivered", "--timeout", "0.3")
            let listed = try ann.ok("outbox", "list")
            #expect(listed.lines.map { $0["to"].string } == ["bob", "bob"])
            #expect(listed.lines.contains { $0["message"].string == id })
            #expect(listed["expiresAt"].time != nil)
            try ann.restart()
            #expect(try ann.ok("outbox", "list").lines.count == 2)
            // No member has met since, so the agreement still stands.
            let fourth = try ann.ok("send", "room", "fourth")
            #expect(fourth["stored"].bool == true)
            try ann.restart(kills: true)
            #expect(try ann.ok("outbox", "list").lines.count == 3)
            #expect(try ann.ok("status")["outbox"].integer == 3)
            try bob.start()
            try ann.wait("messageState:message=\(id),state=delivered")
            try ann.wait("messageState:message=\(fourth["message"].string ?? ""),state=delivered")
            try bob.wait("message:text=fourth")
            #expect(try bob.texts() == ["first", "second", "third", "fourth"])
            #expect(
                try bob.ok("read", "room").lines.filter { $0["from"].string == "ann" }.allSatisfy {
                    $0["stored"].bool == true
                })
            #expect(try message("second", at: ann)["state"].string == "delivered")
            try eventually("nothing waits any more") { try ann.ok("outbox", "list").lines.isEmpty }
        }
    }

    @Test func `A queued message is cancelled, also by a prefix of its id, and is never delivered`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            try bob.stop(seenBy: ann)
            let wrong = try ann.ok("send", "room", "never mind")["message"].string ?? ""
            let right = try ann.ok("send", "room", "this one")["message"].string ?? ""
            #expect(try ann.ok("outbox", "cancel", String(wrong.prefix(10)))["state"].string == "cancelled")
            try ann.fails(7, "outbox", "cancel", wrong)
            try ann.fails(7, "outbox", "cancel", "0123456789")
            #expect(try ann.ok("outbox", "list").lines.map { $0["message"].string } == [right])
            try ann.ok("outbox", "retry", right)
            try bob.start()
            try ann.wait("messageState:message=\(right),state=delivered")
            #expect(try bob.texts() == ["this one"])
            #expect(try message("never mind", at: ann)["state"].string == "cancelled")
        }
    }
}
