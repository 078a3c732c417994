/// How many join requests this node looks at, and how many it refuses in words (Join.md). What is too much is answered
/// by silence: the link is closed, and an honest joiner comes again after a wait.
package struct JoinRates: Hashable, Sendable {
    /// Taken before a signature is looked at; of each invite on our list, so that the holders of one do not keep out those
    /// of another, and of all that show the secret of none.
    private var requests: [InviteID: TokenBucket] = [:]
    private var strays = TokenBucket(interval: Limits.joinRequestInterval, burst: Limits.joinRequestBurst)
    /// Refusals by the tag of a verified invite. Admissions are free: the members of a conversation are limited anyway.
    private var refusals: [InviteTag: TokenBucket] = [:]

    package init() {}

    /// - Returns: whether another request is looked at.
    /// - Parameter invite: whose secret it shows; `nil` for none on our list.
    package mutating func takesRequest(by invite: InviteID?, now: Timestamp) -> Bool {
        guard let invite else { return strays.take(now: now) == nil }
        if requests[invite] == nil, requests.count >= Limits.joinTagCount {
            requests = requests.filter { !$0.value.isFull(now: now) }
            guard requests.count < Limits.joinTagCount else { return strays.take(now: now) == nil }
        }
        var bucket =
            requests[invite] ?? TokenBucket(interval: Limits.joinRequestInterval, burst: Limits.joinRequestBurst)
        defer { requests[invite] = bucket }
        return bucket.take(now: now) == nil
    }

    /// - Parameter tag: of an invite whose signature and secret hold, so that strangers cannot use it up.
    /// - Returns: whether another refusal is said.
    package mutating func takesRefusal(_ tag: InviteTag, now: Timestamp) -> Bool {
        if refusals[tag] == nil, refusals.count >= Limits.joinTagCount {
            refusals = refusals.filter { !$0.value.isFull(now: now) }
            guard refusals.count < Limits.joinTagCount else { return false }
        }
        var bucket = refusals[tag] ?? TokenBucket(interval: Limits.joinRefusalInterval, burst: Limits.joinRefusalBurst)
        defer { refusals[tag] = bucket }
        return bucket.take(now: now) == nil
    }
}
