import Control
import Testing

import struct Messaging.Timestamp

@testable import Program

/// A chat model, its screen and simulated answers of a node.
struct ChatDesk {
    static let begin: Int64 = 1_795_423_260_000  // Monday 23 November 2026, 08:41 UTC
    var model: ChatModel
    var size = Picture.Size(columns: 80, rows: 14)
    /// Calls without an answer so far.
    var effects: [ChatEffect] = []

    static let room = String(repeating: "a", count: 64)
    static func id(_ number: Int) -> String { String(String(repeating: "\(number)", count: 32).prefix(32)) }

    init(
        opening room: String? = "room", size: Picture.Size = .init(columns: 80, rows: 14), asksName: Bool = false,
        paths: @escaping @Sendable (String) -> [String] = { _ in [] },
        makeQRCode: @escaping @Sendable (String) -> [String]? = { _ in nil }
    ) {
        model = ChatModel(
            room: room, now: Timestamp(milliseconds: Self.begin), calendar: Self.calendar, asksName: asksName,
            paths: paths, makeQRCode: makeQRCode)
        self.size = size
        effects = model.begin()
    }

    @Sendable static func calendar(_ time: Timestamp) -> LocalTime {
        let minutes = time.milliseconds / 60_000
        let days = minutes / 1_440
        // The tests only use days of November and December 2026.
        let day = Int(days - 20_758)  // 1 November 2026
        return LocalTime(
            year: 2026, month: day < 30 ? 11 : 12, day: day < 30 ? day + 1 : day - 29, weekday: Int((days + 4) % 7),
            hour: Int(minutes / 60 % 24), minute: Int(minutes % 60))
    }

    var text: String { model.picture(size).text }
    var lines: [String] { text.split(separator: "\n").map(String.init) }

    mutating func handle(_ input: ChatInput) { effects += model.handle(input) }
    mutating func press(_ keys: Key...) { for key in keys { handle(.key(key)) } }
    mutating func type(_ text: String) { for character in text { handle(.key(.character(character))) } }
    mutating func pass(_ milliseconds: Int64) {
        model.now = Timestamp(milliseconds: model.now.milliseconds + milliseconds)
        handle(.tick)
    }

    /// With `ROOM` for the room's id.
    mutating func takeCalls() -> [String] {
        defer { effects = [] }
        return effects.compactMap {
            if case .call(_, let method, let params) = $0 {
                return "\(method) \(params.text.replacing(Self.room, with: "ROOM"))"
            }
            return nil
        }
    }

    mutating func answer(_ method: String, _ value: JSONValue) { answer(method, .success(value)) }
    mutating func answer(_ method: String, _ outcome: Result<JSONValue, ControlError>) {
        let asked = effects
        effects = []
        for effect in asked {
            if case .call(let request, method, _) = effect {
                handle(.answer(request, outcome))
            } else {
                effects.append(effect)
            }
        }
    }

    /// Answers each `read` as a node with these messages does, with at most `limit` in an answer.
    mutating func serve(_ kept: [JSONValue], unread: Int = 0, limit: Int = 64) {
        let ids = kept.map { $0["message"] }
        while let index = effects.firstIndex(where: { if case .call(_, "read", _) = $0 { true } else { false } }),
            case .call(let request, _, let params) = effects.remove(at: index)
        {
            let isUnread = params["unread"] == true
            let begin = isUnread ? kept.count - unread : (ids.firstIndex(of: params["since"]) ?? -1) + 1
            let found = kept[begin..<(ids.firstIndex(of: params["before"]) ?? kept.count)]
            let count =
                (params["last"] ?? params["first"])?.integerValue.map { min(Int($0), found.count) } ?? found.count
            let shown = params["first"] == nil ? found.suffix(min(count, limit)) : found.prefix(min(count, limit))
            var answer: [String: JSONValue] = ["messages": .array(Array(shown))]
            if count > limit { answer["more"] = true }
            if let words = params["containing"]?.stringValue?.lowercased() {
                let searched = found.suffix(limit)
                let match = searched.last { $0["text"]?.stringValue?.lowercased().contains(words) ?? false }
                answer = ["messages": .array(match.map { [$0] } ?? [])]
                answer["next"] = (match ?? (found.count > limit ? searched.first : nil))?["message"]
            }
            handle(.answer(request, .success(.object(answer))))
        }
    }

    /// The numbers of the texts `text 1.`, `text 2.` … on the screen.
    var numbers: [Int] { text.split(separator: "text ").dropFirst().compactMap { Int($0.prefix { $0.isNumber }) } }

