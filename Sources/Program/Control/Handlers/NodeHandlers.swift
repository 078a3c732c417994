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
        router.on(StatusMethod.self) { [hooks, log, metricsEndpoint] node, _ in
            StatusView.status(node, hooks: hooks, droppedLogLines: log.droppedCount, metrics: metricsEndpoint)
        }
        router.on(MailboxStatusMethod.self) { node, _ in MailboxView.status(node, withBoxes: true) }
        router.later(MetricsMethod.self) { [metrics] _, _ in metrics.text().map { MetricsMethod.Result(text: $0) } }
        router.on(StopMethod.self) { [stop] node, _ in
            node.loop.execute { stop.succeed(()) }
            return StopMethod.Result(forgotten: node.unreadInMemoryCount)
        }
        router.on(LockMethod.self) { node, _ in
            node.lock()
            return Acknowledged()
        }
        router.later(UnlockMethod.self) { node, call in
            let params = call.params
            guard !params.passphrase.isEmpty else {
                if node.status().protection == .passphrase { throw StoreError.passphraseNeeded }
                try node.unlock(passphrase: nil)
                return node.loop.makeSucceededFuture(Acknowledged())
            }
            return node.unlocking(passphrase: SecretBytes(copying: params.passphrase.utf8)).map { Acknowledged() }
        }
        router.on(ReapMethod.self) { node, _ in
            node.reapNow()
            return Acknowledged()
        }
        router.later(NetcheckMethod.self) { node, call in
            let params = call.params
            let mapsPorts = params.mapPorts ?? false
            // A slow gateway takes seconds for each query.
            let timeout = try positiveTime(params.timeout) ?? (mapsPorts ? 30_000 : 10_000)
            let isLocked = node.status().isLocked
            return node.netcheck(timeout: timeout, mapsPorts: mapsPorts).map {
                NetworkView.netcheck($0, isLocked: isLocked)
            }
        }
        router.later(ConfigReloadMethod.self) { [reload] node, _ in reload.ask(on: node.loop) }
        router.on(VersionMethod.self) { node, _ in VersionMethod.Result(version: node.options.version) }
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
