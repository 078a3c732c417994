import Messaging
import Testing

private let link = LinkID(1)
private let other = LinkID(2)

private func label(_ number: Int) -> BoxLabel { numbered(number) }

@Suite("Mailbox: an owner at its mailbox") struct MailboxOwnerTests {
    private typealias Machine = MailboxOwnerStateMachine

    private let grant = MailboxGrant(boxCount: 8, slotCount: 256, byteCount: 1, longest: .day)
    private let labels = [label(1), label(2)]

    private enum State: CaseIterable { case unused, idle, dialling, asked, granted, pinged }

    /// All states at noon; `pinged` has sent its keepalive.
    private func machine(_ state: State) -> Machine {
        var machine = Machine(now: noon)
        if state == .unused { return machine }
        #expect(machine.want(labels, now: noon) == [.dial])
        if state == .dialling { return machine }
        if state == .idle {
            machine.dialFailed(now: noon)
            return machine
        }
        #expect(machine.opened(link, now: noon) == [.claim(link, labels)])
        if state == .asked { return machine }
        machine.granted(grant, on: link, now: noon)
        if state == .pinged { #expect(machine.advance(now: noon + Limits.mailboxKeepalive) == [.ping(link)]) }
        return machine
    }

    @Test func `the public status of each state`() {
        let all: [(State, Machine.Standing, LinkID?, Bool, Timestamp?)] = [
            (.unused, .unused, nil, false, nil), (.idle, .unreachable, nil, false, noon + Limits.mailboxRedial.first),
            (.dialling, .unreachable, nil, false, nil),
            (.asked, .asking, link, false, noon + Limits.reservationPatience),
            (.granted, .granted(grant), link, true, noon + Limits.mailboxKeepalive),
            (.pinged, .granted(grant), link, true, noon + Limits.mailboxKeepalive + Limits.reservationPatience),
        ]
        for (state, standing, link, isGranted, deadline) in all {
            let machine = machine(state)
            #expect(machine.standing == standing, "\(state)")
            #expect(machine.link == link && machine.isGranted == isGranted, "\(state)")
            #expect(machine.nextDeadline == deadline, "\(state)")
        }
    }

    @Test("an event that does not fit the state changes nothing, and a link that the owner did not dial is closed")
    func ignored() {
        for state in State.allCases {
            let before = machine(state)
            var machine = before
            machine.granted(grant, on: other, now: noon)
            #expect(machine.refused(.full, on: other, now: noon) == [])
            machine.closed(other, now: noon)
            machine.heard(other, now: noon + .second)
            #expect(machine == before, "\(state)")
            if state != .dialling {
                machine.dialFailed(now: noon)
                #expect(machine == before, "\(state)")
                #expect(machine.opened(other, now: noon) == [.close(other)] && machine == before, "\(state)")
            }
            if let due = machine.nextDeadline {
                #expect(machine.advance(now: due - 1).isEmpty && machine == before, "\(state)")
            } else {
                #expect(machine.advance(now: noon + .day).isEmpty && machine == before, "\(state)")
            }
        }
    }

    @Test func `the next deadline of each state`() {
        var machine = machine(.idle)
        #expect(machine.advance(now: noon + Limits.mailboxRedial.first) == [.dial])
        machine = self.machine(.asked)
        #expect(machine.advance(now: noon + Limits.reservationPatience) == [.close(link)])
        #expect(machine.link == nil && machine.standing == .unreachable)
        machine.closed(link, now: noon + Limits.reservationPatience)
        #expect(machine.nextDeadline == noon + Limits.reservationPatience + Limits.mailboxRedial.first, "counted once")
        machine = self.machine(.pinged)
        let end = noon + Limits.mailboxKeepalive + Limits.reservationPatience
        #expect(machine.advance(now: end) == [.close(link)] && machine.link == nil)
        #expect(machine.nextDeadline == end + Limits.mailboxRedial.first)
    }

    @Test func `boxes that were not granted are claimed again after a while, and on no other link`() {
        var machine = machine(.asked)
        machine.granted(MailboxGrant(boxCount: 1, slotCount: 256, byteCount: 1, longest: .day), on: link, now: noon)
        let due = noon + Limits.reclaimPause
        var now = noon
        while let next = machine.nextDeadline, next < due {
            now = next
            #expect(machine.advance(now: now) == [.ping(link)])
            machine.heard(link, now: now)
        }
        #expect(machine.nextDeadline == due && machine.advance(now: due - 1).isEmpty)
        #expect(machine.advance(now: due) == [.claim(link, labels)])
        // No second claim before the answer, which grants all boxes.
        machine.heard(link, now: due)
        #expect(machine.advance(now: due).isEmpty)
        machine.granted(grant, on: link, now: due)
        #expect(machine.nextDeadline == due + Limits.mailboxKeepalive)
        // A lost link cancels the planned claim.
        #expect(machine.want(labels + [label(3)], now: due) == [.claim(link, [label(3)])])
        machine.granted(MailboxGrant(boxCount: 0, slotCount: 256, byteCount: 1, longest: .day), on: link, now: due)
        machine.closed(link, now: due)
        #expect(machine.nextDeadline == due + Limits.mailboxRedial.first)
    }

    @Test func `each claim has one grant, and a grant that no claim asked for ends the link`() {
        var machine = machine(.asked)
        #expect(machine.want([label(2), label(3)], now: noon).last == .claim(link, [label(3)]))
        for _ in 0..<2 { #expect(machine.granted(grant, on: link, now: noon) == []) }
        #expect(machine.granted(grant, on: link, now: noon) == [.close(link)] && machine.link == nil)
    }

    @Test func `any frame on the link is a sign of life; a silent link is pinged once`() {
        var machine = machine(.granted)
        machine.heard(link, now: noon + 30 * .second)
        #expect(machine.nextDeadline == noon + 30 * .second + Limits.mailboxKeepalive)
        #expect(machine.advance(now: noon + Limits.mailboxKeepalive).isEmpty)
        #expect(machine.advance(now: noon + 30 * .second + Limits.mailboxKeepalive) == [.ping(link)])
        #expect(machine.advance(now: noon + 30 * .second + Limits.mailboxKeepalive).isEmpty)
        machine.heard(link, now: noon + 91 * .second)
        #expect(machine.nextDeadline == noon + 91 * .second + Limits.mailboxKeepalive && machine.isGranted)
        // The mailbox's timeout for a holder is longer than the holder's keepalive.
        #expect(Limits.mailboxSilence >= 2 * Limits.mailboxKeepalive + Limits.reservationPatience)
    }

    @Test func `a grant that ends soon counts as a failure, as when another copy of the home takes the link`() {
        var machine = machine(.granted)
        var now = noon
        for step in 0..<6 {
            now = now + .second
            machine.closed(link, now: now)
            let wait = Limits.mailboxRedial.first << Milliseconds(step)
            #expect(machine.nextDeadline == now + wait)
            now = now + wait
            #expect(machine.advance(now: now) == [.dial])
            _ = machine.opened(link, now: now)
            machine.granted(grant, on: link, now: now)
        }
        now = now + Limits.shortLink
        machine.closed(link, now: now)
        #expect(machine.nextDeadline == now + Limits.mailboxRedial.first)
    }

    @Test func `the backoff doubles from one second to five minutes and restarts after a grant that lasted`() {
        var machine = machine(.unused)
        var now = noon
        var waits: [Milliseconds] = []
        #expect(machine.want(labels, now: now) == [.dial])
        for step in 0..<30 {
            switch step % 3 {
            case 0: machine.dialFailed(now: now)
            case 1:
                _ = machine.opened(link, now: now)
                machine.closed(link, now: now)
            default:
                _ = machine.opened(link, now: now)
                now = now + Limits.reservationPatience
                #expect(machine.advance(now: now) == [.close(link)])
            }
            let next = machine.nextDeadline ?? now
            waits.append(next - now)
            now = next
            #expect(machine.advance(now: now) == [.dial])
        }
        for (index, wait) in waits.enumerated() { #expect(wait == min(.second << min(index, 20), 5 * .minute)) }
        _ = machine.opened(link, now: now)
        machine.granted(grant, on: link, now: noon)
        machine.closed(link, now: now)
        #expect(machine.nextDeadline == now + Limits.mailboxRedial.first)
    }

    @Test func `a refusal is shown until boxes are granted, and makes the wait longer`() {
        for state in [State.asked, .granted, .pinged] {
            var machine = machine(state)
            #expect(machine.refused(.full, on: link, now: noon) == [.close(link)])
            #expect(machine.standing == .refused(.full) && machine.link == nil)
            let wait = Limits.mailboxRedial.first << 6
            #expect(machine.nextDeadline == noon + wait)
            machine.closed(link, now: noon)
            #expect(machine.nextDeadline == noon + wait, "the end of its link is no other failure")
            #expect(machine.advance(now: noon + wait) == [.dial] && machine.standing == .refused(.full))
            _ = machine.opened(link, now: noon + wait)
            #expect(machine.standing == .asking)
            machine.granted(grant, on: link, now: noon)
            #expect(machine.standing == .granted(grant))
            machine.closed(link, now: noon + wait)
            #expect(machine.standing == .unreachable)
        }
    }

    @Test func `each new box is claimed once, and each unwanted box dropped once`() {
        for state in [State.asked, .granted, .pinged] {
            var machine = machine(state)
            #expect(machine.want(labels, now: noon).isEmpty)
            #expect(
                machine.want([label(2), label(3)], now: noon) == [.drop(link, [label(1)]), .claim(link, [label(3)])])
            #expect(machine.want([label(3), label(2)], now: noon).isEmpty, "another order is nothing")
            #expect(machine.want([label(1), label(2), label(3)], now: noon) == [.claim(link, [label(1)])])
            #expect(machine.link == link)
        }
        var machine = machine(.dialling)
        #expect(machine.want([label(5)], now: noon).isEmpty)
        #expect(machine.opened(link, now: noon) == [.claim(link, [label(5)])])
        machine = self.machine(.idle)
        #expect(machine.want([label(5)], now: noon).isEmpty, "its time has not come")
        #expect(machine.nextDeadline == noon + Limits.mailboxRedial.first)
    }

    @Test func `kept boxes are not dropped`() {
        var machine = machine(.granted)
        #expect(machine.want([label(2)], keeping: [label(1)], now: noon).isEmpty)
        #expect(machine.want([label(1), label(2)], now: noon) == [.claim(link, [label(1)])])
        #expect(machine.want([], keeping: [label(1)], now: noon) == [.drop(link, [label(2)]), .close(link)])
        #expect(machine.standing == .unused)
    }

    @Test func `when no box is wanted the link is closed, and no dial follows until one is`() {
        for state in [State.asked, .granted, .pinged] {
            var machine = machine(state)
            #expect(machine.want([], now: noon) == [.drop(link, labels), .close(link)])
            #expect(machine.standing == .unused && machine.link == nil && machine.nextDeadline == nil)
            machine.closed(link, now: noon)
            #expect(machine.advance(now: noon + .day).isEmpty && machine.want(labels, now: noon) == [.dial])
            #expect(machine.opened(other, now: noon) == [.claim(other, labels)])
        }
        var machine = machine(.dialling)
        #expect(machine.want([], now: noon).isEmpty)
        machine.dialFailed(now: noon)
        #expect(machine.nextDeadline == nil)
    }

    @Test func `a link for which no box is wanted by now is closed`() {
        var machine = machine(.dialling)
        _ = machine.want([], now: noon)
        #expect(machine.opened(link, now: noon) == [.close(link)])
        #expect(machine.link == nil && machine.standing == .unused && machine.nextDeadline == nil)
    }

    @Test func `a claim names no more labels than its limit`() {
        var machine = machine(.unused)
        let many = (0..<200).map { label($0) }
        _ = machine.want(many, now: noon)
        #expect(machine.opened(link, now: noon) == [.claim(link, Array(many.prefix(Limits.boxLabelCount)))])
        #expect(machine.want(Array(many.reversed()), now: noon).count == 2)
    }
}
