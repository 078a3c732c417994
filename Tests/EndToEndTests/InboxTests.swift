import Foundation
import Testing

@Suite("Inbox", .script) struct InboxTests {
    private func meetOften(_ ann: TestNode, _ bob: TestNode, _ count: Int) throws {
        for start in stride(from: 0, to: count, by: 5) {
            let names = (start..<min(start + 5, count)).map { "talk\($0)" }
            _ = try ann.rpc(names.map { ("conversation.create", ["name": $0]) })
            let invites = try ann.rpc(names.map { ("invite.create", ["conversation": $0]) }).map { $0["result"] }
            let joined = try bob.rpc(invites.map { ("join", ["slug": $0["slug"].string ?? "", "timeout": "90s"]) })
            #expect(joined.allSatisfy { $0["result"]["state"].string == "ready" }, "\(joined)")
        }
    }

    private func inboxes(_ node: TestNode, _ state: String) throws -> [JSON] {
        try node.ok("inbox", "list").lines.filter { $0["state"].string == state && !$0["conversation"].isNull }
    }

    /// Polls, because no event reports the last of many.
    @Test func `list, wake, sleep, rebalance`() throws {
        try withRoom(lifetime: "1d") { ann, bob, id in
            try say("hello", ann)
            let inbox = try #require(try inboxes(ann, "awake").first)
            #expect(inbox["conversation"].string == id && inbox["protected"].bool == false)
            #expect(inbox["lastActivity"].time != nil && inbox["wakeReason"].string == "userInteraction")
            let name = inbox["inbox"].string ?? ""
            let cursor = try ann.cursor()
            #expect(try ann.ok("inbox", "sleep", String(name.prefix(8)))["state"].string == "sleeping")
            try ann.wait("inboxAsleep", after: cursor)
            #expect(try ann.ok("inbox", "sleep", name)["state"].string == "sleeping")
            let counts = try ann.ok("status")["inboxes"]
            #expect(counts["awake"].integer == 0 && counts["sleeping"].integer == 1 && counts["unused"].integer == 1)
            // Commands that only show do not wake an inbox.
            for command in [["conversation", "list"], ["conversation", "show", "room"], ["outbox", "list"]] {
                #expect(try ann.run(command).code == 0)
            }
            #expect(try ann.ok("conversation", "list")["members"][0]["profile"].string == "bob")
            #expect(try ann.ok("conversation", "list")["lifetime"].string == "1d")
            #expect(try ann.ok("lifetime", "show", "room")["lifetime"].string == "1d")
            #expect(try inboxes(ann, "sleeping").count == 1)
            let woken = try ann.ok("inbox", "wake", "room")
            #expect(woken["state"].string == "awake" && woken["wakeReason"].string == "userInteraction")
            try ann.ok("inbox", "sleep", "room")
            #expect(try ann.texts() == ["hello"])
            #expect(try inboxes(ann, "awake").first?["wakeReason"].string == "userInteraction")
            try ann.ok("inbox", "sleep", "room")
            #expect(try ann.ok("inbox", "rebalance")["woken"].integer == 1)
            try ann.wait("inboxAwake:wakeReason=activityRanking", after: cursor)
            try ann.fails(7, "inbox", "wake", "nothing-like-it")
            let contact = try #require(
                try ann.ok("inbox", "list").lines.first { $0["conversation"].isNull && $0["state"].string == "awake" })
            try ann.fails(1, "inbox", "sleep", contact["inbox"].string ?? "")
        }
    }

    @Test(
        "The most recently active inbox is awake after a stop and after a kill, and the list shows the time",
        arguments: [true, false]) func activity(isClean: Bool) throws
    {
        try withPair { ann, bob in
            try meetOften(ann, bob, 3)
            // The one in the middle is active last, unlike the order of creation.
            for name in ["talk0", "talk2", "talk1"] {
                try ann.ok("lifetime", "propose", name, "1d")
                try eventually("it is open") { try bob.run(["lifetime", "accept", name]).code == 0 }
                try ann.wait("lifetimeAgreed", in: name, after: 0)
                try bob.ok("send", name, "for \(name)", "--wait", "delivered", "--timeout", "90")
                #expect(try ann.texts(name) == ["for \(name)"])
            }
            try bob.stop()
            let last = try #require(try ann.ok("conversation", "show", "talk1")["inbox"].string)
            func activity() throws -> Int64? {
                try inboxes(ann, "awake").first { $0["inbox"].string == last }?["lastActivity"].time
            }
            let before = try #require(try activity())
            if isClean { try ann.stop() } else { ann.crash() }
            try ann.start(["--capacity", "1"])
            try eventually("as many as may be") { try inboxes(ann, "awake").count == 1 }
            // The newest message counts, too, and is written a moment after its arrival.
            #expect(abs(try #require(try activity()) - before) < 5_000)
        }
    }

    @Test func `Unread messages that are in memory only keep an inbox awake`() throws {
        try withRoom { ann, bob, _ in
            try say("unread", ann)
            let refused = try bob.fails(1, "inbox", "sleep", "room")
            #expect(refused.message.contains("unread") && refused.output.contains("mayfly read room --home "))
            #expect(try inboxes(bob, "awake").first?["protected"].bool == true)
            #expect(try bob.texts() == ["unread"])
            try bob.ok("inbox", "sleep", "room")
            // It was read and still exists: the conversation was not closed.
            #expect(try bob.texts() == ["unread"])
        }
    }

    @Test func `an incoming token wakes a sleeping inbox`() throws {
        try withRoom(lifetime: "1d") { ann, bob, id in
            for _ in 0..<2 {
                let cursor = try bob.cursor()
                try bob.ok("inbox", "sleep", "room")
                try ann.wait("peerOffline", after: 0)
                try say("knock knock", ann)
                try bob.wait("inboxAwake:wakeReason=pushNotification", in: id, after: cursor)
            }
            #expect(try bob.texts() == ["knock knock", "knock knock"])
            #expect(try message("knock knock", at: bob)["stored"].bool == true)
        }
    }

    @Test func `a sleeping inbox explodes, by its creator's command and by its notice`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            try say("gone soon", ann)
            try ann.ok("inbox", "sleep", "room")
            try bob.ok("inbox", "sleep", "room")
            try ann.ok("explode", "room", "--force")
            try explosionReaches(bob, ann)
            #expect(bob.files(holding: "gone soon") == [])
            try eventually("the files are gone") { bob.files(".seg") == [] }
        }
    }

    @Test func `capacity 20 with 60 conversations`() throws {
        try withHomes { ann, bob in
            for node in [ann, bob] { try node.start(["--capacity", "20"]) }
            try meetOften(ann, bob, 60)
            for node in [ann, bob] {
                try eventually("20 are awake") {
                    let counts = try node.ok("status")["inboxes"]
                    return counts["awake"].integer == 20 && counts["sleeping"].integer == 40
                }
            }
            try bob.stop()  // He would wake others.
            try ann.restart(["--capacity", "20"])
            try eventually("20 are awake again") { try inboxes(ann, "awake").count == 20 }
            #expect(try inboxes(ann, "awake").contains { $0["wakeReason"].string == "appLaunch" })
            #expect(try ann.ok("conversation", "list").lines.count == 60)
            try ann.ok("conversation", "show", "talk17")
        }
    }

    @Test func `the capacity comes from init, the configuration and run, and is a number from 1 to 10,000`() throws {
        try withDirectory { directory in
            let node = TestNode(name: "ann", directory: directory)
            defer { node.crash() }
            try node.initialise(["--capacity", "2"])
            try node.start()
            #expect(try node.ok("inbox", "rebalance")["capacity"].integer == 2)
            try node.restart(["--capacity", "5"])
            #expect(try node.ok("inbox", "rebalance")["capacity"].integer == 5)
            try node.stop()
            try node.configure(["capacity": 0])
            let failed = try #require(try node.tryStart())
            #expect(failed.code != 0 && (failed.output + failed.errors).contains("capacity"))
        }
    }
}
