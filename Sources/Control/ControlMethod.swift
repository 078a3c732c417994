package typealias MethodParams = JSONRecord & Hashable & Sendable
package typealias MethodResult = JSONConvertible & Hashable & Sendable

/// A method of the control socket: its name, and the types of its parameters and result.
///
/// Names are those of the commands (`conversation.create`); field names are those of the command line's contract. A
/// parameter `conversation` takes an id, an alias, an unambiguous prefix of an id, or an unambiguous name. Results give
/// ids in hex.
package protocol ControlMethod<Params, Result>: Sendable {
    associatedtype Params: MethodParams
    associatedtype Result: MethodResult
    var name: String { get }
    /// One sentence for `mayfly schema`.
    var summary: String { get }
    /// Whether body bytes follow the request line. `body` in the request is their count.
    var takesBody: Bool { get }
    /// Whether a call with these parameters blocks or occupies its connection. ``ControlLimits/waitingConnections``
    /// limits the number of such connections.
    var waits: @Sendable (Params) -> Bool { get }
}

/// A method without its implementation.
package struct RPCMethod<Params: MethodParams, Result: MethodResult>: ControlMethod {
    package let name: String
    package let summary: String
    package let takesBody: Bool
    package let waits: @Sendable (Params) -> Bool

    package init(
        _ name: String, _ summary: String, takesBody: Bool = false,
        waits: @escaping @Sendable (Params) -> Bool = { _ in false }
    ) {
        self.name = name
        self.summary = summary
        self.takesBody = takesBody
        self.waits = waits
    }
}

package struct Nothing: CodableRecord { package init() {} }

package struct Acknowledged: CodableRecord {
    package var ok = true

    package init() {}
}

/// Limits of the control socket. Other nodes do not see them.
package enum ControlLimits {
    /// Longest request line, in bytes, without its newline.
    package static let requestByteCount = 1 << 20
    /// Longest body of a request, in bytes.
    package static let bodyByteCount = 1 << 20
    /// Longest line the client reads, in bytes. A page of messages fits.
    package static let responseByteCount = 16 << 20
    /// Deepest nesting of arrays and objects in a line, in either direction.
    package static let nestingDepth = 32
    /// Concurrent connections. Above the limit the node closes the longest idle one, else one whose short call hangs;
    /// without either, new connections wait in the kernel.
    package static let connections = 80
    /// Concurrent connections with a subscription, an upload or a call that waits. The rest of ``connections`` stays
    /// free for short calls.
    package static let waitingConnections = 64
    /// Reserved descriptors, for connections when the process has no other left.
    static let spareDescriptors = 4
    /// Concurrent requests of one connection; further ones stay unread.
    package static let requestsInFlight = 64
    /// Texts in one `send`, so that the answer with one result for each fits in a line.
    package static let textsInRequest = 4_096
    /// Bytes queued for a slow subscriber before the node drops it.
    package static let eventBacklogByteCount = 1 << 20
    /// Longest path of a Unix socket on Linux, in bytes, without the final zero (`sun_path`, unix(7)).
    package static let socketPathByteCount = 107
    static let listenBacklog: Int32 = 64
}
