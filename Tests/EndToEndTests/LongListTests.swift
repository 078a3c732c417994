import Testing

@Suite("Long lists", .script) struct LongListTests {
    private func send(_ texts: [String], _ node: TestNode) throws {
        let answers = try node.rpc(texts.map { ("send", ["conversation": "room", "text": $0]) })
        #expect(answers.allSatisfy { !$0["result"].isNull })
    }

    private func callRead(_ node: TestNode, _ params: [String: Any]) throws -> JSON {
        try node.rpc([("read", params.merging(["conversation": "room"]) { one, _ in one })])[0]["result"]
    }

    @Test func `A search finds words in any case, page by page, and marks nothing as read`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            try send((0..<100).map { $0 % 99 == 0 ? "Needle \($0)" : String(repeating: "hay ", count: 8_000) }, ann)
            func unread() throws -> Int64? { try bob.ok("conversation", "show", "room")["unread"].integer }
            try eventually("all have come") { try unread() == 100 }
            var (found, before): ([[String?]], String?) = ([], nil)
            repeat {
                let place: [String: Any] = before.map { ["before": $0] } ?? [:]
                let page = try callRead(bob, place.merging(["last": 1, "containing": "nEEDLE"]) { one, _ in one })
                found.append(page["messages"].list.map { $0["text"].string })
                before = page["next"].string
            } while before != nil && found.count < 9
            #expect(found.flatMap(\.self) == ["Needle 99", "Needle 0"] && found.count > 2, "\(found)")
            #expect(try unread() == 100)
        }
    }

    @Test func `Texts that grow sixfold as JSON are read, on pages that a client accepts`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            // More than the longest line that a client reads.
            let texts = (0..<88).map { "\($0) " + String(repeating: "\u{1f}", count: 32_760) }
            try send(texts, ann)
            let isWhole = try ann.texts() == texts
            #expect(isWhole)
            let first = try callRead(ann, [:])
            #expect(first["more"].bool == true && (1..<10).contains(first["messages"].list.count))
            try eventually("all have come") {
                try callRead(bob, ["last": 1])["messages"].list.map { $0["text"].string } == [texts[87]]
            }
            let cut = try callRead(bob, ["last": 12])
            #expect(cut["more"].bool == true && cut["messages"].list.last?["text"].string == texts[87])
            let newest = try bob.ok("read", "room", "--last", "12").lines.compactMap { $0["text"].string }
            let isRight = newest == texts.suffix(12)
            #expect(isRight)
            let last = try callRead(bob, ["last": 1])
            #expect(last["more"].isNull && last["messages"].list.count == 1)
            let beginning = String((last["messages"][0]["message"].string ?? "").prefix(12))
            #expect(try bob.ok("read", "room", "--since", beginning).lines.isEmpty)
        }
    }
}
