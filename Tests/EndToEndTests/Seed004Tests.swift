import Testing

@Suite("Seed 004: testing scenarios", .script) struct Seed004Tests {
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

    @Test func `Test 1: Basic Proposal & Accept`() throws {
        try withRoom { ann, bob, _ in
            let proposed = try ann.ok("lifetime", "propose", "room", "1d")
            #expect(proposed["state"].string == "pending")
            #expect(proposed["lifetime"].string == "ephemeral", "proposing changes nothing")
            // 2. Client B receives the proposal.
            try bob.wait("lifetimeProposed:lifetime=1d,ours=false")
            let asked = try bob.ok("lifetime", "show", "room")
            #expect(asked["state"].string == "pending")
            #expect(asked["proposal"]["lifetime"].string == "1d")
            #expect(asked["proposal"]["from"].string == "ann")
            #expect(try bob.ok("lifetime", "accept", "room")["lifetime"].string == "1d")
            try ann.wait("lifetimeAgreed:lifetime=1d")
            // 4. Both show it.
            var agreements: Set<String> = []
            for node in [ann, bob] {
                let shown = try node.ok("lifetime", "show", "room")
                #expect(shown["state"].string == "agreed")
                #expect(shown["lifetime"].string == "1d")
                agreements.insert(shown["agreement"]["id"].string ?? "none")
                let texts = try node.ok("read", "room").lines.filter { $0["from"].string == "system" }
                let entered = node === ann ? ["bob has joined"] : []
                #expect(texts.map { $0["text"].string } == entered + ["Messages will be deleted after 1 Day"])
            }
            #expect(agreements.count == 1, "both hold the same agreement")
            // 5. Send a message: saved on both devices.
            let sent = try say("keep this for a day", ann)
            #expect(sent["stored"].bool == true)
            for node in [ann, bob] {
                try node.writtenOut()
                #expect(node.files(".seg").count == 1)
                #expect(try message("keep this for a day", at: node)["stored"].bool == true)
            }
            // 6. The file has the right expiresAt.
            for node in [ann, bob] {
                let message = try message("keep this for a day", at: node)
                let expiresAt = try #require(message["expiresAt"].time)
                let sentAt = try #require(message["sentAt"].time)
                #expect((Self.day...(Self.day + 5_000)).contains(expiresAt - sentAt))
                let file = try #require(try sidecars(node).first)
                #expect(file.tier == 3)
                #expect((0...300_000).contains(file.notAfter - expiresAt))
            }
        }
    }

    @Test func `Test 2: Proposal & Reject`() throws {
        try withRoom { ann, bob, _ in
            try ann.ok("lifetime", "propose", "room", "7d")
            try bob.wait("lifetimeProposed:lifetime=7d")
            try bob.ok("lifetime", "reject", "room")
            try ann.wait("lifetimeRejected")
            // 3. Both show that nothing is kept ("memory only").
            for node in [ann, bob] {
                let shown = try node.ok("lifetime", "show", "room")
                #expect(shown["lifetime"].string == "ephemeral")
                #expect(shown["state"].string == "none")
                #expect(shown["proposal"].isNull)
            }
            // 4. Send a message: not saved to the disk.
            let sent = try say("never on a disk", ann)
            #expect(sent["stored"].bool == false)
            for node in [ann, bob] {
                #expect(try message("never on a disk", at: node)["stored"].bool == false)
                try node.writtenOut()
                #expect(node.files(".seg") == [])
                #expect(node.files(holding: "never on a disk") == [])
            }
            // 5. Leave the chat: the message is gone from RAM.
            for node in [ann, bob] {
                try node.ok("conversation", "close", "room")
                #expect(try node.texts() == [])
            }
        }
    }
}
