import Cryptography

package enum CodeFailure: Error, Hashable, Sendable {
    /// No code with this number is open, or another joiner is trying it.
    case notOpen
    /// The answer is no element of the group, so the other node violates the protocol.
    case invalidAnswer
    /// Closed after our proof: our words are wrong. The code is spent.
    case refused
    /// The node that answered does not know the code.
    case foreign

    package func explained(_ slot: UInt16) -> CommandError {
        switch self {
        case .notOpen:
            CommandError(
                .notFound, "no code with number \(slot) is open there",
                "the code was used, or its 5 minutes are over; ask for a new one")
        case .invalidAnswer:
            CommandError(.refused, "the host that answered is not a node with a code", "ask for a new code")
        case .refused: CommandError(.refused, "wrong code", "the code is void now; ask for a new one")
        case .foreign:
            CommandError(
                .refused, "the host that answered does not know the code: another node, or a man in the middle",
                "ask for a new code; do not use this one again")
        }
    }
}

/// A spoken code at the joiner (Join.md, "Joiner of a code"). The joiner proves itself first, and once, so an impostor
/// of the creator can test one code.
///
///     asking ──share──▶ proving ──tag and invite──▶ ended
///       └─ anything else, or closed ──▶ ended
package struct CodeJoinerStateMachine {
    private enum State {
        case asking(CPaceShare)
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
    /// Sent after the greeting.
    package let share: [UInt8]

    /// `nil` for an invalid scalar, which `CodeExchange.scalar` never draws.
    package init?(_ code: SpokenCode, _ random: inout Randomness) {
        greeting = CodeExchange.Greeting(slot: code.slot, &random)
        let own = CPaceShare(
            .initiator, password: code.password, CodeExchange.context(greeting), scalar: CodeExchange.scalar(&random))
        guard let own else { return nil }
        share = own.bytes
        state = .asking(own)
    }

    /// Length of the next message; 0 for none.
    package var expectedByteCount: Int {
        switch state {
        case .asking: CodeExchange.shareByteCount
        case .proving: CodeExchange.inviteByteCount
        case .ended: 0
        }
    }

    /// A message of the creator; any other length is an error.
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

    /// The connection is closed or timed out.
    package mutating func closed() -> CodeFailure {
        defer { state = .ended }
        switch state {
        case .asking, .ended: return .notOpen
        case .proving: return .refused
        }
    }
}
