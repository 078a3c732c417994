/// One end of a relayed stream: what may be sent, what the other end may send, and how it ends.
///
///     open ──we end──▶ endedHere ──they end──▶ over
///     open ──they end──▶ endedThere ──we end──▶ over
///     every state ──either side closes, or sends what it may not──▶ over
package struct RelayStreamStateMachine: Hashable, Sendable {
    private enum State: Hashable, Sendable {
        /// Entered when it is made: both ends have their whole window. Goes to the other three.
        case open
        /// We send no more. Goes to `over`.
        case endedHere
        /// They send no more. Goes to `over`.
        case endedThere
        case over
    }

    /// What a frame of the other end comes to.
    package enum Arrival: Hashable, Sendable {
        /// To be handed on; ``consumed(_:)`` when that is done.
        case bytes([UInt8])
        /// More may be sent.
        case credit
        /// Nothing more comes.
        case ended
        /// It is over in both directions.
        case closed(RelayCloseReason)
        /// Nothing of ours any more.
        case nothing
    }

    private var state = State.open
    /// Bytes that we may send.
    private var credit = Limits.relayWindow
    /// Bytes that have come and were not consumed.
    private var unread = 0
    /// Bytes that were consumed and that the other end has no new credit for.
    private var owed = 0

    package init() {}

    package var isOver: Bool { state == .over }
    /// Whether bytes are still ours to send.
    package var sends: Bool { state == .open || state == .endedThere }

    /// How many bytes may go in one piece now.
    /// - Parameter available: how many there are.
    package func room(for available: Int) -> Int {
        sends ? max(0, min(available, credit, Limits.relayPieceByteCount)) : 0
    }

    /// Takes them.
    /// - Returns: 0 for none.
    package mutating func take(_ available: Int) -> Int {
        let count = room(for: available)
        credit -= count
        return count
    }

    /// All of ours is sent.
    /// - Returns: what to say; `nil` if it was said before.
    package mutating func end() -> RelayStreamFrame? {
        switch state {
        case .open:
            state = .endedHere
            return .end
        case .endedThere:
            state = .over
            return .end
        case .endedHere, .over: return nil
        }
    }

    /// Ends both directions.
    /// - Returns: what to say; `nil` if it is over.
    package mutating func close(_ reason: RelayCloseReason = .closed) -> RelayStreamFrame? {
        guard state != .over else { return nil }
        state = .over
        return .close(reason)
    }

    package mutating func receive(_ frame: RelayStreamFrame) -> Arrival {
        switch (state, frame) {
        case (.over, .data), (.over, .credit), (.over, .end), (.over, .close): return .nothing
        case (.open, .close(let reason)), (.endedHere, .close(let reason)), (.endedThere, .close(let reason)):
            state = .over
            return .closed(reason)
        case (.open, .data(let bytes)), (.endedHere, .data(let bytes)):
            guard (1...Limits.relayPieceByteCount).contains(bytes.count),
                bytes.count <= Limits.relayWindow - unread - owed
            else { return violation() }
            unread += bytes.count
            return .bytes(bytes)
        case (.endedThere, .data): return violation()
        case (.open, .credit(let count)), (.endedThere, .credit(let count)):
            guard count >= 1, count <= Limits.relayWindow - credit else { return violation() }
            credit += count
            return .credit
        // For what was sent before our end.
        case (.endedHere, .credit): return .nothing
        case (.open, .end):
            state = .endedThere
            return .ended
        case (.endedHere, .end):
            state = .over
            return .ended
        case (.endedThere, .end): return violation()
        }
    }

    private mutating func violation() -> Arrival {
        state = .over
        return .closed(.violation)
    }

    /// Bytes have been handed on.
    /// - Returns: credit to be given; in pieces of a quarter of the window, so that it is not said for each byte.
    package mutating func consumed(_ count: Int) -> RelayStreamFrame? {
        let taken = max(0, min(count, unread))
        unread -= taken
        owed += taken
        guard state == .open || state == .endedHere, owed >= Limits.relayWindow / 4 else { return nil }
        defer { owed = 0 }
        return .credit(owed)
    }
}
