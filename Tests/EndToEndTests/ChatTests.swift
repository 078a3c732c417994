import Foundation
import Glibc
import Testing

@Suite("A chat of two nodes", .script) struct ChatTests {
    @Test("A chat on loopback: each side gets every message once, in order, with the right member") func loopback()
        throws
    {
        try withRoom { ann, bob, id in
            try chat(ann, bob, id)
            let listed = try bob.ok("conversation", "list")
            #expect(listed.lines.count == 1)
            #expect(listed["conversation"].string == id)
            #expect(listed["role"].string == "member")
            #expect(listed["members"][0]["profile"].string == "ann")
            #expect(listed["members"][0]["online"].bool == true)
        }
    }

    @Test(
        "A chat between two network namespaces, each with its own address",
        .enabled(if: Program.canMakeNamespaces, "making network namespaces needs root and `ip`")) func namespaces()
        throws
    {
        let tag = "mf\(UUID().uuidString.prefix(6))"
        let names = ["\(tag)a", "\(tag)b"]
        defer { for name in names { _ = try? Program.tool("ip", "netns", "del", name) } }
        for name in names { try Program.tool("ip", "netns", "add", name) }
        try Program.tool(
            "ip", "link", "add", "veth0", "netns", names[0], "type", "veth", "peer", "name", "veth0", "netns", names[1])
        for (index, name) in names.enumerated() {
            try Program.tool("ip", "-n", name, "addr", "add", "10.77.0.\(index + 1)/24", "dev", "veth0")
            for device in ["veth0", "lo"] { try Program.tool("ip", "-n", name, "link", "set", device, "up") }
        }
        try withHomes("ann", "bob") { nodes in
            for (index, node) in nodes.enumerated() {
                node.prefix = ["ip", "netns", "exec", names[index]]
                try node.start(["--listen", "tcp://0.0.0.0:7440"])
                let card = try node.ok("peer", "card")
                #expect(card["endpoints"].list.compactMap(\.string) == ["tcp://10.77.0.\(index + 1):7440"])
            }
            let id = try meet(nodes[0], nodes[1])
            try chat(nodes[0], nodes[1], id)
            try agree(nodes[0], nodes[1], "1h")
            try nodes[1].stop()
            try nodes[0].ok("send", "room", "for later")
            try nodes[1].start(["--listen", "tcp://0.0.0.0:7440"])
            try nodes[1].wait("message:from=ann")
            #expect(try nodes[1].texts().contains("for later"))
        }
    }

