import Crypto
import DequeModule

/// The contents of an ack-eliciting packet, to retransmit if it is lost.
struct SentPacket: Sendable {
    var number: UInt64
    var sentAt: Microseconds
    var byteCount: Int
    /// The packet's fate says nothing about other paths.
    var path: UInt32
    var piece: StreamPiece?
    var carriesCredit = false
    var rekey: Act?
    var carriesLinkKey = false
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

    /// Removes acknowledged packets.
    /// - Parameters:
    ///   - ranges: newest first; all numbers were sent.
    ///   - acknowledged: receives the packets, oldest first.
    mutating func acknowledge(_ ranges: [ClosedRange<UInt64>], _ acknowledged: inout [SentPacket]) {
        guard let largest = ranges.first?.upperBound else { return }
        largestAcknowledged = max(largestAcknowledged ?? 0, largest)
        for range in ranges.reversed() {
            var index = firstIndex(from: range.lowerBound)
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

    private func firstIndex(from number: UInt64) -> Int {
        var low = 0
        var high = packets.count
        while low < high {
            let middle = (low + high) / 2
            if packets[middle].number < number { low = middle + 1 } else { high = middle }
        }
        return low
    }
}