    static func conversation(
        _ id: String = room, name: String = "room", members: [(String, Bool)] = [("bob", true), ("carl", false)],
        lifetime: String = "ephemeral", expiresAt: JSONValue = .null
    ) -> JSONValue {
        [
            "conversation": .string(id), "alias": .string(name), "name": .string(name), "role": "creator",
            "members": .array(
                members.map { name, isOnline in
                    [
                        "member": .string("\(name)000000000".prefix(12).description), "profile": .string(name),
                        "online": .bool(isOnline), "path": .null, "link": .null,
                    ]
                }), "lifetime": .string(lifetime), "expiresAt": expiresAt, "locked": false, "state": "ready",
            "unread": 0,
        ]
    }

    static func message(
        _ number: Int, from: String, _ text: String, minute: Int64 = 0, expires: Int64? = nil, state: String? = nil,
        more: [String: JSONValue] = [:]
    ) -> JSONValue {
        var fields: [String: JSONValue] = [
            "message": .string(id(number)), "conversation": .string(room), "from": .string(from),
            "member": from == "me" || from == "system" ? .null : .string("\(from)000000000".prefix(12).description),
            "type": "mayfly/text:1.0", "text": .string(text),
            "sentAt": .string(Timestamp(milliseconds: begin + minute * 60_000).exactISO8601),
            "expiresAt": expires.map { .string(Timestamp(milliseconds: begin + $0).exactISO8601) } ?? .null,
            "stored": .bool(expires != nil), "state": .string(state ?? (from == "me" ? "sent" : "received")),
        ]
        for (name, value) in more { fields[name] = value }
        return .object(fields)
    }

    static func lifetime(_ value: String, _ state: String, proposal: JSONValue = .null) -> JSONValue {
        ["lifetime": .string(value), "state": .string(state), "proposal": proposal, "agreement": .null]
    }

    static func opened(
        _ messages: [JSONValue] = [], conversation: JSONValue = Self.conversation(),
        lifetime: JSONValue = Self.lifetime("ephemeral", "none")
    ) -> ChatDesk {
        var desk = ChatDesk()
        desk.open(messages, conversation: conversation, lifetime: lifetime)
        desk.effects = []
        return desk
    }

    static func named(_ members: String...) -> JSONValue {
        .array(members.map { ["member": $0 == "me" ? .null : .string($0), "name": .string($0)] })
    }

    static func proposal(_ lifetime: String, id: String = "abcdef0123456789", more: [String: JSONValue] = [:])
        -> JSONValue
    {
        let fields: [String: JSONValue] = [
            "lifetime": .string(lifetime), "id": .string(id), "from": "bob", "member": "bob000000000",
            "waiting": named("me"), "proposedAt": "2026-11-23T08:41:00Z",
        ]
        return .object(fields.merging(more) { $1 })
    }

    mutating func enter(_ line: String) {
        type(line)
        press(.enter)
    }

    mutating func open(
        _ messages: [JSONValue], conversation: JSONValue = Self.conversation(),
        lifetime: JSONValue = Self.lifetime("ephemeral", "none")
    ) {
        answer("subscribe", ["cursor": 1])
        answer("conversation.list", ["conversations": .array([conversation])])
        answer("join.list", ["joins": []])
        answer("read", ["messages": .array(messages)])
        answer("conversation.show", conversation)
        answer("lifetime.show", lifetime)
    }

    mutating func event(_ kind: String, _ more: [String: JSONValue] = [:]) {
        var fields: [String: JSONValue] = [
            "event": .string(kind), "conversation": .string(Self.room), "at": .string(model.now.exactISO8601),
            "cursor": 2,
        ]
        for (name, value) in more { fields[name] = value }
        handle(.event(.object(fields)))
    }
}

@Suite struct ChatModelTests {
    private static let day: Int64 = 86_400_000

