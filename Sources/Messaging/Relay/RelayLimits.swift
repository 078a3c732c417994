extension Limits {
    // MARK: Relay, specification: peers rely on these.

    package static let relayPieceByteCount = 16_384
    /// Most bytes in flight in one direction of a relayed stream, until the receiver has read them.
    package static let relayWindow = 65_536
    /// Most endpoints at one rendezvous node that a node advertises, and at all of them.
    package static let relayEndpointCount = 2
    package static let relayLabelCount = 256

    // MARK: Relay, implementation: may be tuned.

    /// Default of the configuration.
    package static let relayUserCount = 128
    /// Reservations of one client: one for each of its inboxes.
    package static let reservationsPerUser = 1_024
    /// Streams to one reservation, to one client, and in all. A conversation has 31 other members.
    package static let streamsPerReservation = 32
    package static let streamsPerUser = 128
    package static let relayedStreamCount = 512
    /// Labels named by one client, plus one per request. Above this rate, its link is left unread.
    package static let relayLabelRate = Rate(every: 4, burst: 8_192)
    /// Bytes a second in one direction of a stream, and of all streams together.
    package static let relayedByteRate = 1 << 20
    package static let relayedByteRateTotal = 16 << 20
    /// How far a stream, and all streams together, may be ahead of the rate.
    package static let relayBurst: Milliseconds = 50
    /// A stream without traffic for this long is ended.
    package static let relayIdle: Milliseconds = 2 * .minute
    /// Rate limits of opened streams, a burst and then one each interval: to one reservation, and from one address
    /// prefix; then to all reservations of one client.
    package static let relayOpenRate = Rate(every: 2 * .second, burst: 32)
    package static let relayUserOpenRate = Rate(every: 500, burst: 128)
    /// Pieces and credits of fewer bytes, and dropped frames, count like a member's no-op frames at half their rate:
    /// one limit for a client's link, one for all its guests together. All streams together: 8 a millisecond.
    package static let smallPieceByteCount = 1_024
    package static let relayedFrameInterval: Milliseconds = 2
    package static let relayedFrameTotalGroup = 8
    /// Small pieces that we send over one link: half of the rate that rendezvous nodes accept, so none is delayed
    /// there.
    package static let sentPieceRate = Rate(every: 1, burst: 128)
    /// Most address prefixes with a rate limit.
    package static let relaySourceCount = 1_024
    /// A client that is silent for this long is gone. It sends a ping after ``keepaliveInterval`` of silence.
    package static let reservationSilence: Milliseconds = 90 * .second
    /// Most rendezvous nodes that a node uses at one time.
    package static let rendezvousCount = 4
    /// Timeout for the answer of a rendezvous node.
    package static let reservationPatience: Milliseconds = 10 * .second
    /// Pause after a refusal.
    package static let reservationRetry: Milliseconds = 5 * .minute
    /// How long we advertise a reservation after its link is lost: it is the same when the link is back.
    package static let reservationGrace: Milliseconds = 10 * .minute
    /// Shortest time between two changes of an inbox's reservation after lost members. Each change is a new profile,
    /// which other members accept at ``Limits/profileRate``.
    package static let relayChangeInterval: Milliseconds = 10 * .second
    /// How long an old reservation is kept for members that do not know the new one.
    package static let relayRetirement: Milliseconds = .day
    /// Most old reservations of one inbox.
    package static let relayRetiredCount = 8
    /// Head start of direct dials before a relayed one.
    package static let relayHeadStart: Milliseconds = .second
    /// First and longest wait between searches for a direct path while a link is relayed.
    package static let upgrade = Backoff(first: 2 * .second, longest: 15 * .minute)
}

package struct RelayTerms: Hashable, Sendable {
    package var isServing = false
    /// Serves any holder of its card, not named peers only.
    package var isOpen = false
    package var userCount = Limits.relayUserCount
    package var reservationsPerUser = Limits.reservationsPerUser
    package var streamsPerUser = Limits.streamsPerUser
    package var streamsPerReservation = Limits.streamsPerReservation
    package var streamCount = Limits.relayedStreamCount
    /// Bytes a second in one direction of a stream, and in all.
    package var byteRate = Limits.relayedByteRate
    package var byteRateTotal = Limits.relayedByteRateTotal
    package var idle = Limits.relayIdle

    package init() {}
}

/// Anonymous statistics of a rendezvous node for `status`.
package struct RelayCounts: Hashable, Sendable {
    /// Now.
    package var users = 0
    package var reservations = 0
    package var streams = 0
    /// Since the start.
    package var opened: UInt64 = 0
    package var byteCount: UInt64 = 0
    package var refused: UInt64 = 0
    /// Streams ended by a protocol violation.
    package var violations: UInt64 = 0
}

/// Rate limits of one client of a rendezvous node: streams opened to it, labels, and small pieces. They cover all its
/// links, so a new link does not reset them.
struct RelayRates: Sendable {
    private var opens = TokenBucket(Limits.relayUserOpenRate)
    /// At most 256 of its buckets can be less than full.
    private var opensOfOne = RateTable<ReservationID>(Limits.relayOpenRate, limit: 512)
    private var labels = TokenBucket(Limits.relayLabelRate)
    /// For the client itself, and for all its guests together.
    private var own = IdleFrames.relayed
    private var guests = IdleFrames.relayed

    /// - Returns: whether a stream may be opened to this reservation now. A refused stream uses up no shared tokens.
    mutating func takesStream(to reservation: ReservationID, now: Timestamp) -> Bool {
        guard !opensOfOne.isSpent(reservation, now: now), opens.take(now: now) == nil else { return false }
        return opensOfOne.take(reservation, now: now)
    }

    /// - Returns: how long to pause reading the link; `nil` for no pause.
    mutating func noteLabels(_ count: Int, now: Timestamp) -> Milliseconds? {
        let wait = labels.reserve(1 + count, inAdvance: Limits.relayLabelCount, now: now)
        return wait > 0 ? wait : nil
    }

    /// - Returns: how long to pause reading the link of the small piece; `nil` for no pause.
    mutating func noteSmallPiece(isGuest: Bool, now: Timestamp) -> Milliseconds? {
        isGuest ? guests.note(now: now) : own.note(now: now)
    }

    func isFull(now: Timestamp) -> Bool {
        opens.isFull(now: now) && own.isFull(now: now) && guests.isFull(now: now) && labels.isFull(now: now)
            && opensOfOne.isFull(now: now)
    }
}
