package typealias MethodParams = JSONRecord & Hashable & Sendable
package typealias MethodResult = JSONConvertible & Hashable & Sendable

/// One method of the control socket: its name, and the types of its parameters and result.
///
/// Names are those of the commands (`conversation.create`); field names are those of the command line's contract. A
/// parameter `conversation` takes an id, an alias, an unambiguous prefix of an id, or an unambiguous name. Results give
/// ids in hex.
package struct RPCMethod<Params: MethodParams, Result: MethodResult>: DescribedMethod {
    package let name: String
    package let summary: String
    /// Whether body bytes follow the request line. `body` in the request is their count.
    let takesBody: Bool
    /// Whether a call with these parameters blocks or occupies its connection. ``ControlLimits/waitingConnections``
    /// limits the number of such connections.
    let waits: @Sendable (Params) -> Bool

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

/// Any ``RPCMethod``, for the schema.
package protocol DescribedMethod: Sendable {
    associatedtype Params: MethodParams
    associatedtype Result: MethodResult
    var name: String { get }
    /// One sentence for `mayfly schema`.
    var summary: String { get }
}

package struct Nothing: CodableRecord { package init() {} }

package struct Acknowledged: CodableRecord {
    package var ok = true

    package init() {}
}
