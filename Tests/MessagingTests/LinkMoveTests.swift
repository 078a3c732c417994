import Cryptography
import Messaging
import TestSupport
import Testing

/// A member retires the link in use for another one. The two events may arrive in either order.
@Suite("A link that moves") struct LinkMoves {
    private var all: World

    init() throws {
        all = try World.joined(2)
        all.run()
        all.events[0] = []
    }

    private var member: PublicKey { all.keys[1].publicKey }
    private var current: LinkID { all.machine(0)!.link(to: all.keys[1].publicKey)! }

    private mutating func retire() {
        let link = current
        all.step(0) { core, turn in core.receive(.closing(asleep: false), on: link, verify: { _ in nil }, &turn) }
    }

    private var isShownAway: Bool { all.events[0].contains(.peerOffline(member)) }

    @Test mutating func `a member is not shown as away when a new link replaces the ended one`() {
        retire()
        let (link, client, remote) = (LinkID(5_000), all.clients[0], member)
        all.step(0) { core, turn in core.linkOpened(link, client: client, remote: remote, weDialled: false, &turn) }
        let start = SessionStart(reset: false, inForce: nil, head: nil, renewable: nil)
        all.step(0) { core, turn in core.receive(.session(start), on: link, verify: { _ in nil }, &turn) }
        all.now = all.now + Limits.pingPatience
        all.step(0) { core, turn in core.advance(&turn) }
        #expect(!isShownAway && !all.events[0].contains(.peerOnline(member)))
    }

    @Test mutating func `a member is shown as away when no other link opens in time`() {
        retire()
        all.cut = [[0, 1]]
        all.run(for: Limits.pingPatience - 1)
        #expect(!isShownAway)
        all.run(for: 1)
        #expect(all.events[0].filter { $0 == .peerOffline(member) }.count == 1)
    }

    @Test mutating func `a member is shown as away at once when its link is lost`() {
        let link = current
        all.step(0) { core, turn in core.linkClosed(link, &turn) }
        #expect(isShownAway)
    }
}
