import Crypto

/// An incoming, unauthenticated connection of a spoken code's exchange. Use it only on its transport's event loop.
///
/// The owner answers each message of the peer once: by ``answer(_:expecting:)``, ``deliver(_:)`` or ``close()``.
/// Reading pauses until then, and the timeout keeps running.
package final class CodeConnection {
    package let id: UInt64
    package let token: RoutingToken
    /// `nil` once the connection has ended.
    weak var end: StreamLink?

    init(id: UInt64, token: RoutingToken, end: StreamLink) {
        self.id = id
        self.token = token
        self.end = end
    }

    /// - Parameter byteCount: of the peer's next message.
    package func answer(_ message: [UInt8], expecting byteCount: Int) { end?.answerCode(message, expecting: byteCount) }

    /// Sends the last message, then closes.
    package func deliver(_ message: [UInt8]) { end?.deliverCode(message) }

    /// Closes without an answer.
    package func close() { end?.closeCode() }
}

/// An outgoing exchange without a handshake, such as of a spoken code: the first message, and the reaction to each
/// answer.
package struct ExchangeDial {
    package enum Step {
        case send([UInt8], expecting: Int)
        case end
    }

    package let token: RoutingToken
    /// Sent right after the greeting.
    package let message: [UInt8]
    /// Bytes of the first answer.
    package let byteCount: Int
    /// A knock's one answer has its length before it and may be missing.
    var kind = Preamble.Kind.code
    package let answered: ([UInt8]) -> Step
    /// Called once: with `nil` after ``Step/end``, otherwise with the error.
    package let ended: (DialFailure?) -> Void

    package init(
        token: RoutingToken, message: [UInt8], expecting byteCount: Int, answered: @escaping ([UInt8]) -> Step,
        ended: @escaping (DialFailure?) -> Void
    ) {
        self.token = token
        self.message = message
        self.byteCount = byteCount
        self.answered = answered
        self.ended = ended
    }
}
