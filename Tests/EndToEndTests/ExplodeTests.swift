import Foundation
import Testing

/// Destruction at every member (Explode.md).
@Suite("Explode", .script) struct ExplodeTests {
    @Test("An explosion destroys keys, directories and history on both sides, and its receipt arrives") func online()
        throws
    {
        try withRoom(lifetime: "1d") { ann, bob, id in
            try say("secret of ann", ann)
            try say("secret of bob", bob)
            let slug = try ann.ok("invite", "create", "room")["slug"].string ?? ""
            let before = [ann, bob].map { $0.contents("rows.slots") }
            for node in [ann, bob] { try node.writtenOut() }
            let directories = [ann, bob].map { directory(of: $0.files(".seg")[0]) }
            #expect(try ann.ok("explode", "status", "room")["state"].string == "none")
            let exploded = try ann.ok("explode", "room", "--force")
            #expect(exploded["state"].string == "exploded")
            #expect(exploded["conversation"].string == id)
            try ann.wait("deletionReceipt")
            let status = try ann.ok("explode", "status", String(id.prefix(12)))
            #expect(status["confirmed"].list.count == 1 && status["waiting"].list.isEmpty)
            for (index, node) in [ann, bob].enumerated() {
                for command in [
                    ["read", id], ["conversation", "show", id], ["send", id, "x"], ["lifetime", "show", id],
                ] {
                    let answer = try node.run(command)
                    #expect(answer.code == 3 && answer.kind == "expired", "\(answer)")
                }
                #expect(try node.ok("conversation", "list").lines.isEmpty)
                let after = node.contents("rows.slots")
                let changed = stride(from: 0, to: after.count, by: 4_096).filter {
                    before[index][$0..<($0 + 4_096)] != after[$0..<($0 + 4_096)]
                }
                #expect(changed.count == 1)
                let page = Data(before[index][changed[0]..<(changed[0] + 4_096)])
                for other in [ann, bob] {
                    for file in other.files() {
                        let contents = Data(other.contents(file))
                        for offset in stride(from: 0, to: 4_096, by: 64) {
                            #expect(contents.range(of: page[offset..<(offset + 64)]) == nil, "\(file) of \(other.name)")
                        }
                    }
                }
                #expect(!node.files().contains { directory(of: $0) == directories[index] })
                #expect(node.files(holding: "secret of").isEmpty)
            }
            // A repeat changes nothing; the invite leads nowhere.
            #expect(try ann.ok("explode", id, "--force")["expiresAt"].string == exploded["expiresAt"].string)
            let again = try bob.run(["join", slug, "--timeout", "2"])
            #expect(again.code != 0)
            try ann.stop()
            try ann.start()
            try ann.fails(3, "read", id)
            #expect(try ann.ok("explode", "status", id)["confirmed"].list.count == 1)
        }
    }

    private func directory(of file: String) -> String {
        URL(fileURLWithPath: "/" + file).deletingLastPathComponent().lastPathComponent
    }

    @Test("An absent member learns of the explosion on its return, and confirms it") func offline() throws {
        try withRoom(lifetime: "1d") { ann, bob, id in
            try say("you will not see this again", ann)
            let cursor = try ann.cursor()
            try bob.stop()
            try ann.wait("peerOffline", after: cursor)
            try ann.ok("explode", "room", "--force")
            let waiting = try ann.ok("explode", "status", id)
            #expect(waiting["waiting"].list.count == 1 && waiting["confirmed"].list.isEmpty)
            try bob.start()
            try bob.wait("exploded")
            try ann.wait("deletionReceipt")
            try bob.fails(3, "read", id)
            try eventually("the files are gone") { bob.files(".seg").isEmpty }
            #expect(try ann.ok("explode", "status", id)["waiting"].list.isEmpty)
        }
    }

    @Test("A restarted creator still tells an absent member of the explosion") func creatorRestarted() throws {
        try withRoom(lifetime: "1d") { ann, bob, id in
            try say("gone soon", ann)
            let cursor = try ann.cursor()
            bob.crash()
            try ann.wait("peerOffline", after: cursor)
            try ann.ok("explode", "room", "--force")
            try ann.stop()
            try bob.start()
            #expect(try bob.texts() == ["gone soon"])
            try ann.start()
            try bob.wait("exploded")
            try ann.wait("deletionReceipt")
            #expect(try ann.ok("explode", "status", id)["confirmed"].list.count == 1)
        }
    }

    @Test("An explosion survives kill -9 right after it, and the member is told") func crash() throws {
        try withRoom(lifetime: "1d") { ann, bob, id in
            try say("gone at once", ann)
            let cursor = try ann.cursor()
            try bob.stop()
            try ann.wait("peerOffline", after: cursor)
            try ann.ok("explode", "room", "--force")
            ann.crash()
            try ann.start()
            try ann.fails(3, "read", id)
            #expect(try ann.ok("conversation", "list").lines.isEmpty)
            #expect(try ann.ok("explode", "status", id)["waiting"].list.count == 1)
            try bob.start()
            try bob.wait("exploded")
            try ann.wait("deletionReceipt")
            try bob.fails(3, "read", id)
        }
    }

    @Test("A member may only leave, not explode; a script needs --force to explode") func notCreator() throws {
        try withRoom { ann, bob, _ in
            let refused = try bob.fails(1, "explode", "room", "--force")
            #expect(refused.kind == "failed")
            try ann.fails(64, "explode", "room")
            try ann.fails(7, "explode", "nothing", "--force")
            try say("still here", bob)
            #expect(try ann.texts() == ["still here"])
        }
    }
}
