import Foundation
import Glibc
import Testing

@Suite("Commands", .script) struct CommandTests {
    @Test func `An empty --home is wrong usage, not the default home`() throws {
        try withNode { ann in
            try ann.ok("conversation", "create", "--name", "room")
            for command in [["status"], ["explode", "room", "--force"], ["doctor"], ["reap"], ["init"], ["run"]] {
                let answer = try Program.run(
                    ["env", "MAYFLY_HOME=\(ann.home)", Program.mayfly] + command + ["--home", "", "--json"],
                    in: ann.directory)
                #expect(answer.code == 64 && answer.kind == "usage", "\(answer)")
            }
            #expect(try ann.ok("conversation", "show", "room")["state"].string == "ready")
        }
    }

    @Test("`config set` changes the file and the running node, a mistake changes neither, and new members see the name")
    func settings() throws {
        try withPair { ann, bob in
            #expect(try ann.ok("config", "set", "name", "zoe")["changed"].list.contains { $0.string == "name" })
            try ann.ok("config", "set", "readReceipts", "true")
            let file = Program.text("\(ann.home)/config.json")
            for (key, value) in [
                ("nme", "x"), ("name", "a b"), ("readReceipts", "maybe"), ("capacity", "0"), ("listen", "here"),
                ("hooks", #"[{"command":["echo"]}]"#), ("hooks", #"[{"command":["/bin/true"],"events":["mesage"]}]"#),
            ] {
                let refused = try ann.fails(64, "config", "set", key, value)
                #expect(refused.message.contains(key), "\(refused)")
            }
            // An address of no interface here (RFC 5737).
            let foreign = try ann.fails(1, "config", "set", "listen", #"["tcp://192.0.2.1:7440"]"#)
            #expect(foreign.json["error"]["hint"].string?.contains("`mayfly config set listen") == true, "\(foreign)")
            #expect(Program.text("\(ann.home)/config.json") == file)
            // A stored hook that cannot run is the reason, not the value, which is a word and a number.
            try ann.replace("config.json", with: #"{"hooks":[{"command":["echo"]}],"# + file.dropFirst())
            #expect(try ann.fails(64, "config", "set", "name", "20").message.contains("absolute path"))
            try ann.replace("config.json", with: file)
            rename("\(ann.home)/config.json", "\(ann.home)/other.json")
            symlink("other.json", "\(ann.home)/config.json")
            let linked = try ann.fails(1, "config", "set", "name", "eve")
            #expect(linked.json["error"]["hint"].string == "replace it by a regular file", "\(linked)")
            rename("\(ann.home)/other.json", "\(ann.home)/config.json")
            let shown = try ann.ok("config", "show")
            #expect(shown["name"].string == "zoe" && shown["readReceipts"].bool == true, "\(shown)")
            try ann.ok("config", "set", "readReceipts")
            #expect(try ann.ok("config", "show")["readReceipts"].isNull)
            try ann.ok("conversation", "create", "--name", "tea")
            let slug = try ann.invite("tea")
            try bob.ok("join", slug, "--as", "", "--timeout", "90")
            #expect(try bob.ok("conversation", "members", "tea")["members"][0]["profile"].string == "zoe")
            #expect(try ann.ok("conversation", "members", "tea")["members"][0]["profile"].isNull)
            try bob.stop()
            #expect(try bob.ok("config", "set", "name", "rob")["ok"].bool == true)
            try bob.start()
            #expect(try bob.ok("peer", "card")["name"].string == "rob")
        }
    }

    @Test(
        "`read --unread` starts at the first unread message, also among our own; with --follow new ones come after it")
    func unread() throws {
        try withRoom { ann, bob, _ in
            try say("old", ann)
            #expect(try bob.ok("read", "room").lines.count == 1)
            #expect(try bob.ok("read", "room", "--unread").lines.isEmpty)
            try say("one", ann)
            try say("mine", bob)
            try say("two", ann)
            #expect(try bob.ok("read", "room", "--unread").lines.map { $0["text"].string } == ["one", "mine", "two"])
            #expect(try bob.ok("read", "room", "--unread").lines.isEmpty)
            try say("three", ann)
            let follower = try Background(bob, ["read", "room", "--unread", "--follow"])
            try eventually("the unread text") { follower.lines.contains { $0["text"].string == "three" } }
            try say("four", ann)
            try eventually("the new text") { follower.lines.contains { $0["text"].string == "four" } }
            #expect(follower.lines.compactMap { $0["text"].string } == ["three", "four"])
            let ended = try Background(bob, ["read", "room", "--follow"])
            _ = try ended.line()
            ended.signal(SIGTERM)
            #expect(ended.end() == 128 + SIGTERM)
            try bob.ok("lock")
            #expect(follower.end() == 6)
        }
    }

    @Test func `A prefix that fits an invitation and a join cancels neither`() throws {
        try withPair { ann, bob in
            for (node, other) in [(ann, bob), (bob, ann)] { try node.add(other) }
            for number in 0..<3 {
                let made = try ann.show("conversation", "create", "--name", "i\(number)", "--with", "bob")
                #expect(made.errors.hasPrefix("bob will be invited; see who has joined with"), "\(made)")
            }
            try eventually("the invitations are there") { try bob.ok("join", "list").lines.count == 3 }
            let names = (0..<48).map { "j\($0)" }
            _ = try ann.rpc(names.map { ("conversation.create", ["name": $0]) })
            let invites = try ann.rpc(names.map { ("invite.create", ["conversation": $0]) })
            try ann.stop()
            _ = try bob.rpc(invites.map { ("join", ["slug": $0["result"]["slug"].string ?? "", "wait": false]) })
            let listed = try bob.ok("join", "list").lines
            func ids(_ state: String) -> [String] {
                listed.filter { $0["state"].string == state }.compactMap { $0["join"].string }
            }
            // Ids are random: among so many, two share a prefix.
            let pair = ids("invited").flatMap { one in ids("joining").map { (one, $0) } }.first {
                $0.prefix(1) == $1.prefix(1)
            }
            let (invitation, join) = try #require(pair)
            let refused = try bob.fails(64, "join", "cancel", String(join.prefix(1)))
            #expect(refused.message.contains("ambiguous"), "\(refused)")
            #expect(try bob.ok("join", "list").lines.count == listed.count)
            for id in [invitation, join] { #expect(try bob.ok("join", "cancel", id)["state"].string == "cancelled") }
            #expect(try bob.ok("join", "list").lines.count == listed.count - 2)
        }
    }
}
