import Crypto

/// Session state that a sleeping inbox keeps in memory. A restart ends the session, so it is not stored.
package final class ConversationSession: Sendable {
    /// The session with one member, if it has state to keep.
    struct Side: Hashable, Sendable {
        var hasEnded: Bool
        var lostAt: Timestamp?
        var readReceipts: [MessageID]
        var owesWord: Bool
        var runs: RunNumbers

        init?(_ member: Peer) {
            guard member.hasEnded || member.link.lostAt != nil || member.hasNews || member.runs.haveShownCopies else {
                return nil
            }
            (hasEnded, lostAt, readReceipts) = (member.hasEnded, member.link.lostAt, member.readReceipts)
            (owesWord, runs) = (member.owesWord, member.runs)
        }
    }

    let sides: [PublicKey: Side]
    /// Kept while a proposal is open, a renewal is due or a frame awaits its pong.
    let lifetimeMachine: LifetimeStateMachine?
    let unconfirmed: Set<MessageID>
    let deferredNotice: ConversationEnding.DeferredNotice?

    init(
        sides: [PublicKey: Side] = [:], lifetimeMachine: LifetimeStateMachine? = nil, unconfirmed: Set<MessageID> = [],
        deferredNotice: ConversationEnding.DeferredNotice? = nil
    ) {
        self.sides = sides
        self.lifetimeMachine = lifetimeMachine
        self.unconfirmed = unconfirmed
        self.deferredNotice = deferredNotice
    }

    /// An ongoing session without other state.
    static let quiet = ConversationSession()
}
