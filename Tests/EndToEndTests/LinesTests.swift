import Testing

@Suite("Several texts", .script) struct LinesTests {
    @Test func `Each line is its own message, delivered in order, and a refused one is reported in its place`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            let long = String(repeating: "x", count: 40_000)
            let all = ["one", "two\u{1}", long, "dr\u{e4}i \"4\""]
            let sent = try ann.run(
                ["send", "room", "--lines", "--wait", "delivered", "--json"],
                input: all.joined(separator: "\n") + "\r\n\n")
            #expect(sent.code == 64, "\(sent)")
            #expect(sent.lines.map { $0["state"].string } == ["delivered", "delivered", nil, "delivered"])
            #expect(sent.lines.map { $0["error"]["kind"].string } == [nil, nil, "usage", nil])
            #expect(sent.lines.filter { $0["stored"].bool == true && $0["expiresAt"].time != nil }.count == 3)
            #expect(Set(sent.lines.compactMap { $0["message"].string }).count == 3)
            #expect(try bob.texts() == [all[0], all[1], all[3]])
            // The last line needs no terminator.
            #expect(try ann.ok("send", "room", "--lines", input: "a\nb").lines.count == 2)
            #expect(try ann.ok("send", "room", "--lines", input: "").output.isEmpty)
            let many = (0..<1_000).map { "line \($0)" }
            let answers = try ann.ok(
                "send", "room", "--lines", "--wait", "delivered", input: many.joined(separator: "\n"))
            #expect(answers.lines.count == many.count)
            #expect(try bob.texts().suffix(many.count) == many[...])
        }
    }

    @Test("A request with several texts has one result for each, even if some miss the requested state in time")
    func texts() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            func ask(_ params: [String: Any]) throws -> JSON {
                try ann.rpc([("send", params.merging(["conversation": "room"]) { one, _ in one })])[0]
            }
            let done = try ask(["texts": ["a", "", "c"], "wait": "delivered"])["result"]["results"]
            #expect(done[0]["state"].string == "delivered" && done[2]["state"].string == "delivered")
            #expect(done[1]["error"]["message"].string == "the text is empty" && done[1]["message"].string == nil)
            #expect(try bob.texts() == ["a", "c"])
            try bob.stop(seenBy: ann)
            let late = try ask(["texts": ["d", "e"], "wait": "delivered", "timeout": 0.2])["result"]["results"]
            #expect(late[0]["error"]["kind"].string == "timedOut" && late[1]["error"]["kind"].string == "timedOut")
            // Both may have the same millisecond, and are then listed by their ids.
            let waiting = try ann.ok("outbox", "list").lines.compactMap { $0["message"].string }
            #expect(waiting.sorted() == [0, 1].compactMap { late[$0]["message"].string }.sorted())
            let queued = try ask(["texts": ["f"]])["result"]["results"]
            #expect(queued[0]["state"].string == "queued" && queued[0]["stored"].bool == true)
            let many = [String](repeating: "x", count: 4_097)
            for wrong in [["texts": [String]()], ["texts": ["x"], "text": "y"], ["texts": many]] as [[String: Any]] {
                #expect(try ask(wrong)["error"]["data"]["field"].string == "texts")
            }
            #expect(try ask(["texts": ["x", 7]])["error"]["data"]["field"].string == "texts[1]")
            try bob.start()
            try bob.wait("message:text=f")
            #expect(try bob.texts() == ["a", "c", "d", "e", "f"])
        }
    }

    @Test func `Texts of requests that arrive together keep their order under any name of a conversation`() throws {
        try withRoom(lifetime: "1d") { ann, bob, room in
            try ann.ok("conversation", "create", "--name", "alone")
            let texts = [
                ("room", "a"), ("alone", "x"), (room, "b"), ("nowhere", "y"), ("room", ""), ("alone", "z"),
                (String(room.prefix(12)), "c"),
            ]
            let answers = try ann.rpc(
                texts.map { ("send", ["conversation": $0.0, "text": $0.1, "wait": "delivered"]) })
            let lonely = "the conversation has no other member"
            #expect(
                answers.map { $0["error"]["message"].string } == [
                    nil, lonely, nil, "no conversation `nowhere`", "the text is empty", lonely, nil,
                ])
            #expect(try bob.texts() == ["a", "b", "c"])
        }
    }

    @Test("A waiting `send` is told of a lock, where its message is safe, and of an explosion") func told() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            func leave() throws { try bob.stop(seenBy: ann) }
            try leave()
            let waiting = try Background(ann, ["send", "room", "later", "--wait", "delivered", "--timeout", "60"])
            try eventually("it is queued") { try ann.ok("outbox", "list").lines.count == 1 }
            try ann.ok("lock")
            #expect(waiting.end() == 6)
            #expect(waiting.lines.last?["error"]["kind"].string == "locked")
            try ann.ok("unlock")
            let id = try ann.ok("outbox", "list")["message"].string ?? ""
            try bob.start()
            try ann.wait("messageState:message=\(id),state=delivered")
            #expect(try bob.texts() == ["later"])
            try leave()
            let several = try Background(ann, ["send", "room", "--lines", "--wait", "delivered"], input: "a\nb\n")
            try eventually("both wait") { try ann.ok("outbox", "list").lines.count == 2 }
            try ann.ok("explode", "room", "--force")
            #expect(several.end() == 3)
        }
    }

    /// Runs a command of `node` with the bytes that printf(1) makes of `format`.
    private func pipe(_ format: String, into command: String, _ node: TestNode) throws -> Answer {
        try Program.run(
            ["bash", "-c", "printf '\(format)' | \"$1\" \(command) --home \"$2\"", "bash", Program.mayfly, node.home],
            in: node.directory)
    }

    @Test("A line that is not UTF-8 or too long is refused with its place, and the lines around it are sent")
    func encoding() throws {
        try withRoom { ann, bob, _ in
            var expected: [String] = []
            for command in ["send room --lines", "chat room --plain", "chat room --plain --commands"] {
                // Latin-1, a surrogate, an overlong form, and a character that is cut by the end of the input.
                let format = #"before\n\ncaf\xe9\n\xed\xa0\x80\nx\xc0\xaf\nafter\nend\xe2\x82"#
                let answer = try pipe(format, into: command, ann)
                #expect(answer.code == 64, "\(answer)")
                for place in ["line 3, byte 4", "line 4, byte 1", "line 5, byte 2", "line 7, byte 4"] {
                    let isShown = (answer.output + answer.errors).contains("\(place): not UTF-8 text")
                    #expect(isShown, "\(place) in \(answer)")
                }
                expected += ["before", "after"]
            }
            let text = "before\n\(String(repeating: "x", count: 100_000))\nafter"
            for command in [["send", "room", "--lines"], ["chat", "room", "--plain"]] {
                let answer = try Program.run(
                    [Program.mayfly] + command + ["--home", ann.home], input: text, in: ann.directory)
                #expect(answer.code == 64, "\(answer)")
                #expect((answer.output + answer.errors).contains("line 2: longer than 32768 bytes"), "\(answer)")
                expected += ["before", "after"]
            }
            let answer = try pipe(#"one\ntwo\nab\xe9\n"#, into: "send room -", ann)
            #expect(answer.code == 64 && answer.errors.contains("line 3, byte 3: not UTF-8 text"), "\(answer)")
            // A line ends with LF or CRLF, and any other CR is kept.
            let both = #"one\r\ntwo\nth\rree\r\r\n"#
            for (input, command) in [
                (both, "send room --lines"), (both, "chat room --plain"), (both + #"last\r"#, "send room -"),
                (both, "send room -"),
            ] { #expect(try pipe(input, into: command, ann).code == 0) }
            let lines = ["one", "two", "th\rree\r"]
            let whole = "one\r\ntwo\nth\rree\r"
            expected += lines + lines + [whole + "\r\nlast\r", whole]
            try eventually("all are here") { try bob.texts() == expected }
            let shown = try bob.show("read", "room")
            #expect(shown.output.contains("  one\n    two\n    th\n    ree\n"), "\(shown)")
        }
    }
}
