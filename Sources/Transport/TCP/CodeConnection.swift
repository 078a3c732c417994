import Crypto

/// An incoming, unauthenticated connection of a spoken code's exchange. Use it only on its transport's event loop.
///
/// The owner answers each message of the peer once: by ``answer(_:expecting:)``, ``deliver(_:)`` or ``close()``.
/// Reading pauses until then, and the timeout keeps running.
package final class CodeConnection {
    package let id: UInt64
    package let token: RoutingToken
    /// `nil` once the connection has ended.
    weak var end: LinkHandler?

    init(id: UInt64, token: RoutingToken, end: LinkHandler) {
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
