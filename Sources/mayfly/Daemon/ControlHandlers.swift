import Control
import Messaging
import NIOCore
import NodeRuntime
import Primitives
import Store

/// The methods of the control socket, answered by the node. Server and node share one event loop, so a request is
/// answered in the turn in which it came unless it asks to wait.
struct ControlHandlers: Sendable {
    let node: Node
    /// Succeeds when the node is asked to stop.
    let stop: EventLoopPromise<Void>
    /// `nil` when the configuration has none.
    var hooks: HookRunner?

    var router: ControlRouter {
        var router = ControlRouter()
        addNode(&router)
        addPeers(&router)
        addConversations(&router)
        addMembership(&router)
        addInvites(&router)
        addJoins(&router)
        addMessages(&router)
        addLifetime(&router)
        addExplosions(&router)
        addOutbox(&router)
        addInboxes(&router)
        addEvents(&router)
        addContents(&router)
        return router
    }

    // MARK: Steps

    /// Answers `method` in this turn.
    func on<Method: ControlMethod>(
        _ router: inout ControlRouter,
        _ method: Method.Type,
        _ body: @escaping @Sendable (isolated Node, Method.Params) throws -> Method.Result
    ) {
        later(&router, method) { node, params, _ in node.loop.makeSucceededFuture(try body(node, params)) }
    }

    /// Answers `method` when what it has changed is on the disk: what was answered is true after a crash.
    func durably<Method: ControlMethod>(
        _ router: inout ControlRouter,
        _ method: Method.Type,
        _ body: @escaping @Sendable (isolated Node, Method.Params) throws -> Method.Result
    ) where Method.Result: Sendable {
        later(&router, method) { node, params, _ in
            let result = try body(node, params)
            return node.whenCommitted().map { result }
        }
    }

    /// Answers `method` when the future does.
    func later<Method: ControlMethod>(
        _ router: inout ControlRouter,
        _ method: Method.Type,
        _ body:
            @escaping @Sendable (isolated Node, Method.Params, ControlConnection) throws -> EventLoopFuture<
                Method.Result
            >
    ) {
        router.on(method) { [node] params, connection in
            do {
                return try node.assumeIsolated { try body($0, params, connection) }
                    .flatMapErrorThrowing { throw controlError($0) }
            } catch {
                throw controlError(error)
            }
        }
    }

    /// Waits until `check` gives an answer: asked now, and again after every event.
    /// - Parameters:
    ///   - message: leave out the events of other messages.
    ///   - concerns: leave out all other events.
    static func wait<Answer: Sendable>(
        _ node: isolated Node,
        for connection: ControlConnection,
        message: Messaging.MessageID? = nil,
        concerns: @escaping @Sendable (Messaging.Event.Kind) -> Bool = { _ in true },
        timeout: Milliseconds,
        timedOut: @escaping @Sendable (isolated Node) -> Result<Answer, any Error>,
        check: @escaping @Sendable (isolated Node) -> Result<Answer, any Error>?
    ) -> EventLoopFuture<Answer> {
        if let answer = check(node) { return node.loop.makeCompletedFuture(answer) }
        let promise = node.loop.makePromise(of: Answer.self)
        let timer = node.loop.scheduleTask(in: .milliseconds(timeout)) {
            node.assumeIsolated { promise.completeWith(timedOut($0)) }
        }
        let told: (EventLog.Entry) -> Void = { entry in
            guard concerns(entry.event.kind) else { return }
            node.assumeIsolated { if let answer = check($0) { promise.completeWith(answer) } }
        }
        let watcher = message.map { node.watch($0, told) } ?? node.watch(told)
        let waiter = connection.onClose { promise.fail(CancellationError()) }
        promise.futureResult.whenComplete { _ in
            timer.cancel()
            connection.removeOnClose(waiter)
            node.assumeIsolated { node in
                if let message { node.unwatch(message, watcher) } else { node.unwatch(watcher) }
            }
        }
        return promise.futureResult
    }

    // MARK: The node

