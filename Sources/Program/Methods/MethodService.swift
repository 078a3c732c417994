import Control
import Logging
import NIOCore
import NodeRuntime

/// The services that methods use beside the node.
final class MethodService: Sendable {
    let node: Node
    let log: Logger
    let logOutput: OutputQueue
    let stop: EventLoopPromise<Void>
    let hooks: HookRunner
    let reload: ReloadQueue
    let metrics: Metrics
    let metricsEndpoint: String?
    let deadlines: DeadlineQueue
    let sends: PendingSends

    init(
        _ node: Node, log: Logger, _ logOutput: OutputQueue, stop: EventLoopPromise<Void>, hooks: HookRunner,
        reload: ReloadQueue, metrics: Metrics, metricsEndpoint: String?
    ) {
        self.node = node
        self.log = log
        self.logOutput = logOutput
        self.stop = stop
        self.hooks = hooks
        self.reload = reload
        self.metrics = metrics
        self.metricsEndpoint = metricsEndpoint
        deadlines = DeadlineQueue(node.loop)
        sends = PendingSends(node, deadlines)
    }

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
            case .failure(let error): self.fail(call, error)
            }
        }
    }
}
