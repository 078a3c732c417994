/// One method of the control socket: its name, and the types of its parameters and result.
///
/// Names are those of the commands (`conversation.create`); field names are those of the command line's contract. A
/// parameter `conversation` takes an id, an alias, an unambiguous prefix of an id, or an unambiguous name. Results give
/// ids in hex.
package protocol ControlMethod: SendableMetatype {
    associatedtype Params: JSONRecord & Hashable & Sendable
    associatedtype Result: JSONConvertible & Hashable & Sendable
    static var name: String { get }
    /// One sentence for `mayfly schema`.
    static var summary: String { get }
    /// Whether body bytes follow the request line. `body` in the request is their count.
    static var takesBody: Bool { get }
    /// Whether a call with these parameters blocks or occupies its connection. ``ControlLimits/waitingConnections``
    /// limits the number of such connections.
    static func waits(_ params: Params) -> Bool
}

extension ControlMethod {
    package static var takesBody: Bool { false }
    package static func waits(_ params: Params) -> Bool { false }
}

package struct Nothing: CodableRecord { package init() {} }

package struct Acknowledged: CodableRecord {
    package var ok = true

    package init() {}
}
