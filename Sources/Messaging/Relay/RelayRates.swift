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
