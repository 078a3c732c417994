import Crypto

/// The joiner's side of one join (section 5, seed 002).
///
///     joining ──welcome for our tag and creator──▶ ready
///        │ ──error for our tag──────────────────▶ joinFailed
///        │ ──24 h────────────────────────────────▶ joinFailed
///        └──cancel──▶ cancelled
///
/// The invite is a ``VerifiedInvite``, so the seed's `validating` and `validated` lie behind us when this machine exists.
package struct JoinerStateMachine: Hashable, Sendable {
    /// Where the join stands; saved with the inbox.
    package enum State: Hashable, Sendable, Codable {
        /// Entered at start. May go to all others.
        case joining
        /// Entered by a welcome that fits. May go to `joinFailed`, when the conversation cannot be entered here.
        case ready
        /// Entered by the creator's error, when the time is over, or by a welcome to a conversation that this node has from
        /// another creator or has destroyed. Final.
        case joinFailed(JoinErrorType)
        /// Entered by the user. Final: a late answer is ignored.
        case cancelled
    }

    /// What to do with a welcome.
    package enum WelcomeAction: Hashable, Sendable {
        case enter
        /// Late, or for another conversation than we asked for.
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

    /// When the join is given up.
    package var deadline: Timestamp { startedAt + Limits.joinLifetime }

    /// - Parameters:
    ///   - sender: the key that the link's handshake has shown.
    ///   - own: ours.
    package mutating func receive(_ welcome: Welcome, from sender: PublicKey, to own: PublicKey) -> WelcomeAction {
        guard state == .joining, sender == creator, welcome.tag == tag, welcome.genesis.creator == creator,
            welcome.isValid(for: own)
        else { return .drop }
        state = .ready
        return .enter
    }

    /// - Returns: whether the join has failed by it.
    package mutating func receive(_ error: JoinError, from sender: PublicKey) -> Bool {
        guard state == .joining, sender == creator, error.inviteTag == tag else { return false }
        state = .joinFailed(error.errorType)
        return true
    }

    /// The welcome is to a conversation that this node cannot enter.
    package mutating func refuse(_ error: JoinErrorType) { if state == .ready { state = .joinFailed(error) } }

    /// - Returns: whether there was something to cancel.
    package mutating func cancel() -> Bool {
        guard state == .joining else { return false }
        state = .cancelled
        return true
    }

    /// - Returns: whether the join was given up.
    package mutating func expire(now: Timestamp) -> Bool {
        guard state == .joining, now >= deadline else { return false }
        state = .joinFailed(.genericFailure)
        return true
    }
}
