import Crypto

/// Why a code did not lead to an invite.
package enum CodeFailure: Error, Hashable, Sendable {
    /// No code with this number is open there, or somebody else is trying it.
    case notOpen
    /// What was answered is no element of the group: a node that follows the protocol never sends that.
    case invalidAnswer
    /// Closed after our proof: the words are others. The code is spent.
    case refused
    /// Whoever answered does not know the code either.
    case foreign
}

/// A code at the node that was told it (SpokenCodes.md, "The joiner"). It proves itself first, and once: who answers in the
/// creator's place may test one code by our proof.
///
///     asking ──share──▶ proving ──tag and invite──▶ ended
///       └─ anything else, and closed ──▶ ended
package struct CodeJoinerStateMachine {
    private enum State {
        /// Our share is sent. Goes to `proving` and `ended`.
        case asking(CPaceShare)
        /// Our tag is sent. Goes to `ended`.
        case proving(CPaceKey)
        case ended
    }

    package enum Action: Hashable, Sendable {
        case send([UInt8])
        /// The text of an invite.
        case invite([UInt8])
    }

    private var state: State
    package let greeting: CodeExchange.Greeting
    /// What is sent behind the greeting.
    package let share: [UInt8]

    /// `nil` for a scalar that is never drawn.
    package init?(_ code: SpokenCode, _ random: inout Randomness) {
        greeting = CodeExchange.Greeting(slot: code.slot, &random)
        let own = CPaceShare(
            .initiator, password: code.password, CodeExchange.context(greeting), scalar: CodeExchange.scalar(&random))
        guard let own else { return nil }
        share = own.bytes
        state = .asking(own)
    }

    /// Bytes of the message that comes next; 0 if none does.
    package var expectedByteCount: Int {
        switch state {
        case .asking: CodeExchange.shareByteCount
        case .proving: CodeExchange.inviteByteCount
        case .ended: 0
        }
    }

    /// A message of the creator's; one of another length is none.
    package mutating func receive(_ message: [UInt8]) throws(CodeFailure) -> Action {
        let last = state
        state = .ended
        switch last {
        case .asking(let own):
            guard message.count == CodeExchange.shareByteCount, let key = own.key(with: message) else {
                throw .invalidAnswer
            }
            state = .proving(key)
            return .send(key.tag(of: .initiator))
        case .proving(let key):
            guard let text = CodeExchange.open(invite: message, key) else { throw .foreign }
            return .invite(text)
        case .ended: throw .notOpen
        }
    }

    /// The connection is gone, or silent for too long.
    package mutating func closed() -> CodeFailure {
        defer { state = .ended }
        switch state {
        case .asking, .ended: return .notOpen
        case .proving: return .refused
        }
    }
}
