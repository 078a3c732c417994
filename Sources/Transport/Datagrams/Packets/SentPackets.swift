import Crypto
import DequeModule

/// What was in a packet that has to be acknowledged, to be sent again if it is lost.
struct SentPacket: Sendable {
    var number: UInt64
    var sentAt: Microseconds
    var byteCount: Int
    /// The path it took: what becomes of it says nothing about another.
    var path: UInt32
    var piece: StreamPiece?
    var carriesCredit = false
    var rekey: Act?
    var carriesLinkKey = false
    /// The largest number that it acknowledged.
    var acknowledges: UInt64?
    /// What was delivered when it left.
    var delivery = PacketDelivery()
    /// A larger datagram than is known to get through: its loss is no congestion (RFC 8899, section 3).
    var isSizeProbe = false
    /// Neither acknowledged nor lost.
    var isOutstanding = true
}

/// Packets in flight, and which of them are lost (RFC 9002, section 6).
///
///     outstanding ──acknowledged──▶ gone
///          │ three packets or 9/8 round trips behind an acknowledged one
///          └──▶ lost, and gone
struct SentPackets {
    static let packetThreshold: UInt64 = 3

    private var packets: Deque<SentPacket> = []
    private(set) var largestAcknowledged: UInt64?
    /// When the oldest packet behind the largest acknowledged counts as lost.
    private(set) var lossTime: Microseconds?
    /// When the last packet left that asks for an acknowledgement.
    private(set) var lastSentAt: Microseconds = 0
    /// Timeouts since the last acknowledgement.
    var timeouts = 0
    private(set) var outstanding = 0

    var isEmpty: Bool { outstanding == 0 }

    mutating func sent(_ packet: SentPacket) {
        packets.append(packet)
        outstanding += 1
        lastSentAt = packet.sentAt
    }

    /// Takes out what the ranges acknowledge.
    /// - Parameters:
    ///   - ranges: newest first; no number in them is higher than what we sent.
    ///   - acknowledged: the packets, oldest first.
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

    /// Takes out what is lost, and sets ``lossTime``.
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

    /// The oldest in flight, whose contents are to be sent again by a probe (section 6.2.4).
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
