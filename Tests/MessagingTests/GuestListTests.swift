import Cryptography
import TestSupport
import Testing

@testable import Messaging

/// Guests may speak, but cannot keep others out.
@Suite struct GuestListTests {
    private static let noon = Timestamp(milliseconds: 1_795_262_400_000)

    private func link(_ number: Int) -> LinkID { LinkID(UInt64(number)) }

    @Test func `a guest leaves when its time is over, the first arrival first`() {
        var guests = GuestList()
        #expect(guests.isEmpty && guests.nextEnd == nil && guests.welcome(link(1), now: Self.noon) == nil)
        #expect(guests.welcome(link(2), now: Self.noon + 1) == nil && guests.nextEnd == Self.noon + Limits.guestStay)
        #expect(guests.takeOverdue(now: Self.noon + Limits.guestStay - 1) == nil)
        #expect(guests.takeOverdue(now: Self.noon + Limits.guestStay) == link(1))
        #expect(guests.takeOverdue(now: Self.noon + Limits.guestStay) == nil)
        #expect(!guests.contains(link(1)) && guests.contains(link(2)))
        #expect(guests.nextEnd == Self.noon + 1 + Limits.guestStay)
        guests.leave(link(2))
        guests.leave(link(2))
        #expect(guests.isEmpty && guests.nextEnd == nil)
    }

    @Test func `a flood of guests stays within the limit, and the newest guest is admitted`() {
        var guests = GuestList()
        var displaced = 0
        for number in 0...100_000 {
            if guests.welcome(link(number), now: Self.noon) != nil { displaced += 1 }
            if number % 3 == 0 { guests.leave(link(number)) }
            #expect(number % 3 == 0 || guests.contains(link(number)))
        }
        #expect(displaced > 60_000)
        var left = 0
        while guests.takeOverdue(now: Self.noon + Limits.guestStay) != nil { left += 1 }
        #expect(left == Limits.guestCount && guests.isEmpty)
    }

    @Test func `a node closes the oldest guest's link to admit a new guest`() {
        var random = Randomness.seeded(1)
        let node = NodeStateMachine()
        let client = ClientID.generate(&random)
        var turn = Turn(now: Self.noon, random: random)
        node.addUnused(client, key: makeKey(&random), &turn)
        node.makeContact(client, &turn)
        for number in 0..<Limits.guestCount + 2 {
            let remote = makeKey(&random).publicKey
            let actions = turn.apart {
                node.linkOpened(link(number), client: client, remote: remote, weDialled: false, &$0)
            }
            let oldest = number - Limits.guestCount
            #expect(actions == (oldest >= 0 ? [.close(link(oldest))] : []))
            #expect(node.isGuest(link(number)))
        }
        // A guest that was sent away gains nothing by it, and is ignored until its link is gone.
        func ping(_ number: Int) -> [NodeAction] {
            turn.apart { node.receive(.ping(7), on: link(number), verify: { _ in nil }, &$0) }
        }
        #expect(node.isGuest(link(0)) && ping(0).isEmpty)
        #expect(node.isGuest(link(2)) && ping(2) == [.transmit(link(2), .pong(7))])
        #expect(turn.apart { node.linkClosed(link(0), &$0) }.isEmpty && node.isGuest(link(0)) && ping(0).isEmpty)
        var later = Turn(now: Self.noon + Limits.guestStay, random: random)
        #expect(later.apart { node.advance(&$0) }.count == Limits.guestCount)
        #expect(node.isGuest(link(2)) && ping(2).isEmpty)
    }
}
