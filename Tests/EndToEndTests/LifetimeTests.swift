import Testing

/// The commands of Lifetime.md; its rules are shown by MessagingTests.
@Suite("Lifetime", .script) struct LifetimeTests {
    private static let day: Int64 = 86_400_000

    /// An expiry sidecar names the end of a bucket of five minutes (one day) or thirty (seven days), which contains the
    /// message's exact expiry.
    private func sidecars(_ node: TestNode) throws -> [(tier: UInt8, notAfter: Int64)] {
        try node.writtenOut()
        return node.files(".expiry").map { name in
            let bytes = node.contents(name)
            #expect(bytes.count == 128 && bytes.starts(with: Array("MFEXP1\0\0".utf8)))
            let notAfter = bytes[40..<48].reversed().reduce(Int64(0)) { $0 << 8 | Int64($1) }
            return (bytes[24], notAfter)
        }
    }

    @Test("An accepted proposal is shown by both, and each stored message names its agreement, which is proved later")
    func accepted() throws {
        try withRoom { ann, bob, _ in
            let proposed = try ann.ok("lifetime", "propose", "room", "1d")
            #expect(proposed["state"].string == "pending")
            #expect(proposed["lifetime"].string == "ephemeral", "proposing changes nothing")
            try bob.wait("lifetimeProposed:lifetime=1d,ours=false")
            let asked = try bob.ok("lifetime", "show", "room")
            #expect(asked["state"].string == "pending")
            #expect(asked["proposal"]["lifetime"].string == "1d" && asked["proposal"]["from"].string == "ann")
            #expect(try bob.ok("lifetime", "accept", "room")["lifetime"].string == "1d")
            try ann.wait("lifetimeAgreed:lifetime=1d")
            let sent = try say("keep this for a day", ann)
            #expect(sent["stored"].bool == true)
            var agreements: Set<String> = []
            for node in [ann, bob] {
                let shown = try node.ok("lifetime", "show", "room")
                #expect(shown["state"].string == "agreed" && shown["lifetime"].string == "1d")
                agreements.insert(shown["agreement"]["id"].string ?? "none")
                let texts = try node.ok("read", "room").lines.filter { $0["from"].string == "system" }
                let entered = node === ann ? ["bob has joined"] : []
                #expect(texts.map { $0["text"].string } == entered + ["Messages will be deleted after 1 Day"])
                let message = try message("keep this for a day", at: node)
                #expect(message["stored"].bool == true)
                #expect(message["agreement"].string == shown["agreement"]["id"].string)
                let expiresAt = try #require(message["expiresAt"].time)
                #expect((Self.day...(Self.day + 5_000)).contains(expiresAt - (message["sentAt"].time ?? 0)))
                let file = try #require(try sidecars(node).first)
                #expect(file.tier == 3 && (0...300_000).contains(file.notAfter - expiresAt))
                #expect(node.files(".seg").count == 1)
            }
            #expect(agreements.count == 1, "both hold the same agreement")
            let first = try #require(agreements.first)
            try agree(ann, bob, "7d")
            for node in [ann, bob] {
                let shown = try node.ok("lifetime", "show", "room", "--agreement", String(first.prefix(12)))
                #expect(shown["verified"].bool == true && shown["state"].string == "ended")
                #expect(shown["agreement"]["id"].string == first && shown["agreement"]["members"].list.count == 2)
                #expect(shown["proposal"]["signature"].string?.count == 128)
                #expect(shown["accepts"].list.first?["signature"].string?.count == 128)
                let all = try node.ok("lifetime", "agreements", "room").lines
                #expect(all.count == 2 && all[0]["agreement"]["id"].string == first)
                #expect(all.last?["state"].string == "inForce")
            }
            try bob.fails(7, "lifetime", "show", "room", "--agreement", "ffffffff")
        }
    }

