import Control
import Testing

@testable import Program

@Suite struct ChatRoomTests {
    private static let other = String(repeating: "b", count: 64)

    private func desk(unread: Int64 = 0, messages: [JSONValue] = []) -> ChatDesk {
        var desk = ChatDesk()
        guard case .object(var second) = ChatDesk.conversation(Self.other, name: "ops") else { return desk }
        second["unread"] = .integer(unread)
        desk.answer("subscribe", ["cursor": 1])
        desk.answer("conversation.list", ["conversations": .array([ChatDesk.conversation(), .object(second)])])
        desk.answer("join.list", ["joins": []])
        desk.answer("read", ["messages": .array(messages)])
        desk.answer("conversation.show", ChatDesk.conversation())
        desk.answer("lifetime.show", ChatDesk.lifetime("ephemeral", "none"))
        desk.effects = []
        return desk
    }

    @Test func `a rejoined conversation shows its latest copy as the room`() {
        var desk = ChatDesk()
        guard case .object(var earlier) = ChatDesk.conversation(), case .object(var latest) = ChatDesk.conversation()
        else { return }
        (earlier["inbox"], earlier["state"], earlier["alias"]) = ("1", "removed", .null)
        latest["inbox"] = "2"
        desk.answer("subscribe", ["cursor": 1])
        desk.answer("conversation.list", ["conversations": .array([.object(earlier), .object(latest)])])
        #expect(desk.model.rooms.map(\.conversation.inbox) == ["2"])
    }

    @Test func `rooms on all pages of the list are shown`() {
        var desk = ChatDesk(opening: nil)
        desk.answer("subscribe", ["cursor": 1])
        let (first, last) = (ChatDesk.conversation(), ChatDesk.conversation(Self.other, name: "ops"))
        desk.answer("conversation.list", ["conversations": [first], "next": "1-a"])
        #expect(desk.model.rooms.isEmpty && desk.takeCalls().contains(#"conversation.list {"from":"1-a"}"#))
        desk.handle(.answer(.conversations, .success(["conversations": [last]])))
        #expect(desk.model.rooms.map(\.title) == ["room", "ops"])
    }

    private func numbered(_ count: Int) -> [JSONValue] {
        (1...count).map { number in
            let id = String(String(number + 1_000_000).reversed()) + String(repeating: "0", count: 32)
            return ChatDesk.message(
                1, from: "bob", "text \(number).", more: ["message": .string(String(id.prefix(32)))])
        }
    }

    @Test func `each room has its own input line and history`() {
        var desk = desk()
        desk.type("for the first")
        desk.press(.alt("2"))
        #expect(!desk.text.contains("for the first"))
        desk.type("for the second")
        desk.press(.alt("1"))
        #expect(desk.lines.contains("> for the first"))
        desk.press(.enter, .alt("2"))
        #expect(desk.lines.contains("> for the second"))
        desk.press(.control("u"), .up)
        #expect(!desk.text.contains("for the first"))
        desk.press(.alt("0"), .up)
        #expect(!desk.text.contains("for the"))
        // An explosion of one room keeps the draft in the other.
        desk.press(.alt("2"))
        desk.type("half a line")
        desk.event("exploded")
        #expect(desk.lines.contains("> half a line"))
        desk.event("locked")
        #expect(!desk.text.contains("half a line"))
    }

    @Test func `a joined or created room opens, unless the person is typing`() {
        let made = String(repeating: "c", count: 64)
        var desk = desk()
        let rooms = [ChatDesk.conversation(), ChatDesk.conversation(Self.other, name: "ops")]
        func make(_ desk: inout ChatDesk, _ meanwhile: (inout ChatDesk) -> Void) {
            desk.effects = desk.model.enter(line: "/create lab")
            meanwhile(&desk)
            desk.answer(
                "conversation.create", ["conversation": .string(made), "inbox": "dd", "alias": "lab", "inviteTag": "x"])
            desk.answer(
                "conversation.list", ["conversations": .array(rooms + [ChatDesk.conversation(made, name: "lab")])])
        }
        make(&desk) { $0.type("still wri") }
        #expect(desk.lines.contains("> still wri") && desk.text.contains("lab is ready: /open lab"))
        desk.press(.control("u"))
        make(&desk) { $0.press(.alt("2")) }
        #expect(desk.lines.first?.contains("ops") == true)
        make(&desk) { _ in }
        #expect(desk.lines.first?.contains("lab") == true)
    }

