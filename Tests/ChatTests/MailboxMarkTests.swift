import Control
import Testing

@testable import Program

@Suite struct MailboxMarkTests {
    private static func deliveries(_ states: [String]) -> [String: JSONValue] {
        let members = ["bob", "carl", "dora"]
        let each = zip(members, states).map { ["member": "", "name": .string($0), "state": .string($1)] as JSONValue }
        return ["deliveries": .array(each)]
    }

    @Test(arguments: [
        ("mailed", ["mailed", "mailed"], "hello ⇡ in the mailbox"),
        ("mailed", ["delivered", "mailed"], "hello ✓✓ 1/2 ⇡ 1/2 in the mailbox"),
        ("sent", ["sent", "mailed", "sent"], "hello ✓ ⇡ 1/3 in the mailbox"), ("sent", ["sent", "sent"], "hello ✓"),
        ("delivered", ["delivered", "delivered"], "hello ✓✓ 2/2"),
    ]) func `our message shows the number of deliveries and of copies in the mailbox`(
        state: String, deliveries: [String], shown: String
    ) {
        let desk = ChatDesk.opened([
            ChatDesk.message(1, from: "me", "hello", state: state, more: Self.deliveries(deliveries))
        ])
        #expect(desk.lines.contains("08:41 me  \(shown)"), "\(desk.text)")
    }

    @Test func `the plain chat reports a message in the mailbox once`() {
        var desk = ChatDesk()
        var transcript = Transcript()
        desk.open([ChatDesk.message(1, from: "me", "hello", state: "queued")])
        #expect(!transcript.update(&desk.model).contains { $0.contains("mailbox") })
        desk.event("messageState", ["message": .string(ChatDesk.id(1)), "state": "mailed"])
        desk.answer("read", ["messages": [ChatDesk.message(1, from: "me", "hello", state: "mailed")]])
        #expect(transcript.update(&desk.model) == ["* your message of 08:41 is in the mailbox"])
        desk.event("messageState", ["message": .string(ChatDesk.id(1)), "state": "mailed"])
        desk.answer("read", ["messages": [ChatDesk.message(1, from: "me", "hello", state: "mailed")]])
        #expect(transcript.update(&desk.model).isEmpty)
    }

    @Test func `a proposal with a mailbox names the mailbox's storage`() {
        for (value, words) in [("ram", "mailbox in memory"), ("disk", "mailbox on disk")] {
            let proposal = ChatDesk.proposal("1d", more: ["mailbox": .string(value)])
            var desk = ChatDesk.opened(lifetime: ChatDesk.lifetime("ephemeral", "pending", proposal: proposal))
            #expect(desk.text.contains("┌ 1 day, \(words), proposed by bob (now memory only)"), "\(desk.text)")
            var transcript = Transcript()
            let lines = transcript.update(&desk.model)
            #expect(lines.contains("* bob proposes 1 day, \(words) (now memory only): /accept or /reject"), "\(lines)")
        }
    }

    @Test func `an agreement with a mailbox is shown at the input line`() {
        var desk = ChatDesk()
        let agreement: JSONValue = [
            "id": "ab", "lifetime": "1d", "mailbox": "disk", "agreedAt": "2026-11-23T08:41:00Z",
            "members": ChatDesk.named("me", "bob"),
        ]
        desk.open([], lifetime: ["lifetime": "1d", "state": "agreed", "proposal": .null, "agreement": agreement])
        #expect(
            desk.lines.last?.hasPrefix("What you send now is kept until tomorrow 08:41 · mailbox on disk") == true,
            "\(desk.text)")
    }
}
