import Control
import Logging
import NIOCore
import NodeRuntime

/// The services that methods use beside the node.
struct MethodService: Sendable {
    let node: Node
    let log: Logger
    let logOutput: OutputQueue
    let stop: EventLoopPromise<Void>
    let hooks: HookRunner
    let reload: ReloadQueue
    let metrics: Metrics
    let metricsEndpoint: String?
    let sends: PendingSends

    /// Fails a call. The log gets only the type of a library's error, because its text may name files and addresses.
    func fail(_ call: ControlCall, _ error: any Error) {
        if knownError(error) == nil {
            log.error(
                "a request failed by an unforeseen error",
                metadata: ["method": "\(call.method)", "error": "\(type(of: error))"])
        }
        call.fail(knownError(error) ?? error)
    }

    func complete<Params: MethodParams, Output: MethodResult>(
        _ call: MethodCall<Params, Output>, _ future: EventLoopFuture<Output>, _ node: isolated Node
    ) {
        future.assumeIsolated().whenComplete { outcome in
            switch outcome {
            case .success(let result): call.succeed(result)
            case .failure(let error): fail(call, error)
            }
        }
    }
}
