/// How often one whom a rendezvous node serves may be called, and how many small pieces may go to and fro: over all of its
/// links, so that a new one does not begin anew.
struct RelayRates: Sendable {
    private var opens = TokenBucket(interval: Limits.relayUserOpenInterval, burst: Limits.relayUserOpenBurst)
    /// Of reservations to which streams were opened of late.
    private var opensOfOne: [ReservationID: TokenBucket] = [:]
    private var labels = TokenBucket(interval: Limits.relayLabelInterval, burst: Limits.relayLabelBurst)
    /// Of the served node, and of all of its guests together.
    private var own = IdleFrames.relayed
    private var guests = IdleFrames.relayed

    /// - Returns: whether a stream may be opened to this reservation now. One that may not uses up nothing that the others
    ///   share.
    mutating func takesStream(to reservation: ReservationID, now: Timestamp) -> Bool {
        // Reservations come and go; no more than 256 buckets can be other than full.
        if opensOfOne.count >= 512 { opensOfOne = opensOfOne.filter { !$0.value.isFull(now: now) } }
        var own =
            opensOfOne[reservation] ?? TokenBucket(interval: Limits.relayOpenInterval, burst: Limits.relayOpenBurst)
        guard !own.isSpent(now: now), opens.take(now: now) == nil else { return false }
        _ = own.take(now: now)
        opensOfOne[reservation] = own
        return true
    }

    /// A request for so many labels has come.
    /// - Returns: how long its link is to be left unread; `nil` for not at all.
    mutating func noteLabels(_ count: Int, now: Timestamp) -> Milliseconds? {
        let wait = labels.reserve(1 + count, inAdvance: Limits.relayLabelCount, now: now)
        return wait > 0 ? wait : nil
    }

    /// A small piece has come, from one of its guests or from itself.
    /// - Returns: how long the link by which it came is to be left unread; `nil` for not at all.
    mutating func noteSmallPiece(isGuest: Bool, now: Timestamp) -> Milliseconds? {
        isGuest ? guests.note(now: now) : own.note(now: now)
    }

    /// Nothing has been used up that has not come back.
    func isFull(now: Timestamp) -> Bool {
        opens.isFull(now: now) && own.isFull(now: now) && guests.isFull(now: now) && labels.isFull(now: now)
            && opensOfOne.values.allSatisfy { $0.isFull(now: now) }
    }
}
