/// One end of a relayed stream (Relay.md, "A and B: the ends of a stream").
package struct RelayStreamStateMachine: Hashable, Sendable {
    package enum Arrival: Hashable, Sendable {
        /// To be delivered; call ``consumed(_:)`` afterwards.
        case bytes([UInt8])
        case credit
        case ended
        case closed(RelayCloseReason)
        /// To be ignored.
        case nothing
    }

    private var hasEnded = false
    private var peerHasEnded = false
    package private(set) var isOver = false
    private var credit = Limits.relayWindow
    /// Bytes received and not consumed.
    private var unread = 0
    /// Bytes consumed and not yet granted as new credit.
    private var owed = 0

    package init() {}

    package var sends: Bool { !isOver && !hasEnded }

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
        guard sends else { return nil }
        (hasEnded, isOver) = (true, peerHasEnded)
        return .end
    }

    /// - Returns: the frame to send; `nil` if the stream is over.
    package mutating func close(_ reason: RelayCloseReason = .closed) -> RelayStreamFrame? {
        guard !isOver else { return nil }
        isOver = true
        return .close(reason)
    }

    package mutating func receive(_ frame: RelayStreamFrame) -> Arrival {
        guard !isOver else { return .nothing }
        switch frame {
        case .close(let reason):
            isOver = true
            return .closed(reason)
        case .data(let bytes):
            guard !peerHasEnded, (1...Limits.relayPieceByteCount).contains(bytes.count),
                bytes.count <= Limits.relayWindow - unread - owed
            else { return violation() }
            unread += bytes.count
            return .bytes(bytes)
        case .credit(let count):
            // Credit for bytes sent before our end.
            if hasEnded { return .nothing }
            guard count >= 1, count <= Limits.relayWindow - credit else { return violation() }
            credit += count
            return .credit
        case .end:
            guard !peerHasEnded else { return violation() }
            (peerHasEnded, isOver) = (true, hasEnded)
            return .ended
        }
    }

    private mutating func violation() -> Arrival {
        isOver = true
        return .closed(.violation)
    }

    /// - Returns: credit to grant, at least a quarter of the window, so that it is not sent for each byte.
    package mutating func consumed(_ count: Int) -> RelayStreamFrame? {
        let taken = max(0, min(count, unread))
        unread -= taken
        owed += taken
        guard !isOver, !peerHasEnded, owed >= Limits.relayWindow / 4 else { return nil }
        defer { owed = 0 }
        return .credit(owed)
    }
}
