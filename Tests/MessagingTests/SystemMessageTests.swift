import Cryptography
import Messaging
import TestSupport
import Testing

@Suite("System messages") struct SystemMessageTests {
    @Test func `Both sides show the agreement as a message, and it expires with the contents around it`() throws {
        var pair = try Pair.joined()
        func notes(_ node: Int) -> [World.Kept] {
            pair.archive[node].values.filter {
                $0.message.content.type == .systemMessage && !$0.message.content.displayText.hasSuffix(" has joined")
            }.sorted { $0.message.content.sentAt < $1.message.content.sentAt }
        }
        pair.agree(on: .oneDay)
        let agreed = pair.now
        for node in 0..<2 {
            let note = try #require(notes(node).last)
            #expect(note.message.content.displayText.contains("1 Day"))
            #expect(note.keeping == .disk(.oneDay) && note.message.expiresAt == agreed + .day)
        }
        // The message about a change lives as long as the contents after it.
        pair.now = pair.now + Milliseconds.hour
        pair.command(1) { try $0.propose(.sevenDays, &$1) }
        pair.run()
        pair.command(0) { try $0.accept(&$1) }
        pair.run()
        for node in 0..<2 {
            let note = try #require(notes(node).last)
            #expect(note.message.content.displayText.contains("7 Days"))
            #expect(note.keeping == .disk(.sevenDays) && note.message.expiresAt == pair.now + 7 * .day)
        }
    }

    @Test func `Joins and leaves are kept as long as the contents around them`() throws {
        var pair = try Pair.joined(agreed: .oneDay)
        pair.command(1) { _ = $0.leave(&$1) }
        pair.run()
        func kept(_ ending: String) -> [NodeAction.Keeping] {
            pair.archive[0].values.filter { $0.message.content.displayText.hasSuffix(ending) }.map(\.keeping)
        }
        #expect(kept(" has joined") == [.memory] && kept(" has left") == [.disk(.oneDay)])
    }

    @Test func `A creator that changes members without end makes 64 lines, then one a minute`() throws {
        var all = try World.joined(2)
        var state = try #require(all.machine(0)?.record.group)
        let (members, eve) = (state.members, makeKey(&all.random))
        let newcomer = Member(profile: "eve", endpoints: [], version: 1, key: eve, &all.random)
        func change() -> Int {
            for number in 0..<100 {
                state.version += 1
                state.membership += 1
                state.members = number.isMultiple(of: 2) ? (members + [eve.publicKey]).sorted() : members
                let signed = state.signed(by: all.keys[0], &all.random)
                all.inject(.group(GroupUpdate(state: signed, members: [newcomer], departures: [])), from: 0, to: 1)
            }
            return all.archive[1].values.count { line in
                [" has joined", " was removed"].contains { line.content.displayText.hasSuffix($0) }
            }
        }
        let (count, later) = (change(), all.now + .minute)
        all.now = later
        #expect(count == 64 && change() == 65)
    }
}
