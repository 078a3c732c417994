/// The delivery state at the departure of a packet (draft-ietf-ccwg-bbr-06, section 4.1.2.1.2: P.), compared when it is
/// acknowledged. Counts only bytes of datagrams that count toward the window.
struct PacketDelivery: Hashable, Sendable {
    /// Bytes delivered so far, and the time of the last delivery.
    var delivered = 0
    var deliveredAt: Microseconds = 0
    /// When the first packet of the flight was sent.
    var firstSentAt: Microseconds = 0
    var lost = 0
    var inFlight = 0
    var isApplicationLimited = false
}

/// The sample of one acknowledgement (section 4.1.2.1.3: RS.).
struct RateSample: Hashable, Sendable {
    /// Bytes per microsecond; 0 if the interval was too short.
    var rate = 0.0
    /// Bytes delivered and lost between the newest packet's departure and its acknowledgement.
    var delivered = 0
    var lost = 0
    /// `delivered` when the newest packet was sent.
    var priorDelivered = 0
    /// `inFlight` when it was sent.
    var inFlight = 0
    var newlyAcknowledged = 0
    var isApplicationLimited = false
    /// The RTT of the newest packet without the peer's acknowledgement delay; `nil` if unknown.
    var roundTrip: Microseconds?
}

/// Estimates the delivery rate (section 4.1): bytes acknowledged between a packet's departure and its acknowledgement,
/// over the longer of the acknowledgement and the sending time. The sending time corrects for bunched acknowledgements,
/// which look faster than the path.
struct DeliveryRate: Hashable, Sendable {
    /// Bytes over the life of the path.
    private(set) var delivered = 0
    private(set) var lost = 0
    private var deliveredAt: Microseconds = 0
    private var firstSentAt: Microseconds = 0
    /// Samples are application-limited until this much is delivered (section 4.1.1.3); 0 if they are not.
    private var limitedUntil = 0

    private struct Newest: Hashable {
        let number: UInt64
        let packet: PacketDelivery
        let sendElapsed: Microseconds
        let acknowledgementElapsed: Microseconds
    }
    private var newest: Newest?
    private var newlyAcknowledged = 0

    var isApplicationLimited: Bool { limitedUntil > 0 }

    /// A packet was sent (section 4.1.2.2), with `inFlight` bytes before it.
    mutating func sent(_ byteCount: Int, inFlight: Int, at now: Microseconds) -> PacketDelivery {
        if inFlight == 0 {
            firstSentAt = now
            deliveredAt = now
        }
        return PacketDelivery(
            delivered: delivered, deliveredAt: deliveredAt, firstSentAt: firstSentAt, lost: lost,
            inFlight: inFlight + byteCount, isApplicationLimited: isApplicationLimited)
    }

    /// A packet was acknowledged (section 4.1.2.3). Call for each packet before ``sample(leastInterval:)``.
    mutating func acknowledged(
        _ byteCount: Int, _ packet: PacketDelivery, number: UInt64, sentAt: Microseconds, at now: Microseconds
    ) {
        delivered += byteCount
        deliveredAt = now
        newlyAcknowledged += byteCount
        if let newest, newest.number > number { return }
        newest = Newest(
            number: number, packet: packet, sendElapsed: sentAt - packet.firstSentAt,
            acknowledgementElapsed: now - packet.deliveredAt)
        firstSentAt = max(firstSentAt, sentAt)
    }

    mutating func lost(_ byteCount: Int) { lost += byteCount }

    /// The sample of the processed acknowledgement; `nil` if it acknowledged nothing new.
    /// - Parameter leastInterval: the minimum RTT: a shorter interval gives no rate.
    mutating func sample(leastInterval: Microseconds) -> RateSample? {
        if limitedUntil > 0, delivered > limitedUntil { limitedUntil = 0 }
        guard let newest else { return nil }
        var sample = RateSample()
        sample.delivered = delivered - newest.packet.delivered
        sample.lost = lost - newest.packet.lost
        sample.priorDelivered = newest.packet.delivered
        sample.inFlight = newest.packet.inFlight
        sample.isApplicationLimited = newest.packet.isApplicationLimited
        sample.newlyAcknowledged = newlyAcknowledged
        let interval = max(newest.sendElapsed, newest.acknowledgementElapsed)
        if interval >= max(1, leastInterval) { sample.rate = Double(sample.delivered) / Double(interval) }
        self.newest = nil
        newlyAcknowledged = 0
        return sample
    }

    /// Section 4.1.2.4.
    mutating func markApplicationLimited(inFlight: Int) { limitedUntil = max(1, delivered + inFlight) }
}
