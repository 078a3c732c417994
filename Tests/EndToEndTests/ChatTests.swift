import Foundation
import Glibc
import Testing

@Suite("A chat of two nodes", .script) struct ChatTests {
    @Test func `A chat on loopback: each side gets every message once, in order, with the right member`() throws {
        try withRoom { ann, bob, id in
            for turn in 1...3 {
                let question = try say("question \(turn)", ann)
                try bob.wait("message:message=\(question["message"].string ?? "")")
                let answer = try say("answer \(turn)", bob)
                try ann.wait("message:message=\(answer["message"].string ?? "")", in: id)
            }
            let texts = ["question 1", "answer 1", "question 2", "answer 2", "question 3", "answer 3"]
            for node in [ann, bob] { #expect(try node.texts() == texts) }
            let first = try message("question 1", at: bob)
            #expect(first["from"].string == "ann")
            #expect(try message("question 1", at: ann)["from"].string == "me")
            let last = try bob.ok("read", "room", "--last", "2").lines
            #expect(last.compactMap { $0["text"].string } == Array(texts.suffix(2)))
            let later = try bob.ok("read", id, "--since", first["message"].string ?? "").lines
            #expect(later.compactMap { $0["text"].string } == Array(texts.dropFirst()))
            let listed = try bob.ok("conversation", "list")
            #expect(listed.lines.count == 1 && listed["conversation"].string == id)
            #expect(listed["role"].string == "member" && listed["members"][0]["profile"].string == "ann")
            #expect(listed["members"][0]["online"].bool == true)
            for node in [ann, bob] { #expect(!Program.text(node.log).contains("[NodeRuntime]"), "no level was given") }
        }
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
            // A pipe is read without a dash.
            try ann.ok("send", "room", "--wait", "delivered", input: "from a pipe\n")
            #expect(try bob.texts() == texts + ["--force", "from a pipe"])
            let refused = try ann.fails(64, "send", "room", "-", input: longest + "x")
            #expect(refused.kind == "usage")
            #expect(refused.message.contains("32768"), "\(refused)")
            try ann.fails(64, "send", "room", "-", input: String(repeating: "x", count: 70_000))
            try ann.fails(64, "send", "room", "")
            try ann.fails(64, "send", "room")
            #expect(try bob.texts().count == 7)
        }
    }

    @Test func `A member leaves: the other one is told, and the leaver's copy is gone`() throws {
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
}
