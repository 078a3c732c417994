/// One stream as the rendezvous node sees it: each side's credit and rate.
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

    /// By sender.
    private var (holder, guest) = (Direction(), Direction())
    /// It sends no more.
    private var ended: Side?
    package private(set) var isOver = false

    package init() {}

    private subscript(sender: Side) -> Direction {
        get { sender == .holder ? holder : guest }
        set { if sender == .holder { holder = newValue } else { guest = newValue } }
    }

    package mutating func receive(_ frame: RelayStreamFrame, from side: Side) -> Outcome {
        guard !isOver else { return .drop }
        let outcome = outcome(of: frame, from: side)
        isOver = outcome == .violation || outcome == .forwardLast
        return outcome
    }

    private mutating func outcome(of frame: RelayStreamFrame, from side: Side) -> Outcome {
        switch frame {
        case .close: return .forwardLast
        case .end:
            if let ended { return ended == side ? .violation : .forwardLast }
            ended = side
            return .forward
        case .data(let bytes):
            guard ended != side, (1...Limits.relayPieceByteCount).contains(bytes.count),
                bytes.count <= self[side].credit
            else { return .violation }
            self[side].credit -= bytes.count
            return .forward
        case .credit(let count):
            // Credit for bytes sent before the end is dropped.
            guard ended != side.other else { return .drop }
            let outstanding = Limits.relayWindow - self[side.other].credit - self[side.other].withheld
            guard count >= 1, count <= outstanding else { return .violation }
            self[side.other].withheld += count
            return .withhold
        }
    }

    /// Deferred credit that may be granted to `sender` now.
    /// - Parameters:
    ///   - rate: of this direction, in bytes a second.
    ///   - total: shared by all streams.
    package mutating func release(for sender: Side, rate: Int, total: inout RelayPace, totalRate: Int, now: Timestamp)
        -> Release
    {
        let direction = self[sender]
        guard !isOver, ended != sender, direction.withheld > 0 else { return .nothing }
        let due = max(direction.pace.due, total.due)
        guard due <= now else { return .later(due) }
        total.pay(direction.withheld, rate: totalRate, now: now)
        self[sender].pace.pay(direction.withheld, rate: rate, now: now)
        self[sender].credit += direction.withheld
        self[sender].withheld = 0
        return .now(direction.withheld)
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