    @Test func `a marker shows the first unread message until the room is left`() {
        var desk = desk(unread: 2)
        desk.press(.alt("2"))
        desk.serve(numbered(5), unread: 2)
        let lines = desk.lines
        let mark = lines.firstIndex { $0.contains("── new ──") }
        #expect(mark != nil && lines[(mark ?? 0) + 1].contains("text 4."), "\(lines)")
        // A new message does not move the marker of the open room.
        desk.answer("read", ["messages": .array(numbered(6))])
        #expect(desk.text.contains("── new ──"))
        desk.press(.alt("1"), .alt("2"))
        desk.answer("read", ["messages": .array(numbered(6))])
        #expect(!desk.text.contains("── new ──"))
    }

    @Test func `the marker of 700 unread messages is on the page of the first`() {
        var desk = desk(unread: 700)
        desk.press(.alt("2"))
        for _ in 0..<90 where !desk.text.contains("── new ──") {
            desk.serve(numbered(1_020), unread: 700)
            desk.press(.pageUp)
        }
        let line = desk.lines.firstIndex { $0.contains("── new ──") }
        #expect(line.map { desk.lines[$0 + 1].contains("text 321.") } == true, "\(desk.text)")
    }

    @Test func `the bell rings once for new messages of another room, and never for the open one`() {
        var desk = desk()
        func rings() -> Int {
            defer { desk.effects = [] }
            return desk.effects.count { if case .bell = $0 { true } else { false } }
        }
        desk.event("message", ["member": "bob000000000"])
        #expect(rings() == 0)
        for count in [1, 0, 0] {
            desk.event("message", ["member": "bob000000000", "conversation": .string(Self.other)])
            #expect(rings() == count)
        }
        desk.press(.alt("2"))
        desk.answer("read", ["messages": []])
        desk.press(.alt("1"))
        desk.event("message", ["member": "bob000000000", "conversation": .string(Self.other)])
        #expect(rings() == 1)
    }

    /// A desk that shows the newest of these messages.
    private func desk(of kept: [JSONValue]) -> ChatDesk {
        var desk = ChatDesk()
        desk.handle(.resized(desk.size))
        desk.answer("conversation.list", ["conversations": [ChatDesk.conversation()]])
        desk.serve(kept)
        desk.answer("lifetime.show", ChatDesk.lifetime("ephemeral", "none"))
        return desk
    }

    private func marked(_ desk: ChatDesk) -> [String] {
        desk.model.picture(desk.size).rows.filter { $0.spans.contains { $0.tone == .selected } }.map {
            String($0.text(width: 80).dropFirst(11).prefix { $0 != "." })
        }
    }

