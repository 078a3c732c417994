import Foundation
import Testing

/// Scheduled explosions (Explode.md), on test clocks, so that slow machines pass.
extension ExplodeTests {
    @Test func `A scheduled explosion is announced, reminded of, and ends both copies with a receipt`() throws {
        try withClockedRoom(lifetime: "1d") { ann, bob, id, clock in
            let scheduled = try ann.ok("explode", "room", "--in", "2h", "--force")
            #expect(scheduled["state"].string == "scheduled")
            let end = try #require(scheduled["expiresAt"].time)
            for node in [ann, bob] {
                let event = try node.wait("explosionScheduled")
                #expect(event["expiresAt"].time == end && event["conversation"].string == id)
                let shown = try node.ok("conversation", "show", "room")
                #expect(shown["expiresAt"].time == end && shown["state"].string == "scheduled")
                #expect(try node.ok("explode", "status", "room")["state"].string == "scheduled")
            }
            // The member has confirmed that it knows.
            try eventually("the schedule is confirmed") {
                let status = try ann.ok("explode", "status", "room")
                return status["confirmed"].list.count == 1 && status["waiting"].list.isEmpty
            }
            #expect(try say("short", ann)["expiresAt"].time == end)
            #expect(try message("short", at: bob)["expiresAt"].time == end)
            let invite = try ann.ok("invite", "create", "room")
            #expect(invite["expiresAt"].time == end && invite["conversationExpiresAt"].time == end)
            // They are reminded ten minutes before the end.
            clock.pass(112 * 60)
            for node in [ann, bob] {
                #expect(try node.wait("explosionReminder")["expiresAt"].time == end)
                #expect(try node.ok("explode", "status", "room")["state"].string == "scheduled")
            }
            clock.pass(10 * 60)
            for node in [ann, bob] {
                let exploded = try node.wait("exploded")
                #expect(try #require(exploded["at"].time) >= end)
                try node.fails(3, "read", id)
                #expect(try node.ok("conversation", "list").lines.isEmpty)
                #expect(node.files(holding: "short").isEmpty)
            }
            try ann.wait("deletionReceipt")
            let status = try ann.ok("explode", "status", id)
            #expect(status["state"].string == "exploded")
            #expect(status["confirmed"].list.count == 1 && status["waiting"].list.isEmpty)
            #expect(try #require(status["receipts"][0]["destroyedAt"].time) >= end)
        }
    }

    @Test("A member that was off at the time finds nothing when it starts, and `mayfly reap` needs no passphrase")
    func fuse() throws {
        try withDirectory { directory in
            let (ann, bob) = (TestNode(name: "ann", directory: directory), TestNode(name: "bob", directory: directory))
            let file = try bob.secret("correct horse battery staple\n", "passphrase")
            defer { for node in [ann, bob] { node.crash() } }
            let clock = try TestClock(in: directory)
            for node in [ann, bob] { node.prefix = clock.prefix }
            try ann.initialise()
            try ann.start()
            try bob.initialise(["--passphrase-file", file])
            try bob.start(["--passphrase-file", file])
            let id = try meet(ann, bob)
            try ann.ok("explode", "room", "--in", "1h", "--force")
            try bob.wait("explosionScheduled")
            try bob.stop()
            let page = bob.contents("rows.slots")
            clock.pass(TestClock.hour + 60)
            try ann.wait("exploded")
            let reap = clock.prefix + [Program.mayfly, "reap", "--json", "--home", bob.home]
            let reaped = try Program.run(reap, in: directory)
            #expect(reaped.code == 0 && reaped["ok"].bool == true, "\(reaped)")
            #expect(bob.contents("rows.slots") != page)
            try bob.start()
            try bob.fails(6, "explode", "status", id)
            try bob.ok("unlock", "--passphrase-file", file)
            #expect(try bob.ok("conversation", "list").lines.isEmpty)
            #expect(try bob.ok("explode", "status", id)["state"].string == "exploded")
            try bob.fails(3, "read", id)
            // Its tombstone keeps the receipt.
            try ann.wait("deletionReceipt")
        }
    }
}
