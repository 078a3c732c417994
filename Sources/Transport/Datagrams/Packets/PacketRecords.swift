import Cryptography
import DequeModule

/// The contents of an ack-eliciting packet, to retransmit if it is lost.
struct SentPacket: Sendable {
    var number: UInt64
    var sentAt: Microseconds
    var byteCount = 0
    /// The packet's fate says nothing about other paths.
    var path: UInt32
    var piece: StreamPiece?
    var carriesCredit = false
    /// The largest number that it acknowledged.
    var acknowledges: UInt64?
    /// The delivery state at its departure.
    var delivery = PacketDelivery()
    /// A size probe: its loss is not congestion (RFC 8899, section 3).
    var isSizeProbe = false
    var isOutstanding = true
}

/// Packets in flight and loss detection (RFC 9002, section 6).
struct SentPackets {
    static let packetThreshold: UInt64 = 3

    private var packets: Deque<SentPacket> = []
    private(set) var largestAcknowledged: UInt64?
    /// When the oldest packet before the largest acknowledged one counts as lost.
    private(set) var lossTime: Microseconds?
    /// When the last ack-eliciting packet left.
    private(set) var lastSentAt: Microseconds = 0
    var timeouts = 0
    private(set) var outstanding = 0

    var isEmpty: Bool { outstanding == 0 }

    mutating func sent(_ packet: SentPacket) {
        packets.append(packet)
        outstanding += 1
        lastSentAt = packet.sentAt
    }

    /// - Parameters:
    ///   - ranges: newest first; all numbers were sent.
    ///   - acknowledged: receives the packets, oldest first.
    mutating func acknowledge(_ ranges: [ClosedRange<UInt64>], _ acknowledged: inout [SentPacket]) {
        guard let largest = ranges.first?.upperBound else { return }
        largestAcknowledged = max(largestAcknowledged ?? 0, largest)
        for range in ranges.reversed() {
            var index = packets.partitioningIndex { $0.number >= range.lowerBound }
            while index < packets.count, packets[index].number <= range.upperBound {
                if packets[index].isOutstanding {
                    packets[index].isOutstanding = false
                    outstanding -= 1
                    acknowledged.append(packets[index])
                }
                index += 1
            }
        }
        trim()
    }

    /// Removes lost packets, and sets ``lossTime``.
    mutating func detectLost(_ roundTrip: RoundTripTime, at now: Microseconds, _ lost: inout [SentPacket]) {
        lossTime = nil
        guard let largestAcknowledged else { return }
        let delay = roundTrip.lossDelay
        var index = 0
        while index < packets.count, packets[index].number < largestAcknowledged {
            defer { index += 1 }
            guard packets[index].isOutstanding else { continue }
            let deadline = packets[index].sentAt + delay
            if deadline <= now || largestAcknowledged - packets[index].number >= Self.packetThreshold {
                packets[index].isOutstanding = false
                outstanding -= 1
                lost.append(packets[index])
            } else {
                lossTime = min(lossTime ?? .max, deadline)
            }
        }
        trim()
    }

    /// The oldest packets in flight, whose contents a probe retransmits (section 6.2.4).
    func oldest(_ count: Int) -> [SentPacket] {
        var result: [SentPacket] = []
        for packet in packets where packet.isOutstanding && !packet.isSizeProbe {
            result.append(packet)
            if result.count == count { break }
        }
        return result
    }

    private mutating func trim() { while let first = packets.first, !first.isOutstanding { packets.removeFirst() } }
}

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
        if unacknowledged >= limits.packetsPerAcknowledgement || number != next { owesNow = true }
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

/// Replay protection for the last 2,048 packet numbers (RFC 6479): a ring of bits with one word more than the window.
/// Words are cleared as the window moves, so no bit is shifted.
struct ReplayWindow: Hashable, Sendable {
    /// Numbers behind the largest that can still be checked.
    static let size: UInt64 = 2_048
    private static let words = 33

    private var bits = [UInt64](repeating: 0, count: words)
    /// One more than the largest marked number; 0 before the first.
    private(set) var next: UInt64 = 0

    /// Whether the number is new and not too old to check.
    func isFresh(_ number: UInt64) -> Bool {
        if number >= next { return true }
        guard next - 1 - number < Self.size else { return false }
        return bits[Self.word(number)] & Self.bit(number) == 0
    }

    /// - Precondition: ``isFresh(_:)``, and the packet is authentic.
    mutating func mark(_ number: UInt64) {
        if number >= next {
            let entered = number / 64 - (next == 0 ? 0 : (next - 1) / 64)
            for step in 0..<min(entered, UInt64(Self.words)) { bits[Self.word(number - 64 * step)] = 0 }
            next = number + 1
        }
        bits[Self.word(number)] |= Self.bit(number)
    }

    private static func word(_ number: UInt64) -> Int { Int(number / 64 % UInt64(words)) }
    private static func bit(_ number: UInt64) -> UInt64 { 1 << (number % 64) }
}
