import Control
import Crypto
import Messaging
import NIOCore
import NodeRuntime
import Store

struct NodeHandlers: Sendable {
    let stop: EventLoopPromise<Void>
    let hooks: HookRunner
    let log: OutputQueue
    let reload: ReloadQueue
    let metrics: Metrics
    let metricsEndpoint: String?

    func add(to router: inout NodeRouter) {
        router.on(Methods.status) { [hooks, log, metricsEndpoint] node, _ in
            StatusView.status(node, hooks: hooks, droppedLogLines: log.droppedCount, metrics: metricsEndpoint)
        }
        router.on(Methods.mailboxStatus) { node, _ in MailboxView.status(node, withBoxes: true) }
        router.later(Methods.metrics) { [metrics] _, _ in metrics.text().map { MetricsResult(text: $0) } }
        router.on(Methods.stop) { [stop] node, _ in
            node.loop.execute { stop.succeed(()) }
            return StopResult(forgotten: node.unreadInMemoryCount)
        }
        router.on(Methods.lock) { node, _ in
            node.lock()
            return Acknowledged()
        }
        router.later(Methods.unlock) { node, call in
            let params = call.params
            guard !params.passphrase.isEmpty else {
                if node.status().protection == .passphrase { throw StoreError.passphraseNeeded }
                try node.unlock(passphrase: nil)
                return node.loop.makeSucceededFuture(Acknowledged())
            }
            return node.unlocking(passphrase: SecretBytes(copying: params.passphrase.utf8)).map { Acknowledged() }
        }
        router.on(Methods.reap) { node, _ in
            node.reapNow()
            return Acknowledged()
        }
        router.later(Methods.netcheck) { node, call in
            let params = call.params
            let mapsPorts = params.mapPorts ?? false
            // A slow gateway takes seconds for each query.
            let timeout = try positiveTime(params.timeout) ?? (mapsPorts ? 30_000 : 10_000)
            let isLocked = node.status().isLocked
            return node.netcheck(timeout: timeout, mapsPorts: mapsPorts).map {
                NetworkView.netcheck($0, isLocked: isLocked)
            }
        }
        router.later(Methods.configReload) { [reload] node, _ in reload.ask(on: node.loop) }
        router.on(Methods.version) { node, _ in VersionResult(version: node.options.version) }
    }
}

/// - Throws: for a timeout of 0.
func positiveTime(_ timeout: Interval?) throws(ControlError) -> Milliseconds? {
    guard let timeout else { return nil }
    guard timeout.milliseconds > 0 else {
        throw ControlError(.usage, "the timeout must be more than 0", field: "timeout")
    }
    return timeout.milliseconds
}
