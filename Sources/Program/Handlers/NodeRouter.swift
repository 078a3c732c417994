import Control
import Logging
import Messaging
import NIOCore
import NodeRuntime

/// Builds the method table. Handlers run on the node's loop.
struct NodeRouter {
    let node: Node
    private let log: Logger
    let deadlines: DeadlineQueue
    private(set) var router: ControlRouter

    /// - Parameter batch: runs its argument, which executes a batch of requests, on the node's loop.
    init(_ node: Node, log: Logger, batch: @escaping @Sendable (_ perform: () -> Void) -> Void) {
        self.node = node
        self.log = log
        deadlines = DeadlineQueue(node.loop)
        router = Methods.router(batch: batch)
    }

    /// Fails a call. The log gets only the type of a library's error, because its text may name files and addresses.
    var fail: @Sendable (ControlCall, any Error) -> Void {
        { [log] call, error in
            if knownError(error) == nil {
                log.error(
                    "a request failed by an unforeseen error",
                    metadata: ["method": "\(call.method)", "error": "\(type(of: error))"])
            }
            call.fail(knownError(error) ?? error)
        }
    }

    mutating func on<Params: MethodParams, Output: MethodResult>(
        _ method: RPCMethod<Params, Output>, _ body: @escaping @Sendable (isolated Node, Params) throws -> Output
    ) { self.call(method) { node, call in call.succeed(try body(node, call.params)) } }

    /// Responds only after the change is durable.
    mutating func durably<Params: MethodParams, Output: MethodResult>(
        _ method: RPCMethod<Params, Output>, _ body: @escaping @Sendable (isolated Node, Params) throws -> Output
    ) {
        later(method) { node, call in
            let result = try body(node, call.params)
            return node.whenCommitted().map { result }
        }
    }

    mutating func later<Params: MethodParams, Output: MethodResult>(
        _ method: RPCMethod<Params, Output>,
        _ body: @escaping @Sendable (isolated Node, MethodCall<Params, Output>) throws -> EventLoopFuture<Output>
    ) {
        self.call(method) { [fail] node, call in
            try body(node, call).assumeIsolated().whenComplete { outcome in
                switch outcome {
                case .success(let result): call.succeed(result)
                case .failure(let error): fail(call, error)
                }
            }
        }
    }

    mutating func call<Params: MethodParams, Output: MethodResult>(
        _ method: RPCMethod<Params, Output>, joins: MethodCall<Params, Output>.Joins? = nil,
        _ body: @escaping @Sendable (isolated Node, MethodCall<Params, Output>) throws -> Void
    ) {
        router.on(method, joins: joins) { [node, fail] call in
            node.assumeIsolated { node in
                do { try body(node, call) } catch { for one in [call] + call.followers { fail(one, error) } }
            }
        }
    }

    /// Dials the members, waits until they are connected or a timeout passes, then responds. A member's inbox may be
    /// asleep.
    mutating func reaching<Params: MethodParams, Output: MethodResult>(
        _ method: RPCMethod<Params, Output>, _ conversation: @escaping @Sendable (Params) -> String,
        _ body: @escaping @Sendable (isolated Node, Params) throws -> EventLoopFuture<Output>
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
