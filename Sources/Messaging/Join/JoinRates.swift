/// Limits how many join requests a node examines, and how many it refuses with a reason (Join.md). Others get silence:
/// the link closes, and an honest joiner tries again after a wait.
package struct JoinRates: Hashable, Sendable {
    /// Charged before the signature check. One bucket per issued invite, so that its holders do not block those of
    /// another; one more for all requests without a known secret.
    private var requests = RateTable<InviteID>(Limits.joinRequestRate, limit: Limits.joinTagCount, sharesRest: true)
    /// Refusals by the tag of a verified invite. Admissions are free: the number of members bounds them.
    private var refusals = RateTable<InviteTag>(Limits.joinRefusalRate, limit: Limits.joinTagCount)

    package init() {}

    /// - Parameter invite: the invite whose secret the request shows; `nil`: none of ours.
    /// - Returns: whether the request is examined.
    package mutating func takesRequest(by invite: InviteID?, now: Timestamp) -> Bool {
        invite.map { requests.take($0, now: now) } ?? requests.takeShared(now: now)
    }

    /// - Parameter tag: of an invite with a valid signature and secret, so that strangers cannot use the limit up.
    /// - Returns: whether the refusal is sent.
    package mutating func takesRefusal(_ tag: InviteTag, now: Timestamp) -> Bool { refusals.take(tag, now: now) }
}
