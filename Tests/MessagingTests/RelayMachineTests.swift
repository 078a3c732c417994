import Messaging
import Testing

private let start = Timestamp(milliseconds: 1_795_247_146_000)

@Suite("Relay: a stream at the rendezvous node") struct RelayedStreamTests {
    private enum State: CaseIterable { case open, halfOpen, over }

    private func stream(_ state: State) -> RelayedStream {
        var stream = RelayedStream()
        // Both sides have sent, and neither has received credit for it.
        #expect(stream.receive(.data([1, 2, 3]), from: .guest) == .forward)
        #expect(stream.receive(.data([1, 2, 3]), from: .holder) == .forward)
        switch state {
        case .open: break
        case .halfOpen: #expect(stream.receive(.end, from: .guest) == .forward)
        case .over: #expect(stream.receive(.close(.closed), from: .guest) == .forwardLast)
        }
        return stream
    }

    /// The result of a frame in each state; in `halfOpen` the guest has ended.
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
            (.over, .guest, .data([1]), .drop), (.over, .holder, .data([1]), .drop), (.over, .guest, .credit(1), .drop),
            (.over, .holder, .credit(1), .drop), (.over, .guest, .end, .drop), (.over, .holder, .end, .drop),
            (.over, .guest, .close(.closed), .drop), (.over, .holder, .close(.closed), .drop),
        ]

    @Test func `each frame in each state`() {
        for cell in Self.cells {
            var stream = stream(cell.state)
            let wasOver = stream.isOver
            #expect(stream.receive(cell.frame, from: cell.side) == cell.outcome, "\(cell)")
            let ends = cell.outcome == .violation || cell.outcome == .forwardLast
            #expect(stream.isOver == (wasOver || ends), "\(cell)")
        }
    }

    @Test func `at most one window is in flight, and withheld credit is not yet the sender's`() {
        var stream = RelayedStream()
        let piece = [UInt8](repeating: 7, count: Limits.relayPieceByteCount)
        func refuses(_ bytes: [UInt8], of stream: RelayedStream) -> Bool {
            var copy = stream
            return copy.receive(.data(bytes), from: .guest) == .violation
        }
        #expect(refuses(piece + [1], of: stream))
        for _ in 0..<(Limits.relayWindow / Limits.relayPieceByteCount) {
            #expect(stream.receive(.data(piece), from: .guest) == .forward)
        }
        #expect(refuses([1], of: stream))
        #expect(stream.receive(.credit(10), from: .holder) == .withhold && refuses([1], of: stream))
        var total = RelayPace()
        let released = stream.release(for: .guest, rate: 1_000, total: &total, totalRate: 1_000, now: start)
        #expect(released == .now(10) && refuses(Array(piece.prefix(11)), of: stream))
        #expect(stream.receive(.data(Array(piece.prefix(10))), from: .guest) == .forward)
    }

    @Test func `credit is granted at the rate of the stream and of all streams`() throws {
        for rates in [(10_000, 1_000_000), (1_000_000, 10_000)] {
            var (stream, total, now, passed) = (RelayedStream(), RelayPace(), start, 0)
            while now - start < 10 * .second {
                #expect(stream.receive(.data([UInt8](repeating: 0, count: 1_000)), from: .holder) == .forward)
                #expect(stream.receive(.credit(1_000), from: .guest) == .withhold)
                var release: RelayedStream.Release
                repeat {
                    release = stream.release(for: .holder, rate: rates.0, total: &total, totalRate: rates.1, now: now)
                    guard case .later(let time) = release else { break }
                    #expect(time > now)
                    now = time
                } while true
                try #require(release == .now(1_000))
                passed += 1_000
            }
            #expect((99_000...102_000).contains(passed), "\(passed) bytes in 10 s at 10,000 a second")
        }
    }
}

@Suite("Relay: one end of a stream") struct RelayStreamEndTests {
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

