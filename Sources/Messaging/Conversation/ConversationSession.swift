import Crypto

/// What a sleeping inbox remembers of its session: in memory only, because a restart ends the session anyway. Most have
/// nothing to remember but that it goes on.
package final class ConversationSession: Sendable {
    /// How it stands with one member, where that is worth a word.
    struct Side: Hashable, Sendable {
        var hasEnded: Bool
        var lostAt: Timestamp?
        /// What it has not been told yet.
        var readReceipts: [MessageID]
        /// It was said something, or would have been over a link, and has not shown that it heard it.
        var owesWord: Bool
        var runs: RunNumbers

        init?(_ member: ConversationMember) {
            guard member.hasEnded || member.link.lostAt != nil || member.hasNews || member.runs.haveShownCopies else {
                return nil
            }
            (hasEnded, lostAt, readReceipts) = (member.hasEnded, member.link.lostAt, member.readReceipts)
            (owesWord, runs) = (member.owesWord, member.runs)
        }
    }

    let sides: [PublicKey: Side]
    /// With an open proposal, or a renewal that is due later.
    let lifetimeMachine: LifetimeStateMachine?
    /// Of ``ConversationAgreement/unconfirmed``.
    let unconfirmed: Set<MessageID>
    /// A change of the scheduled end that waits its turn.
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

    /// A session that goes on and of which there is nothing else to remember.
    static let quiet = ConversationSession()
}
