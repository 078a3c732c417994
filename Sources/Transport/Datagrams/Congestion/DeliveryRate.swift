/// What is noted of a packet when it leaves, to judge by when its acknowledgement comes (draft-ietf-ccwg-bbr-06, section
/// 4.1.2.1.2: P.). Bytes are those of datagrams that count.
struct PacketDelivery: Hashable, Sendable {
    /// Delivered so far, and when the last of it was.
    var delivered = 0
    var deliveredAt: Microseconds = 0
    /// When the flight left that this packet ends.
    var firstSentAt: Microseconds = 0
    /// Lost so far.
    var lost = 0
    /// In flight, with this packet.
    var inFlight = 0
    /// There was too little to say for the path to show what it can.
    var isApplicationLimited = false
}

/// What one acknowledgement says of the path (section 4.1.2.1.3: RS.).
struct RateSample: Hashable, Sendable {
    /// Bytes per microsecond; 0 if the time was too short to tell.
    var rate = 0.0
    /// Bytes delivered from the newest packet's departure to its acknowledgement, and lost in that time.
    var delivered = 0
    var lost = 0
    /// Bytes that had been delivered when the newest packet left.
    var priorDelivered = 0
    /// In flight when it left.
    var inFlight = 0
    var newlyAcknowledged = 0
    var isApplicationLimited = false
    /// The round trip of the newest packet, without the wait that the peer tells of; `nil` if it cannot be told.
    var roundTrip: Microseconds?
}

/// How fast the path delivers (section 4.1): bytes that were acknowledged between the departure of a packet and its own
/// acknowledgement, over the time that this took or the time in which they were sent, whichever is longer. The latter
/// because acknowledgements come in bunches, which look faster than the path is.
///
///     sent ──snapshot of what was delivered──▶ packet ──acknowledged──▶ difference ──sample()──▶ rate
struct DeliveryRate: Hashable, Sendable {
    /// Bytes over the life of the path.
    private(set) var delivered = 0
    private(set) var lost = 0
    private var deliveredAt: Microseconds = 0
    private var firstSentAt: Microseconds = 0
    /// Until so much is delivered, samples tell of the owner and not of the path (section 4.1.1.3); 0 if they do not.
    private var limitedUntil = 0

    private struct Newest: Hashable {
        let number: UInt64
        let packet: PacketDelivery
        let sendElapsed: Microseconds
        let acknowledgementElapsed: Microseconds
    }
    /// Of the acknowledgement that is being read.
    private var newest: Newest?
    private var newlyAcknowledged = 0

    var isApplicationLimited: Bool { limitedUntil > 0 }

    /// A packet leaves (section 4.1.2.2).
    /// - Parameter inFlight: before it.
    mutating func sent(_ byteCount: Int, inFlight: Int, at now: Microseconds) -> PacketDelivery {
        if inFlight == 0 {
            firstSentAt = now
            deliveredAt = now
        }
        return PacketDelivery(
            delivered: delivered, deliveredAt: deliveredAt, firstSentAt: firstSentAt, lost: lost,
            inFlight: inFlight + byteCount, isApplicationLimited: isApplicationLimited)
    }

    /// A packet has arrived; all of one acknowledgement are told before ``sample(leastInterval:)`` (section 4.1.2.3).
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

    /// What the acknowledgement says that has been read; `nil` if it brought nothing new.
    /// - Parameter leastInterval: the shortest round trip there was: what took less tells nothing.
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

    /// The path could have carried more than there was (section 4.1.2.4).
    mutating func markApplicationLimited(inFlight: Int) { limitedUntil = max(1, delivered + inFlight) }
}
