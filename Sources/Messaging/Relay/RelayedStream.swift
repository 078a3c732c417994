/// One stream as the rendezvous node sees it: what each side may still send, and at what rate.
///
///     open ──one side ends──▶ halfOpen ──the other ends──▶ over
///     open, halfOpen ──either side closes or sends what it may not──▶ over
///
/// Bytes are passed on as they come. The rate is kept by passing on the receiver's credit late: so the sender waits, and
/// never more than a window of one direction is held for a receiver that does not read.
package struct RelayedStream: Hashable, Sendable {
    /// The two ends: who has the reservation, and who named it.
    package enum Side: Hashable, Sendable, CaseIterable {
        case holder, guest

        package var other: Side { self == .holder ? .guest : .holder }
    }

    /// What becomes of a frame.
    package enum Outcome: Hashable, Sendable {
        case forward
        /// Credit, which `release(for:rate:total:now:)` hands out.
        case withhold
        /// Passed on, and nothing follows in either direction.
        case forwardLast
        case drop
        /// Against the protocol: the stream ends.
        case violation
    }

    /// The bytes that one side sends.
    private struct Direction: Hashable, Sendable {
        /// How many may still come.
        var credit = Limits.relayWindow
        /// How many the receiver has taken without the sender having been told.
        var withheld = 0
        /// As far as its rate goes.
        var pace = RelayPace()
    }

    private enum State: Hashable, Sendable {
        /// Entered when it is opened. Goes to `halfOpen` and to `over`.
        case open(holder: Direction, guest: Direction)
        /// One side has ended; the other still sends. Goes to `over`.
        case halfOpen(sender: Side, Direction)
        case over
    }

    private var state = State.open(holder: Direction(), guest: Direction())

    package init() {}

    package var isOver: Bool { state == .over }

    /// A frame has come from one side.
    package mutating func receive(_ frame: RelayStreamFrame, from side: Side) -> Outcome {
        let outcome = outcome(of: frame, from: side)
        if outcome == .violation || outcome == .forwardLast { state = .over }
        return outcome
    }

    private mutating func outcome(of frame: RelayStreamFrame, from side: Side) -> Outcome {
        switch (state, frame) {
        case (.over, .data), (.over, .credit), (.over, .end), (.over, .close): return .drop
        case (.open, .close), (.halfOpen, .close): return .forwardLast
        case (.open(let holder, let guest), .end):
            state = .halfOpen(sender: side.other, side == .holder ? guest : holder)
            return .forward
        case (.halfOpen(let sender, _), .end): return sender == side ? .forwardLast : .violation
        case (.open, .data(let bytes)): return change(side) { Self.take(bytes.count, from: &$0) }
        case (.halfOpen(let sender, _), .data(let bytes)):
            return sender == side ? change(side) { Self.take(bytes.count, from: &$0) } : .violation
        case (.open, .credit(let count)): return change(side.other) { Self.withhold(count, in: &$0) }
        case (.halfOpen(let sender, _), .credit(let count)):
            // Of bytes that came before the end.
            return sender == side ? .drop : change(sender) { Self.withhold(count, in: &$0) }
        }
    }

    private static func take(_ count: Int, from direction: inout Direction) -> Outcome {
        guard (1...Limits.relayPieceByteCount).contains(count), count <= direction.credit else { return .violation }
        direction.credit -= count
        return .forward
    }

    private static func withhold(_ count: Int, in direction: inout Direction) -> Outcome {
        let outstanding = Limits.relayWindow - direction.credit - direction.withheld
        guard count >= 1, count <= outstanding else { return .violation }
        direction.withheld += count
        return .withhold
    }

    /// Changes what `sender` may send; `drop` if it has ended.
    private mutating func change(_ sender: Side, _ body: (inout Direction) -> Outcome) -> Outcome {
        switch state {
        case .open(var holder, var guest):
            let outcome = sender == .holder ? body(&holder) : body(&guest)
            state = .open(holder: holder, guest: guest)
            return outcome
        case .halfOpen(sender, var direction):
            let outcome = body(&direction)
            state = .halfOpen(sender: sender, direction)
            return outcome
        case .halfOpen, .over: return .drop
        }
    }

    /// What `sender` may be told now of the credit that is withheld from it.
    /// - Parameters:
    ///   - rate: of this direction, in bytes a second.
    ///   - total: of all streams.
    /// - Returns: how many bytes, and `nil` if none; or when to ask again.
    package mutating func release(for sender: Side, rate: Int, total: inout RelayPace, totalRate: Int, now: Timestamp)
        -> Release
    {
        var result = Release.nothing
        _ = change(sender) { direction in
            guard direction.withheld > 0 else { return .drop }
            let due = max(direction.pace.due, total.due)
            guard due <= now else {
                result = .later(due)
                return .drop
            }
            result = .now(direction.withheld)
            direction.pace.pay(direction.withheld, rate: rate, now: now)
            total.pay(direction.withheld, rate: totalRate, now: now)
            direction.credit += direction.withheld
            direction.withheld = 0
            return .forward
        }
        return result
    }

    /// What ``release(for:rate:total:totalRate:now:)`` has come to.
    package enum Release: Hashable, Sendable {
        case nothing
        case now(Int)
        case later(Timestamp)
    }
}

/// How far ahead of its rate a flow of bytes is.
package struct RelayPace: Hashable, Sendable {
    /// When what was let through would have gone at the rate.
    private var paidUntil = Timestamp(milliseconds: 0)
    /// Of a millisecond, what rounding has left, in bytes · 1,000 modulo the rate.
    private var rest = 0

    package init() {}

    /// When more may be let through.
    package var due: Timestamp { paidUntil - Limits.relayBurst }

    /// - Parameter rate: bytes a second, at least 1.
    package mutating func pay(_ byteCount: Int, rate: Int, now: Timestamp) {
        // At most a window and a second of rest: no overflow.
        let cost = byteCount * 1_000 + rest
        rest = cost % max(1, rate)
        paidUntil = max(paidUntil, now) + Milliseconds(cost / max(1, rate))
    }
}
