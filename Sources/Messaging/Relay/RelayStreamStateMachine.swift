/// One end of a relayed stream.
///
///     open ──we end──▶ endedHere ──they end──▶ over
///     open ──they end──▶ endedThere ──we end──▶ over
///     every state ──either side closes, or violates the protocol──▶ over
package struct RelayStreamStateMachine: Hashable, Sendable {
    private enum State: Hashable, Sendable {
        case open
        /// We send no more.
        case endedHere
        /// The other end sends no more.
        case endedThere
        case over
    }

    package enum Arrival: Hashable, Sendable {
        /// To be delivered; call ``consumed(_:)`` afterwards.
        case bytes([UInt8])
        case credit
        case ended
        case closed(RelayCloseReason)
        /// To be ignored.
        case nothing
    }

    private var state = State.open
    /// Bytes that we may send.
    private var credit = Limits.relayWindow
    /// Bytes received and not consumed.
    private var unread = 0
    /// Bytes consumed and not yet granted as new credit.
    private var owed = 0

    package init() {}

    package var isOver: Bool { state == .over }
    package var sends: Bool { state == .open || state == .endedThere }

    /// Size of the next piece.
    /// - Parameter available: bytes to send.
    package func room(for available: Int) -> Int {
        sends ? max(0, min(available, credit, Limits.relayPieceByteCount)) : 0
    }

    /// - Returns: the size of the next piece; 0 for none.
    package mutating func take(_ available: Int) -> Int {
        let count = room(for: available)
        credit -= count
        return count
    }

    /// - Returns: the frame to send; `nil` if it was sent before.
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

    /// - Returns: the frame to send; `nil` if the stream is over.
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
        // Credit for bytes sent before our end.
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

    /// - Returns: credit to grant, at least a quarter of the window, so that it is not sent for each byte.
    package mutating func consumed(_ count: Int) -> RelayStreamFrame? {
        let taken = max(0, min(count, unread))
        unread -= taken
        owed += taken
        guard state == .open || state == .endedHere, owed >= Limits.relayWindow / 4 else { return nil }
        defer { owed = 0 }
        return .credit(owed)
    }
}
