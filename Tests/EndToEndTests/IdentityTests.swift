import Cryptography
import Foundation
import Messaging
import Testing

/// One conversation per inbox, and the pool of one unused inbox (Delivery.md).
@Suite("Identity", .script) struct IdentityTests {
    private func unused(_ node: TestNode) throws -> [String] {
        try node.ok("inbox", "list").lines.filter { $0["state"].string == "unused" }.compactMap { $0["inbox"].string }
    }

    @Test("Creating and joining use up the pooled inbox, and the pool of one is refilled in the background") func pool()
        throws
    {
        try withPair { ann, bob in
            var seen: Set<String> = []
            for name in ["one", "two", "three"] {
                try eventually("a pool of one") { try unused(ann).count == 1 }
                let waiting = try unused(ann)[0]
                #expect(seen.insert(waiting).inserted, "no identity is used twice")
                let made = try ann.ok("conversation", "create", "--name", name)
                #expect(made["inbox"].string == waiting)
                #expect(try ann.ok("conversation", "show", name)["inbox"].string == waiting)
            }
            // The pooled inbox is no conversation and is not shown as one.
            #expect(try ann.ok("conversation", "list").lines.count == 3)
            #expect(try ann.ok("status")["inboxes"]["unused"].integer == 1)
            let waiting = try #require(try unused(bob).first)
            let slug = try ann.invite("one")
            #expect(try bob.ok("join", slug, "--no-wait")["join"].string == waiting)
            try bob.wait("joined")
            #expect(try bob.ok("conversation", "list")["inbox"].string == waiting)
            try eventually("a pool of one") { try unused(bob).count == 1 }
            #expect(try unused(bob) != [waiting])
        }
    }

    @Test func `The pooled inbox survives a restart, and the clientId of an inbox never changes`() throws {
        try withRoom { ann, _, _ in
            try eventually("a pool of one") { try unused(ann).count == 1 }
            let waiting = try unused(ann)
            let inbox = try ann.ok("conversation", "show", "room")["inbox"].string
            for isClean in [true, false] {
                if isClean { try ann.stop() } else { ann.crash() }
                try ann.start()
                #expect(try unused(ann) == waiting)
                #expect(try ann.ok("conversation", "show", "room")["inbox"].string == inbox)
            }
            #expect(try ann.ok("conversation", "create", "--name", "next")["inbox"].string == waiting.first)
        }
    }

    @Test func `With an empty pool an inbox is made at once: any number of conversations, each with its own`() throws {
        try withNode { ann in
            let answers = try ann.rpc((0..<40).map { ("conversation.create", ["name": "c\($0)"]) })
            let inboxes = Set(answers.compactMap { $0["result"]["inbox"].string })
            let ids = Set(answers.compactMap { $0["result"]["conversation"].string })
            #expect(inboxes.count == 40 && ids.count == 40)
            try eventually("a pool of one") { try unused(ann).count == 1 }
            #expect(try ann.ok("conversation", "list").lines.count == 40)
        }
    }

    @Test("Two conversations of the same two nodes share nothing that a member or an eavesdropper could see")
    func unlinked() throws {
        // All traffic of the two goes over a wire that the test records.
        try withRelay(["bob"], advertise: "tcp://127.0.0.1:9", arguments: ["--no-udp"]) { ann, others, relay in
            let bob = others[0]
            var members: [String] = []
            var keys: [PublicKey] = []
            var canaries: [Canary] = []
            func plant(_ name: String) -> String {
                let text = "\(name) \(UUID().uuidString)"
                canaries.append(Canary(name, text: text))
                return text
            }
            for number in ["one", "two"] {
                let name = plant("the conversation's name")
                let created = try ann.ok("conversation", "create", "--name", name, "--as", plant("ann's profile"))
                let invite = try ann.ok("invite", "create", name)
                let slug = try #require(invite["slug"].string)
                try bob.ok("join", slug, "--as", plant("bob's profile"), "--timeout", "90")
                for node in [ann, bob] {
                    let other = try node.ok("conversation", "show", name)["members"][0]["member"].string
                    members.append(try #require(other))
                }
                // A prefix of the creator's inbox id, as bob sees it.
                #expect(invite["creator"].string?.hasPrefix(members.last ?? "") == true)
                let id = try #require(Hex.decode(created["conversation"].string ?? ""))
                let verified = try InviteSlug.decode(slug)
                keys.append(verified.creatorKey)
                canaries += [
                    // Without the byte that selects one of two points.
                    Canary("the creator's key", bytes: Array(verified.creatorKey.bytes.dropFirst())),
                    Canary("the join secret", bytes: verified.invite.joinSecret),
                    Canary("the invite's tag", text: try #require(invite["tag"].string)),
                    Canary("the conversation's id", bytes: id),
                ]
                let long = String(repeating: plant("text \(number)") + ". ", count: 50)
                for node in [ann, bob] { try node.ok("send", name, long, "--wait", "delivered", "--timeout", "90") }
                #expect(relay.streams.contains { $0.count > long.utf8.count }, "it goes over the wire")
            }
            #expect(Set(members).count == 4 && Set(keys).count == 2 && !members.contains(""))
            for member in members { canaries.append(Canary("a member's id", bytes: try #require(Hex.decode(member)))) }
            // Endpoints at a rendezvous node share only that node.
            let hub = TestNode(name: "hub", directory: ann.directory)
            defer { hub.crash() }
            try hub.initialise()
            try hub.start(["--rendezvous"])
            try introduce(hub, ann)
            var relays: [RelayAddress] = []
            for name in try ann.ok("conversation", "list").lines.compactMap({ $0["name"].string }) {
                let slug = try ann.invite(name)
                relays += try InviteSlug.decode(slug).invite.endpoints.compactMap(\.relay)
            }
            relays += try ContactCard(text: try ann.card()).endpoints.compactMap(\.relay)
            #expect(relays.count == 3 && Set(relays.map(\.reservation)).count == 3, "\(relays)")
            #expect(Set(relays.map(\.key)).count == 1)
            for relay in relays { canaries.append(Canary("a reservation", bytes: relay.reservation.bytes)) }
            // The contact card shares nothing with them, either.
            for node in [ann, bob] {
                let card = try ContactCard(text: try node.card())
                let contact = InboxID(card.key).description
                #expect(!members.contains { contact.hasPrefix($0) } && !keys.contains(card.key))
                canaries.append(Canary("a contact key", bytes: Array(card.key.bytes.dropFirst())))
            }
            for stream in relay.streams { expectNone(canaries, in: stream, "what goes over the wire") }
        }
    }
}