    @Test(
        "A rejected proposal keeps messages in memory only; a wait for its agreement ends with 2, a later one does not")
    func rejected() throws {
        try withRoom { ann, bob, _ in
            let start = try ann.cursor()
            func wait(_ until: String) throws -> Background {
                let arguments = ["watch", "room", "--since", String(start), "--only", "lifetimeProposed"]
                return try Background(ann, arguments + ["--until", until, "--timeout", "140"])
            }
            func ends(_ code: Int32, since: Int64?) throws {
                let cursor = since.map { ["--since", String($0)] } ?? []
                let answer = try ann.run(["watch", "room", "--until", "lifetimeAgreed", "--timeout", "0.5"] + cursor)
                #expect(answer.code == code, "\(answer)")
            }
            try ann.ok("lifetime", "propose", "room", "7d")
            try bob.wait("lifetimeProposed:ours=false,lifetime=7d")
            let any = try wait("lifetimeAgreed")
            let other = try wait("lifetimeAgreed:lifetime=1d")
            try bob.ok("lifetime", "reject", "room")
            #expect(any.end(seconds: 60) == 2)
            #expect(any.lines.last?["error"]["kind"].string == "refused", "\(any.lines)")
            let rejected = try ann.wait("lifetimeRejected")["cursor"].integer ?? 0
            // The outcome of everything after the cursor, but not of later events.
            for (code, cursor) in [(2, start), (4, nil), (4, rejected)] as [(Int32, Int64?)] {
                try ends(code, since: cursor)
            }
            #expect(try say("never on a disk", ann)["stored"].bool == false)
            for node in [ann, bob] {
                let shown = try node.ok("lifetime", "show", "room")
                #expect(shown["lifetime"].string == "ephemeral" && shown["state"].string == "none")
                #expect(shown["proposal"].isNull)
                #expect(try message("never on a disk", at: node)["stored"].bool == false)
                try node.writtenOut()
                #expect(node.files(".seg") == [] && node.files(holding: "never on a disk") == [])
            }
            try ann.ok("lifetime", "propose", "room", "1d")
            try bob.wait("lifetimeProposed:ours=false,lifetime=1d")
            let again = try wait("lifetimeAgreed")
            try eventually("it watches") { again.lines.contains { $0["lifetime"].string == "1d" } }
            try bob.ok("lifetime", "accept", "room")
            for wait in [again, other] { #expect(wait.end(seconds: 60) == 0) }
            for node in [ann, bob] {
                try node.ok("conversation", "close", "room")
                #expect(try node.texts() == [])
            }
        }
    }

    @Test func `Invalid terms, answers without a proposal and proposals with no other member are refused`() throws {
        try withRoom { ann, bob, _ in
            for word in ["accept", "reject", "withdraw"] { try ann.fails(7, "lifetime", word, "room") }
            try ann.fails(64, "lifetime", "propose", "room", "2d")
            for (option, value) in [("unopened", "30s"), ("unopened", "31d")] {
                try ann.fails(64, "lifetime", "propose", "room", "1d", "--\(option)", value)
            }
            try ann.fails(64, "lifetime", "propose", "room", "ephemeral", "--timer", "read")
            let disk = try ann.fails(64, "lifetime", "propose", "room", "ephemeral", "--mailbox", "disk")
            #expect(disk.kind == "usage" && disk.json["error"]["hint"].string?.contains("--mailbox ram") == true)
            try ann.ok("lifetime", "propose", "room", "1d")
            try ann.fails(7, "lifetime", "accept", "room")
            try bob.wait("lifetimeProposed:ours=false")
            try bob.fails(7, "lifetime", "withdraw", "room")
            try ann.ok("lifetime", "withdraw", "room")
            try bob.wait("lifetimeWithdrawn")
            try ann.ok("conversation", "create", "--name", "alone")
            try ann.fails(1, "lifetime", "propose", "alone", "1d")
            try bob.stop()
            try ann.wait("peerOffline")
            try ann.fails(5, "lifetime", "propose", "room", "1h")
            let unmailed = try ann.fails(1, "send", "room", "hi", "--wait", "mailed")
            #expect(try unmailed.message.contains("not agreed on a mailbox") && ann.texts().isEmpty, "\(unmailed)")
        }
    }

    @Test func `A mailbox is proposed, asked for under any policy for a lifetime, accepted and shown`() throws {
        try withRoom { ann, bob, _ in
            try bob.ok("lifetime", "policy", "room", "accept-up-to:30d")
            try ann.ok("lifetime", "propose", "room", "1d", "--mailbox", "disk")
            try bob.wait("lifetimeProposed:ours=false,lifetime=1d,mailbox=disk")
            #expect(try bob.show("lifetime", "show", "room").output.contains("1d, mailbox on disk by ann"))
            let accepted = try bob.ok("lifetime", "accept", "room", "--renew")
            #expect(accepted["policy"].string == "accept-up-to:30d" && accepted["renewed"].bool == true)
            try ann.wait("lifetimeAgreed:lifetime=1d,mailbox=disk")
            for node in [ann, bob] {
                #expect(try node.ok("conversation", "show", "room")["mailbox"].string == "disk")
                let proven = try #require(try node.ok("lifetime", "agreements", "room").lines.last)
                #expect(proven["agreement"]["mailbox"].string == "disk" && proven["verified"].bool == true)
                for command in ["lifetime agreements", "conversation show"] {
                    let words = command.split(separator: " ").map(String.init)
                    let shown = try node.show(words[0], words[1], "room").output
                    #expect(shown.contains("1d, mailbox on disk"), "\(shown)")
                }
                let note = try node.ok("read", "room").lines.compactMap { $0["text"].string }.last
                #expect(note == "Messages will be deleted after 1 Day (mailbox on disk)")
                let found = try node.check("mailbox")
                #expect(found["state"].string == "warning", "\(found)")
                #expect(found["hint"].string?.contains("mailbox=on") == true, "\(found)")
            }
        }
    }

    @Test func `A cap shortens the lifetime of the local copy only`() throws {
        try withRoom(lifetime: "7d") { ann, bob, _ in
            #expect(try bob.ok("lifetime", "cap", "room")["cap"].string == "none")
            try bob.ok("lifetime", "cap", "room", "1h")
            try say("short here", ann)
            let ends = try [ann, bob].map { try #require(try message("short here", at: $0)["expiresAt"].time) }
            #expect(ends[0] - ends[1] > 5 * Self.day)
            try bob.ok("lifetime", "cap", "room", "ephemeral")
            try say("nothing here", ann)
            #expect(try message("nothing here", at: bob)["stored"].bool == false)
            #expect(try message("nothing here", at: ann)["stored"].bool == true)
            #expect(bob.files(holding: "nothing here").isEmpty)
        }
    }
}
