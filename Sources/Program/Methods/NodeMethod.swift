import Control
import Messaging
import NIOCore
import NodeRuntime

/// A method of the control socket with its implementation, which runs on the node's loop.
struct NodeMethod<Params: MethodParams, Result: MethodResult>: ServedMethod {
    typealias Call = MethodCall<Params, Result>

    let name: String
    let summary: String
    let takesBody: Bool
    let waits: @Sendable (Params) -> Bool
    private let joins: Call.Joins?
    private let body: @Sendable (Call, isolated Node, MethodService) throws -> Void

    /// - Parameter answer: returns the answer to a call.
    init(
        _ name: String, _ summary: String, waits: Waiting<Params> = .never,
        _ answer: @escaping @Sendable (Params, isolated Node) throws -> Answer<Result>
    ) {
        self.init(name, summary, waits: waits) { call, node, service in
            switch try answer(call.params, node) {
            case .now(let result): call.succeed(result)
            case .later(let future): service.complete(call, future, node)
            }
        }
    }

    /// - Parameter body: settles the call and its followers, now or later. The call's parameters are cleared when it
    ///   returns.
    init(
        _ name: String, _ summary: String, takesBody: Bool = false, waits: Waiting<Params> = .never,
        joins: Call.Joins? = nil, call body: @escaping @Sendable (Call, isolated Node, MethodService) throws -> Void
    ) {
        self.name = name
        self.summary = summary
        self.takesBody = takesBody
        self.waits = waits.isNeeded
        self.joins = joins
        self.body = body
    }

    func register(in router: inout ControlRouter, _ service: MethodService) {
        router.on(self, joins: joins) { [body] call in
            service.node.assumeIsolated { node in
                do { try body(call, node, service) } catch {
                    for one in [call] + call.followers { service.fail(one, error) }
                }
            }
        }
    }
}

/// Which calls of a method wait: see ``ControlMethod/waits``.
struct Waiting<Params: MethodParams> {
    let isNeeded: @Sendable (Params) -> Bool

    static var never: Waiting { .when { _ in false } }
    static var always: Waiting { .when { _ in true } }
    static func when(_ isNeeded: @escaping @Sendable (Params) -> Bool) -> Waiting { Waiting(isNeeded: isNeeded) }
}

/// Any ``NodeMethod``.
protocol ServedMethod: ControlMethod { func register(in router: inout ControlRouter, _ service: MethodService) }

/// The result of a method, or when it follows.
enum Answer<Result: Sendable> {
    case now(Result)
    case later(EventLoopFuture<Result>)

    /// After all changes so far are durable.
    static func durable(_ result: Result, _ node: isolated Node) -> Answer {
        .later(node.whenCommitted().map { result })
    }

    /// After the members of a conversation are connected, or a timeout has passed. A member's inbox may be asleep.
    static func reaching(
        _ conversation: String, _ node: isolated Node, _ body: @escaping @Sendable (isolated Node) throws -> Answer
    ) -> Answer {
        .later(
            node.whenReached(conversation).flatMap { [node] in
                node.assumeIsolated { node in
                    do {
                        switch try body(node) {
                        case .now(let result): return node.loop.makeSucceededFuture(result)
                        case .later(let future): return future
                        }
                    } catch { return node.loop.makeFailedFuture(error) }
                }
            })
    }
}

struct ConversationParams: CodableRecord { var conversation = "" }

struct ListParams: CodableRecord {
    /// The `next` of the previous answer.
    var from: String?
}

/// - Throws: for a timeout of 0.
func positiveTime(_ timeout: Interval?) throws(ControlError) -> Milliseconds? {
    guard let timeout else { return nil }
    guard timeout.milliseconds > 0 else {
        throw ControlError(.usage, "the timeout must be more than 0", field: "timeout")
    }
    return timeout.milliseconds
}
