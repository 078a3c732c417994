/// How many frames that change nothing come from one peer. Each costs us a decryption, a look and perhaps an answer, and
/// its sender next to nothing: whoever sends many is heard more slowly (Links.md, "Frames that change nothing").
///
/// What it has to say waits at its own end meanwhile, so nothing is lost and the node has time for the others. Several
/// links that share a rate take turns: each waits for a token of its own, a group of frames long.
package struct IdleFrames: Hashable, Sendable {
    /// Frames that cost one token, and how many of those have come.
    private let group: Int
    private var count = 0
    private var tokens: TokenBucket

    private init(group: Int = Limits.idleFrameGroup, interval: Milliseconds, burst: Int = Limits.idleFrameBurst) {
        self.group = group
        tokens = TokenBucket(interval: interval, burst: burst)
    }

    /// Of a member, over all of its links: a repetition after a loss is no haste. Of pieces that a rendezvous node passes
    /// on to us, of which it takes fewer.
    package static let member = IdleFrames(interval: Limits.idleFrameInterval)
    /// Of one link of anybody else's: whoever is no member has little to say.
    package static let stranger = IdleFrames(
        interval: Limits.idleFrameStrangerInterval, burst: Limits.idleFrameStrangerBurst)
    /// Of all those together: each may have many links.
    package static let strangers = IdleFrames(interval: Limits.idleFrameInterval)
    /// Of the streams to one node that are passed on, which cost more; and of all streams together.
    package static let relayed = IdleFrames(interval: Limits.relayedFrameInterval)
    package static let relayedTotal = IdleFrames(
        group: Limits.relayedFrameTotalGroup, interval: Limits.idleFrameInterval)

    /// A frame has come.
    /// - Parameter elements: of the lists in it; see ``Frame/elementCount``.
    /// - Returns: how long its link is to be left unread; `nil` for not at all.
    package mutating func note(elements: Int = 1, now: Timestamp) -> Milliseconds? {
        count += elements
        guard count >= group else { return nil }
        let wait = tokens.reserve(count / group, inAdvance: Limits.idleFrameDebt, now: now)
        count %= group
        return wait > 0 ? wait : nil
    }

    /// Nothing is counted that has not been forgiven.
    func isFull(now: Timestamp) -> Bool { tokens.isFull(now: now) }
}

extension [NodeAction] {
    /// What a frame has come to that changed nothing: it was dropped, answered to its sender alone, or closes its link.
    package func isIdle(on link: LinkID) -> Bool {
        allSatisfy { action in
            switch action {
            case .transmit(link, _), .forward(link, _), .close(link): true
            default: false
            }
        }
    }
}
