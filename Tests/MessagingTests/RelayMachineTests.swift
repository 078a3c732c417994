import Messaging
import Primitives
import Testing

private let start = Timestamp(milliseconds: 1_795_247_146_000)

@Suite("Relay: a stream at the rendezvous node")
struct RelayedStreamTests {
    private enum State: CaseIterable { case open, halfOpen, over }

    private func stream(_ state: State) -> RelayedStream {
        var stream = RelayedStream()
        // Both sides have sent, and neither has had credit for it.
        #expect(stream.receive(.data([1, 2, 3]), from: .guest) == .forward)
        #expect(stream.receive(.data([1, 2, 3]), from: .holder) == .forward)
        switch state {
        case .open: break
        case .halfOpen: #expect(stream.receive(.end, from: .guest) == .forward)
        case .over: #expect(stream.receive(.close(.closed), from: .guest) == .forwardLast)
        }
        return stream
    }

    /// What becomes of a frame in each state; in `halfOpen` the guest has ended.
    private static let cells:
        [(state: State, side: RelayedStream.Side, frame: RelayStreamFrame, outcome: RelayedStream.Outcome)] = [
            (.open, .guest, .data([1]), .forward), (.open, .holder, .data([1]), .forward),
            (.open, .guest, .credit(3), .withhold), (.open, .holder, .credit(3), .withhold),
            (.open, .guest, .credit(4), .violation), (.open, .holder, .credit(4), .violation),
            (.open, .guest, .credit(0), .violation), (.open, .holder, .data([]), .violation),
            (.open, .guest, .end, .forward), (.open, .holder, .end, .forward),
            (.open, .guest, .close(.closed), .forwardLast), (.open, .holder, .close(.idle), .forwardLast),
            (.halfOpen, .guest, .data([1]), .violation), (.halfOpen, .holder, .data([1]), .forward),
            (.halfOpen, .guest, .credit(3), .withhold), (.halfOpen, .holder, .credit(3), .drop),
            (.halfOpen, .guest, .credit(4), .violation), (.halfOpen, .holder, .credit(4), .drop),
            (.halfOpen, .guest, .end, .violation), (.halfOpen, .holder, .end, .forwardLast),
            (.halfOpen, .guest, .close(.closed), .forwardLast), (.halfOpen, .holder, .close(.closed), .forwardLast),
            (.over, .guest, .data([1]), .drop), (.over, .holder, .data([1]), .drop),
            (.over, .guest, .credit(1), .drop), (.over, .holder, .credit(1), .drop),
            (.over, .guest, .end, .drop), (.over, .holder, .end, .drop),
            (.over, .guest, .close(.closed), .drop), (.over, .holder, .close(.closed), .drop),
        ]

    @Test("each frame in each state")
    func cells() {
        for cell in Self.cells {
            var stream = stream(cell.state)
            let wasOver = stream.isOver
            #expect(stream.receive(cell.frame, from: cell.side) == cell.outcome, "\(cell)")
            let ends = cell.outcome == .violation || cell.outcome == .forwardLast
            #expect(stream.isOver == (wasOver || ends), "\(cell)")
        }
    }

    @Test("no more than a window is on its way in one direction")
    func window() {
        var stream = RelayedStream()
        let piece = [UInt8](repeating: 7, count: Limits.relayPieceByteCount)
        for _ in 0..<(Limits.relayWindow / Limits.relayPieceByteCount) {
            #expect(stream.receive(.data(piece), from: .guest) == .forward)
        }
        var copy = stream
        #expect(copy.receive(.data([1]), from: .guest) == .violation)
        // Withheld credit is not yet the sender's.
        #expect(stream.receive(.credit(10), from: .holder) == .withhold)
        copy = stream
        #expect(copy.receive(.data([1]), from: .guest) == .violation)
        var total = RelayPace()
        let released = stream.release(for: .guest, rate: 1_000, total: &total, totalRate: 1_000, now: start)
        #expect(released == .now(10))
        #expect(stream.receive(.data([UInt8](repeating: 1, count: 10)), from: .guest) == .forward)
        #expect(stream.receive(.data([1]), from: .guest) == .violation)
        var longer = RelayedStream()
        #expect(longer.receive(.data(piece + [1]), from: .guest) == .violation)
    }

    @Test("credit is handed out at the rate of the stream, and of all")
    func pace() {
        for rates in [(10_000, 1_000_000), (1_000_000, 10_000)] {
            var stream = RelayedStream()
            var total = RelayPace()
            var now = start
            var passed = 0
            while now - start < 10 * .second {
                let count = 1_000
                guard stream.receive(.data([UInt8](repeating: 0, count: count)), from: .holder) == .forward else {
                    Issue.record("the sender has credit")
                    return
                }
                #expect(stream.receive(.credit(count), from: .guest) == .withhold)
                waiting: while true {
                    switch stream.release(for: .holder, rate: rates.0, total: &total, totalRate: rates.1, now: now) {
                    case .now(let count):
                        passed += count
                        break waiting
                    case .later(let time):
                        #expect(time > now)
                        now = time
                    case .nothing:
                        Issue.record("there is credit to hand out")
                        return
                    }
                }
            }
            #expect((99_000...102_000).contains(passed), "\(passed) bytes in 10 s at 10,000 a second")
        }
    }
}

