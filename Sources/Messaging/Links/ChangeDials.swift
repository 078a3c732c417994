/// The dials of members without a link that follow from a change of this machine's addresses. Networks change many times a
/// minute on some machines, so the dials of all changes have one rate: a member is dialled at its turn, or when its own wait
/// ends, if that is sooner.
package struct ChangeDials: Hashable, Sendable {
    private var bucket = TokenBucket(interval: Limits.changeDialInterval, burst: Limits.changeDialBurst)
    private var lastAt: Timestamp?
    /// Waits between dials begin anew: this change is no part of a series.
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
