import Foundation
import Testing

@Suite("Peers", .script) struct PeerTests {
    fileprivate func introduce(_ ann: TestNode, _ bob: TestNode) throws {
        for (node, other) in [(ann, bob), (bob, ann)] { try node.add(other) }
    }

    @Test func `A card goes into peers.json, and the peer answers a ping with a round trip`() throws {
        try withPair { ann, bob in
            let card = try bob.card()
            try ann.stop()
            try ann.replace("peers.json", with: "{ \"peers\": [ { \"name\": \"bob\", \"contact\": \"\(card)\" } ] }")
            try ann.start()
            #expect(try ann.ok("peer", "list").lines.map { $0["name"].string } == ["bob"])
            let begin = ContinuousClock.now
            let answer = try ann.ok("peer", "ping", "bob", "--timeout", "90")
            let elapsed = (ContinuousClock.now - begin) / .milliseconds(1)
            #expect((0..<elapsed).contains(answer["rttMs"].double ?? -1), "\(answer)")
            #expect(answer["path"].string == "direct")
            let shown = try ann.ok("peer", "show", "bob")
            #expect(shown["lastSeen"].time != nil)
            #expect(shown["endpoints"][0].string == bob.listen)
            let words = try ann.show("peer", "ping", "bob", "--timeout", "90").output
            #expect(words.hasPrefix("bob: direct, ") && words.hasSuffix(" ms\n"), "\(words)")
            try bob.stop()
            let unreachable = try ann.fails(5, "peer", "ping", "bob", "--timeout", "1")
            #expect(unreachable.kind == "unreachable")
            try bob.start()
            try ann.ok("peer", "ping", "bob", "--timeout", "90")
        }
    }