@Suite("Relay: one end of a stream")
struct RelayStreamEndTests {
    private enum State: CaseIterable { case open, endedHere, endedThere, over }

    private func end(_ state: State) -> RelayStreamStateMachine {
        var end = RelayStreamStateMachine()
        #expect(end.take(5) == 5)
        switch state {
        case .open: break
        case .endedHere: #expect(end.end() == .end)
        case .endedThere: #expect(end.receive(.end) == .ended)
        case .over: #expect(end.receive(.close(.busy)) == .closed(.busy))
        }
        return end
    }

    @Test("each event in each state")
    func cells() {
        let arrivals: [State: [(RelayStreamFrame, RelayStreamStateMachine.Arrival, isOver: Bool)]] = [
            .open: [
                (.data([9]), .bytes([9]), false), (.credit(5), .credit, false), (.credit(6), .closed(.violation), true),
                (.credit(0), .closed(.violation), true), (.data([]), .closed(.violation), true),
                (.end, .ended, false), (.close(.idle), .closed(.idle), true),
            ],
            .endedHere: [
                (.data([9]), .bytes([9]), false), (.credit(5), .nothing, false), (.credit(6), .nothing, false),
                (.end, .ended, true), (.close(.closed), .closed(.closed), true),
            ],
            .endedThere: [
                (.data([9]), .closed(.violation), true), (.credit(5), .credit, false),
                (.credit(6), .closed(.violation), true), (.end, .closed(.violation), true),
                (.close(.closed), .closed(.closed), true),
            ],
            .over: [
                (.data([9]), .nothing, true), (.credit(5), .nothing, true), (.end, .nothing, true),
                (.close(.closed), .nothing, true),
            ],
        ]
        for state in State.allCases {
            for (frame, arrival, isOver) in arrivals[state] ?? [] {
                var end = end(state)
                #expect(end.receive(frame) == arrival, "\(state) \(frame)")
                #expect(end.isOver == isOver, "\(state) \(frame)")
            }
            var ending = end(state)
            #expect(ending.end() == ([.open, .endedThere].contains(state) ? .end : nil), "\(state)")
            #expect(ending.isOver == [.endedThere, .over].contains(state), "\(state)")
            var closing = end(state)
            #expect(closing.close() == (state == .over ? nil : .close(.closed)), "\(state)")
            #expect(closing.isOver)
            var taking = end(state)
            #expect(taking.take(3) == ([.open, .endedThere].contains(state) ? 3 : 0), "\(state)")
        }
    }

    @Test("a byte more than the window ends it, also when some of it was read and no credit given")
    func beyondWindow() {
        let piece = [UInt8](repeating: 3, count: Limits.relayPieceByteCount)
        var end = RelayStreamStateMachine()
        var tooLong = end
        #expect(tooLong.receive(.data(piece + [3])) == .closed(.violation) && tooLong.isOver)
        var left = Limits.relayWindow
        while left > 0 {
            let bytes = Array(piece.prefix(left))
            #expect(end.receive(.data(bytes)) == .bytes(bytes))
            left -= bytes.count
        }
        var full = end
        #expect(full.receive(.data([3])) == .closed(.violation) && full.isOver)
        var barelyRead = end
        #expect(barelyRead.consumed(1) == nil)
        #expect(barelyRead.receive(.data([3])) == .closed(.violation) && barelyRead.isOver)
        // What was given as credit is room again, and no byte more.
        let credit = Limits.relayWindow / 4
        #expect(end.consumed(credit) == .credit(credit))
        left = credit
        while left > 0 {
            let bytes = Array(piece.prefix(left))
            #expect(end.receive(.data(bytes)) == .bytes(bytes))
            left -= bytes.count
        }
        #expect(end.receive(.data([3])) == .closed(.violation) && end.isOver)
    }

