import Foundation
import Testing

@Suite("Inbox", .script) struct InboxTests {
    private func rpc(_ node: TestNode, _ requests: [(method: String, params: [String: Any])]) throws -> [JSON] {
        var input = ""
        for (number, request) in requests.enumerated() {
            let object: [String: Any] = [
                "jsonrpc": "2.0", "id": number, "method": request.method, "params": request.params,
            ]
            let data = try JSONSerialization.data(withJSONObject: object)
            input += String(decoding: data, as: UTF8.self) + "\n"
        }
        let answer = try Program.run(
            [Program.mayfly, "rpc", "--home", node.home], input: input, in: node.directory, seconds: 140)
        let lines = answer.lines.sorted { ($0["id"].integer ?? 0) < ($1["id"].integer ?? 0) }
        for line in lines where line["result"].isNull { Issue.record("\(line)") }
        #expect(lines.count == requests.count)
        return lines.map { $0["result"] }
    }

    private func meetOften(_ ann: TestNode, _ bob: TestNode, _ count: Int) throws {
        for start in stride(from: 0, to: count, by: 5) {
            let numbers = start..<min(start + 5, count)
            let created = try rpc(ann, numbers.map { ("conversation.create", ["name": "talk\($0)"]) })
            let invites = try rpc(
                ann, created.map { ("invite.create", ["conversation": $0["conversation"].string ?? ""]) })
            let joined = try rpc(bob, invites.map { ("join", ["slug": $0["slug"].string ?? "", "timeout": "90s"]) })
            #expect(joined.allSatisfy { $0["state"].string == "ready" })
        }
    }

    /// A command that must succeed and needs the other member, who may sleep. On a slow machine the link may come after
    /// the command's timeout; then nothing has happened, and the command is repeated.
    private func reach(_ node: TestNode, _ arguments: String..., at location: SourceLocation = #_sourceLocation) throws
    {
        try eventually(arguments.joined(separator: " ")) {
            let answer = try node.run(arguments)
            if answer.code == 5 { return false }
            #expect(answer.code == 0, "\(answer)", sourceLocation: location)
            return true
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
        "The most recently active inboxes are awake after a stop and after a kill, and the list shows the time",
        arguments: [true, false]) func activity(isClean: Bool) throws
    {
        try withPair { ann, bob in
            try meetOften(ann, bob, 4)
            // The one in the middle is active last, unlike the order of creation.
            for name in ["talk0", "talk1", "talk2"] {
                try ann.ok("lifetime", "propose", name, "1d")
                try eventually("it is open") { try bob.run(["lifetime", "accept", name]).code == 0 }
                try ann.wait("lifetimeAgreed", in: name, after: 0)
            }
            // The last has no agreement, so its activity is in memory and only a clean stop saves it.
            for name in ["talk2", "talk0", "talk1"] + (isClean ? ["talk3"] : []) {
                try bob.ok("send", name, "for \(name)", "--wait", "delivered", "--timeout", "90")
                #expect(try ann.texts(name) == ["for \(name)"])
            }
            try bob.stop()
            func times() throws -> [String: Int64] {
                var result: [String: Int64] = [:]
                let names = try ann.ok("conversation", "list").lines
                for inbox in try ann.ok("inbox", "list").lines where !inbox["conversation"].isNull {
                    let name = names.first { $0["conversation"].string == inbox["conversation"].string }?["name"].string
                    if let name, let time = inbox["lastActivity"].time { result[name] = time }
                }
                return result
            }
            let before = try times()
            #expect(before.count == (isClean ? 4 : 3))
            for capacity in [1, 2] {
                if isClean { try ann.stop() } else { ann.crash() }
                try ann.start(["--capacity", String(capacity)])
                try eventually("as many as may be") { try inboxes(ann, "awake").count == capacity }
                let after = try times()
                for (name, time) in before {
                    let found = try #require(after[name], "\(name) has been active")
                    // The newest message counts, too, and is written a moment after its arrival. The time saved at a
                    // clean stop never decreases.
                    #expect(abs(found - time) < 5_000 && (!isClean || found >= time), "\(name)")
                }
                let names = try ann.ok("conversation", "list").lines
                let awake = try inboxes(ann, "awake").compactMap { inbox in
                    names.first { $0["conversation"].string == inbox["conversation"].string }?["name"].string
                }
                let latest = isClean ? ["talk3", "talk1"] : ["talk1", "talk0"]
                #expect(awake.sorted() == latest.prefix(capacity).sorted())
            }
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
            _ = try rpc(bob, [("lifetime.policy", ["policy": "accept-up-to:7d"])])
            for number in 0..<60 { try reach(ann, "lifetime", "propose", "talk\(number)", "1d") }
            let sent = try rpc(
                ann,
                (0..<60).map {
                    ("send", ["conversation": "talk\($0)", "text": "hello", "wait": "delivered", "timeout": "90s"])
                })
            #expect(sent.allSatisfy { $0["state"].string == "delivered" })
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