    @Test func `each event in each state`() {
        let arrivals: [State: [(RelayStreamFrame, RelayStreamStateMachine.Arrival, isOver: Bool)]] = [
            .open: [
                (.data([9]), .bytes([9]), false), (.credit(5), .credit, false), (.credit(6), .closed(.violation), true),
                (.credit(0), .closed(.violation), true), (.data([]), .closed(.violation), true), (.end, .ended, false),
                (.close(.idle), .closed(.idle), true),
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

    @Test func `a byte beyond the window ends the stream, even if some was read without credit`() {
        let piece = [UInt8](repeating: 3, count: Limits.relayPieceByteCount)
        func isEnded(_ end: RelayStreamStateMachine, by bytes: [UInt8]) -> Bool {
            var end = end
            return end.receive(.data(bytes)) == .closed(.violation) && end.isOver
        }
        func fill(_ end: inout RelayStreamStateMachine, _ count: Int) {
            for sent in stride(from: 0, to: count, by: piece.count) {
                let bytes = Array(piece.prefix(count - sent))
                #expect(end.receive(.data(bytes)) == .bytes(bytes))
            }
            #expect(isEnded(end, by: [3]))
        }
        var end = RelayStreamStateMachine()
        #expect(isEnded(end, by: piece + [3]))
        fill(&end, Limits.relayWindow)
        var barelyRead = end
        #expect(barelyRead.consumed(1) == nil && isEnded(barelyRead, by: [3]))
        // Credit frees exactly its own bytes.
        let credit = Limits.relayWindow / 4
        #expect(end.consumed(credit) == .credit(credit))
        fill(&end, credit)
    }

    @Test func `both ends keep to their windows for any sends and reads`() {
        var random = Randomness.seeded(7)
        var ends = [RelayStreamStateMachine(), RelayStreamStateMachine()]
        var (relay, total) = (RelayedStream(), RelayPace())
        var (unread, moved) = ([0, 0], 0)
        for _ in 0..<20_000 {
            let side = Int.random(in: 0..<2, using: &random)
            let other = 1 - side
            let from: RelayedStream.Side = side == 0 ? .holder : .guest
            if Bool.random(using: &random) {
                let count = ends[side].take(Int.random(in: 0..<40_000, using: &random))
                guard count > 0 else { continue }
                let bytes = [UInt8](repeating: 1, count: count)
                #expect(relay.receive(.data(bytes), from: from) == .forward)
                #expect(ends[other].receive(.data(bytes)) == .bytes(bytes))
                unread[other] += count
                moved += count
            } else {
                let count = Int.random(in: 0...unread[side], using: &random)
                unread[side] -= count
                guard let frame = ends[side].consumed(count), case .credit(let credit) = frame else { continue }
                #expect(relay.receive(frame, from: from) == .withhold)
                let most = Int.max / 2
                let released = relay.release(for: from.other, rate: most, total: &total, totalRate: most, now: start)
                #expect(released == .now(credit) && ends[other].receive(.credit(credit)) == .credit)
            }
            #expect(unread[0] <= Limits.relayWindow && unread[1] <= Limits.relayWindow)
        }
        #expect(moved > 100 * Limits.relayWindow)
    }
}

extension NodeAction {
    fileprivate static let changed = NodeAction.endpointsMayHaveChanged
    fileprivate static func ask(_ link: LinkID, _ labels: [RelayLabel]) -> NodeAction {
        .forward(link, .relayRequest(.reserve(labels)))
    }
    fileprivate static func withdraw(_ link: LinkID, _ labels: [RelayLabel]) -> NodeAction {
        .forward(link, .relayRequest(.withdraw(labels)))
    }
}

@Suite("Relay: our reservation") struct RelayReservationTests {
    private let link = LinkID(1)
    private let other = LinkID(2)
    private let grant = RelayGrant(reservationCount: 3, streamsPerReservation: 4, streamCount: 4, byteRate: 1_000)

    private static func label(_ number: Int) -> RelayLabel { numbered(number) }

    private let labels = [label(1), label(2)]

    private enum State: CaseIterable { case unlinked, asked, reserved, refused, silent }

    private func machine(_ state: State) -> RelayReservationStateMachine {
        var machine = RelayReservationStateMachine(now: start)
        #expect(machine.want(labels).isEmpty)
        guard state != .unlinked else { return machine }
        #expect(machine.opened(link, now: start) == [.ask(link, labels)])
        switch state {
        case .unlinked, .asked: break
        case .reserved: #expect(machine.reserved(grant, on: link) == [.changed])
        case .refused: #expect(machine.refused(.full, on: link, now: start).isEmpty)
        case .silent: #expect(machine.advance(now: start + Limits.reservationPatience).isEmpty)
        }
        return machine
    }

    @Test func `each event in each state`() {
        for state in State.allCases {
            let isLinked = state != .unlinked
            var opened = machine(state)
            #expect(opened.opened(other, now: start) == [.ask(other, labels)] && opened.standing == .asking)
            #expect(opened.advertised == (state == .reserved ? grant : nil))

            var closed = machine(state)
            #expect(closed.closed(link, now: start).isEmpty && closed.standing == .unreachable)
            #expect(closed.advertised == (state == .reserved ? grant : nil))
            let standing = machine(state).standing
            closed = machine(state)
            #expect(closed.closed(other, now: start).isEmpty)
            #expect(closed.standing == standing, "another link than ours is gone")

            var reserved = machine(state)
            let takes = state == .asked || state == .silent
            #expect(reserved.reserved(grant, on: link) == (takes ? [.changed] : []))
            #expect(reserved.standing == (takes ? .reserved(grant) : standing))
            #expect(reserved.isReserved(on: link) == (takes || state == .reserved) && !reserved.isReserved(on: other))
            reserved = machine(state)
            #expect(reserved.reserved(grant, on: other).isEmpty && reserved.standing == standing)

            var refused = machine(state)
            #expect(refused.refused(.unknownPeer, on: link, now: start) == (state == .reserved ? [.changed] : []))
            #expect(refused.standing == (isLinked ? .refused(.unknownPeer) : .unreachable) && refused.advertised == nil)
            refused = machine(state)
            #expect(refused.refused(.unknownPeer, on: other, now: start).isEmpty && refused.standing == standing)

            var wanting = machine(state)
            let changed = [labels[1], Self.label(3)]
            #expect(
                wanting.want(changed)
                    == (state == .reserved ? [.withdraw(link, [labels[0]]), .ask(link, [Self.label(3)])] : []))
            #expect(wanting.standing == standing)
            #expect(Array(wanting.advertisedLabels) == (state == .reserved ? changed : []))
            #expect(wanting.opened(other, now: start) == [.ask(other, changed)])
        }
    }

    @Test(
        "time: silence counts as a refusal, a refused request is repeated, a lost place is advertised for ten minutes")
    func time() {
        var asked = machine(.asked)
        #expect(asked.nextDeadline == start + Limits.reservationPatience)
        #expect(asked.advance(now: start + Limits.reservationPatience).isEmpty && asked.standing == .refused(nil))
        let again = start + Limits.reservationPatience + Limits.reservationRetry
        #expect(asked.nextDeadline == again && asked.advance(now: again - 1).isEmpty)
        #expect(asked.advance(now: again) == [.ask(link, labels)] && asked.standing == .asking)

        var lost = machine(.reserved)
        #expect(lost.nextDeadline == nil && lost.closed(link, now: start).isEmpty)
        #expect(lost.nextDeadline == start + Limits.reservationGrace)
        #expect(lost.advance(now: start + Limits.reservationGrace - 1).isEmpty && lost.advertised == grant)
        var back = lost
        #expect(lost.advance(now: start + Limits.reservationGrace) == [.changed])
        #expect(lost.advertised == nil && lost.advertisedLabels.isEmpty)
        // Back in time, nothing has changed and no member is told.
        #expect(back.opened(other, now: start + 10) == [.ask(other, labels)] && back.reserved(grant, on: other).isEmpty)
        #expect(back.advance(now: start + Limits.reservationGrace).isEmpty && back.advertised == grant)
        #expect(machine(.unlinked).nextDeadline == nil)
    }

    @Test func `after a restart a granted place is advertised until the node says otherwise`() {
        var machine = RelayReservationStateMachine(remembered: grant, now: start)
        #expect(machine.want(labels).isEmpty)
        #expect(Array(machine.advertisedLabels) == labels && machine.standing == .unreachable)
        var silent = machine
        #expect(silent.nextDeadline == start + Limits.reservationGrace)
        #expect(silent.advance(now: start + Limits.reservationGrace) == [.changed])
        #expect(machine.opened(link, now: start) == [.ask(link, labels)])
        #expect(machine.reserved(grant, on: link).isEmpty, "nobody is told of anything")
        #expect(machine.nextDeadline == nil && machine.refused(.notServing, on: link, now: start) == [.changed])
    }

    @Test func `the first wanted places are reserved, up to the granted number; an inbox with a place keeps it`() {
        var machine = RelayReservationStateMachine(now: start)
        let all = (1...5).map(Self.label)
        #expect(machine.want(all).isEmpty && machine.isFull && machine.opened(link, now: start) == [.ask(link, all)])
        #expect(machine.reserved(grant, on: link) == [.changed])
        #expect(Array(machine.advertisedLabels) == Array(all[0..<3]) && machine.isFull)
        // One inbox goes, the next takes its place, and its members are told.
        let fewer = [all[4], all[3], all[2], all[0]]
        #expect(machine.want(fewer) == [.withdraw(link, [all[1]]), .ask(link, [all[3]]), .changed])
        #expect(Array(machine.advertisedLabels) == [all[0], all[2], all[3]])
        #expect(machine.want([all[0]]) == [.withdraw(link, [all[2], all[3]]), .changed] && !machine.isFull)
        // With room to spare the inbox has already announced its place.
        #expect(machine.want([all[0], all[1]]) == [.ask(link, [all[1]])])
        var none = self.machine(.asked)
        let nothing = RelayGrant(reservationCount: 0, streamsPerReservation: 0, streamCount: 0, byteRate: 0)
        #expect(none.reserved(nothing, on: link) == [.changed] && none.advertisedLabels.isEmpty)
        #expect(none.want(all).isEmpty)
    }

    @Test func `labels that do not fit into one request follow once the granted number is known`() {
        var machine = RelayReservationStateMachine(now: start)
        let all = (1...700).map(Self.label)
        _ = machine.want(all)
        let first = Array(all[0..<Limits.relayLabelCount])
        #expect(machine.opened(link, now: start) == [.ask(link, first)])
        let wide = RelayGrant(reservationCount: 600, streamsPerReservation: 1, streamCount: 1, byteRate: 1)
        #expect(
            machine.reserved(wide, on: link) == [
                .ask(link, Array(all[256..<512])), .ask(link, Array(all[512..<600])), .changed,
            ])
        #expect(
            machine.want([]) == [
                .withdraw(link, Array(all[0..<256])), .withdraw(link, Array(all[256..<512])),
                .withdraw(link, Array(all[512..<600])), .changed,
            ])
    }
}