    @Test func `every kept message is reached, however few an answer holds, and few are in memory`() {
        let kept = numbered(1_020)
        var desk = desk(of: kept)
        for key in [Key.pageUp, .end, .home, .pageDown] {
            var seen = Set(desk.numbers)
            for _ in 0..<(key == .home || key == .end ? 1 : 130) {
                desk.press(key)
                desk.serve(kept)
                let numbers = desk.numbers
                #expect(numbers == Array((numbers.first ?? 0)...(numbers.last ?? 0)), "\(key) \(desk.text)")
                seen.formUnion(numbers)
                #expect(desk.model.room?.messages.count ?? 0 <= 201)
            }
            if key == .pageUp || key == .pageDown { #expect(seen == Set(1...1_020), "\(key)") }
            #expect(desk.numbers.contains(key == .pageUp || key == .home ? 1 : 1_020), "\(key) \(desk.text)")
        }
        // In a text they are keys of the input line.
        desk.type("x")
        desk.press(.home, .delete)
        desk.serve(kept)
        #expect(desk.numbers.contains(1_020))
        for _ in 0..<150 {
            desk.press(.selectUp)
            desk.serve(kept)
        }
        #expect(marked(desk) == ["text 871"] && desk.numbers.contains(872), "\(desk.text)")
    }

    @Test func `a search goes to a match that is not loaded, marks it, and goes on from it`() {
        let kept = numbered(1_020)
        var desk = desk(of: kept)
        for (words, found) in [("TEXT 109.", 109), ("TEXT 10.", 10), ("text", 9), ("text", 8)] {
            desk.enter("/find \(words)")
            for case .call(.search, _, let params) in desk.effects { #expect(params["containing"] == .string(words)) }
            desk.serve(kept)
            #expect(marked(desk) == ["text \(found)"], "\(desk.text)")
        }
        desk.enter("/find text 9")
        desk.serve(kept)
        #expect(desk.text.contains("no earlier message contains these words"), "\(desk.text)")
        // The plain chat has no page to go to.
        desk.model.isPlain = true
        desk.press(.escape, .escape)
        desk.serve(kept)
        desk.enter("/find text 7.")
        desk.serve(kept)
        #expect(desk.text.contains("08:41 bob: text 7.") && desk.numbers.contains(1_020), "\(desk.text)")
    }

    @Test func `a scrolled-up screen stays where it is when messages come, expire or are too old`() {
        var kept = numbered(400)
        var desk = desk(of: kept)
        desk.press(.pageUp, .pageUp)
        desk.serve(kept)
        let (before, first) = (desk.lines.dropLast(), desk.numbers[0])
        #expect(desk.text.contains("scrolled up"))
        kept = numbered(700)
        for _ in 0..<2 { desk.event("message", ["member": "bob000000000"]) }
        // A reaction does not count as a message.
        desk.event("message", ["member": "bob000000000", "reactsTo": .string(ChatDesk.id(1))])
        desk.serve(kept)
        #expect(desk.lines.dropLast() == before && desk.text.contains("2 new below"), "\(desk.text)")
        // The node no longer has the first message of the screen.
        kept.removeFirst(first)
        desk.event("message", ["member": "bob000000000"])
        desk.answer("read", .failure(ControlError(.notFound, "no such message")))
        desk.serve(kept)
        #expect(desk.numbers.first == first + 1, "\(desk.text)")
        desk.press(.escape)
        desk.serve(kept)
        #expect(desk.numbers.last == 700 && !desk.text.contains("new below"))
    }

    @Test func `the plain chat prints every message of a burst once`() {
        var desk = desk(of: numbered(300))
        var transcript = Transcript()
        var printed: [String] = []
        for count in [300, 1_000, 1_001] {
            desk.event("message", ["member": "bob000000000"])
            repeat {
                desk.serve(numbered(count))
                printed += transcript.update(&desk.model).filter { $0.contains("text") }
                desk.effects = desk.model.follow()
            } while !desk.effects.isEmpty
        }
        #expect(printed == (101...1_001).map { "08:41 bob: text \($0)." })
    }

    @Test func `an overlay scrolls by its wrapped lines to its end`() {
        var desk = ChatDesk.opened()
        desk.size = .init(columns: 40, rows: 12)
        desk.handle(.resized(desk.size))
        desk.enter("/help")
        let all = desk.model.content(of: .help, 40).lines.map { String($0.reversed().drop { $0 == " " }.reversed()) }
        func page() -> [String] {
            desk.text.split(separator: "\n", omittingEmptySubsequences: false)[3..<10].map(String.init)
        }
        for first in 0..<(all.count - 6) {
            #expect(page() == Array(all[first..<(first + 7)]))
            desk.press(.down)
        }
        for (key, first) in [(Key.up, all.count - 8), (.home, 0), (.pageDown, 6), (.end, all.count - 7)] {
            desk.press(key)
            #expect(page().first == all[first], "\(key)")
        }
    }

    @Test func `on a screen that is too small only Ctrl-C works`() {
        var desk = desk()
        desk.type("text")
        desk.size = Picture.Size(columns: 20, rows: 5)
        desk.handle(.resized(desk.size))
        #expect(desk.text.contains("too small"))
        desk.press(.enter, .alt("2"), .character("x"))
        #expect(desk.takeCalls().isEmpty)
        desk.handle(.resized(Picture.Size(columns: 80, rows: 24)))
        desk.size = Picture.Size(columns: 80, rows: 24)
        #expect(desk.lines.contains("> text"))
        desk.handle(.resized(Picture.Size(columns: 20, rows: 5)))
        desk.press(.control("c"))
        #expect(desk.effects.contains { if case .quit = $0 { true } else { false } })
    }

    @Test func `Ctrl-C keeps a typed text until it is pressed again`() {
        var desk = desk()
        func isOver() -> Bool { desk.effects.contains { if case .quit = $0 { true } else { false } } }
        desk.type("half a text")
        desk.press(.control("c"))
        #expect(!isOver() && desk.lines.contains("> half a text") && desk.text.contains("Ctrl-C again"))
        desk.type("!")
        desk.press(.control("c"))
        #expect(!isOver())
        desk.press(.control("c"))
        #expect(isOver())
    }

    @Test func `/invite makes a code`() {
        var desk = desk()
        desk.effects = desk.model.enter(line: "/invite --code")
        desk.answer(
            "invite.code",
            [
                "code": "42-hotel-mango", "number": 1, "conversation": "x", "expiresAt": .null,
                "endpoints": ["tcp://192.0.2.7:7440"],
            ])
        #expect(desk.text.contains("mayfly join 42-hotel-mango --at 192.0.2.7:7440"), "\(desk.text)")
    }

    @Test func `Tab completes a file's path, also into a directory`() {
        var desk = ChatDesk(paths: { path in ["/tmp/notes/", "/tmp/nothing.txt"].filter { $0.hasPrefix(path) } })
        desk.open([])
        desk.type("/file /tmp/n")
        desk.press(.tab)
        #expect(desk.lines.contains("> /file /tmp/not") && desk.text.contains("/tmp/nothing.txt"), "\(desk.text)")
        desk.type("e")
        desk.press(.tab)
        desk.type("x")
        #expect(desk.lines.contains("> /file /tmp/notes/x"), "\(desk.text)")
        // The shell's word for standard input is a caption here.
        guard case .upload(_, "/tmp/x", "-"?, nil)? = desk.model.enter(line: "/file /tmp/x -").last else {
            return #expect(Bool(false), "no upload with the caption -")
        }
    }

    @Test func `a person without a name is asked once, and the name is remembered`() {
        var desk = ChatDesk(asksName: true)
        desk.open([])
        desk.effects = desk.model.enter(line: "/create tea")
        #expect(desk.effects.isEmpty && desk.text.contains("your name, as others see it"), "\(desk.text)")
        var transcript = Transcript()
        #expect(transcript.update(&desk.model).contains("* your name, as others see it (Enter for none)"))
        desk.enter("/invite single")
        #expect(desk.effects.isEmpty && desk.text.contains("/invite single is no name"), "\(desk.text)")
        desk.enter("ann")
        #expect(desk.effects.contains { if case .remember(name: "ann") = $0 { true } else { false } })
        #expect(desk.takeCalls() == [#"conversation.create {"as":"ann","name":"tea"}"#])
        desk.effects = desk.model.enter(line: "/join mayfly:join/x")
        #expect(desk.takeCalls() == [#"join {"accept":false,"as":"ann","slug":"mayfly:join/x"}"#])
        for line in ["/create /invite single", "/profile /who", "/rename /who"] {
            #expect(desk.model.enter(line: line).isEmpty && desk.text.contains(" NAME: "), "\(desk.text)")
        }
    }

    @Test func `an at sign and a number name a message, counted from the newest`() {
        var desk = desk(messages: numbered(3))
        desk.effects += desk.model.enter(line: "/reply @3 yes")
        let id = String((String("1000001".reversed()) + String(repeating: "0", count: 32)).prefix(32))
        #expect(desk.takeCalls().first?.contains(#""replyTo":"\#(id)""#) == true)
        desk.effects += desk.model.enter(line: "/reply @4 yes")
        #expect(desk.takeCalls().isEmpty)
    }

    @Test func `an overlong text of a pipe is refused with advice`() {
        var desk = desk()
        let long = String(repeating: "x", count: 40_000)
        #expect(desk.model.say(long).isEmpty)
        #expect(desk.model.refusal?.contains("send a file") == true)
    }

    @Test func `a QR code too large for the screen is replaced by advice`() {
        let code = [String](repeating: String(repeating: "█", count: 73), count: 37)
        var desk = ChatDesk(makeQRCode: { _ in code })
        desk.open([])
        desk.effects = desk.model.enter(line: "/invite")
        desk.answer(
            "invite.create",
            [
                "slug": "mayfly:join/x", "tag": "x", "singleUse": false, "creator": "x", "lifetime": "ephemeral",
                "signature": "valid",
            ])
        desk.press(.character("q"))
        #expect(desk.text.contains("A QR code needs 73 columns and 40 rows."), "\(desk.text)")
        #expect(desk.text.contains("/invite --code makes a code") && !desk.text.contains("█"), "\(desk.text)")
        desk.size = Picture.Size(columns: 73, rows: 40)
        #expect(desk.lines.count { $0.contains("█") } == 37)
    }

    @Test func `a reply to a deleted message is sent as plain text only after a warning`() {
        var desk = desk(messages: [ChatDesk.message(1, from: "bob", "rotate the key?", expires: 5_000)])
        desk.press(.selectUp, .enter)
        desk.type("yes")
        #expect(desk.text.contains("answers bob: rotate the key?"))
        desk.pass(5_000)
        #expect(desk.text.contains("the message to reply to is gone"), "\(desk.text)")
        desk.press(.enter)
        #expect(desk.takeCalls().isEmpty && desk.lines.contains("> yes"))
        #expect(desk.text.contains("not sent, the message to reply to is gone"), "\(desk.text)")
        desk.press(.enter)
        #expect(desk.takeCalls() == [#"send {"conversation":"ROOM","text":"yes"}"#])
    }

    @Test func `a reply stays one after a change of room, and after its original leaves the page`() {
        var desk = desk(messages: [ChatDesk.message(1, from: "bob", "rotate the key?")])
        desk.press(.selectUp, .enter)
        desk.type("yes")
        desk.press(.alt("2"))
        #expect(!desk.text.contains("answers"))
        desk.press(.alt("1"))
        #expect(desk.text.contains("answers bob: rotate the key?"))
        // A page of the newest messages, without it.
        desk.answer("read", ["messages": .array(numbered(200))])
        #expect(desk.text.contains("answers an older message"), "\(desk.text)")
        desk.effects = []
        desk.press(.enter)
        let sent = desk.takeCalls()
        #expect(sent.first?.contains(#""replyTo":"\#(ChatDesk.id(1))""#) == true, "\(sent)")
    }

    @Test func `a reply that fails to send returns to the input line as a reply`() {
        var desk = desk(messages: [ChatDesk.message(1, from: "bob", "rotate the key?")])
        desk.press(.selectUp, .enter)
        desk.enter("yes")
        desk.answer("send", .failure(ControlError(.noNode, "the node has gone")))
        #expect(desk.lines.contains("> yes") && desk.text.contains("the node has gone"))
        desk.press(.enter)
        #expect(desk.effects.count == 1)
        desk.answer("send", .failure(ControlError(.notFound, "no such message")))
        #expect(desk.lines.contains("> yes") && desk.text.contains("no such message"))
        desk.press(.enter)
        #expect(desk.takeCalls().isEmpty && desk.text.contains("not sent, the message to reply to is gone"))
    }

    @Test(arguments: ["/accept", "/propose 1d", "/invite", "/join mayfly:join/x", "//slashed", "/joins off"])
    func `a command without a node is refused with a message, and stays in the input line`(line: String) {
        var desk = ChatDesk()
        desk.open([], lifetime: ChatDesk.lifetime("ephemeral", "pending", proposal: ChatDesk.proposal("7d")))
        desk.effects = []
        desk.handle(.disconnected("it has gone"))
        desk.enter(line)
        #expect(desk.takeCalls().isEmpty)
        #expect(desk.text.contains("not done, there is no node: it has gone"), "\(desk.text)")
        #expect(desk.lines.contains("> \(line)"), "\(desk.text)")
    }

    @Test func `a confirmed explosion without a node is refused with a message, and can be confirmed later`() {
        var desk = desk()
        desk.enter("/explode")
        desk.handle(.said("the file is there"))
        desk.handle(.disconnected("it has gone"))
        #expect(desk.text.contains("no node: it has gone"), "\(desk.text)")
        desk.enter("room")
        desk.handle(.disconnected("it has gone"))
        #expect(desk.takeCalls().isEmpty && desk.text.contains("not done, there is no node"), "\(desk.text)")
        #expect(desk.text.contains("type room: room"), "\(desk.text)")
        _ = desk.model.begin()
        desk.press(.enter)
        #expect(desk.takeCalls() == [#"explode {"conversation":"ROOM"}"#])
    }
}
