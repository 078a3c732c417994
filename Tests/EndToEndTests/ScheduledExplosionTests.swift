import Foundation
import Testing

/// Scheduled explosions (Explode.md), on test clocks, so that slow machines pass.
extension ExplodeTests {
    @Test("A scheduled explosion is announced, reminded of, and ends both copies with a receipt") func timed() throws {
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
            try confirmed("room", at: ann)
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

    private func confirmed(_ conversation: String, at node: TestNode) throws {
        try eventually("the schedule is confirmed") {
            let status = try node.ok("explode", "status", conversation)
            return status["confirmed"].list.count == 1 && status["waiting"].list.isEmpty
        }
    }

    @Test("A schedule is brought forward and never postponed; an immediate explosion wins") func broughtForward() throws
    {
        try withRoom { ann, bob, id in
            let first = try ann.ok("explode", "room", "--in", "2h", "--force")["expiresAt"].time
            #expect(try ann.ok("explode", "room", "--in", "3h", "--force")["expiresAt"].time == first)
            #expect(try bob.wait("explosionScheduled")["expiresAt"].time == first)
            let cursor = try bob.cursor()
            let second = try ann.ok("explode", "room", "--at", "2099-01-01T00:00:00Z", "--force")
            #expect(second["expiresAt"].time == first)
            let third = try ann.ok("explode", "room", "--in", "1h", "--force")["expiresAt"].time
            #expect(try #require(third) < #require(first))
            #expect(try bob.wait("explosionScheduled", after: cursor)["expiresAt"].time == third)
            try ann.fails(64, "explode", "room", "--in", "1h", "--at", "2030-01-01T00:00:00Z", "--force")
            try bob.fails(1, "explode", "room", "--in", "1m", "--force")
            try ann.fails(64, "explode", "room", "--at", "2001-01-01T00:00:00Z", "--force")
            try ann.fails(64, "explode", "room", "--in", "0s", "--force")
            let now = try ann.ok("explode", "room", "--force")
            #expect(now["state"].string == "exploded" && now["conversation"].string == id)
            try bob.wait("exploded")
            #expect(try ann.ok("explode", id, "--in", "1h", "--force")["expiresAt"].time == now["expiresAt"].time)
        }
    }

    @Test("A member that was off at the time finds nothing when it starts, and `mayfly reap` needs no passphrase")
    func fuse() throws {
        try withDirectory { directory in
            let file = "\(directory)/passphrase"
            _ = FileManager.default.createFile(
                atPath: file, contents: Data("correct horse battery staple\n".utf8),
                attributes: [.posixPermissions: 0o600])
            let (ann, bob) = (TestNode(name: "ann", directory: directory), TestNode(name: "bob", directory: directory))
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

    @Test("A member that missed the schedule learns it at the next link, a joiner with the welcome") func off() throws {
        try withClock("ann", "bob", "cem") { nodes, clock in
            let (ann, bob, cem) = (nodes[0], nodes[1], nodes[2])
            for node in nodes { try node.start() }
            let id = try meet(ann, bob)
            try bob.stop(seenBy: ann)
            let end = try ann.ok("explode", "room", "--in", "3h", "--force")["expiresAt"].time
            #expect(try ann.ok("explode", "status", "room")["waiting"].list.count == 1)
            try bob.start()
            #expect(try bob.wait("explosionScheduled")["expiresAt"].time == end)
            #expect(try bob.ok("conversation", "show", id)["expiresAt"].time == end)
            try confirmed("room", at: ann)
            // Another conversation, scheduled before it has members.
            try ann.ok("conversation", "create", "--name", "next")
            let soon = try ann.ok("explode", "next", "--in", "1h", "--force")["expiresAt"].time
            let slug = try ann.ok("invite", "create", "next")["slug"].string ?? ""
            try cem.ok("join", slug, "--timeout", "90")
            #expect(try cem.wait("explosionScheduled")["expiresAt"].time == soon)
            ann.crash()
            clock.pass(TestClock.hour + 60)
            try cem.wait("exploded")
            #expect(try cem.ok("conversation", "list").lines.isEmpty)
        }
    }

    @Test("A schedule survives kill -9 of both nodes right after its answer") func scheduleIsDurable() throws {
        try withRoom { ann, bob, id in
            let end = try ann.ok("explode", "room", "--in", "1h", "--force")["expiresAt"].time
            for node in [ann, bob] {
                // A schedule that was shown or answered holds.
                if node.name == "bob" { try bob.wait("explosionScheduled") }
                try node.restart(kills: true)
                #expect(try node.ok("conversation", "show", id)["expiresAt"].time == end)
            }
            // Leaving removes the prepared tombstone.
            try bob.ok("conversation", "leave", "room", "--force")
            try bob.restart(kills: true)
            try bob.fails(7, "explode", "status", id)
        }
    }
}