@Suite("Relay: generations of a place") struct RelayGenerationTests {
    @Test("when a member is gone the next place is used, and the earlier one kept until all know or a day has passed")
    func change() {
        var relay = RelayGenerations()
        #expect(relay.current == 0 && relay.nextDeadline(named: []) == nil)
        relay.memberGone(now: start)
        #expect(relay.current == 1 && relay.retired.map(\.generation) == [0])
        #expect(relay.nextDeadline(named: []) == start + Limits.relayRetirement)
        var told = relay
        #expect(told.prune(isTold: true, named: [], now: start) && told.retired.isEmpty)
        let isLess = relay.prune(isTold: false, named: [], now: start + Limits.relayRetirement - 1)
        #expect(!isLess)
        // An invite that names a place keeps it longer.
        let isKept = !relay.prune(isTold: true, named: [0], now: start + Limits.relayRetirement)
        #expect(isKept && relay.nextDeadline(named: [0]) == nil)
        let isOver = relay.prune(isTold: false, named: [1], now: start + Limits.relayRetirement)
        #expect(isOver && relay.retired.isEmpty)
    }

    @Test("many removals at once make one change now and one a little later, and the number of places is bounded")
    func hasty() {
        var relay = RelayGenerations()
        for _ in 0..<30 { relay.memberGone(now: start) }
        #expect(relay.current == 1 && relay.dueAt == start + Limits.relayChangeInterval)
        let isEarly = relay.advance(now: start + Limits.relayChangeInterval - 1)
        #expect(!isEarly && relay.current == 1)
        let isDue = relay.advance(now: start + Limits.relayChangeInterval)
        #expect(isDue && relay.current == 2 && relay.dueAt == nil)
        // A clock that was set back delays nothing.
        relay.memberGone(now: start - .hour)
        #expect(relay.current == 3)
        for number in 0..<40 { relay.memberGone(now: start + Milliseconds(number) * .hour) }
        #expect(relay.retired.count == Limits.relayRetiredCount)
    }
}
