import Control
import Logging
import Messaging
import NIOCore
import NodeRuntime

/// The table of methods under construction, each answered on the node's loop.
struct NodeRouter {
    let node: Node
    private let log: Logger
    /// All that waits for a time.
    let deadlines: DeadlineQueue
    private(set) var router: ControlRouter

    /// - Parameter batch: runs its argument, which performs a batch of requests, on the node's loop.
    init(_ node: Node, log: Logger, batch: @escaping @Sendable (_ perform: () -> Void) -> Void) {
        self.node = node
        self.log = log
        deadlines = DeadlineQueue(node.loop)
        router = ControlRouter(isDescribed: { MethodCatalogue.method(named: $0) != nil }, batch: batch)
        router.on(SchemaMethod.self) { call in call.succeed(MethodCatalogue.schema) }
    }

    /// Fails a call. An error of a library may name files and addresses, so the log has its type alone.
    private var fail: @Sendable (ControlCall, any Error) -> Void {
        { [log] call, error in
            if knownError(error) == nil {
                log.error(
                    "a request failed by an unforeseen error",
                    metadata: ["method": "\(call.method)", "error": "\(type(of: error))"])
            }
            call.fail(knownError(error) ?? error)
        }
    }

    /// Answers `method` in this turn.
    mutating func on<Method: ControlMethod>(
        _ method: Method.Type, _ body: @escaping @Sendable (isolated Node, Method.Params) throws -> Method.Result
    ) {
        router.on(method) { [node, fail] call in
            node.assumeIsolated { node in do { call.succeed(try body(node, call.params)) } catch { fail(call, error) } }
        }
    }

    /// Answers `method` when what it has changed is on the disk: what was answered is true after a crash.
    mutating func durably<Method: ControlMethod>(
        _ method: Method.Type, _ body: @escaping @Sendable (isolated Node, Method.Params) throws -> Method.Result
    ) {
        later(method) { node, call in
            let result = try body(node, call.params)
            return node.whenCommitted().map { result }
        }
    }

    /// Answers `method` when the future does.
    mutating func later<Method: ControlMethod>(
        _ method: Method.Type,
        _ body: @escaping @Sendable (isolated Node, MethodCall<Method>) throws -> EventLoopFuture<Method.Result>
    ) {
        router.on(method) { [node, fail] call in
            node.assumeIsolated { node in
                do {
                    try body(node, call).assumeIsolated().whenComplete { outcome in
                        switch outcome {
                        case .success(let result): call.succeed(result)
                        case .failure(let error): fail(call, error)
                        }
                    }
                } catch { fail(call, error) }
            }
        }
    }

    /// Answers `method` by what `body` does to the call, now or later.
    mutating func call<Method: ControlMethod>(
        _ method: Method.Type, _ body: @escaping @Sendable (isolated Node, MethodCall<Method>) throws -> Void
    ) {
        router.on(method) { [node, fail] call in
            node.assumeIsolated { node in do { try body(node, call) } catch { fail(call, error) } }
        }
    }

    /// Answers `method` once the members of its conversation have a link, or have not taken one for a while: a member's
    /// inbox may be asleep.
    mutating func reaching<Method: ControlMethod>(
        _ method: Method.Type, _ conversation: @escaping @Sendable (Method.Params) -> String,
        _ body: @escaping @Sendable (isolated Node, Method.Params) throws -> EventLoopFuture<Method.Result>
    ) {
        later(method) { node, call in
            let params = call.params
            return node.whenReached(conversation(params)).flatMap { [node] in
                node.assumeIsolated { node in
                    do { return try body(node, params) } catch { return node.loop.makeFailedFuture(error) }
                }
            }
        }
    }
}
