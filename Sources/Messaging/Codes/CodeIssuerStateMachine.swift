import Crypto

/// What has become of a code.
package enum CodeOutcome: String, Hashable, Sendable, CaseIterable {
    /// Somebody has shown that they know it, and has the invite.
    case taken
    /// Somebody has tried other words.
    case wrongGuess
    /// Somebody was answered and did not show that they know it.
    case unproven
    /// Nobody came in time.
    case expired
    /// Its creator took it back.
    case revoked
    /// The node or the conversation was locked.
    case locked
    /// The conversation is gone, or the node stops.
    case gone
    /// Somebody knew it, and the invite could not be made or did not reach them.
    case failed
}

/// A connection that tries a code.
package struct CodeAttempt: Hashable, Sendable {
    package let number: UInt64

    package init(_ number: UInt64) { self.number = number }
}

/// A code at the node that has made it (SpokenCodes.md, "The creator"). One answer leaves in a code's life, and with it the
/// code is spent, whatever follows.
///
///     open ──share of the group──▶ answered ──its proof──▶ proven ──the invite is made──▶ ended: taken
///      │                             ├─ another proof ──▶ ended: wrongGuess
///      │                             └─ closed, or silent ─▶ ended: unproven
///      └── time, a lock, its creator ──▶ ended
package struct CodeIssuerStateMachine {
    private enum State {
        /// Nobody was answered. Goes to `answered` and `ended`.
        case open
        /// Waits for this attempt's proof. Goes to `proven` and `ended`.
        case answered(CodeAttempt, CPaceKey)
        /// The invite is being made. Goes to `ended`.
        case proven(CodeAttempt, CPaceKey)
        case ended(CodeOutcome)
    }

    package enum Action: Hashable, Sendable {
        /// Send, and wait for a proof.
        case answer(CodeAttempt, [UInt8])
        /// Send, and close when it has left.
        case deliver(CodeAttempt, [UInt8])
        /// Close without a word.
        case refuse(CodeAttempt)
        /// Make an invite and hand it to ``CodeIssuerStateMachine/made(invite:)``.
        case makeInvite
        /// The invite that was made has nobody to go to.
        case revokeInvite
        case ended(CodeOutcome)
    }

    package let code: SpokenCode
    private var state = State.open

    package init(_ code: SpokenCode) { self.code = code }

    /// Whether an attempt may begin.
    package var isOpen: Bool {
        switch state {
        case .open: true
        case .answered, .proven, .ended: false
        }
    }

    /// `nil` until it has ended.
    package var outcome: CodeOutcome? {
        switch state {
        case .open, .answered, .proven: nil
        case .ended(let outcome): outcome
        }
    }

    /// An attempt has begun. What is no element of the group is not answered, costs no multiplication, and changes nothing.
    /// - Parameter random: for our scalar.
    package mutating func receive(
        share: [UInt8], _ greeting: CodeExchange.Greeting, from attempt: CodeAttempt, _ random: inout Randomness
    ) -> [Action] {
        switch state {
        case .open:
            guard CPace.isElement(share) else { return [.refuse(attempt)] }
            let own = CPaceShare(
                .responder, password: code.password, CodeExchange.context(greeting),
                scalar: CodeExchange.scalar(&random))
            guard let own, let key = own.key(with: share) else { return [.refuse(attempt)] }
            state = .answered(attempt, key)
            return [.answer(attempt, own.bytes)]
        case .answered, .proven, .ended: return [.refuse(attempt)]
        }
    }

    package mutating func receive(proof: [UInt8], from attempt: CodeAttempt) -> [Action] {
        switch state {
        case .answered(attempt, let key):
            guard key.isAuthentic(proof, of: .initiator) else { return end(.wrongGuess) }
            state = .proven(attempt, key)
            return [.makeInvite]
        case .open, .answered, .proven, .ended: return [.refuse(attempt)]
        }
    }

    /// The attempt's connection is gone.
    package mutating func ended(_ attempt: CodeAttempt) -> [Action] {
        switch state {
        case .answered(attempt, _): end(.unproven)
        case .proven(attempt, _): end(.failed)
        case .open, .answered, .proven, .ended: []
        }
    }

    /// - Parameter text: of the invite, at most ``CodeExchange/textByteCount`` bytes; `nil` if there is none.
    package mutating func made(invite text: [UInt8]?) -> [Action] {
        switch state {
        case .proven(let attempt, let key):
            guard let text, text.count <= CodeExchange.textByteCount else {
                return (text == nil ? [] : [.revokeInvite]) + end(.failed)
            }
            state = .ended(.taken)
            return [.deliver(attempt, CodeExchange.seal(invite: text, key)), .ended(.taken)]
        case .open, .answered, .ended: return text == nil ? [] : [.revokeInvite]
        }
    }

    /// Its time is over. A proof that has come in time counts.
    package mutating func expire() -> [Action] {
        switch state {
        case .open, .answered: end(.expired)
        case .proven, .ended: []
        }
    }

    /// Ends it for another reason.
    package mutating func end(_ outcome: CodeOutcome) -> [Action] {
        defer { if self.outcome == nil { state = .ended(outcome) } }
        switch state {
        case .open: return [.ended(outcome)]
        case .answered(let attempt, _), .proven(let attempt, _): return [.refuse(attempt), .ended(outcome)]
        case .ended: return []
        }
    }
}