    @Test func `Peers are added, changed, exported, imported and removed; the file is human-readable`() throws {
        try withPair { ann, bob in
            let card = try bob.card()
            try ann.ok("peer", "add", "bob", card)
            try ann.ok("peer", "add", "bob", card)
            try ann.fails(1, "peer", "add", "bob", "--endpoint", "tcp://192.0.2.1:1")
            try ann.ok("peer", "add", "lab", "--endpoint", "tcp://192.0.2.7:7440")
            try ann.fails(64, "peer", "add", "no good name", card)
            try ann.fails(64, "peer", "add", "x", "mayfly:card/AAAA")
            try ann.fails(64, "peer", "add", "x", "hello")
            let own = try ann.fails(64, "peer", "add", "x", ann.ok("peer", "card")["contact"].string ?? "")
            #expect(own.message == "this is the contact card of this node", "\(own)")
            try ann.fails(64, "peer", "add", "x", "--endpoint", "192.0.2.7")
            try ann.fails(1, "peer", "ping", "lab", "--timeout", "1")
            try ann.fails(7, "peer", "show", "nobody")
            try ann.fails(7, "peer", "ping", "nobody")
            #expect(try ann.ok("peer", "set", "bob", "invitations=accept")["invitations"].string == "accept")
            try ann.fails(64, "peer", "set", "bob", "invitations=perhaps")
            try ann.fails(64, "peer", "set", "bob", "colour=blue")
            let exported = try ann.ok("peer", "export")
            #expect(exported["peers"].list.count == 2)
            try bob.ok("peer", "import", "-", input: exported.output)
            #expect(
                try bob.ok("peer", "list").lines.map { $0["name"].string }.sorted { $0 ?? "" < $1 ?? "" } == [
                    "bob", "lab",
                ])
            try ann.ok("peer", "remove", "lab")
            try ann.fails(7, "peer", "remove", "lab")
            let file = String(decoding: ann.contents("peers.json"), as: UTF8.self)
            #expect(file.contains("\n") && file.contains("\"name\" : \"bob\"") && !file.contains("lab"))
        }
    }

    @Test("An invitation reaches a peer, also one that was away; it is listed and cancelled, or joined by its id")
    func invitation() throws {
        try withPair { ann, bob in
            try introduce(ann, bob)
            try bob.stop()
            try ann.ok("conversation", "create", "--name", "unwanted", "--with", "bob")
            try ann.restart()
            try bob.start()
            try bob.wait("invited")
            // A sender that is not in peers.json has no name.
            try bob.ok("peer", "remove", "ann")
            #expect(try bob.show("join", "list").output.contains("not in peers.json"))
            #expect(try bob.ok("join", "list")["from"].isNull)
            try bob.add(ann)
            let unwanted = try bob.ok("join", "list")["join"].string ?? ""
            #expect(try bob.ok("join", "cancel", unwanted)["state"].string == "cancelled")
            #expect(try bob.ok("join", "list").lines.isEmpty)
            let cursor = try bob.cursor()
            let made = try ann.ok("conversation", "create", "--name", "room", "--as", "ann", "--with", "bob")
            try bob.wait("invited", after: cursor)
            let invited = try bob.ok("join", "list")
            #expect(invited.lines.count == 1 && invited["state"].string == "invited")
            #expect(invited["from"].string == "ann" && invited["name"].string == "room")
            #expect(invited["message"].string?.contains("ann") == true)
            #expect(try bob.ok("conversation", "list").lines.isEmpty, "nobody joins by itself")
            let id = String((invited["join"].string ?? "").prefix(12))
            let table = try bob.show("join", "list")
            #expect(table.output.contains(" ann ") && table.output.contains("room"), "\(table)")
            #expect(table.errors.contains("`mayfly join \(id) ") && table.errors.contains("`mayfly join cancel \(id) "))
            let joined = try bob.ok("join", id, "--as", "bob", "--timeout", "90")
            #expect(joined["conversation"].string == made["conversation"].string)
            #expect(try bob.ok("join", "list").lines.isEmpty)
            try ann.fails(7, "conversation", "create", "--with", "nobody")
            try ann.ok("conversation", "remove", "room", "bob")
            try bob.wait("removed")
        }
    }

    @Test func `invitations=accept joins by itself, invitations=refuse does not even ask`() throws {
        try withPair { ann, bob in
            try introduce(ann, bob)
            try bob.ok("peer", "set", "ann", "invitations=accept")
            try ann.ok("conversation", "create", "--name", "room", "--with", "bob")
            try bob.wait("joined")
            try bob.ok("peer", "set", "ann", "invitations=refuse")
            let cursor = try bob.cursor()
            try ann.ok("conversation", "create", "--name", "other", "--with", "bob")
            try bob.wait("invited", after: cursor)
            #expect(try bob.ok("join", "list").lines.isEmpty)
            #expect(try bob.ok("conversation", "list").lines.count == 1)
        }
    }

    @Test func `A blocked peer gets no answer, and is not dialled`() throws {
        try withPair { ann, bob in
            try introduce(ann, bob)
            #expect(try bob.ok("peer", "block", "ann")["blocked"].bool == true)
            try ann.fails(5, "peer", "ping", "bob", "--timeout", "1.5")
            try bob.fails(1, "peer", "ping", "ann", "--timeout", "1.5")
            try ann.ok("conversation", "create", "--name", "room", "--with", "bob")
            // Each dial for a ping carries the invitation first.
            try ann.fails(5, "peer", "ping", "bob", "--timeout", "1.5")
            try bob.restart()
            #expect(try bob.ok("peer", "show", "ann")["blocked"].bool == true)
            try ann.fails(5, "peer", "ping", "bob", "--timeout", "1.5")
            // A received invitation would be listed, before the restart or after.
            #expect(try bob.ok("join", "list").lines.isEmpty)
            let cursor = try bob.cursor()
            try bob.ok("peer", "unblock", "ann")
            try ann.ok("peer", "ping", "bob", "--timeout", "90")
            try bob.wait("invited", after: cursor)
            let events = try bob.events()
            #expect(events.count { $0["event"].string == "invited" } == 1, "\(events)")
            // Blocked by hand, without a command or a restart.
            let card = try bob.card()
            let entry = #"{ "name": "bob", "contact": "\#(card)", "blocked": true }"#
            try ann.replace("peers.json", with: "{ \"peers\": [ \(entry) ] }")
            try eventually("bob is not answered any more") {
                try bob.run(["peer", "ping", "ann", "--timeout", "1"]).code == 5
            }
        }
    }

    @Test func `An edit of config.json while the node runs stays when a command changes a setting`() throws {
        try withNode { ann in
            let before = Program.text("\(ann.home)/config.json")
            let edited = before.replacingOccurrences(of: "\"policy\"", with: "\"readReceipts\" : true,\n  \"policy\"")
            #expect(edited != before)
            try ann.replace("config.json", with: edited)
            try ann.ok("lifetime", "policy", "--default", "refuse")
            let file = Program.text("\(ann.home)/config.json")
            #expect(file.contains("\"readReceipts\" : true") && file.contains("refuse"), "\(file)")
            try ann.replace("config.json", with: "{ \"listen\": 7 }")
            let refused = try ann.fails(1, "lifetime", "policy", "--default", "ask")
            #expect(refused.message.contains("config.json"), "\(refused)")
            #expect(Program.text("\(ann.home)/config.json") == "{ \"listen\": 7 }")
            try ann.replace("config.json", with: file)
        }
    }
}

