import Control
import Cryptography
import Logging
import Messaging
import NIOCore
import NodeRuntime
import Store

/// The node's methods on the control socket. A request without a wait is answered in the turn of the node's loop that
/// received it.
enum ControlHandlers {
    static func router(_ node: Node, _ handlers: NodeHandlers, stack: StackWiper, log: Logger) -> ControlRouter {
        var router = NodeRouter(node, log: log) { perform in
            stack.wipeSoon()
            perform()
        }
        let sends = PendingSends(node, router.deadlines)
        handlers.add(to: &router)
        PassphraseHandlers.add(to: &router)
        PeerHandlers.add(to: &router)
        ConversationHandlers.add(to: &router)
        InviteHandlers.add(to: &router)
        JoinHandlers(deadlines: router.deadlines).add(to: &router)
        MessageHandlers(sends: sends).add(to: &router)
        AttachmentHandlers(sends: sends).add(to: &router)
        LifetimeHandlers.add(to: &router)
        ExplosionHandlers.add(to: &router)
        OutboxHandlers.add(to: &router)
        InboxHandlers.add(to: &router)
        EventHandlers.add(to: &router)
        return router.router
    }
}

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

enum PassphraseHandlers {
    static func add(to router: inout NodeRouter) {
        router.later(Methods.passphraseChange) { node, call in
            let params = call.params
            return try change(.init(old: params.passphrase, new: params.newPassphrase), node)
        }
        router.later(Methods.passphraseSet) { node, call in try change(.init(new: call.params.newPassphrase), node) }
        router.later(Methods.passphraseDrop) { node, call in try change(.init(old: call.params.passphrase), node) }
    }

    private static func change(_ change: PassphraseChange, _ node: isolated Node) throws -> EventLoopFuture<
        ProtectionResult
    > {
        let state = node.status()
        try change.check(against: state.protection)
        let old: SecretBytes? = change.old.map { SecretBytes(copying: $0.utf8) }
        let new: SecretBytes? = change.new.map { SecretBytes(copying: $0.utf8) }
        let result = ProtectionResult(
            protection: change.new == nil ? "key file" : "passphrase", erasure: state.erasure.erasure.rawValue)
        return node.changingProtection(from: old, to: new).map { result }
    }
}

/// A change of a home's protection: a passphrase or a key file.
struct PassphraseChange {
    /// `nil` for a home with a key file.
    var old: String?
    /// `nil` for a key file.
    var new: String?

    /// - Throws: when the change does not fit the present protection, or the new passphrase is empty.
    func check(against protection: Protection) throws(ControlError) {
        if old == nil, protection == .passphrase {
            throw ControlError(
                .failed, "this home has a passphrase already", hint: "replace it with `mayfly passphrase change`")
        }
        if old != nil, protection == .keyFile {
            throw ControlError(
                .failed, "this home has a key file and no passphrase", hint: "give it one with `mayfly passphrase set`")
        }
        for (field, passphrase) in [("passphrase", old), ("newPassphrase", new)] {
            guard let passphrase else { continue }
            if passphrase.isEmpty { throw ControlError(.usage, "the passphrase is empty", field: field) }
            guard passphrase.utf8.count <= Passphrase.byteLimit else {
                throw ControlError(.usage, "the passphrase is longer than \(Passphrase.byteLimit) bytes", field: field)
            }
        }
        if let old, old == new {
            throw ControlError(.usage, "the new passphrase is the old one", field: "newPassphrase")
        }
    }
}

enum InboxHandlers {
    static func add(to router: inout NodeRouter) {
        router.on(Methods.inboxList) { node, _ in InboxListResult(inboxes: try node.inboxStates().map(InboxView.inbox))
        }
        router.durably(Methods.inboxWake) { node, params in InboxView.inbox(try node.wakeInbox(params.inbox)) }
        router.durably(Methods.inboxSleep) { node, params in InboxView.inbox(try node.sleepInbox(params.inbox)) }
        router.durably(Methods.inboxRebalance) { node, _ in
            let (slept, woken) = try node.rebalance()
            return InboxRebalanceResult(woken: woken, slept: slept, capacity: node.capacity)
        }
    }
}