    @Test func `a room shows its members, its lifetime, its messages and the next message's lifetime`() {
        var desk = ChatDesk()
        desk.pass(120_000)
        desk.open(
            [
                ChatDesk.message(1, from: "bob", "rotate the key?", expires: Self.day),
                ChatDesk.message(
                    2, from: "me", "done", minute: 1, expires: Self.day + 60_000, state: "delivered",
                    more: [
                        "deliveries": [
                            ["member": "b0", "name": "bob", "state": "delivered"],
                            ["member": "c0", "name": "carl", "state": "delivered"],
                        ]
                    ]),
            ], conversation: ChatDesk.conversation(lifetime: "1d"), lifetime: ChatDesk.lifetime("1d", "agreed"))
        #expect(
            desk.lines == [
                " room · bob● carl○                                           KEPT 1 DAY on disk",
                " ── Monday 23 November ──",
                "08:41 bob  rotate the key?                                               23h 58m",
                "08:42 me   done ✓✓ 2/2                                                   23h 59m", ">",
                "What you send now is kept until tomorrow 08:43                             /help",
            ])
    }

    @Test func `a room without an agreement says so in the first line and at the input`() {
        let desk = ChatDesk.opened([ChatDesk.message(1, from: "bob", "hi")])
        #expect(desk.lines.first == " room · bob● carl○                                                  MEMORY ONLY")
        #expect(desk.lines.last?.hasPrefix("What you send now is memory only, gone when a node stops") == true)
    }

    @Test(arguments: [100, 80, 40, 32]) func `a long message beyond the agreement loses no word beside its label`(
        columns: Int
    ) {
        let words = (1...30).map { "word\($0)" }
        var desk = ChatDesk(size: .init(columns: columns, rows: 40))
        let message = ChatDesk.message(1, from: "isabella", words.joined(separator: " "))
        desk.open([message], lifetime: ChatDesk.lifetime("1d", "agreed"))
        let shown = Set(desk.text.split(whereSeparator: \.isWhitespace).map(String.init))
        #expect(shown.isSuperset(of: words) && desk.text.contains("memory only"), "\(desk.text)")
    }

    @Test func `a typed line is sent, and shown as the node reports it`() {
        var desk = ChatDesk.opened()
        desk.type("hello")
        #expect(desk.lines.contains("> hello"))
        desk.press(.enter)
        #expect(desk.takeCalls() == [#"send {"conversation":"ROOM","text":"hello"}"#])
        #expect(desk.lines.contains(">"))
        desk.event("messageState", ["message": .string(ChatDesk.id(1)), "state": "sent"])
        desk.answer("read", ["messages": [ChatDesk.message(1, from: "me", "hello")]])
        #expect(desk.lines.contains("08:41 me  hello ✓"))
    }

    @Test func `a text stays in sight while the node does not answer, and the last line says so`() {
        var desk = ChatDesk.opened()
        desk.model.process = 4_711
        desk.enter("hello")
        #expect(desk.lines.contains("08:41 me  hello …") && desk.model.nextChange == ChatDesk.begin + 1_500)
        desk.pass(1_500)
        #expect(desk.text.contains("hello … no answer") && desk.text.contains("\nprocess 4711 does not answer"))
        desk.answer("send", [:])
        #expect(desk.lines.contains("08:41 me  hello …") && !desk.text.contains("does not answer"), "\(desk.text)")
        desk.answer("read", ["messages": [ChatDesk.message(1, from: "me", "hello")]])
        #expect(desk.lines.contains("08:41 me  hello ✓"))
    }

    @Test func `Enter does what the last line says while a message is selected`() {
        var desk = ChatDesk.opened([ChatDesk.message(1, from: "bob", "rotate the key?")])
        desk.type("yes")
        desk.press(.selectUp)
        #expect(desk.lines.last?.hasPrefix("Enter reply") == true)
        desk.press(.enter)
        #expect(desk.effects.isEmpty && desk.lines.contains("> yes") && desk.text.contains("answers bob: rotate"))
        desk.press(.escape, .control("u"), .selectUp)
        desk.type("/react +1")
        #expect(desk.lines.last?.hasPrefix("Enter runs the command") == true)
        desk.press(.enter)
        #expect(desk.takeCalls().map { $0.prefix(6) } == ["react "])
        desk.type("no")
        #expect(desk.lines.last?.hasPrefix("What you send now") == true, "\(desk.text)")
        desk.press(.enter)
        #expect(desk.takeCalls() == [#"send {"conversation":"ROOM","text":"no"}"#])
    }

    @Test func `a notice hides the lifetime of the next text for 5 s at most`() {
        var desk = ChatDesk.opened()
        desk.enter("/accept")
        #expect(desk.lines.last?.hasPrefix("there is no open proposal") == true)
        #expect(desk.model.nextChange == ChatDesk.begin + 5_000)
        desk.pass(5_000)
        #expect(desk.lines.last?.hasPrefix("What you send now") == true)
    }

    @Test func `each entry of the help is one line, without the command of the shell`() {
        #expect(SlashCommand.helpLines.allSatisfy { CellWidth.of($0) < 80 && !$0.contains("mayfly") })
    }

    @Test func `a proposal is a card, and one key answers it with its id`() {
        var desk = ChatDesk()
        let proposal = ChatDesk.proposal("7d", more: ["waiting": ChatDesk.named("me", "carl"), "unopened": 21_600])
        desk.open([], lifetime: ChatDesk.lifetime("1d", "pending", proposal: proposal))
        desk.effects = []
        #expect(
            desk.lines.suffix(5) == [
                "┌ 7 days, unopened: gone after 6h 0m, proposed by bob (now 1 day) · waits for ─┐",
                "│ you and carl                                                                 │",
                "└ Alt-A accept and renew · Alt-O accept once · Alt-R reject · Alt-D details ───┘", ">",
                "What you send now is kept until tomorrow 08:41                             /help",
            ])
        // Typed letters answer nothing.
        desk.type("ar")
        #expect(desk.effects.isEmpty)
        desk.press(.alt("a"))
        #expect(
            desk.takeCalls() == [#"lifetime.accept {"conversation":"ROOM","proposal":"abcdef0123456789","renew":true}"#]
        )
    }

    @Test func `an ended agreement stays on the screen until it is answered`() {
        var desk = ChatDesk.opened(lifetime: ChatDesk.lifetime("ephemeral", "none"))
        desk.event("lifetimeReset", ["previous": "1d"])
        #expect(desk.text.contains("From now on nothing is stored: the agreement of 1 day has ended"))
        desk.effects = []
        desk.press(.alt("p"))
        #expect(desk.takeCalls() == [#"lifetime.propose {"conversation":"ROOM","lifetime":"1d","renew":true}"#])
        #expect(!desk.text.contains("has ended"))
    }

    @Test func `a message counts down in its last minute, fades, and disappears`() {
        var desk = ChatDesk.opened(
            [ChatDesk.message(1, from: "bob", "secret", expires: 90_000)], lifetime: ChatDesk.lifetime("1h", "agreed"))
        #expect(desk.text.contains("1m"))
        #expect(desk.model.nextChange == ChatDesk.begin + 30_000)
        desk.pass(30_000)
        #expect(desk.text.contains("60s"))
        #expect(desk.model.nextChange == ChatDesk.begin + 31_000)
        desk.pass(59_000)
        #expect(desk.text.contains("secret") && desk.text.contains("1s"))
        desk.pass(1_000)
        #expect(!desk.text.contains("secret") && desk.text.contains("· · · expired"))
        desk.pass(2_000)
        #expect(!desk.text.contains("· · · expired"))
        #expect(desk.model.nextChange == nil)
    }

    @Test func `a scheduled explosion counts down each second in the first line`() {
        var desk = ChatDesk()
        let end = Timestamp(milliseconds: ChatDesk.begin + 2 * 3_600_000)
        desk.open([], conversation: ChatDesk.conversation(expiresAt: .string(end.exactISO8601)))
        #expect(desk.lines.first?.hasSuffix("explodes in 02:00:00") == true, "\(desk.lines)")
        #expect(desk.model.nextChange == ChatDesk.begin + 1_000)
        desk.pass(1_000)
        #expect(desk.lines.first?.hasSuffix("explodes in 01:59:59") == true, "\(desk.lines)")
        desk.size.columns = 40
        #expect(desk.lines.first?.hasSuffix("ENDS 01:59:59") == true, "\(desk.lines)")
    }

    @Test func `an explosion asks for the name, clears the screen and shows the confirming members`() {
        var desk = ChatDesk.opened([ChatDesk.message(1, from: "bob", "secret")])
        desk.enter("/explode")
        desk.enter("rom")
        #expect(desk.effects.isEmpty && desk.text.contains("that is not the name"))
        desk.enter("/explode")
        #expect(desk.text.contains("type room:") && desk.text.contains("all members' copies are destroyed now"))
        desk.enter("room")
        #expect(desk.takeCalls() == [#"explode {"conversation":"ROOM"}"#])
        desk.type("half a lin")
        desk.event("exploded")
        #expect(!desk.text.contains("secret") && !desk.text.contains("half a lin"))
        desk.answer(
            "explode.status",
            [
                "conversation": .string(ChatDesk.room), "expiresAt": "2026-11-23T08:41:00Z", "state": "exploded",
                "confirmed": ["bob000000000"], "waiting": ["carl00000000"],
                "receipts": [["member": "bob000000000", "destroyedAt": "2026-11-23T08:41:00Z"]],
            ])
        #expect(desk.text.contains("EXPLODED"))
        #expect(desk.text.contains("bob ✓ 08:41"))
        #expect(desk.text.contains("carl offline, notified again for 7 days"))
        desk.enter("/explode 2h")
        #expect(desk.text.contains("has exploded: Alt-X closes it") && desk.takeCalls().isEmpty)
        desk.size.columns = 40
        #expect(desk.lines.contains("can be read any more."), "\(desk.text)")
        // The node's list no longer has it; it stays on the screen until it is closed.
        desk.event("peerOffline", ["member": "bob000000000"])
        desk.press(.alt("x"))
        #expect(desk.model.rooms.isEmpty)
    }

    @Test func `a selected message can be saved, reacted to and answered`() {
        var desk = ChatDesk.opened([
            ChatDesk.message(1, from: "bob", "rotate the key?"),
            ChatDesk.message(
                2, from: "bob", "",
                more: [
                    "type": "mayfly/attachment:1.0",
                    "file": [
                        "name": "report.pdf", "mediaType": "application/pdf", "byteCount": 1_234_567,
                        "state": "complete", "percent": 100,
                    ],
                ]),
        ])
        #expect(desk.text.contains("▤ report.pdf (1.2 MiB)"))
        desk.press(.selectUp)
        #expect(desk.text.contains("Enter reply · Alt-E react"))
        desk.press(.alt("s"))
        guard case .save(ChatDesk.room, ChatDesk.id(2), nil)? = desk.effects.last else {
            return #expect(Bool(false), "nothing is saved")
        }
        desk.effects = []
        desk.press(.selectUp, .alt("e"), .character("a"))
        #expect(desk.takeCalls().isEmpty && desk.text.contains("or an emoji"))
        desk.press(.character("1"))
        #expect(desk.takeCalls() == [#"react {"conversation":"ROOM","message":"\#(ChatDesk.id(1))","reaction":"👍"}"#])
        desk.press(.selectUp, .selectUp, .enter)
        #expect(desk.text.contains("answers bob: rotate the key?"))
        desk.enter("yes")
        #expect(desk.takeCalls() == [#"send {"conversation":"ROOM","replyTo":"\#(ChatDesk.id(1))","text":"yes"}"#])
    }

    @Test func `letters typed with a message selected go to the input line and send nothing`() {
        var desk = ChatDesk.opened([ChatDesk.message(1, from: "bob", "rotate the key?")])
        desk.press(.selectUp)
        desk.type("see you")
        #expect(desk.effects.isEmpty && desk.lines.contains("> see you"))
        desk.press(.enter)
        #expect(desk.takeCalls() == [#"send {"conversation":"ROOM","text":"see you"}"#])
        desk.press(.selectUp)
        desk.enter("/reply to it")
        #expect(desk.takeCalls() == [#"send {"conversation":"ROOM","replyTo":"\#(ChatDesk.id(1))","text":"to it"}"#])
    }

    @Test func `a lock clears the screen, and the unlock requests everything again`() {
        var desk = ChatDesk.opened([ChatDesk.message(1, from: "bob", "rotate the key?")])
        desk.type("half a line")
        desk.effects = []
        desk.handle(.event(["event": "locked", "cursor": 7, "at": "2026-11-23T08:41:00.000Z"]))
        for secret in ["rotate", "half", "room", "bob"] { #expect(!desk.text.contains(secret), "\(secret)") }
        #expect(desk.text.contains("`mayfly unlock`") && desk.effects.isEmpty)
        // The end of the line that the lock has cleared is no passphrase, and does not end the lock.
        desk.type(" secret")
        desk.press(.paste("a paste"), .enter)
        #expect(desk.takeCalls() == [] && !desk.text.contains("secret") && desk.model.editor.isEmpty)
        desk.press(.enter)
        #expect(desk.takeCalls() == [#"unlock {"passphrase":""}"#] && desk.text.contains("unlocking"))
        desk.press(.enter)
        #expect(desk.takeCalls() == [])
        desk.handle(.answer(.action(.unlock(hasPassphrase: false)), .failure(ControlError(.locked, "it has one"))))
        desk.type("xyz")
        #expect(desk.lines.contains("passphrase: •••"))
        desk.press(.enter)
        #expect(desk.takeCalls() == [#"unlock {"passphrase":"xyz"}"#] && !desk.text.contains("•"))
        let wrong = ControlError(.failed, "this passphrase does not open the home")
        desk.handle(.answer(.action(.unlock(hasPassphrase: true)), .failure(wrong)))
        #expect(desk.text.contains("this passphrase does not open the home"))
        desk.type("x")
        // A new connection shows neither the passphrase nor the conversations, while the node stays locked.
        desk.handle(.disconnected("the node has stopped"))
        desk.effects = desk.model.begin()
        #expect(desk.lines.contains("passphrase: •"))
        desk.answer("conversation.list", .failure(ControlError(.locked, "the node is locked")))
        #expect(desk.lines.contains("passphrase: •"))
        // A late answer from before the lock shows nothing.
        let invite: JSONValue = ["singleUse": true, "tag": "1", "slug": "mayfly:join/x"]
        desk.handle(.answer(.action(.invite(ChatDesk.room)), .success(invite)))
        desk.handle(.answer(.conversations, .success(["conversations": [ChatDesk.conversation()]])))
        desk.handle(.said("saved /home/ann/plan.pdf"))
        for secret in ["Invitation", "mayfly:join", "room", "plan.pdf"] {
            #expect(!desk.text.contains(secret), "\(secret)")
        }
        // The plain chat refuses the line with a message.
        #expect(desk.model.say("hello").isEmpty && desk.model.refusal?.contains("locked") == true)
        #expect(desk.model.enter(line: "/create x").isEmpty && desk.model.refusal?.contains("locked") == true)
        desk.handle(.event(["event": "unlocked", "cursor": 8, "at": "2026-11-23T08:42:00.000Z"]))
        desk.answer("conversation.list", ["conversations": [ChatDesk.conversation()]])
        #expect(desk.takeCalls().contains { $0.hasPrefix("read ") })
        #expect(desk.text.contains("room") && !desk.text.contains("locked"))
        #expect(desk.model.editor.isEmpty)
    }

    @Test func `a chat started at a locked node says so, and shows its conversations after the unlock`() {
        var desk = ChatDesk()
        desk.answer("conversation.list", .failure(ControlError(.locked, "the node is locked")))
        #expect(desk.text.contains("`mayfly unlock`"))
        desk.handle(.event(["event": "unlocked", "cursor": 8, "at": "2026-11-23T08:42:00.000Z"]))
        desk.answer("conversation.list", ["conversations": [ChatDesk.conversation()]])
        #expect(desk.text.contains("room") && !desk.text.contains("locked"))
    }

    @Test func `a chat at a restarted node with a key file is no longer locked`() {
        var desk = ChatDesk.opened()
        desk.handle(.event(["event": "locked", "cursor": 7, "at": "2026-11-23T08:41:00.000Z"]))
        desk.effects = desk.model.begin()
        desk.answer("conversation.list", ["conversations": [ChatDesk.conversation()]])
        #expect(desk.takeCalls().contains { $0.hasPrefix("read ") } && !desk.text.contains("locked"))
    }

    @Test func `a progress notice disappears with the next event or connection`() {
        var desk = ChatDesk(opening: nil)
        desk.answer("conversation.list", ["conversations": []])
        desk.enter("/join mayfly:join/x")
        #expect(desk.text.contains("joining …"))
        desk.handle(.event(["event": "memberJoined", "conversation": .string(ChatDesk.room), "cursor": 9]))
        desk.answer("conversation.list", ["conversations": [ChatDesk.conversation()]])
        #expect(!desk.text.contains("joining …"))
        desk.handle(.disconnected("the node has gone"))
        desk.enter("/create x")
        #expect(desk.text.contains("not done, there is no node"))
        desk.effects += desk.model.begin()
        #expect(!desk.text.contains("not done"))
    }

    @Test func `every key for a card and a selected message is shown, also on narrow screens`() {
        var desk = ChatDesk(size: .init(columns: 40, rows: 14))
        let proposal = ChatDesk.proposal("7d")
        desk.open(
            [ChatDesk.message(1, from: "bob", "hi")], lifetime: ChatDesk.lifetime("1d", "pending", proposal: proposal))
        for key in ["Alt-A", "Alt-O", "Alt-R", "Alt-D"] { #expect(desk.text.contains(key), "\(key)\n\(desk.text)") }
        desk.press(.selectUp)
        #expect(desk.text.contains("Enter, Alt-E/S/V/W/C, Esc: see /help"))
        desk.size = .init(columns: 80, rows: 14)
        #expect(desk.text.contains("Alt-C cancel"))
    }

    @Test(arguments: [
        ("👍", true), ("❤️", true), ("👩‍👩‍👧", true), ("+1", true), ("e", false), ("é", false), ("漢", false), ("1", false),
        ("👍👍", false),
    ]) func `a reaction is a single emoji or +1`(text: String, isOne: Bool) {
        var desk = ChatDesk.opened([ChatDesk.message(1, from: "bob", "hi")])
        desk.enter("/react \(text)")
        #expect(desk.takeCalls().contains { $0.hasPrefix("react ") } == isOne)
    }

    private static let send = #"send {"conversation":"ROOM","#
    private static let propose = #"lifetime.propose {"conversation":"ROOM","lifetime":"1d""#
    private static let id = ChatDesk.id(1)

    /// In a room of bob and another bob, whose message was read.
    @Test(arguments: [
        ("hello", send + #""text":"hello"}"#), ("//slashed", send + #""text":"/slashed"}"#),
        ("/reply to it", send + #""replyTo":"\#(id)","text":"to it"}"#), ("/propose 1d", propose + #","renew":true}"#),
        ("/propose 1d no", propose + #","renew":true}"#),
        ("/propose 1d disk", propose + #","mailbox":"disk","renew":true}"#),
        ("/propose 1d once disk", propose + #","mailbox":"disk"}"#),
        ("/propose 1d disk once", propose + #","mailbox":"disk"}"#), ("/propose 1d floppy", "[ram|disk]"),
        ("/propose 1d disk ram", "[ram|disk]"), ("/propose disk", "[ram|disk]"),
        ("/accept", "there is no open proposal"), ("/remove bob", "bob"), ("/remove nobody", "nobody"),
        ("/block mallory", #"peer.block {"name":"mallory"}"#),
        ("/exlpode", "there is no /exlpode: did you mean /explode?"),
        ("/nothing", "there is no /nothing: /help lists the commands"),
        ("/open Rom", "no conversation Rom: did you mean /open room?"), ("/open lab", "no conversation lab"),
    ]) func `a line calls its method, or says why it does not`(line: String, expected: String) {
        var desk = ChatDesk.opened(
            [ChatDesk.message(1, from: "bob", "rotate the key?")],
            conversation: ChatDesk.conversation(members: [("bob", true), ("bob", false)]))
        desk.press(.selectUp)
        desk.enter(line)
        let calls = desk.takeCalls()
        if expected.contains("{") {
            #expect(calls == [expected])
        } else {
            #expect(calls.isEmpty && desk.text.contains(expected), "\(desk.text)")
        }
    }

    @Test func `a paste of several lines asks for confirmation`() {
        var desk = ChatDesk.opened()
        desk.press(.paste("one\rtwo\rthree"))
        #expect(desk.text.contains("paste 3 lines, 13 bytes?"))
        desk.press(.escape)
        #expect(desk.lines.contains(">"))
        desk.press(.paste("one\rtwo"), .enter)
        #expect(desk.lines.contains("> one↵two"))
        desk.press(.enter)
        #expect(desk.takeCalls() == [#"send {"conversation":"ROOM","text":"one\ntwo"}"#])
    }

    @Test func `hostile text draws nothing outside its own place`() {
        for size in [Picture.Size(columns: 80, rows: 24), .init(columns: 40, rows: 12), .init(columns: 32, rows: 8)] {
            var desk = ChatDesk(size: size)
            desk.open(
                [
                    ChatDesk.message(1, from: "bob", "\u{1B}[2J\u{1B}]0;x\u{7}\u{9B}31mred\r\nsecond\u{202E}line"),
                    ChatDesk.message(2, from: "e\u{1B}[2Jve", "漢字" + String(repeating: "👩‍👩‍👧‍👦", count: 90)),
                    ChatDesk.message(3, from: "שלום", "שלום עולם 123", expires: Self.day),
                    ChatDesk.message(4, from: "bob", "e" + String(repeating: "\u{301}", count: 10_000)),
                ], conversation: ChatDesk.conversation(name: "ro\u{1B}[31mom", members: [("a\u{7}b", true)]),
                lifetime: ChatDesk.lifetime("1d", "agreed"))
            let picture = desk.model.picture(size)
            #expect(picture.rows.count == size.rows)
            for row in picture.rows {
                let text = row.text(width: size.columns)
                #expect(CellWidth.of(text) <= size.columns, "\(text)")
                #expect(!text.unicodeScalars.contains { $0.value < 0x20 || (0x7F..<0xA0).contains($0.value) })
            }
            #expect(picture.cursor.row < size.rows && picture.cursor.column < size.columns)
        }
    }

    @Test func `every screen has the right number of rows, and none is too wide`() {
        var generator = SplitMix64(state: 99)
        let keys: [Key] = [
            .character("a"), .character("/"), .character("漢"), .character("e"), .character("r"), .enter, .tab, .escape,
            .up, .down, .left, .selectUp, .selectDown, .pageUp, .pageDown, .alt("a"), .alt("p"), .alt("1"), .alt("0"),
            .backspace, .paste("x\ny"), .control("u"), .lineBreak, .character("w"), .character("?"),
        ]
        for _ in 0..<60 {
            let size = Picture.Size(columns: 20 + Int(generator.next() % 70), rows: 6 + Int(generator.next() % 30))
            var desk = ChatDesk(size: size)
            desk.open(
                (1...9).map {
                    ChatDesk.message($0, from: $0 % 2 == 0 ? "me" : "bob", "text \($0) 漢字", expires: 50_000)
                }, lifetime: ChatDesk.lifetime("1h", "agreed"))
            for _ in 0..<60 {
                desk.press(keys[Int(generator.next() % UInt64(keys.count))])
                let picture = desk.model.picture(size)
                #expect(picture.rows.count == size.rows)
                #expect(picture.rows.allSatisfy { CellWidth.of($0.text(width: size.columns)) <= size.columns })
                #expect(picture.cursor.row < size.rows && picture.cursor.column < size.columns)
            }
        }
    }

    @Test func `a chat without an argument lists conversations, unread counts and invitations`() {
        var desk = ChatDesk(opening: nil)
        let other = String(repeating: "b", count: 64)
        desk.answer(
            "conversation.list",
            [
                "conversations": [
                    ChatDesk.conversation(), ChatDesk.conversation(other, name: "ops", members: [], lifetime: "7d"),
                ]
            ])
        desk.answer("join.list", ["joins": [["join": "11112222", "state": "invited", "name": "lab", "from": "desk"]]])
        desk.event("message", ["member": "bob000000000", "message": .string(ChatDesk.id(1))])
        #expect(
            desk.lines == [
                " mayfly · 2 conversations · 1 unread",
                " 1 room  1 new   bob● carl○                                         MEMORY ONLY",
                " 2 ops                                                      KEPT 7 DAYS on disk",
                " desk invites you to \"lab\": Enter answers", ">",
                "Enter opens · /create NAME · /join INVITE                             [1 room 1]",
            ])
        desk.effects = []
        desk.press(.enter)
        #expect(desk.takeCalls().first?.hasPrefix("read ") == true)
        desk.press(.alt("0"), .down, .down, .enter)
        #expect(desk.takeCalls().isEmpty && desk.text.contains("\"lab\", from desk: a accepts · d declines · Esc"))
        desk.press(.enter, .escape, .enter, .character("a"))
        #expect(desk.takeCalls() == [#"join {"accept":false,"slug":"11112222"}"#])
        desk.press(.enter, .character("d"))
        #expect(desk.takeCalls() == [#"join.cancel {"join":"11112222"}"#])
    }

    @Test func `messages of a closed room are not requested, so they stay unread`() {
        var desk = ChatDesk(opening: nil)
        desk.answer("conversation.list", ["conversations": [ChatDesk.conversation()]])
        desk.effects = []
        desk.event("message", ["member": "bob000000000"])
        desk.event("messageState")
        #expect(desk.takeCalls().isEmpty)
    }

    @Test func `an explosion clears the history of the input line`() {
        var desk = ChatDesk.opened()
        desk.enter("secret")
        desk.event("exploded")
        desk.press(.up)
        #expect(!desk.text.contains("secret"))
    }

    @Test func `further events during a request cause one more request after it`() {
        var desk = ChatDesk.opened()
        for _ in 0..<100 { desk.event("message", ["member": "bob000000000"]) }
        #expect(desk.effects.count == 1)
        desk.answer("read", ["messages": []])
        #expect(desk.effects.count == 1)
        desk.answer("read", ["messages": []])
        #expect(desk.effects.isEmpty)
    }

    @Test func `a reconnected chat requests its room again, and reports an agreement that ended meanwhile`() {
        var desk = ChatDesk.opened(
            [ChatDesk.message(1, from: "bob", "lost with the node")], lifetime: ChatDesk.lifetime("1d", "agreed"))
        desk.handle(.disconnected("it has gone"))
        #expect(desk.text.contains("no node: it has gone"))
        desk.enter("kept for later")
        #expect(desk.text.contains("> kept for later") && desk.takeCalls().isEmpty)
        desk.effects = desk.model.begin()
        desk.open([])
        #expect(desk.text.contains("MEMORY ONLY") && desk.text.contains("the agreement of 1 day has ended"))
        #expect(!desk.text.contains("lost with the node") && desk.text.contains("> kept for later"))
    }

    @Test(arguments: [
        ("`mayfly conversation unlock C` first", "`/joins on` first"),
        ("`mayfly lifetime propose C 1d --mailbox disk`", "`/propose 1d disk`"),
        ("`mayfly send C --file FILE`", "`/file FILE`"), ("`mayfly invite create C --code`", "`/invite --code`"),
        ("`mayfly read C` first", "`mayfly read room` first"),
        ("`mayfly join CODE --at HOST`", "`mayfly join CODE --at HOST`"),
    ]) func `a hint names a slash command, or the room`(hint: String, shown: String) {
        var desk = ChatDesk.opened()
        let error = ControlError(.failed, "refused", hint: hint)
        desk.enter("/rename tea")
        desk.answer("conversation.rename", .failure(error))
        #expect(desk.text.contains("refused; \(shown)"), "\(desk.text)")
        // A file job may end while another page is on the screen.
        desk.press(.alt("0"))
        desk.handle(.failed(error.about(ChatDesk.room)))
        #expect(desk.text.contains("refused; \(shown)"), "\(desk.text)")
    }

    @Test func `a key does not accept a proposal that has just replaced another`() {
        var desk = ChatDesk.opened(
            lifetime: ChatDesk.lifetime("ephemeral", "pending", proposal: ChatDesk.proposal("1h", id: "aa")))
        desk.event("lifetimeProposed")
        desk.answer(
            "lifetime.show", ChatDesk.lifetime("ephemeral", "pending", proposal: ChatDesk.proposal("30d", id: "bb")))
        desk.effects = []
        desk.press(.alt("a"))
        #expect(desk.effects.isEmpty && desk.text.contains("look again"))
        desk.pass(1_000)
        desk.press(.alt("a"))
        #expect(desk.takeCalls() == [#"lifetime.accept {"conversation":"ROOM","proposal":"bb","renew":true}"#])
    }
}