/// Members that were invited as named peers.
extension PeerTests {
    @Test func `A member invited by name has that name, for the inviter only, until it chooses one`() throws {
        try withPair { ann, bob in
            try introduce(ann, bob)
            try ann.ok("conversation", "create", "--name", "room", "--with", "bob")
            try bob.wait("invited")
            try bob.ok("join", try bob.ok("join", "list")["join"].string ?? "", "--as", "", "--timeout", "90")
            try ann.wait("peerOnline")
            let member = try ann.members()[0]
            let id = try #require(member["member"].string)
            #expect(member["peer"].string == "bob" && member["profile"].isNull, "\(member)")
            #expect(try ann.show("conversation", "members", "room").output.contains("bob "))
            try say("hello", bob)
            #expect(try message("hello", at: ann)["from"].string == "bob")
            #expect(try message("hello", at: ann)["member"].string == id, "scripts have the id")
            #expect(try bob.members()[0]["peer"].isNull)
            try ann.ok("inbox", "sleep", "room")
            #expect(try ann.ok("conversation", "list")["members"][0]["peer"].string == "bob")
            try ann.restart()
            #expect(try ann.members()[0]["peer"].string == "bob")
            try ann.wait("peerOnline")
            try say("hello", bob)
            try ann.ok("explode", "room", "--in", "1h", "--force")
            #expect(try ann.ok("explode", "status", "room")["names"][0]["name"].string == "bob")
            // With a second member of that name neither is shown by the name alone.
            let slug = try ann.invite()
            try withHomes("eve") { nodes in
                try nodes[0].start()
                try nodes[0].ok("join", slug, "--as", "bob", "--timeout", "90")
                try eventually("eve is there") { try ann.members().list.count == 2 }
                #expect(try message("hello", at: ann)["from"].string == "bob (\(id))")
            }
            // The member's own name replaces our note.
            let cursor = try ann.cursor()
            try bob.ok("conversation", "profile", "room", "robert")
            try ann.wait("profileChanged:profile=robert", after: cursor)
            #expect(try message("hello", at: ann)["from"].string == "robert")
            // Without an entry in peers.json there is no name to show.
            let cleared = try ann.cursor()
            try bob.ok("conversation", "profile", "room", "")
            try ann.wait("profileChanged", after: cleared)
            try ann.ok("peer", "remove", "bob")
            #expect(try message("hello", at: ann)["from"].string == id)
        }
    }

    @Test func `A peer is online while there is a link to its contact or its member`() throws {
        try withPair { ann, bob in
            try introduce(ann, bob)
            #expect(try ann.ok("peer", "list")["online"].bool == false)
            #expect(try ann.ok("peer", "list")["lastSeen"].isNull)
            try ann.ok("conversation", "create", "--name", "room", "--with", "bob")
            try bob.wait("invited")
            // The invitation came over a link between the contact inboxes, so both know the time.
            try eventually("ann was seen") { try bob.ok("peer", "show", "ann")["lastSeen"].time != nil }
            try bob.ok("join", try bob.ok("join", "list")["join"].string ?? "", "--timeout", "90")
            try ann.wait("peerOnline")
            let shown = try ann.ok("peer", "list")
            #expect(shown["online"].bool == true && shown["path"].string == "direct", "\(shown)")
            #expect(shown["lastSeen"].time != nil && shown["link"]["transport"].string != nil)
            let link = shown["link"]
            #expect(link["address"].string?.contains("127.") == true && link["since"].time != nil, "\(link)")
            #expect(link["postQuantum"].bool == true, "\(link)")
            #expect(link["bytesIn"].integer ?? 0 > 0 && link["bytesOut"].integer ?? 0 > 0, "\(link)")
            try eventually("the round trip is known") { try ann.ok("peer", "list")["rttMs"].double != nil }
            let table = try ann.show("peer", "list").output
            #expect(table.contains("yes") && table.contains("direct"), "\(table)")
            try bob.stop(seenBy: ann)
            let gone = try ann.ok("peer", "show", "bob")
            #expect(gone["online"].bool == false && gone["lastSeen"].time != nil && gone["path"].string == "direct")
        }
    }
}
