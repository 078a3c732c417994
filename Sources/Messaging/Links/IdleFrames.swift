/// How many frames that change nothing come from one peer. Each costs us a decryption, a look and perhaps an answer, and
/// its sender next to nothing: whoever sends many is heard more slowly (Links.md, "Frames that change nothing").
///
/// What it has to say waits at its own end meanwhile, so nothing is lost and the node has time for the others.
package struct IdleFrames: Hashable, Sendable {
    /// Of a group of ``Limits/idleFrameGroup``, which costs one token.
    private var count = 0
    private var tokens: TokenBucket

    /// - Parameter burst: groups at once; one more comes each ``Limits/idleFrameInterval``.
    package init(burst: Int) { tokens = TokenBucket(interval: Limits.idleFrameInterval, burst: burst) }

    /// Of a member, over all of its links, and of a stream that is passed on: a repetition after a loss is no haste.
    package static let member = IdleFrames(burst: Limits.idleFrameBurst)
    /// Of one link of anybody else's: whoever is no member has little to say.
    package static let stranger = IdleFrames(burst: Limits.idleFrameStrangerBurst)

    /// One more has come.
    /// - Returns: whether its link is to be left unread for ``Limits/idlePause``.
    package mutating func note(now: Timestamp) -> Bool {
        count += 1
        guard count >= Limits.idleFrameGroup else { return false }
        count = 0
        return tokens.take(now: now) != nil
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
