import Cryptography
import Messaging
import TestSupport
import Testing

/// The table of the page Frames, "A conversation": frames that count before both session starts, after them, and on a
/// replaced link.
@Suite("Frames by the state of their link") struct FrameStateTests {
    enum State: Int, CaseIterable {
        case notEstablished = 1
        case established
        case replaced
    }

    /// A row of the table that a test can send.
    enum Row: String, CaseIterable {
        case session = "`session`"
        case content = "content"
        case acknowledgement = "`acknowledgement`"
        case lifetime = "lifetime messages"
        case group = "`group_updated`, `profile`, `member_left`"
        case request = "`attachment_request`"
        case ping = "`ping`"
        case closing = "`closing`"
        case others = "`welcome`, `join_error`, `invitation`, `relay_request`, `relay_answer`"
    }

    private let victim = 1
    private let member = 2

    private func cells(_ row: Row) throws -> [String] {
        let line = try #require(
            Specification.page("Frames").split(separator: "\n").first { $0.hasPrefix("| \(row.rawValue) | ") },
            "the page has no row \(row.rawValue)")
        return line.split(separator: "|").map { cell in
            String(cell.drop { $0 == " " }.reversed().drop { $0 == " " }.reversed())
        }
    }

    private func isTaken(_ cell: String, _ row: Row, _ state: State) throws -> Bool {
        if cell.hasPrefix("dropped") { return false }
        if cell == "as over the link in use" { return try isTaken(cells(row)[State.established.rawValue], row, state) }
        return true
    }

    @Test(arguments: Row.allCases, State.allCases)
    func `each frame is taken or dropped as the page Frames says for its link's state`(_ row: Row, _ state: State)
        throws
    {
        var all = try World.joined(3)
        all.run(for: 30_000)
        let message = try all.say("wait", from: victim)
        let old = try #require(all.machine(victim)?.link(to: all.keys[member].publicKey))
        var link = old
        if state != .established {
            // Late enough to replace the other link, whichever side dialled.
            let fresh = LinkID(1_000)
            all.links[fresh] = [member, victim]
            // The link is being closed. Its frames are read until the transport reports the end.
            let ends = all.links.removeValue(forKey: old)
            let client = all.clients[victim]
            let remote = all.keys[member].publicKey
            all.step(victim) { core, turn in
                core.linkOpened(fresh, client: client, remote: remote, weDialled: false, &turn)
            }
            all.links[old] = ends
            #expect(all.machine(victim)?.link(to: remote) == fresh && all.machine(victim)?.isOnline(remote) == false)
            if state == .notEstablished { link = fresh } else { deliver(start, on: fresh, &all) }
        }
        let isTaken = try isTaken(cells(row)[state.rawValue], row, state)
        #expect(try sends(row, on: link, message, &all) == isTaken, "\(row.rawValue), \(state)")
    }

    private var start: Frame { .session(SessionStart(reset: false, inForce: nil, head: nil, renewable: nil)) }

    private func deliver(_ frame: Frame, on link: LinkID, _ all: inout World) {
        all.step(victim) { core, turn in core.receive(frame, on: link, verify: { _ in nil }, &turn) }
    }

    private func sends(_ row: Row, on link: LinkID, _ message: MessageID, _ all: inout World) throws -> Bool {
        let own = all.keys[member]
        let sent = all.sent.count
        let dropped = try #require(all.machine(victim)).droppedCount
        func answers(_ all: World) -> ArraySlice<Frame> { all.sent[sent...] }
        switch row {
        case .session:
            deliver(start, on: link, &all)
            return answers(all).contains { if case .group = $0 { true } else { false } }
        case .content:
            let text = all.text("hello", by: member)
            deliver(.content(text, age: 0), on: link, &all)
            return all.archive[victim][text.id] != nil
        case .acknowledgement:
            deliver(.acknowledgement(message, stored: false), on: link, &all)
            return all.machine(victim)?.outboxEntry(message, to: own.publicKey) == nil
        case .lifetime:
            let wish = LifetimeProposal(
                conversation: all.conversation, membership: try #require(all.machine(member)).record.group.membership,
                epoch: 1, previous: .none, terms: LifetimeTerms(.oneDay), proposedAt: all.now,
                nonce: all.random.bytes(16), proposer: own.publicKey)
            deliver(.lifetime(.proposal(wish.signed(by: own, &all.random))), on: link, &all)
            return all.machine(victim)?.pendingProposal != nil
        case .group:
            let version = try #require(all.machine(member)).record.own.version + 1
            let news = Member(profile: "new", endpoints: [], version: version, key: own, &all.random)
            deliver(.profile(news), on: link, &all)
            return all.names(victim).contains("new")
        case .request:
            deliver(.attachmentRequest(.random(&all.random), first: 0, count: 1), on: link, &all)
            return answers(all).contains { if case .attachmentGone = $0 { true } else { false } }
        case .ping:
            deliver(.ping(9), on: link, &all)
            return answers(all).contains(.pong(9))
        case .closing:
            deliver(.closing(asleep: false), on: link, &all)
            return all.wire.contains { $0.link == link && $0.frame == .closing(asleep: false) && $0.to == member }
        case .others:
            deliver(.relayRequest(.reserve([])), on: link, &all)
            return try #require(all.machine(victim)).droppedCount == dropped
        }
    }

    private func firstStart(of node: Int, _ all: World) throws -> SessionStart {
        let key = all.keys[node].publicKey
        let starts = all.sent.compactMap { frame -> SessionStart? in
            if case .session(let start) = frame, start.member?.key == key { start } else { nil }
        }
        return try #require(starts.first)
    }

    @Test func `a joiner's first session start names its agreement, its own description and no renewal`() throws {
        let two = try World.joined(2)
        let machine = try #require(two.machine(1))
        var expected = SessionStart(reset: false, inForce: nil, head: nil, renewable: nil)
        expected.member = machine.record.own
        expected.groupDigest = machine.groupDigest
        let said = try firstStart(of: 1, two)
        expected.run = said.run
        #expect(said == expected && said.run != 0)

        // A third member joins under an existing agreement.
        var all = World(3)
        all.create()
        try all.join(1)
        all.run()
        all.command(0) { try $0.propose(LifetimeTerms(.oneDay), &$1) }
        all.run()
        all.command(1) { try $0.accept(&$1) }
        all.run()
        try all.join(2)
        let agreement = try #require(all.machine(2)?.agreement)
        let start = try firstStart(of: 2, all)
        #expect(!start.reset && start.inForce == agreement.id && start.open == nil && start.undelivered == 0)
        #expect(start.head?.id == agreement.id && start.head?.isSigned(by: all.keys[2].publicKey) == true)
        // The agreement belongs to an earlier member list, whose epochs do not count under this one.
        #expect(start.epoch == 0 && start.member == all.machine(2)?.record.own)
        // No standing policy was requested.
        #expect(start.renewable == nil)
        let accepts = all.sent.contains {
            if case .lifetime(.accept(let accept)) = $0 { accept.acceptor == all.keys[2].publicKey } else { false }
        }
        #expect(!accepts)
    }
}
