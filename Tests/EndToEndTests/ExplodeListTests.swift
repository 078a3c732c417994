import Foundation
import Testing

@Suite("List of explosions", .script) struct ExplodeListTests {
    @Test func `After an explosion its id and name are in the list, and a text to it ends with 3`() throws {
        try withRoom { ann, bob, id in
            #expect(try ann.ok("explode", "list").lines.isEmpty)
            try ann.ok("explode", "room", "--force")
            try ann.wait("deletionReceipt")
            let missing = try ann.fails(7, "explode", "status", "other")
            #expect(missing.json["error"]["hint"].string?.contains("`mayfly explode list") == true, "\(missing)")
            let listed = try ann.ok("explode", "list")
            let status = try ann.ok("explode", "status", id)
            #expect(listed.lines.count == 1 && listed["conversation"].string == id)
            #expect(listed["state"].string == "exploded" && listed["expiresAt"].time != nil)
            #expect(listed["confirmed"].list.count == 1 && listed["waiting"].list.isEmpty)
            #expect(listed.output == status.output, "the list shows what the status shows")
            #expect(listed["name"].string == "room")
            for node in [ann, bob] {
                #expect(try node.ok("explode", "status", "room")["conversation"].string == id)
                #expect(try node.fails(3, "send", "room", "too late").message == "conversation room has exploded")
            }
            let table = try ann.show("explode", "list")
            #expect(table.output.contains(String(id.prefix(12))) && table.output.contains("exploded"), "\(table)")
            #expect(table.output.contains(" bob") && listed["by"].string == "me", "\(table)")
            let member = try bob.ok("explode", "list")
            #expect(member["conversation"].string == id && member["waiting"].list.isEmpty)
            #expect(member["by"].string == "ann")
            try ann.restart()
            // The tombstone has no member's name.
            let names = try #require(listed.output.firstRange(of: /"names":\[[^\]]*\],/))
            #expect(try ann.ok("explode", "list").output == listed.output.replacingCharacters(in: names, with: ""))
            try ann.fails(3, "send", "room", "too late")
            // A living conversation takes precedence.
            let next = try ann.ok("conversation", "create", "--name", "room")["conversation"].string
            #expect(try ann.ok("explode", "status", "room")["conversation"].string == next)
            try ann.ok("lock")
            try ann.fails(6, "explode", "list")
            try ann.ok("unlock")
        }
    }

    @Test func `Scheduled explosions are listed by their time among past ones, asleep or awake`() throws {
        try withNode { ann in
            func create(_ name: String) throws -> String {
                try ann.ok("conversation", "create", "--name", name)["conversation"].string ?? ""
            }
            let (late, soon, gone, _) = (try create("late"), try create("soon"), try create("gone"), try create("kept"))
            try ann.ok("explode", "late", "--in", "7d", "--force")
            try ann.ok("explode", "soon", "--in", "2h", "--force")
            try ann.ok("explode", "gone", "--force")
            func list() throws -> [[String?]] {
                try ann.ok("explode", "list").lines.map { [$0["conversation"].string, $0["state"].string] }
            }
            let expected = [[gone, "exploded"], [soon, "scheduled"], [late, "scheduled"]]
            #expect(try list() == expected)
            try ann.ok("inbox", "sleep", "late")
            #expect(try list() == expected)
            let request = #"{"jsonrpc":"2.0","id":1,"method":"explode.list","params":{"from":"x"}}"#
            #expect(try ann.ok("rpc", input: request + "\n")["error"]["data"]["kind"].string == "usage")
        }
    }
}
