import Crypto

/// A connection to us that goes through a code's exchange, not authenticated. Used on its transport's event loop alone.
///
/// Each message of the other side is answered once: by ``answer(_:expecting:)``, ``deliver(_:)`` or ``close()``. Nothing is
/// read before that, and its time goes on.
package final class CodeConnection {
    package let id: UInt64
    /// The greeting.
    package let token: RoutingToken
    /// `nil` once the connection has ended.
    weak var handler: LinkHandler?

    init(id: UInt64, token: RoutingToken, handler: LinkHandler) {
        self.id = id
        self.token = token
        self.handler = handler
    }

    /// - Parameter byteCount: of the other side's next message.
    package func answer(_ message: [UInt8], expecting byteCount: Int) {
        handler?.answerCode(message, expecting: byteCount)
    }

    /// Sends the last message, and closes when it has left.
    package func deliver(_ message: [UInt8]) { handler?.deliverCode(message) }

    /// Closes without a word.
    package func close() { handler?.closeCode() }
}
