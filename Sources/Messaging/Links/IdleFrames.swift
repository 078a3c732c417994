/// Rate limit of no-op frames. Each costs us a decryption, a lookup and maybe an answer, and its sender almost nothing.
/// Above the rate we pause reading (Links.md, "This program's measures").
///
/// The sender's frames wait at its own end, so none is lost. Links that share a limiter each reserve a token of their
/// own, so their pauses queue instead of coinciding.
package struct IdleFrames: Hashable, Sendable {
    /// Frames that cost one token, and how many of those have come.
    private let group: Int
    private var count = 0
    private var tokens: TokenBucket

    private init(_ rate: Rate, group: Int = Limits.idleFrameGroup) { (self.group, tokens) = (group, TokenBucket(rate)) }

    /// For a member, over all its links; repetitions after a loss stay within it. Also for stream pieces from a
    /// rendezvous node, which accepts fewer.
    package static let member = IdleFrames(Limits.idleFrameRate)
    /// For one link of a non-member, which has few frames to send.
    package static let stranger = IdleFrames(Limits.idleFrameStrangerRate)
    /// For all links of non-members together: each may have many links.
    package static let strangers = IdleFrames(Limits.idleFrameRate)
    /// For forwarded streams to one node, which cost more; and for all streams.
    package static let relayed = IdleFrames(Rate(every: Limits.relayedFrameInterval, burst: Limits.idleFrameRate.burst))
    package static let relayedTotal = IdleFrames(Limits.idleFrameRate, group: Limits.relayedFrameTotalGroup)

    /// - Parameter elements: see ``Frame/elementCount``.
    /// - Returns: how long to pause reading the link; `nil` for no pause.
    package mutating func note(elements: Int = 1, now: Timestamp) -> Milliseconds? {
        count += elements
        guard count >= group else { return nil }
        let wait = tokens.reserve(count / group, inAdvance: Limits.idleFrameDebt, now: now)
        count %= group
        return wait > 0 ? wait : nil
    }

    func isFull(now: Timestamp) -> Bool { tokens.isFull(now: now) }
}
