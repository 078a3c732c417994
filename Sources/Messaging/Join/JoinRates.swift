/// Limits how many join requests a node examines, and how many it refuses with a reason (Join.md). Others get silence:
/// the link closes, and an honest joiner tries again after a wait.
package struct JoinRates: Hashable, Sendable {
    /// Charged before the signature check. One bucket per issued invite, so that its holders do not block those of
    /// another; one more for all requests without a known secret.
    private var requests: [InviteID: TokenBucket] = [:]
    private var strays = TokenBucket(interval: Limits.joinRequestInterval, burst: Limits.joinRequestBurst)
    /// Refusals by the tag of a verified invite. Admissions are free: the number of members bounds them.
    private var refusals: [InviteTag: TokenBucket] = [:]

    package init() {}

    /// - Parameter invite: the invite whose secret the request shows; `nil`: none of ours.
    /// - Returns: whether the request is examined.
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

    /// - Parameter tag: of an invite with a valid signature and secret, so that strangers cannot use the limit up.
    /// - Returns: whether the refusal is sent.
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
