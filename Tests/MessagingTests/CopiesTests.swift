import Cryptography
import Messaging
import TestSupport
import Testing

/// Two running copies of one home have the same keys and take each other's links. The run numbers in their session
/// starts reveal it.
@Suite("Two copies of one home") struct CopiesOfAHome {
    private var all: World
    private var nextLink: UInt64 = 1_000

    init() throws {
        all = try World.joined(2)
        all.run()
    }

    private var member: PublicKey { all.keys[1].publicKey }

    private var isCopied: Bool { all.machine(0)?.isCopied(member, now: all.now) ?? false }

    private func events(ours: Bool) -> Int { all.events[0].count { $0 == .twoCopies(member, ours: ours) } }

    /// Member 1 opens a link to node 0 and sends this.
    /// - Returns: the first session start of node 0 on the link.
    private mutating func session(run: UInt64, copies: Bool = false) throws -> SessionStart {
        nextLink += 1
        all.now = all.now + Limits.simultaneousDialWindow
        let (link, client, remote) = (LinkID(nextLink), all.clients[0], member)
        var start = SessionStart(reset: false, inForce: nil, head: nil, renewable: nil)
        (start.run, start.copies) = (run, copies)
        var said: SessionStart?
        all.step(0) { core, turn in
            core.linkOpened(link, client: client, remote: remote, weDialled: false, &turn)
            for case .transmit(link, .session(let start)) in turn.actions { said = start }
        }
        all.receive(.session(start), 0, on: link)
        return try #require(said)
    }

    private mutating func session(runs: [UInt64]) throws { for run in runs { _ = try session(run: run) } }

    @Test mutating func `a run that returns after another one reveals two copies, reported once`() throws {
        try session(runs: [1, 2])
        #expect(!isCopied && events(ours: false) == 0)
        try session(runs: [1])
        #expect(isCopied && events(ours: false) == 1)
        #expect(try session(run: 2).copies, "each copy is told with its next link")
        #expect(try session(run: 1).copies)
        #expect(events(ours: false) == 1)
    }

    @Test(arguments: [[1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 2, 4, 2]] as [[UInt64]])
    mutating func `a returning run reveals the copies as long as it is remembered`(_ runs: [UInt64]) throws {
        try session(runs: runs + [runs[0]])
        #expect(isCopied)
    }

    @Test(arguments: [[1, 2, 3, 4, 5, 6], [1, 1, 1, 1], [1, 1, 2, 2, 3, 3], [0, 0, 0], [1, 0, 1]] as [[UInt64]])
    mutating func `restarts, lost links and repeated links of one run are not taken for copies`(_ runs: [UInt64]) throws
    {
        try session(runs: runs)
        #expect(!isCopied && events(ours: false) == 0)
        #expect(try !session(run: 9).copies)
    }

    @Test mutating func `two simultaneous links of one run are not taken for copies`() throws {
        // Both ends dial, so the links of the second pair cross those of the first.
        for _ in 0..<4 {
            for node in [0, 1] { all.isolate(node) }
            all.heal(for: .minute)
            #expect(all.isOnline(0, 1))
        }
        for node in [0, 1] {
            let other = all.keys[1 - node].publicKey
            #expect(all.machine(node)?.isCopied(other, now: all.now) == false)
        }
    }

    @Test mutating func `the warning of copies ends an hour after a run last came back`() throws {
        try session(runs: [1, 2, 1])
        all.now = all.now + Limits.copiesLifetime - 1
        #expect(isCopied)
        all.now = all.now + 1
        #expect(!isCopied)
        #expect(try !session(run: 1).copies)
        #expect(events(ours: false) == 1)
        try session(runs: [2])
        #expect(isCopied && events(ours: false) == 2)
    }

    @Test mutating func `a member's repeated reports of copies are shown once, until an hour passes without one`()
        throws
    {
        for _ in 0..<100 { _ = try session(run: 7, copies: true) }
        #expect(events(ours: true) == 1 && events(ours: false) == 0)
        #expect(all.machine(0)?.reportsCopies(member, now: all.now) == true && !isCopied)
        // A peer's report about us is no evidence about the peer.
        #expect(try !session(run: 7).copies)
        all.now = all.now + Limits.copiesLifetime
        #expect(all.machine(0)?.reportsCopies(member, now: all.now) == false)
        _ = try session(run: 7, copies: true)
        #expect(events(ours: true) == 2)
    }

