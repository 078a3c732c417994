/// How often one whom a rendezvous node serves may be called, and how many small pieces may go to and fro: over all of its
/// links, so that a new one does not begin anew.
struct RelayRates: Sendable {
    var opens = TokenBucket(interval: Limits.relayOpenInterval, burst: Limits.relayOpenBurst)
    /// Of the served node, and of all of its guests together.
    private var own = IdleFrames.relayed
    private var guests = IdleFrames.relayed

    /// A small piece has come, from one of its guests or from itself.
    /// - Returns: how long the link by which it came is to be left unread; `nil` for not at all.
    mutating func noteSmallPiece(isGuest: Bool, now: Timestamp) -> Milliseconds? {
        isGuest ? guests.note(now: now) : own.note(now: now)
    }

    /// Nothing has been used up that has not come back.
    func isFull(now: Timestamp) -> Bool {
        opens.isFull(now: now) && own.isFull(now: now) && guests.isFull(now: now)
    }
}
