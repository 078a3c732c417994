/// Rate limit of the dials that follow changes of this machine's addresses. Some machines change networks many times a
/// minute. A member is dialled at its turn, or at the end of its own wait if that is sooner.
package struct ChangeDials: Hashable, Sendable {
    private var bucket = TokenBucket(Limits.changeDialRate)
    private var lastAt: Timestamp?
    /// This change starts a new series, so the waits between dials restart.
    private(set) var beginsAnew = true

    package init() {}

    package mutating func begin(now: Timestamp) {
        beginsAnew = lastAt.map { now - $0 >= Limits.changeSeries } ?? true
        lastAt = now
    }

    /// The turn of a member; `nil` when it is dialled sooner anyway.
    mutating func turn(before dialAt: Timestamp, now: Timestamp) -> Timestamp? {
        guard dialAt > now else { return nil }
        var next = bucket
        let turn = now + next.reserve(inAdvance: Limits.changeDialQueue, now: now)
        guard turn < dialAt else { return nil }
        bucket = next
        return turn
    }
}
