import Crypto

/// What sends and closes for a ``CodeConnection``.
protocol CodeConnectionEnd: AnyObject {
    /// See ``CodeConnection/answer(_:expecting:)``.
    func answerCode(_ message: [UInt8], expecting byteCount: Int)
    /// See ``CodeConnection/deliver(_:)``.
    func deliverCode(_ message: [UInt8])
    /// See ``CodeConnection/close()``.
    func closeCode()
}

/// A connection to us that goes through a code's exchange, not authenticated. Used on its transport's event loop alone.
///
/// Each message of the other side is answered once: by ``answer(_:expecting:)``, ``deliver(_:)`` or ``close()``. Nothing is
/// read before that, and its time goes on.
package final class CodeConnection {
    package let id: UInt64
    /// The greeting.
    package let token: RoutingToken
    /// `nil` once the connection has ended.
    weak var end: (any CodeConnectionEnd)?

    init(id: UInt64, token: RoutingToken, end: any CodeConnectionEnd) {
        self.id = id
        self.token = token
        self.end = end
    }

    /// - Parameter byteCount: of the other side's next message.
    package func answer(_ message: [UInt8], expecting byteCount: Int) { end?.answerCode(message, expecting: byteCount) }

    /// Sends the last message, and closes when it has left.
    package func deliver(_ message: [UInt8]) { end?.deliverCode(message) }

    /// Closes without a word.
    package func close() { end?.closeCode() }
}
