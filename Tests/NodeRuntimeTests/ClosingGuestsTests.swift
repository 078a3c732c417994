import Messaging
import Testing

@testable import NodeRuntime

@Suite struct ClosingGuestsTests {
    @Test func `a flood of refused guests leaves no more closing links open than the limit`() {
        var closing = ClosingGuests()
        var open: Set<LinkID> = []
        for number in 1...10_000 as ClosedRange<UInt64> {
            open.insert(LinkID(number))
            if let victim = closing.add(LinkID(number)) { open.remove(victim) }
            #expect(open.count <= Limits.closingGuestCount)
        }
        #expect(open.contains(LinkID(10_000)) && !open.contains(LinkID(1)))
    }
}
