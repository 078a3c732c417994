import Foundation
import Testing

/// Members reached by an explosion, and its remains (Explode.md).
extension ExplodeTests {
    @Test("A late joiner of an exploded conversation gets conversation_expired, also after the creator's restart")
    func lateJoiner() throws {
        try withHomes("ann", "bob", "cem") { nodes in
            let (ann, bob, cem) = (nodes[0], nodes[1], nodes[2])
            for node in nodes { try node.start() }
            try meet(ann, bob)
            let slug = try ann.invite()
            try ann.ok("explode", "room", "--force")
            let failed = try cem.fails(3, "join", slug, "--timeout", "90")
            #expect(failed["state"].string == "joinFailed")
            #expect(failed["errorType"].string == "conversation_expired")
            #expect(failed["message"].string == "This conversation is no longer available")
            try cem.wait("joinFailed:errorType=conversation_expired")
            #expect(try cem.ok("conversation", "list").lines.isEmpty)
            try ann.restart()
            try cem.fails(3, "join", slug, "--timeout", "90")
        }
    }

    @Test func `A restored home explodes when it meets a node that knows of the explosion`() throws {
        try withRoom(lifetime: "1d") { ann, bob, id in
            try say("from the backup", ann)
            for node in [ann, bob] {
                try node.stop()
                try Program.tool("cp", "-a", node.home, "\(node.home).copy")
            }
            for node in [ann, bob] { try node.start() }
            try ann.wait("peerOnline")
            try ann.ok("explode", "room", "--force")
            try ann.wait("deletionReceipt")
            for (node, other) in [(bob, ann), (ann, bob)] {
                try node.stop()
                try Program.tool("rm", "-rf", node.home)
                try Program.tool("cp", "-a", "\(node.home).copy", node.home)
                try node.start()
                try node.wait("exploded")
                try node.fails(3, "read", id)
                #expect(node.files(holding: "from the backup").isEmpty)
                try other.fails(3, "read", id)
            }
            try ann.wait("deletionReceipt")
        }
    }

    @Test func `With --no-trace no list is kept, and an absent member still learns of the explosion`() throws {
        try withRoom { ann, bob, id in
            try bob.stop(seenBy: ann)
            let exploded = try ann.ok("explode", "room", "--no-trace", "--force")
            #expect(exploded["trace"].bool == false && exploded["waiting"].list.count == 1)
            // The list would be a segment without an inbox.
            try ann.writtenOut()
            try eventually("the files are gone") { ann.files(".seg").isEmpty }
            try ann.restart()
            #expect(try ann.ok("explode", "status", id)["trace"].bool == false)
            try bob.start()
            try explosionReaches(bob, ann)
        }
    }

    @Test(
        "An explosion destroys everything on both sides, in the five clean-up steps of the seed, and its receipt arrives"
    ) func fiveSteps() throws {
        try withRoom(lifetime: "1d") { ann, bob, id in
            for node in [ann, bob] { try say("history", node) }
            let (secret, path) = ("a line of a secret file", "\(ann.directory)/plain.txt")
            try Data(String(repeating: secret + "\n", count: 20_000).utf8).write(to: URL(fileURLWithPath: path))
            let file = try ann.ok("send", "room", "--file", path, "--wait", "delivered")["message"].string ?? ""
            let slug = try ann.invite()
            // A copy of bob, to dial with the old tokens afterwards.
            try bob.stop()
            try Program.tool("cp", "-a", bob.home, "\(bob.home).copy")
            try bob.start()
            try bob.wait("peerOnline")
            let nodes = [ann, bob]
            let inboxes = try nodes.map { node in
                try node.ok("inbox", "list").lines.first { $0["conversation"].string == id }?["inbox"].string ?? ""
            }
            let rows = nodes.map { $0.contents("rows.slots") }
            for node in nodes {
                try node.writtenOut()
                #expect(node.files(".seg").contains { node.contents($0).count > 1_000 }, "the file's chunks")
                #expect(node.files(holding: secret).isEmpty)
            }
            let directories = nodes.map { node in node.files(".seg").map { ($0 as NSString).deletingLastPathComponent }
            }
            #expect(try ann.ok("explode", "status", "room")["state"].string == "none")
            let exploded = try ann.ok("explode", "room", "--force")
            #expect(exploded["state"].string == "exploded" && exploded["conversation"].string == id)
            try ann.wait("deletionReceipt")
            let status = try ann.ok("explode", "status", String(id.prefix(12)))
            #expect(status["confirmed"].list.count == 1 && status["waiting"].list.isEmpty)
            for (index, node) in nodes.enumerated() {
                // 2, unregistered: no inbox, no conversation, no link.
                #expect(try !node.ok("inbox", "list").lines.contains { $0["inbox"].string == inboxes[index] })
                #expect(try node.ok("conversation", "list").lines.isEmpty)
                // A link counts until the transport has closed it.
                try eventually("\(node.name) has no link") { try node.ok("status")["links"].integer == 0 }
                // 3, records: messages, members, local state, invites, profiles.
                for command in [
                    ["read", id], ["conversation", "members", id], ["conversation", "show", id], ["send", id, "x"],
                    ["lifetime", "show", id], ["invite", "list", id], ["save", id, file],
                ] {
                    let answer = try node.run(command)
                    #expect(answer.code == 3 && answer.kind == "expired", "\(answer)")
                }
                #expect(try node.ok("outbox", "list").lines.isEmpty)
                for text in ["history", "room", slug, secret] { #expect(node.files(holding: text).isEmpty) }
                // 4, identity: the key page is overwritten, its old bytes are in no file.
                let after = node.contents("rows.slots")
                let changed = stride(from: 0, to: after.count, by: 4_096).filter {
                    rows[index][$0..<$0 + 4_096] != after[$0..<$0 + 4_096]
                }
                #expect(changed.count == 1)
                let page = Data(rows[index][changed[0]..<changed[0] + 4_096])
                for other in nodes {
                    for file in other.files() {
                        let contents = Data(other.contents(file))
                        for offset in stride(from: 0, to: 4_096, by: 64) {
                            #expect(contents.range(of: page[offset..<offset + 64]) == nil, "\(file) of \(other.name)")
                        }
                    }
                }
                // 5, the database: the directory is gone.
                for directory in directories[index] {
                    #expect(!FileManager.default.fileExists(atPath: "\(node.home)/\(directory)"))
                }
            }
            // 1, unsubscribed: the old tokens lead nowhere. bob's copy dials with them and is closed before act 2. It
            // asks by a knock and learns that the conversation is gone; no session begins.
            try bob.stop()
            try Program.tool("rm", "-rf", bob.home)
            try Program.tool("cp", "-a", "\(bob.home).copy", bob.home)
            try bob.start()
            try bob.wait("exploded")
            let events = try bob.events()
            #expect(!events.contains { $0["event"].string == "peerOnline" })
            try eventually("ann has no link") { try ann.ok("status")["links"].integer == 0 }
            // A repeat changes nothing, nor does a restart.
            #expect(try ann.ok("explode", id, "--force")["expiresAt"].string == exploded["expiresAt"].string)
            try ann.restart()
            try ann.fails(3, "read", id)
            #expect(try ann.ok("explode", "status", id)["confirmed"].list.count == 1)
        }
    }
}