    /// - Parameter creator: the node whose peer runs twice, so that each side has the smaller key once.
    @Test(arguments: [0, 1]) func `two copies running at once are warned, and open only a few links a minute`(
        creator: Int
    ) throws {
        var copies = try RunningCopies(all, of: 1 - creator)
        copies.run(for: .minute)
        let burst = copies.linkCount
        #expect(burst < 60, "\(burst) links in the first minute")
        #expect(copies.events[0].contains(.twoCopies(copies.keys[1], ours: false)))
        for copy in [1, 2] { #expect(copies.events[copy].contains(.twoCopies(copies.keys[0], ours: true))) }
        copies.run(for: 30 * .minute)
        let rate = Double(copies.linkCount - burst) / 30
        #expect(rate > 0.5 && rate <= 4, "\(rate) links a minute")
        for events in copies.events { #expect(events.count { if case .twoCopies = $0 { true } else { false } } == 1) }
    }

    @Test func `a copy running alone is not slowed down and causes no warning`() throws {
        var copies = try RunningCopies(all, of: 1)
        copies.stop(2)
        for _ in 0..<10 {
            copies.cutLinks()
            copies.run(for: .minute)
        }
        #expect(copies.linkCount >= 10)
        for events in copies.events { #expect(!events.contains { if case .twoCopies = $0 { true } else { false } }) }
    }
}

/// Member 0 of a conversation, and two running copies, 1 and 2, of the other member's home.
private struct RunningCopies {
    private enum Arrival {
        case frame(Frame)
        case end
    }

    let keys: [PublicKey]
    private var machines: [Conversation]
    private(set) var events: [[Event.Kind]] = [[], [], []]
    private(set) var linkCount = 0
    private var stopped: Set<Int> = []
    private var links: [LinkID: Int] = [:]
    private var queue: [(to: Int, link: LinkID, arrival: Arrival)] = []
    private var random: Randomness
    private var now: Timestamp

    init(_ all: World, of copied: Int) throws {
        let other = 1 - copied
        keys = [all.keys[other].publicKey, all.keys[copied].publicKey]
        (random, now) = (all.random, all.now)
        machines = try [other, copied, copied].map { node in
            Conversation(
                client: all.clients[node], key: all.keys[node], record: try #require(all.machine(node)).record,
                isFresh: false, now: all.now)
        }
    }

    mutating func stop(_ side: Int) { stopped.insert(side) }

    mutating func cutLinks() {
        for (link, copy) in links.sorted(by: { $0.key < $1.key }) {
            links[link] = nil
            for side in [0, copy] { queue.append((side, link, .end)) }
        }
    }

    mutating func run(for time: Milliseconds) {
        let end = now + time
        while true {
            while !queue.isEmpty {
                let next = queue.removeFirst()
                let remote = remote(of: next.to)
                switch next.arrival {
                case .frame(let frame):
                    step(next.to) { $0.receive(frame, from: remote, on: next.link, memoryAvailable: 1 << 20, &$1) }
                case .end: step(next.to) { $0.linkClosed(next.link, to: remote, &$1) }
                }
            }
            let sides = machines.indices.filter { !stopped.contains($0) }
            guard let due = sides.compactMap({ machines[$0].nextDeadline }).min(), due <= end else { break }
            now = max(now + 1, due)
            for side in sides { step(side) { $0.advance(&$1) } }
        }
        now = end
    }

    private func remote(of side: Int) -> PublicKey { side == 0 ? keys[1] : keys[0] }

    private mutating func step(_ side: Int, _ body: (Conversation, inout Turn) -> Void) {
        var turn = turn(random, now: now)
        body(machines[side], &turn)
        random = turn.random
        for action in turn.actions {
            switch action {
            case .transmit(let link, let frame):
                guard let copy = links[link] else { continue }
                queue.append((side == 0 ? copy : 0, link, .frame(frame)))
            case .close(let link):
                guard let copy = links.removeValue(forKey: link) else { continue }
                for end in [0, copy] { queue.append((end, link, .end)) }
            case .dial: open(from: side)
            case .notify(let event): events[side].append(event.kind)
            default: continue
            }
        }
    }

    /// The copies dial the member, which knows the address of one copy.
    private mutating func open(from side: Int) {
        linkCount += 1
        let (link, copy) = (LinkID(UInt64(linkCount)), max(side, 1))
        links[link] = copy
        for end in [side, side == 0 ? copy : 0] {
            let remote = remote(of: end)
            step(end) { $0.linkOpened(link, to: remote, weDialled: end == side, &$1) }
        }
    }
}
