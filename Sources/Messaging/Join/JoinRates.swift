/// How many join requests this node looks at, and how many it refuses in words (section 5). What is too much is answered
/// by silence: the link is closed, and an honest joiner comes again after a wait.
package struct JoinRates: Hashable, Sendable {
    /// Of the whole node. Taken before a signature is looked at; those that show no secret of an invite on our list have
    /// a bucket of their own, so that nobody without one keeps joiners out.
    private var requests = TokenBucket(interval: Limits.joinRequestInterval, burst: Limits.joinRequestBurst)
    private var strays = TokenBucket(interval: Limits.joinRequestInterval, burst: Limits.joinRequestBurst)
    /// Refusals by the tag of a verified invite. Admissions are free: the members of a conversation are limited anyway.
    private var refusals: [InviteTag: TokenBucket] = [:]

    package init() {}

    /// - Returns: whether another request is looked at.
    /// - Parameter isStray: it shows no secret of an invite on our list.
    package mutating func takesRequest(isStray: Bool = false, now: Timestamp) -> Bool {
        isStray ? strays.take(now: now) == nil : requests.take(now: now) == nil
    }

    /// - Parameter tag: of an invite whose signature and secret hold, so that strangers cannot use it up.
    /// - Returns: whether another refusal is said.
    package mutating func takesRefusal(_ tag: InviteTag, now: Timestamp) -> Bool {
        if refusals[tag] == nil, refusals.count >= Limits.joinTagCount {
            refusals = refusals.filter { !$0.value.isFull(now: now) }
            guard refusals.count < Limits.joinTagCount else { return false }
        }
        var bucket =
            refusals[tag] ?? TokenBucket(interval: Limits.joinRefusalInterval, burst: Limits.joinRefusalBurst)
        defer { refusals[tag] = bucket }
        return bucket.take(now: now) == nil
    }
}
