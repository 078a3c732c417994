import Foundation
import Testing

@Suite("Contents", .script) struct ContentTests {
    private func line(_ id: String, _ node: TestNode) throws -> JSON {
        try node.ok("read", "room").lines.first { $0["message"].string == id } ?? JSON(value: nil)
    }

    @Test func `a reaction is shown at its message, can be taken back, and survives a restart`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            let first = try say("done", ann)["message"].string ?? ""
            try bob.ok("react", "room", String(first.prefix(8)), "👍", "--wait", "delivered")
            try ann.ok("react", "room", first, "🎉", "--wait", "delivered")
            let event = try ann.wait("message:type=mayfly/reaction:1.0,from=bob")
            #expect(event["reactsTo"].string == first)
            for node in [ann, bob] { try node.restart(kills: true) }
            #expect(try ann.texts() == ["done"], "a reaction is no line of its own")
            let reactions = try line(first, ann)["reactions"].list
            #expect(reactions.map { $0["reaction"].string } == ["👍", "🎉"])
            #expect(reactions.map { $0["from"].string } == ["bob", "me"])
            try bob.ok("react", "room", first, "👍", "--remove", "--wait", "delivered")
            #expect(try line(first, ann)["reactions"].list.map { $0["reaction"].string } == ["🎉"])
            try bob.fails(7, "react", "room", "00000000", "👍")
            for sign in ["+1", "-1"] { try bob.ok("react", "room", first, sign) }
            for text in ["hello", "1", "👍👍", ""] { try bob.fails(64, "react", "room", first, text) }
        }
    }

    @Test func `a content of an unknown type is shown by its fallback and passed to bots unchanged`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            let payload = "\(ann.directory)/payload"
            try Data([0, 1, 2, 0xff]).write(to: URL(fileURLWithPath: payload))
            let sent = try ann.ok(
                "send", "room", "--type", "example.org/poll:3.1", "--payload-file", payload, "--fallback",
                "A poll: tea or coffee?", "--wait", "delivered")
            let read = try line(sent["message"].string ?? "", bob)
            #expect(read["type"].string == "example.org/poll:3.1" && read["payload"].string == "AAEC/w==")
            #expect(read["text"].string == "A poll: tea or coffee?")
            try ann.fails(64, "send", "room", "--type", "mayfly/text:1.0", "--payload-file", payload)
            try ann.fails(64, "send", "room", "--type", "poll", "--payload-file", payload)
            try ann.fails(64, "send", "room", "text", "--type", "example.org/poll:1.0")
            try ann.fails(64, "send", "room")
        }
    }

    @Test func `a read receipt is sent only if its reader has enabled it`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            let first = try say("one", ann)["message"].string ?? ""
            try bob.ok("read", "room")
            let second = try say("two", ann)["message"].string ?? ""
            // A message that was read earlier sends no receipt.
            #expect(try line(first, ann)["state"].string == "delivered")
            #expect(try bob.ok("conversation", "set", "room", "read-receipts=on")["value"].string == "on")
            try bob.ok("read", "room")
            try ann.wait("messageState:message=\(second),state=read")
            let deliveries = try line(second, ann)["deliveries"].list
            #expect(deliveries.count == 1 && deliveries[0]["state"].string == "read")
            #expect(deliveries[0]["name"].string == "bob" && deliveries[0]["at"].time != nil)
            let bobsID = try ann.members()[0]["member"].string
            #expect(deliveries[0]["member"].string == bobsID && bobsID != nil)
            try ann.restart(kills: true)
            // States are written with a commit 100 ms later. The node asks again for an unwritten one.
            try eventually("it is known again") {
                try ["read", "delivered"].contains(line(second, ann)["state"].string)
            }
            #expect(try ann.ok("conversation", "set", "--default", "read-receipts=on")["value"].string == "on")
            #expect(try bob.ok("conversation", "set", "room", "read-receipts=off")["value"].string == "off")
            let third = try say("three", ann)["message"].string ?? ""
            try bob.ok("read", "room")
            let answer = try say("four", bob)["message"].string ?? ""
            try ann.ok("read", "room")
            try bob.wait("messageState:message=\(answer),state=read")
            #expect(try line(third, ann)["state"].string == "delivered")
            try bob.fails(64, "conversation", "set", "room", "read-receipts=perhaps")
            try bob.fails(64, "conversation", "set", "room", "colour=red")
        }
    }
}
