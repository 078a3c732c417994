import Testing

@testable import Program

@Suite struct KeyParserTests {
    private func keys(_ text: String) -> [Key] {
        var parser = KeyParser()
        var keys = parser.feed(text.utf8)
        if let last = parser.timePassed() { keys.append(last) }
        return keys
    }

    @Test(arguments: [
        ("a", [Key.character("a")]), ("é漢", [.character("é"), .character("漢")]), ("\r", [.enter]), ("\t", [.tab]),
        ("\u{7F}", [.backspace]), ("\u{1}", [.control("a")]), ("\u{1B}", [.escape]), ("\u{1B}a", [.alt("a")]),
        ("\u{1B}\r", [.lineBreak]), ("\u{1B}[A", [.up]), ("\u{1B}OA", [.up]), ("\u{1B}[1;3A", [.selectUp]),
        ("\u{1B}[5~x", [.pageUp, .character("x")]), ("\u{1B}[3~", [.delete]), ("\u{1B}\u{1B}", [.escape, .escape]),
        ("\u{1B}[200~a\rb\u{1B}[201~c", [.paste("a\rb"), .character("c")]), ("\u{1B}[999zx", [.character("x")]),
        ("\u{1B}[1\u{1}x", [.character("x")]),
    ]) func `the parser turns bytes into keys`(text: String, expected: [Key]) { #expect(keys(text) == expected) }

    @Test func `the parser finds the same keys at any cut of the bytes`() {
        let text = "é漢\u{1B}[1;3Bx\u{1B}[200~p👍\u{1B}[201~\u{1B}Oe\u{1B}[6~"
        let bytes = Array(text.utf8)
        var whole = KeyParser()
        let expected = whole.feed(bytes)
        for cut in 0...bytes.count {
            var parser = KeyParser()
            let keys = parser.feed(bytes[..<cut]) + parser.feed(bytes[cut...])
            #expect(keys == expected)
        }
    }

    @Test func `the parser skips bytes that are not UTF-8`() {
        var parser = KeyParser()
        let keys = parser.feed([0xFF, 0x61, 0xC3, 0x62, 0xE6, 0xBC, 0x63, 0x80])
        #expect(keys == [.character("a"), .character("b"), .character("c")])
    }

    @Test func `the parser limits the length of a paste`() {
        var parser = KeyParser()
        _ = parser.feed("\u{1B}[200~".utf8)
        let early = parser.feed([UInt8](repeating: 0x61, count: KeyParser.pasteByteCount + 1_000))
        #expect(early.isEmpty)
        let keys = parser.feed("\u{1B}[201~b".utf8)
        #expect(keys.count == 2 && keys.last == .character("b"))
        guard case .paste(let text)? = keys.first else { return #expect(Bool(false), "no paste") }
        #expect(text.utf8.count <= KeyParser.pasteByteCount)
    }
}

@Suite struct LineEditorTests {
    private func editor(_ keys: Key...) -> LineEditor {
        var editor = LineEditor()
        for key in keys {
            let isEdited = editor.edit(key)
            #expect(isEdited)
        }
        return editor
    }

    @Test func `text is inserted and deleted at the cursor`() {
        var editor = editor(.character("a"), .character("c"), .left, .character("b"))
        #expect(editor.line == "abc" && editor.cursor == 2)
        _ = editor.edit(.backspace)
        #expect(editor.line == "ac")
        _ = editor.edit(.delete)
        #expect(editor.line == "a")
        _ = editor.edit(.character("e"))
        _ = editor.edit(.character("\u{301}"))
        #expect(editor.text.count == 2 && editor.cursor == 2)
    }

    @Test func `control keys delete a word or half of the line`() {
        var editor = LineEditor()
        editor.set("one two  three")
        _ = editor.edit(.control("w"))
        #expect(editor.line == "one two  ")
        _ = editor.edit(.wordLeft)
        #expect(editor.cursor == 4)
        _ = editor.edit(.control("k"))
        #expect(editor.line == "one ")
        _ = editor.edit(.control("u"))
        #expect(editor.isEmpty)
    }

    @Test func `the arrow keys recall earlier lines and the draft`() {
        var editor = LineEditor()
        for line in ["one", "two", "two"] {
            editor.set(line)
            _ = editor.take()
        }
        editor.set("draft")
        for (key, line) in [
            (Key.up, "two"), (.up, "one"), (.up, "one"), (.down, "two"), (.down, "draft"), (.down, "draft"),
        ] {
            _ = editor.edit(key)
            #expect(editor.line == line)
        }
    }

    @Test func `Tab completes a word, or its unambiguous part`() {
        var editor = LineEditor()
        editor.set("/pro")
        var matches = editor.complete(["/propose", "/profile", "/quit"])
        #expect(matches == ["/propose", "/profile"])
        #expect(editor.line == "/pro")
        editor.set("/prop")
        matches = editor.complete(["/propose", "/profile"])
        #expect(matches.isEmpty)
        #expect(editor.line == "/propose ")
        editor.set("say CA")
        matches = editor.complete(["carl"])
        #expect(matches.isEmpty)
        #expect(editor.line == "say carl ")
    }

    @Test func `the history keeps a line only as long as its message`() {
        var editor = LineEditor()
        for (line, until) in [("kept", 1_000), ("ephemeral", nil)] as [(String, Int64?)] {
            editor.set(line)
            _ = editor.take(until: until)
        }
        editor.expire(now: 999)
        _ = editor.edit(.up)
        _ = editor.edit(.up)
        #expect(editor.line == "kept")
        editor.expire(now: 1_000)
        #expect(editor.isEmpty)
        _ = editor.edit(.up)
        _ = editor.edit(.up)
        #expect(editor.line == "ephemeral")
        editor.forget()
        _ = editor.edit(.up)
        #expect(editor.isEmpty)
    }
}
