import Crypto

/// The joiner's side of one join (Join.md, "The joiner"; seed 002).
///
///     joining ──welcome for our tag and creator──▶ ready
///        │ ──error for our tag──────────────────▶ joinFailed
///        │ ──24 h────────────────────────────────▶ joinFailed
///        └──cancel──▶ cancelled
///
/// A ``VerifiedInvite`` comes in, so the seed's states `validating` and `validated` are over when this machine exists.
package struct JoinerStateMachine: Hashable, Sendable {
    package enum State: Hashable, Sendable, Codable {
        /// Initial. Next: any other.
        case joining
        /// After a valid welcome. Next: `joinFailed`, when this node cannot enter the conversation.
        case ready
        /// After the creator's error, after ``Limits/joinLifetime``, or when this node has the conversation from
        /// another creator or has destroyed it. Final.
        case joinFailed(JoinErrorType)
        /// By the user. Final: later answers are ignored.
        case cancelled
    }

    package enum WelcomeAction: Hashable, Sendable {
        case enter
        /// The welcome is late, or for another conversation.
        case drop
    }

    package let tag: InviteTag
    package let creator: PublicKey
    package let startedAt: Timestamp
    package private(set) var state: State

    package init(tag: InviteTag, creator: PublicKey, startedAt: Timestamp, state: State = .joining) {
        self.tag = tag
        self.creator = creator
        self.startedAt = startedAt
        self.state = state
    }

    package var deadline: Timestamp { startedAt + Limits.joinLifetime }

    /// - Parameter sender: the key that the link's handshake has authenticated.
    package mutating func receive(_ welcome: Welcome, from sender: PublicKey, to own: PublicKey) -> WelcomeAction {
        guard state == .joining, sender == creator, welcome.tag == tag, welcome.genesis.creator == creator,
            welcome.isValid(for: own)
        else { return .drop }
        state = .ready
        return .enter
    }

    /// - Returns: whether the error ends the join.
    package mutating func receive(_ error: JoinError, from sender: PublicKey) -> Bool {
        guard state == .joining, sender == creator, error.inviteTag == tag else { return false }
        state = .joinFailed(error.errorType)
        return true
    }

    /// This node cannot enter the conversation of the welcome.
    package mutating func refuse(_ error: JoinErrorType) { if state == .ready { state = .joinFailed(error) } }

    /// - Returns: whether the join was pending.
    package mutating func cancel() -> Bool {
        guard state == .joining else { return false }
        state = .cancelled
        return true
    }

    /// - Returns: whether the join has timed out.
    package mutating func expire(now: Timestamp) -> Bool {
        guard state == .joining, now >= deadline else { return false }
        state = .joinFailed(.genericFailure)
        return true
    }
}
