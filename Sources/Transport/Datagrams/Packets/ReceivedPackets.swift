/// Received packet numbers, and when to acknowledge them (RFC 9000, section 13.2).
///
///     nothing owed ──ack-eliciting packet──▶ owed by a deadline ──second packet, gap or disorder──▶ owed now
///     owed ──written()──▶ nothing owed
struct ReceivedPackets: Sendable {
    private let limits: DatagramLimits
    private var numbers = OffsetRanges()
    private var largestAt: Microseconds = 0
    /// Ack-eliciting packets not acknowledged yet.
    private var unacknowledged = 0
    private var owesNow = false
    /// When an acknowledgement must leave in a packet of its own.
    private(set) var deadline: Microseconds?

    init(limits: DatagramLimits) { self.limits = limits }

    /// Whether to send an acknowledgement even in a packet of its own.
    func isDue(at now: Microseconds) -> Bool { owesNow || deadline.map { $0 <= now } ?? false }
    /// Whether to add one to a packet that leaves anyway.
    var isOwed: Bool { unacknowledged > 0 }

    mutating func receive(_ number: UInt64, asks: Bool, at now: Microseconds) {
        let next = numbers.last?.upperBound ?? 0
        numbers.insert(number..<number + 1)
        // Dropping the oldest costs at most a retransmission.
        while numbers.count > limits.acknowledgedRanges { _ = numbers.removeFirst() }
        if number >= next { largestAt = now }
        guard asks else { return }
        unacknowledged += 1
        let isInOrder = number == next
        if unacknowledged >= limits.packetsPerAcknowledgement || !isInOrder { owesNow = true }
        if deadline == nil { deadline = now + limits.acknowledgementDelay }
    }

    mutating func written(at now: Microseconds) -> DatagramFrame.Acknowledgement {
        unacknowledged = 0
        owesNow = false
        deadline = nil
        let ranges = numbers.ranges.reversed().prefix(DatagramFrame.Acknowledgement.maximumRanges).map {
            $0.lowerBound...$0.upperBound - 1
        }
        return DatagramFrame.Acknowledgement(ranges: ranges, delay: UInt64(max(0, now - largestAt)))
    }

    /// The peer has our acknowledgement up to `number`: do not repeat it (RFC 9000, section 13.2.4).
    mutating func forget(through number: UInt64) {
        // Keep the largest, to detect reordering.
        guard let last = numbers.last else { return }
        numbers.removeAll(below: min(number, last.upperBound - 1))
    }
}