    private func chat(_ ann: TestNode, _ bob: TestNode, _ id: String) throws {
        for turn in 1...3 {
            let question = try say("question \(turn)", ann)
            try bob.wait("message:message=\(question["message"].string ?? "")")
            let answer = try say("answer \(turn)", bob)
            try ann.wait("message:message=\(answer["message"].string ?? "")", in: id)
        }
        let texts = ["question 1", "answer 1", "question 2", "answer 2", "question 3", "answer 3"]
        #expect(try ann.texts() == texts)
        #expect(try bob.texts() == texts)
        let first = try message("question 1", at: bob)
        #expect(first["from"].string == "ann")
        #expect(try message("question 1", at: ann)["from"].string == "me")
        #expect(
            try bob.ok("read", "room", "--last", "2").lines.compactMap { $0["text"].string } == Array(texts.suffix(2)))
        let later = try bob.ok("read", id, "--since", first["message"].string ?? "").lines
        #expect(later.compactMap { $0["text"].string } == Array(texts.dropFirst()))
    }

    @Test("Text of any kind arrives unchanged: Unicode, line breaks, option-like text, the longest allowed")
    func anyText() throws {
        try withRoom { ann, bob, _ in
            let longest = String(repeating: "é", count: 16_384)
            let texts = ["Grüße 👩‍👩‍👧‍👦 \u{202E}rtl", "two\nlines\tand a tab", "\u{1B}[31mred", "{\"json\": true}", longest]
            for text in texts {
                try ann.ok("send", "room", "-", "--wait", "delivered", "--timeout", "90", input: text + "\n")
            }
            try ann.ok("send", "room", "--wait", "delivered", "--", "--force")
            #expect(try bob.texts() == texts + ["--force"])
            let refused = try ann.fails(64, "send", "room", "-", input: longest + "x")
            #expect(refused.kind == "usage")
            #expect(refused.message.contains("32768"), "\(refused)")
            try ann.fails(64, "send", "room", "-", input: String(repeating: "x", count: 70_000))
            try ann.fails(64, "send", "room", "")
            #expect(try bob.texts().count == 6)
        }
    }

    @Test("A conversation is named by name, id or unique prefix of its id; an ambiguous name is refused") func naming()
        throws
    {
        try withHomes("ann") { nodes in
            let ann = nodes[0]
            try ann.start()
            let first = try ann.ok("conversation", "create", "--name", "same")["conversation"].string ?? ""
            // Two of one name: each has an alias. Without its alias the name is ambiguous.
            let other = try ann.ok("conversation", "create", "--name", "same", "--alias", "second")
            let second = other["conversation"].string ?? ""
            try ann.ok("conversation", "alias", "same", "--remove")
            try ann.ok("conversation", "create", "--name", "other")
            #expect(try ann.ok("conversation", "show", "other")["name"].string == "other")
            #expect(try ann.ok("conversation", "show", String(first.prefix(16)))["conversation"].string == first)
            #expect(try ann.ok("conversation", "show", second)["conversation"].string == second)
            let ambiguous = try ann.fails(64, "conversation", "show", "same")
            #expect(ambiguous.kind == "usage")
            #expect(ambiguous.message.contains(first.prefix(12)) && ambiguous.message.contains(second.prefix(12)))
            for command in [
                ["read"], ["conversation", "show"], ["lifetime", "show"], ["invite", "list"], ["explode", "status"],
            ] {
                let answer = try ann.run(command + ["nothing-of-the-kind"])
                #expect(answer.code == 7 && answer.kind == "notFound", "\(answer)")
            }
            #expect(try ann.run(["send", "nothing", "x"]).code == 7)
            // With sixteen conversations a first digit repeats.
            for _ in 0..<14 { try ann.ok("conversation", "create") }
            let ids = try ann.ok("conversation", "list").lines.compactMap { $0["conversation"].string }
            #expect(ids.count == 17)
            let digits = Dictionary(grouping: ids) { $0.prefix(1) }
            let shared = try #require(digits.first { $0.value.count > 1 })
            try ann.fails(64, "conversation", "show", String(shared.key))
        }
    }

    @Test("A member leaves: the other one is told, and the leaver's copy is gone") func leave() throws {
        try withRoom(lifetime: "1d") { ann, bob, id in
            try say("before", ann)
            try bob.writtenOut()
            #expect(bob.files(".seg") != [])
            try bob.ok("conversation", "leave", "room", "--force")
            try ann.wait("memberLeft")
            try bob.fails(7, "read", id)
            try eventually("the files are gone") { bob.files(".seg") == [] }
            #expect(try ann.texts() == ["before"])
            try ann.fails(1, "send", "room", "anyone?")
        }
    }

    @Test("No plaintext, name, key or whole inboxId is in a file of the home or in the log at the finest level")
    func nothingLeaks() throws {
        try withRoom(["--log-level", "trace"]) { ann, bob, id in
            let secrets = ["the plaintext of a message", "a message in memory only", "tulip-society"]
            let other = try ann.ok("conversation", "create", "--name", secrets[2], "--as", "ann-in-disguise")
            let slug = try ann.ok("invite", "create", secrets[2])
            try bob.ok("join", slug["slug"].string ?? "", "--as", "bob-in-disguise", "--timeout", "90")
            // Without an agreement nothing is on a disk, sealed or not, while the conversations go on.
            try bob.ok("send", secrets[2], secrets[1], "--wait", "delivered", "--timeout", "90")
            for node in [ann, bob] { #expect(try say(secrets[1], node)["stored"].bool == false) }
            for node in [ann, bob] {
                try node.writtenOut()
                #expect(node.files(".seg") == [], "at \(node.name)")
            }
            try agree(ann, bob, "1d")
            try say(secrets[0], ann)
            for node in [ann, bob] {
                try node.writtenOut()
                #expect(node.files(".seg") != [], "at \(node.name)")
            }
            let creator = try #require(slug["creator"].string)
            #expect(creator.count == 64)
            let ids = [id, other["conversation"].string ?? "", creator]
            try ann.ok("read", "room")
            try ann.stop()
            try ann.start(["--log-level", "trace"])
            try ann.wait("peerOnline")
            try ann.ok("explode", secrets[2], "--force")
            try ann.wait("deletionReceipt")
            for node in [ann, bob] {
                for secret in secrets + ids + ["ann-in-disguise", "bob-in-disguise"] {
                    #expect(node.files(holding: secret) == [], "\(secret) is on the disk of \(node.name)")
                    #expect(!Program.text(node.log).contains(secret), "\(secret) is in the log of \(node.name)")
                }
                // Ids in binary form.
                for id in ids {
                    let bytes = stride(from: 0, to: 64, by: 2).map {
                        UInt8(Array(id)[$0...($0 + 1)].map(String.init).joined(), radix: 16)!
                    }
                    for file in node.files() {
                        #expect(
                            Data(node.contents(file)).range(of: Data(bytes)) == nil,
                            "\(id) is in \(file) of \(node.name)")
                    }
                }
                let card = try node.ok("peer", "card")["contact"].string ?? ""
                #expect(!Program.text(node.log).contains(card.dropFirst("mayfly:card/".count).prefix(40)))
                #expect(
                    Program.text(node.log).range(of: "[0-9a-f]{64}", options: .regularExpression) == nil,
                    "\(Program.text(node.log))")
            }
        }
    }
}
