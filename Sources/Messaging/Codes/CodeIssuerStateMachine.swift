import Cryptography

package enum CodeOutcome: String, Hashable, Sendable, CaseIterable {
    /// A joiner has proved the code and has the invite.
    case taken
    /// A joiner has used other words.
    case wrongGuess
    /// A joiner was answered and sent no proof.
    case unproven
    case expired
    case revoked
    case locked
    /// The conversation is gone, or the node stops.
    case gone
    /// A joiner proved the code, but the invite could not be made or did not arrive.
    case failed
}

package struct CodeAttempt: Hashable, Sendable {
    package let number: UInt64

    package init(_ number: UInt64) { self.number = number }
}

/// A spoken code at its creator (Join.md, "Creator of a code"). It sends one answer; with that answer the code is
/// spent.
package struct CodeIssuerStateMachine {
    private enum State {
        case open
        /// Waits for this attempt's proof.
        case answered(CodeAttempt, CPaceKey)
        case proven(CodeAttempt, CPaceKey)
        case ended(CodeOutcome)
    }

    package enum Action: Hashable, Sendable {
        /// Send, and wait for a proof.
        case answer(CodeAttempt, [UInt8])
        /// Send, and close once sent.
        case deliver(CodeAttempt, [UInt8])
        case refuse(CodeAttempt)
        /// Make an invite and hand it to ``CodeIssuerStateMachine/made(invite:)``.
        case makeInvite
        /// The invite cannot be delivered.
        case revokeInvite
        case ended(CodeOutcome)
    }

    package let code: SpokenCode
    private var state = State.open

    package init(_ code: SpokenCode) { self.code = code }

    package var isOpen: Bool { if case .open = state { true } else { false } }
    package var outcome: CodeOutcome? { if case .ended(let outcome) = state { outcome } else { nil } }

    /// An attempt has begun. A share that is no element of the group is ignored before any multiplication.
    /// - Parameter random: for our scalar.
    package mutating func receive(
        share: [UInt8], _ greeting: CodeExchange.Greeting, from attempt: CodeAttempt, _ random: inout Randomness
    ) -> [Action] {
        guard isOpen, CPace.isElement(share) else { return [.refuse(attempt)] }
        let own = CPaceShare(
            .responder, password: code.password, CodeExchange.context(greeting), scalar: CodeExchange.scalar(&random))
        guard let own, let key = own.key(with: share) else { return [.refuse(attempt)] }
        state = .answered(attempt, key)
        return [.answer(attempt, own.bytes)]
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

    package mutating func ended(_ attempt: CodeAttempt) -> [Action] {
        switch state {
        case .answered(attempt, _): end(.unproven)
        case .proven(attempt, _): end(.failed)
        case .open, .answered, .proven, .ended: []
        }
    }

    /// - Parameter text: the invite, at most ``CodeExchange/textByteCount`` bytes; `nil` if it could not be made.
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

    /// A proof that arrived in time still counts.
    package mutating func expire() -> [Action] {
        switch state {
        case .open, .answered: end(.expired)
        case .proven, .ended: []
        }
    }

    package mutating func end(_ outcome: CodeOutcome) -> [Action] {
        defer { if self.outcome == nil { state = .ended(outcome) } }
        switch state {
        case .open: return [.ended(outcome)]
        case .answered(let attempt, _), .proven(let attempt, _): return [.refuse(attempt), .ended(outcome)]
        case .ended: return []
        }
    }
}
