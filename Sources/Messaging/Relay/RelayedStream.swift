/// One stream as the rendezvous node sees it: each side's credit and rate.
///
///     open ──one side ends──▶ halfOpen ──the other ends──▶ over
///     open, halfOpen ──either side closes or violates the protocol──▶ over
///
/// The node forwards bytes at once. It limits the rate by delaying the receiver's credit, so it holds at most one
/// window of a direction for a receiver that does not read.
package struct RelayedStream: Hashable, Sendable {
    /// The two ends: `holder` has the reservation, `guest` opened the stream to it.
    package enum Side: Hashable, Sendable, CaseIterable {
        case holder, guest

        package var other: Side { self == .holder ? .guest : .holder }
    }

    package enum Outcome: Hashable, Sendable {
        case forward
        /// The credit is deferred; `release(for:rate:total:totalRate:now:)` grants it.
        case withhold
        /// Forward; nothing follows in either direction.
        case forwardLast
        case drop
        /// A protocol violation: the stream ends.
        case violation
    }

    private struct Direction: Hashable, Sendable {
        /// Bytes that the sender may still send.
        var credit = Limits.relayWindow
        /// Credit from the receiver that the sender has not been granted yet.
        var withheld = 0
        var pace = RelayPace()
    }

    private enum State: Hashable, Sendable {
        case open(holder: Direction, guest: Direction)
        /// One side has ended; the other still sends.
        case halfOpen(sender: Side, Direction)
        case over
    }

    private var state = State.open(holder: Direction(), guest: Direction())

    package init() {}

    package var isOver: Bool { state == .over }

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
            // Credit for bytes sent before the end is dropped.
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

    /// Changes the direction in which `sender` sends; `drop` if it has ended.
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

    /// Deferred credit that may be granted to `sender` now.
    /// - Parameters:
    ///   - rate: of this direction, in bytes a second.
    ///   - total: shared by all streams.
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

    package enum Release: Hashable, Sendable {
        case nothing
        case now(Int)
        case later(Timestamp)
    }
}

package struct RelayPace: Hashable, Sendable {
    /// When the bytes forwarded so far would have been sent at the rate.
    private var paidUntil = Timestamp(milliseconds: 0)
    /// Rounding remainder of a millisecond, in bytes · 1,000 modulo the rate.
    private var rest = 0

    package init() {}

    package var due: Timestamp { paidUntil - Limits.relayBurst }

    /// - Parameter rate: bytes a second, at least 1.
    package mutating func pay(_ byteCount: Int, rate: Int, now: Timestamp) {
        // At most a window and a second's remainder: no overflow.
        let cost = byteCount * 1_000 + rest
        rest = cost % max(1, rate)
        paidUntil = max(paidUntil, now) + Milliseconds(cost / max(1, rate))
    }
}
