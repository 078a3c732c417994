/// Rate limits of one client of a rendezvous node: streams opened to it, labels, and small pieces. They cover all its
/// links, so a new link does not reset them.
struct RelayRates: Sendable {
    private var opens = TokenBucket(interval: Limits.relayUserOpenInterval, burst: Limits.relayUserOpenBurst)
    /// Only reservations with recent streams.
    private var opensOfOne: [ReservationID: TokenBucket] = [:]
    private var labels = TokenBucket(interval: Limits.relayLabelInterval, burst: Limits.relayLabelBurst)
    /// For the client itself, and for all its guests together.
    private var own = IdleFrames.relayed
    private var guests = IdleFrames.relayed

    /// - Returns: whether a stream may be opened to this reservation now. A refused stream uses up no shared tokens.
    mutating func takesStream(to reservation: ReservationID, now: Timestamp) -> Bool {
        // Bounds the map. At most 256 of its buckets can be less than full.
        if opensOfOne.count >= 512 { opensOfOne = opensOfOne.filter { !$0.value.isFull(now: now) } }
        var own =
            opensOfOne[reservation] ?? TokenBucket(interval: Limits.relayOpenInterval, burst: Limits.relayOpenBurst)
        guard !own.isSpent(now: now), opens.take(now: now) == nil else { return false }
        _ = own.take(now: now)
        opensOfOne[reservation] = own
        return true
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
            && opensOfOne.values.allSatisfy { $0.isFull(now: now) }
    }
}
