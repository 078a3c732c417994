import Foundation
import Testing

@testable import Program

@Suite("Names of members", .script) struct MemberNamesTests {
    @Test(
        "A distinct name is shown alone",
        arguments: [
            ("ann", []), ("Ann Ångström", ["bob"]), ("ö", ["o"]), ("日本", ["日木"]), ("👩‍💻", ["👩"]), ("Straße", []),
            ("Ada", []), ("décadé", []), ("bob (work)", ["bob"]), ("me too", []), ("systems", []), ("4f1c", []),
        ]) func clear(_ name: String, _ others: [String])
    { #expect(MemberName.isClear(name, among: others)) }

    @Test(
        "A name that resembles another one, ours, or an id is not shown alone",
        arguments: [
            ("me", []), ("ME", []), ("m e", []), ("m\u{200b}e", []), ("\u{202e}me", []), ("ｍｅ", []), ("𝐦𝐞", []),
            ("system", []), ("SyStEm", []), ("ann", ["ann"]), ("ann", ["ANN"]), ("an\u{ad}n", ["ann"]),
            ("ann", ["a\u{2060}nn"]), ("Straße", ["STRASSE"]), ("e\u{301}va", ["Éva"]), ("ﬁn", ["fin"]), ("ｆin", []),
            ("4f1c09ab3d2e", []), ("4F1C09AB", []), ("ann (4f1c09ab3d2e)", []), ("4f1c 09ab", []), ("ann  says", []),
            (" ann", []), ("ann\u{2028}bob", []), ("\u{3164}", []), ("\u{200b}", []), ("ann", ["ann\u{2800}"]),
            ("ann\u{2800}", []), ("a\u{200b}nn", []), ("\u{2800}", []), ("ann\u{378}", []),
        ]) func unclear(_ name: String, _ others: [String])
    { #expect(!MemberName.isClear(name, among: others)) }

    @Test func `A member that calls itself me, like another member or like its id is shown with its id`() throws {
        try withRoom { ann, bob, _ in
            let id = try #require(try ann.members()[0]["member"].string)
            let own = try #require(try bob.members()[0]["member"].string)
            try say("honest", bob)
            let honest = try message("honest", at: ann)
            #expect(honest["from"].string == "bob" && honest["member"].string == id)
            // Our own messages are shown as ours, whatever the others are called.
            try say("own", ann)
            #expect(try message("own", at: ann)["from"].string == "me")
            let mine = try ann.ok("read", "room").lines.first { $0["text"].string == "own" }
            #expect(mine?.keys.contains("member") == true && mine?["member"].isNull == true)
            func watched(_ event: String) throws -> String {
                try ann.show("watch", "room", "--since", "0", "--until", event).output
            }
            let joined = try watched("memberJoined")
            #expect(joined.contains("  memberJoined  room  ") && joined.contains("  member=bob"), "\(joined)")
            for (number, name) in ["me", "ann", own].enumerated() {
                try bob.ok("conversation", "profile", "room", name)
                try ann.wait("profileChanged:profile=\(name)")
                try say("hello \(number)", bob)
                #expect(try watched("profileChanged:profile=\(name)").contains("  member=\(name) (\(id))"))
                let text = "message:text=hello \(number)"
                let event = try ann.wait("\(text),member=\(id)")
                #expect(event["from"].string == "\(name) (\(id))")
                for wrong in ["from=\(name)", "member=\(own)"] {
                    try ann.fails(4, "watch", "--since", "0", "--until", "\(text),\(wrong)", "--timeout", "0.2")
                }
                #expect(try message("hello \(number)", at: ann)["from"].string == "\(name) (\(id))")
            }
        }
    }
}