    @Test("both ends keep to their windows, whatever is sent and read")
    func windows() {
        var random = Randomness.seeded(7)
        var ends = [RelayStreamStateMachine(), RelayStreamStateMachine()]
        var relay = RelayedStream()
        var total = RelayPace()
        var unread = [0, 0]
        var moved = 0
        for _ in 0..<20_000 {
            let side = Int.random(in: 0..<2, using: &random)
            let other = 1 - side
            let from: RelayedStream.Side = side == 0 ? .holder : .guest
            if Bool.random(using: &random) {
                let count = ends[side].take(Int.random(in: 0..<40_000, using: &random))
                if count > 0 {
                    let frame = RelayStreamFrame.data([UInt8](repeating: 1, count: count))
                    #expect(relay.receive(frame, from: from) == .forward)
                    guard case .bytes = ends[other].receive(frame) else {
                        Issue.record("within the window")
                        return
                    }
                    unread[other] += count
                    moved += count
                }
            } else {
                let count = Int.random(in: 0...unread[side], using: &random)
                unread[side] -= count
                if let frame = ends[side].consumed(count) {
                    #expect(relay.receive(frame, from: from) == .withhold)
                    let released = relay.release(
                        for: from.other,
                        rate: .max / 2,
                        total: &total,
                        totalRate: .max / 2,
                        now: start
                    )
                    guard case .now(let credit) = released else {
                        Issue.record("nothing to wait for")
                        return
                    }
                    #expect(ends[other].receive(.credit(credit)) == .credit)
                }
            }
            #expect(unread[0] <= Limits.relayWindow && unread[1] <= Limits.relayWindow)
        }
        #expect(moved > 100 * Limits.relayWindow)
    }
}

@Suite("Relay: our reservation")
struct RelayReservationTests {
    private let link = LinkID(1)
    private let other = LinkID(2)
    private let grant = RelayGrant(
        reservation: ReservationID(unchecked: [UInt8](repeating: 3, count: 16)),
        streamCount: 4,
        byteRate: 1_000
    )

    private enum State: CaseIterable { case unlinked, asked, reserved, refused }

    private func machine(_ state: State) -> RelayReservationStateMachine {
        var machine = RelayReservationStateMachine()
        guard state != .unlinked else { return machine }
        #expect(machine.opened(link, now: start) == [.ask(link)])
        switch state {
        case .unlinked, .asked: break
        case .reserved: #expect(machine.reserved(grant, on: link) == [.changed])
        case .refused: #expect(machine.refused(.full, on: link, now: start).isEmpty)
        }
        return machine
    }

    @Test("each event in each state")
    func cells() {
        for state in State.allCases {
            let isLinked = state != .unlinked
            var opened = machine(state)
            #expect(opened.opened(other, now: start) == [.ask(other)])
            #expect(opened.standing == .asking)
            #expect(opened.advertised == (state == .reserved ? grant.reservation : nil))

            var closed = machine(state)
            #expect(closed.closed(link, now: start).isEmpty)
            #expect(closed.standing == .unreachable)
            #expect(closed.advertised == (state == .reserved ? grant.reservation : nil))
            let standing = machine(state).standing
            closed = machine(state)
            #expect(closed.closed(other, now: start).isEmpty)
            #expect(closed.standing == standing, "another link than ours is gone")

            var reserved = machine(state)
            #expect(reserved.reserved(grant, on: link) == (isLinked && state != .reserved ? [.changed] : []))
            #expect(reserved.standing == (isLinked ? .reserved(grant) : .unreachable))
            #expect(reserved.isReserved(on: link) == isLinked)
            #expect(!reserved.isReserved(on: other))
            reserved = machine(state)
            #expect(reserved.reserved(grant, on: other).isEmpty)
            #expect(reserved.standing == standing)

            var refused = machine(state)
            #expect(refused.refused(.unknownPeer, on: link, now: start) == (state == .reserved ? [.changed] : []))
            #expect(refused.standing == (isLinked ? .refused(.unknownPeer) : .unreachable))
            #expect(refused.advertised == nil)
            refused = machine(state)
            #expect(refused.refused(.unknownPeer, on: other, now: start).isEmpty)
            #expect(refused.standing == standing)
        }
    }

    @Test("time: silence counts as a refusal, a refusal is asked about again, and a loss is advertised for a minute")
    func time() {
        var asked = machine(.asked)
        #expect(asked.nextDeadline == start + Limits.reservationPatience)
        #expect(asked.advance(now: start + Limits.reservationPatience).isEmpty)
        #expect(asked.standing == .refused(nil))
        let again = start + Limits.reservationPatience + Limits.reservationRetry
        #expect(asked.nextDeadline == again)
        #expect(asked.advance(now: again - 1).isEmpty)
        #expect(asked.advance(now: again) == [.ask(link)])
        #expect(asked.standing == .asking)

        var lost = machine(.reserved)
        #expect(lost.nextDeadline == nil)
        #expect(lost.closed(link, now: start).isEmpty)
        #expect(lost.nextDeadline == start + Limits.reservationGrace)
        #expect(lost.advance(now: start + Limits.reservationGrace - 1).isEmpty)
        #expect(lost.advertised == grant.reservation)
        var back = lost
        #expect(lost.advance(now: start + Limits.reservationGrace) == [.changed])
        #expect(lost.advertised == nil)
        // Back in time, it is the same: nobody is told of anything.
        #expect(back.opened(other, now: start + 10) == [.ask(other)])
        #expect(back.reserved(grant, on: other).isEmpty)
        #expect(back.advance(now: start + Limits.reservationGrace).isEmpty)
        #expect(back.advertised == grant.reservation)
        #expect(machine(.unlinked).nextDeadline == nil)
    }
}