    private func addNode(_ router: inout ControlRouter) {
        on(&router, StatusMethod.self) { [hooks] node, _ in NodeView.status(node, hooks: hooks) }
        on(&router, StopMethod.self) { [stop] node, _ in
            node.loop.execute { stop.succeed(()) }
            return StopMethod.Result(forgotten: node.unreadInMemoryCount)
        }
        on(&router, LockMethod.self) { node, _ in
            node.lock()
            return Acknowledged()
        }
        later(&router, UnlockMethod.self) { node, params, _ in
            guard !params.passphrase.isEmpty else {
                if node.status().protection == .passphrase { throw StoreError.passphraseNeeded }
                try node.unlock(passphrase: nil)
                return node.loop.makeSucceededFuture(Acknowledged())
            }
            return node.unlocking(passphrase: SecretBytes(copying: params.passphrase.utf8)).map { Acknowledged() }
        }
        on(&router, ReapMethod.self) { node, _ in
            node.reapNow()
            return Acknowledged()
        }
        later(&router, NetcheckMethod.self) { node, params, _ in
            let mapsPorts = params.mapPorts ?? false
            // A slow gateway takes seconds for each question.
            let timeout = try Self.positive(params.timeout) ?? (mapsPorts ? 30_000 : 10_000)
            let isLocked = node.status().isLocked
            return node.netcheck(timeout: timeout, mapsPorts: mapsPorts)
                .map { NodeView.netcheck($0, isLocked: isLocked) }
        }
        on(&router, VersionMethod.self) { node, _ in VersionMethod.Result(version: node.options.version) }
    }

    /// - Throws: when no time at all is given to something that takes some.
    private static func positive(_ timeout: Interval?) throws(ControlError) -> Milliseconds? {
        guard let timeout else { return nil }
        guard timeout.milliseconds > 0 else {
            throw ControlError(.usage, "a timeout of nothing leaves nobody time to answer", field: "timeout")
        }
        return timeout.milliseconds
    }

    // MARK: Peers

    private func addPeers(_ router: inout ControlRouter) {
        on(&router, PeerAddMethod.self) { node, params in
            let endpoints = try Daemon.endpoints(params.endpoints ?? [], option: "--endpoint")
            _ = try node.addPeer(params.name, card: params.card, endpoints: endpoints)
            return try Self.peer(params.name, node)
        }
        on(&router, PeerListMethod.self) { node, _ in
            PeerListMethod.Result(peers: try NodeView.peers(node))
        }
        on(&router, PeerShowMethod.self) { node, params in try Self.peer(params.name, node) }
        on(&router, PeerRemoveMethod.self) { node, params in
            try node.removePeer(params.name)
            return Acknowledged()
        }
        on(&router, PeerBlockMethod.self) { node, params in
            try node.blockPeer(params.name)
            return try Self.peer(params.name, node)
        }
        on(&router, PeerUnblockMethod.self) { node, params in
            _ = try node.changePeer(params.name) { $0.blocked = nil }
            return try Self.peer(params.name, node)
        }
        on(&router, PeerSetMethod.self) { node, params in
            switch params.key {
            case "invitations":
                guard let value = PeersFile.Invitations(rawValue: params.value) else {
                    throw ControlError(.usage, "invitations: `\(params.value)` is not one of ask, accept, refuse")
                }
                _ = try node.changePeer(params.name) { $0.invitations = value }
                return try Self.peer(params.name, node)
            case "endpoints":
                let endpoints = try Daemon.endpoints(
                    params.value.split(separator: ",").map(String.init),
                    option: "endpoints"
                )
                _ = try node.changePeer(params.name) { $0.endpoints = endpoints.isEmpty ? nil : endpoints }
                return try Self.peer(params.name, node)
            case "rendezvous":
                guard ["on", "off"].contains(params.value) else {
                    throw ControlError(.usage, "rendezvous: `\(params.value)` is not one of on, off")
                }
                try node.setRendezvous(params.name, params.value == "on")
                return try Self.peer(params.name, node)
            default:
                throw ControlError(
                    .usage,
                    "`\(params.key)` cannot be set",
                    hint: "keys: invitations, endpoints, rendezvous"
                )
            }
        }
        later(&router, PeerPingMethod.self) { node, params, _ in
            let timeout = try Self.positive(params.timeout) ?? 10_000
            return try node.ping(params.name, timeout: timeout).flatMapThrowing { [node] _ in
                try node.assumeIsolated { try Self.peer(params.name, $0) }
            }
        }
        on(&router, PeerCardMethod.self) { node, _ in
            let card = try node.card()
            return PeerCardMethod.Result(
                name: node.configuredName,
                endpoints: card.endpoints.map(\.description),
                contact: card.description
            )
        }
        on(&router, PeerExportMethod.self) { node, _ in
            PeerExportMethod.Result(document: try JSONValue(encoding: try node.peersFile()))
        }
        on(&router, PeerImportMethod.self) { node, params in
            let file: PeersFile
            do throws(JSONMismatch) { file = try params.document.decoded(as: PeersFile.self) } catch {
                throw ControlError(
                    .usage,
                    "this is not a peers file: `\(error.field)` \(error.message)",
                    hint: "see peers.example.json",
                    field: error.field
                )
            }
            try node.importPeers(file)
            return PeerImportMethod.Result(peers: try NodeView.peers(node))
        }
    }

    private static func peer(_ name: String, _ node: isolated Node) throws(NodeError) -> Peer {
        NodeView.peer(try node.peer(name).0, node.peerPresences()[name])
    }

}
