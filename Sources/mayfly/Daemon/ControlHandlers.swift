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

    var router: ControlRouter {
        var router = ControlRouter()
        addNode(&router)
        addPeers(&router)
        addConversations(&router)
        addInvites(&router)
        addJoins(&router)
        addMessages(&router)
        addLifetime(&router)
        addExplosions(&router)
        addOutbox(&router)
        addEvents(&router)
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
        on(&router, StatusMethod.self) { node, _ in NodeView.status(node) }
        on(&router, StopMethod.self) { [stop] node, _ in
            node.loop.execute { stop.succeed(()) }
            return Acknowledged()
        }
        on(&router, LockMethod.self) { node, _ in
            node.lock()
            return Acknowledged()
        }
        on(&router, UnlockMethod.self) { node, params in
            if params.passphrase.isEmpty {
                try node.unlock(passphrase: nil)
            } else {
                try node.unlock(passphrase: SecretBytes(copying: params.passphrase.utf8))
            }
            return Acknowledged()
        }
        on(&router, ReapMethod.self) { node, _ in
            node.reapNow()
            return Acknowledged()
        }
        on(&router, VersionMethod.self) { node, _ in VersionMethod.Result(version: node.options.version) }
        on(&router, InboxListMethod.self) { node, _ in
            InboxListMethod.Result(
                inboxes: try node.inboxes().map { inbox in
                    Control.Inbox(
                        inbox: inbox.client.description,
                        state: inbox.isUnused ? "unused" : "awake",
                        protected: inbox.isProtected,
                        conversation: inbox.conversation?.description
                    )
                }
            )
        }
    }

    // MARK: Peers

    private func addPeers(_ router: inout ControlRouter) {
        on(&router, PeerAddMethod.self) { node, params in
            let endpoints = try Daemon.endpoints(params.endpoints ?? [], option: "--endpoint")
            return NodeView.peer(try node.addPeer(params.name, card: params.card, endpoints: endpoints), nil)
        }
        on(&router, PeerListMethod.self) { node, _ in
            PeerListMethod.Result(peers: node.allPeers().map { NodeView.peer($0.0, $0.1) })
        }
        on(&router, PeerShowMethod.self) { node, params in
            let (peer, seen) = try node.peer(params.name)
            return NodeView.peer(peer, seen)
        }
        on(&router, PeerRemoveMethod.self) { node, params in
            try node.removePeer(params.name)
            return Acknowledged()
        }
        on(&router, PeerBlockMethod.self) { node, params in
            NodeView.peer(try node.changePeer(params.name) { $0.blocked = true }, nil)
        }
        on(&router, PeerUnblockMethod.self) { node, params in
            NodeView.peer(try node.changePeer(params.name) { $0.blocked = nil }, nil)
        }
        on(&router, PeerSetMethod.self) { node, params in
            switch params.key {
            case "invitations":
                guard let value = PeersFile.Invitations(rawValue: params.value) else {
                    throw ControlError(.usage, "invitations: `\(params.value)` is not one of ask, accept, refuse")
                }
                return NodeView.peer(try node.changePeer(params.name) { $0.invitations = value }, nil)
            case "endpoints":
                let endpoints = try Daemon.endpoints(
                    params.value.split(separator: ",").map(String.init),
                    option: "endpoints"
                )
                return NodeView.peer(
                    try node.changePeer(params.name) { $0.endpoints = endpoints.isEmpty ? nil : endpoints },
                    nil
                )
            default:
                throw ControlError(.usage, "`\(params.key)` cannot be set", hint: "keys: invitations, endpoints")
            }
        }
        later(&router, PeerPingMethod.self) { node, params, _ in
            let timeout = params.timeout?.milliseconds ?? 10_000
            return try node.ping(params.name, timeout: timeout).flatMapThrowing { [node] _ in
                try node.assumeIsolated { node in
                    let (peer, seen) = try node.peer(params.name)
                    return NodeView.peer(peer, seen)
                }
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
            PeerExportMethod.Result(document: try JSONValue(encoding: node.peersFile))
        }
        on(&router, PeerImportMethod.self) { node, params in
            let file: PeersFile
            do { file = try params.document.decoded(as: PeersFile.self) } catch {
                throw ControlError(.usage, "this is not a peers file: \(error)", hint: "see peers.example.json")
            }
            try node.importPeers(file)
            return PeerImportMethod.Result(peers: node.allPeers().map { NodeView.peer($0.0, $0.1) })
        }
    }

    // MARK: Conversations

    private func addConversations(_ router: inout ControlRouter) {
        later(&router, ConversationCreateMethod.self) { node, params, _ in
            for name in params.peers ?? [] {
                let (peer, _) = try node.peer(name)
                if peer.card == nil { throw NodeError.peerWithoutCard(name) }
            }
            return try node.createConversation(name: params.name, profile: params.profile).flatMap { [node] made in
                node.assumeIsolated { node in
                    let result = ConversationCreateMethod.Result(
                        conversation: made.conversation.description,
                        inbox: made.client.description,
                        name: made.record.name,
                        inviteTag: made.invites?.tag.description ?? ""
                    )
                    return Self.invite(params.peers ?? [], to: made, node).map { result }
                }
            }
        }
        on(&router, ConversationListMethod.self) { node, _ in
            ConversationListMethod.Result(conversations: try node.conversations().map(NodeView.conversation))
        }
        on(&router, ConversationShowMethod.self) { node, params in
            NodeView.conversation(try node.conversation(params.conversation))
        }
        on(&router, ConversationMembersMethod.self) { node, params in
            NodeView.conversation(try node.conversation(params.conversation))
        }
        durably(&router, ConversationCloseMethod.self) { node, params in
            try node.close(params.conversation)
            return NodeView.conversation(try node.conversation(params.conversation))
        }
        durably(&router, ConversationLeaveMethod.self) { node, params in
            var view = NodeView.conversation(try node.conversation(params.conversation))
            _ = try node.leave(params.conversation)
            view.state = "left"
            return view
        }
        durably(&router, ConversationLockMethod.self) { node, params in
            try node.setLocked(params.conversation, true)
            return NodeView.conversation(try node.conversation(params.conversation))
        }
        durably(&router, ConversationUnlockMethod.self) { node, params in
            try node.setLocked(params.conversation, false)
            return NodeView.conversation(try node.conversation(params.conversation))
        }
    }

    /// One single-use invite for each peer, sent to its contact inbox.
    private static func invite(
        _ peers: [String],
        to conversation: ConversationStateMachine,
        _ node: isolated Node
    ) -> EventLoopFuture<Void> {
        let id = conversation.conversation.description
        let name = conversation.record.name
        return EventLoopFuture.andAllSucceed(
            peers.map { peer in
                do {
                    return try node.invite(id, lifetime: Limits.inviteLifetime, singleUse: true)
                        .flatMapThrowing { [node] invite, slug in
                            try node.assumeIsolated {
                                try $0.sendInvitation(slug, invite: invite, name: name, to: peer)
                            }
                        }
                } catch {
                    return node.loop.makeFailedFuture(error)
                }
            },
            on: node.loop
        )
    }

    // MARK: Invites

    private func addInvites(_ router: inout ControlRouter) {
        later(&router, InviteCreateMethod.self) { node, params, _ in
            let lifetime = params.expiresIn?.milliseconds ?? Limits.inviteLifetime
            guard (1_000...Limits.inviteMaximumLifetime).contains(lifetime) else {
                throw ControlError(.usage, "--expires-in: an invite lives between 1 s and 7 d")
            }
            return try node.invite(params.conversation, lifetime: lifetime, singleUse: params.singleUse ?? false)
                .map { Control.Invite($0, slug: $1) }
        }
        on(&router, InviteListMethod.self) { node, params in
            let conversation = try node.conversation(params.conversation)
            let now = node.currentTime
            let issued = conversation.invites?.invites ?? []
            return InviteListMethod.Result(
                invites: issued.filter { $0.expiresAt > now && $0.tag == conversation.invites?.tag && !$0.isRevoked }
                    .map {
                        NodeView.issuedInvite($0, conversation)
                    }
            )
        }
        durably(&router, InviteRevokeMethod.self) { node, params in
            try node.revokeInvites(params.conversation)
            let conversation = try node.conversation(params.conversation)
            return InviteRevokeMethod.Result(
                ok: true,
                conversation: conversation.conversation.description,
                tag: conversation.invites?.tag.description ?? ""
            )
        }
        on(&router, InviteInspectMethod.self) { _, params in
            Control.Invite(try Node.inspect(params.slug), slug: params.slug)
        }
    }

    // MARK: Joins

    private func addJoins(_ router: inout ControlRouter) {
        later(&router, JoinMethod.self) { node, params, connection in
            let client: ClientID
            do throws(NodeError) {
                client = try node.join(try NodeView.slug(params.slug, node), profile: params.profile)
            } catch {
                // Asked again: the same join, or the conversation that it led to.
                guard case .command(.alreadyMember(let known)) = error else { throw error }
                client = known
            }
            if params.wait == false {
                let started = NodeView.join(client, node)
                return node.whenCommitted().map { started }
            }
            return Self.wait(
                node,
                for: connection,
                timeout: params.timeout?.milliseconds ?? 60_000,
                timedOut: { node in
                    if let answer = NodeView.endedJoin(client, node) { return .success(answer) }
                    return .success(NodeView.join(client, node))
                },
                check: { node in NodeView.endedJoin(client, node).map { .success($0) } }
            )
        }
        on(&router, JoinListMethod.self) { node, _ in
            JoinListMethod.Result(
                joins: node.invitations().map(NodeView.invitation)
                    + (try node.joins()).map { NodeView.join($0.client, node) }
            )
        }
        durably(&router, JoinCancelMethod.self) { node, params in
            let matches = node.invitations().filter { $0.id.description.hasPrefix(params.join.lowercased()) }
            if matches.count == 1, !params.join.isEmpty {
                node.dismissInvitation(matches[0].id)
                var status = NodeView.invitation(matches[0])
                status.state = .cancelled
                return status
            }
            var status = NodeView.join(try node.resolveJoin(params.join).client, node)
            try node.cancelJoin(params.join)
            status.state = .cancelled
            return status
        }
    }

    // MARK: Messages

    private func addMessages(_ router: inout ControlRouter) {
        later(&router, SendMethod.self) { node, params, connection in
            if params.file != nil {
                throw ControlError(.failed, "files are not supported by this version", hint: "send text")
            }
            if params.replyTo != nil {
                throw ControlError(
                    .failed,
                    "replies are not supported by this version",
                    hint: "send without --reply-to"
                )
            }
            let (client, sent) = try node.send(params.conversation, text: params.text)
            return sent.flatMap { [node] id in
                node.assumeIsolated { node in
                    Self.wait(
                        node,
                        for: connection,
                        message: id,
                        concerns: { kind in
                            // That it was sent is no news to who waits for its delivery.
                            if case .messageState(_, .sent, _) = kind { params.wait != .delivered } else { true }
                        },
                        timeout: params.timeout?.milliseconds ?? 60_000,
                        timedOut: { _ in
                            .failure(
                                NodeError.timedOut(
                                    "message \(id) was not \(params.wait?.rawValue ?? "sent") in time; it stays in the outbox"
                                )
                            )
                        },
                        check: { node in NodeView.sentMessage(id, client, until: params.wait ?? .queued, node) }
                    )
                }
            }
        }
        on(&router, ReadMethod.self) { node, params in
            let page = 256
            let (conversation, messages) = try node.read(params.conversation, last: params.last, after: params.since)
            let shown = messages.prefix(page)
            return ReadMethod.Result(
                messages: shown.map { NodeView.message($0, conversation) },
                more: messages.count > page ? true : nil
            )
        }
    }

    // MARK: Lifetime

    private func addLifetime(_ router: inout ControlRouter) {
        on(&router, LifetimeShowMethod.self) { node, params in try NodeView.lifetime(params.conversation, node) }
        on(&router, LifetimeProposeMethod.self) { node, params in
            do throws(NodeError) {
                try node.propose(params.conversation, Lifetime(params.lifetime))
            } catch {
                // Proposing what is in force is done already.
                guard case .command(.lifetime(.alreadyAgreed)) = error else { throw error }
            }
            return try NodeView.lifetime(params.conversation, node)
        }
        later(&router, LifetimeAcceptMethod.self) { node, params, _ in
            try node.accept(params.conversation).flatMapThrowing { [node] in
                try node.assumeIsolated { try NodeView.lifetime(params.conversation, $0) }
            }
        }
        on(&router, LifetimeRejectMethod.self) { node, params in
            try node.reject(params.conversation)
            return try NodeView.lifetime(params.conversation, node)
        }
        on(&router, LifetimeWithdrawMethod.self) { node, params in
            try node.withdraw(params.conversation)
            return try NodeView.lifetime(params.conversation, node)
        }
        durably(&router, LifetimePolicyMethod.self) { node, params in
            if let text = params.policy {
                guard let policy = Messaging.LifetimePolicy(text) else {
                    throw ControlError(
                        .usage,
                        "`\(text)` is not a policy",
                        hint: "write accept-up-to:7d, ask or refuse"
                    )
                }
                if let conversation = params.conversation {
                    try node.setPolicy(conversation, policy)
                } else {
                    try node.setDefaultPolicy(policy)
                }
            }
            guard let conversation = params.conversation else {
                return Control.LifetimePolicy(policy: node.policyByDefault.text)
            }
            let machine = try node.conversation(conversation)
            return Control.LifetimePolicy(
                policy: (machine.policy ?? node.policyByDefault).text,
                conversation: machine.conversation.description
            )
        }
    }

    // MARK: Explosions

    private func addExplosions(_ router: inout ControlRouter) {
        later(&router, ExplodeMethod.self) { node, params, _ in
            if params.at != nil || params.delay != nil {
                throw ControlError(
                    .failed,
                    "scheduled explosions are not supported by this version",
                    hint: "explode without --at and --in"
                )
            }
            if params.noTrace == true {
                throw ControlError(.failed, "--no-trace is not supported by this version")
            }
            if let record = try? node.explosion(params.conversation) {
                return node.loop.makeSucceededFuture(NodeView.explosion(record))
            }
            let conversation = try node.explode(params.conversation)
            guard let record = try node.explosion(conversation.description) else {
                throw ControlError(.failed, "the conversation could not be exploded")
            }
            // So that after a crash the members are still told. The keys are gone in any case, on a full disk too.
            let status = NodeView.explosion(record)
            return node.whenCommitted().map { status }.flatMapErrorThrowing { _ in status }
        }
        on(&router, ExplodeStatusMethod.self) { node, params in
            if let record = try node.explosion(params.conversation) { return NodeView.explosion(record) }
            let conversation = try node.conversation(params.conversation)
            return ExplosionStatus(
                conversation: conversation.conversation.description,
                state: "none",
                confirmed: [],
                waiting: []
            )
        }
    }

    // MARK: Outbox

    private func addOutbox(_ router: inout ControlRouter) {
        on(&router, OutboxListMethod.self) { node, params in
            let only = try params.conversation.map { try node.resolve($0) }
            return OutboxListMethod.Result(
                messages: try node.outbox().filter { only == nil || $0.conversation.client == only }
                    .map { NodeView.outbox($0) }
            )
        }
        durably(&router, OutboxCancelMethod.self) { node, params in
            var entry = NodeView.outbox(try node.cancelMessage(params.message))
            entry.state = "cancelled"
            return entry
        }
        on(&router, OutboxRetryMethod.self) { node, params in NodeView.outbox(try node.retryMessage(params.message)) }
    }
}
