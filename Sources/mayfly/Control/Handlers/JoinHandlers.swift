import Control
import Messaging
import NIOCore
import NodeRuntime

/// Joins.
struct JoinHandlers: Sendable {
    let deadlines: DeadlineQueue

    func add(to router: inout NodeRouter) {
        router.call(JoinMethod.self) { node, call in
            // The call has them only until this body returns.
            let params = call.params
            guard SpokenCode.isMeant(by: params.slug) else {
                guard params.at == nil else {
                    throw ControlError(.usage, "--at is for a code; an invite says itself where to go")
                }
                return try join(by: params.slug, nil, params, call, node)
            }
            let code = try Node.code(params.slug)
            let place = try params.at.map { text throws(ControlError) in try EndpointOption.place(text, option: "--at")
            }
            try node.invite(for: code, at: place).assumeIsolated().whenComplete { [node] outcome in
                node.assumeIsolated { node in
                    do {
                        let found = try outcome.get()
                        try join(by: found.slug, found, params, call, node)
                    } catch {
                        call.fail(controlError(error))
                    }
                }
            }
        }
        router.on(JoinListMethod.self) { node, _ in
            let joins = try node.joins().map { try JoinView.join($0.client, node) }
            return JoinListMethod.Result(joins: node.invitations().map(JoinView.invitation) + joins)
        }
        router.on(JoinRetryMethod.self) { node, params in try JoinView.join(try node.retryJoin(params.join), node) }
        router.durably(JoinCancelMethod.self) { node, params in
            let prefix = params.join.lowercased()
            let invitations = node.invitations().filter { $0.id.description.hasPrefix(prefix) }
            // Neither is given up for the other.
            let ids =
                invitations.map(\.id.description)
                + (try node.joins()).map(\.client.description).filter { $0.hasPrefix(prefix) }
            if !prefix.isEmpty, ids.count > 1 { throw NodeError.ambiguous(params.join, matches: ids) }
            if !prefix.isEmpty, let invitation = invitations.first {
                node.dismissInvitation(invitation.id)
                var status = JoinView.invitation(invitation)
                status.state = .cancelled
                return status
            }
            var status = try JoinView.join(try node.resolveJoin(params.join).client, node)
            try node.cancelJoin(params.join)
            status.state = .cancelled
            return status
        }
    }

    /// Begins a join, and answers the call when it has begun or ended.
    /// - Parameter found: what has led to the invite, if a code has.
    private func join(
        by slug: String,
        _ found: CodeInvite?,
        _ params: JoinMethod.Params,
        _ call: MethodCall<JoinMethod>,
        _ node: isolated Node
    ) throws {
        let client: ClientID
        do throws(NodeError) {
            // Only what a person has typed may be the id of an invitation: a code's invite comes from another node.
            let slug = found == nil ? try JoinView.slug(slug, node) : slug
            client = try node.join(slug, profile: params.profile, alias: params.alias)
        } catch {
            if found != nil, case .invite = error {
                throw ControlError(
                    .refused,
                    "the node that has the code sent no invite",
                    hint: "ask the person who made it for a new one"
                )
            }
            // Asked again: the same join, or the conversation that it led to.
            guard case .command(.alreadyMember(let known)) = error else { throw error }
            if let machine = try? node.conversation(known.description), machine.record.isRemoved {
                throw ControlError(
                    .refused,
                    "you were removed from this conversation",
                    hint: "`mayfly conversation leave \(known)` first, then join with a new invite"
                )
            }
            if let alias = params.alias { try node.assignAlias(alias, to: known) }
            client = known
        }
        if let found { node.dial(client, found) }
        if params.wait == false {
            let started = try JoinView.join(client, node)
            node.whenCommitted().assumeIsolated().whenComplete { outcome in
                call.complete(outcome.map { started }.mapError { controlError($0) })
            }
            return
        }
        wait(for: client, params.timeout, call, node)
    }

    /// Answers a call when its join has ended: asked now, and again after every event.
    private func wait(
        for client: ClientID,
        _ timeout: Interval?,
        _ call: MethodCall<JoinMethod>,
        _ node: isolated Node
    ) {
        if let answer = JoinWait.answer(client, node) { return call.complete(answer) }
        let wait = JoinWait(client, timeout, call, deadlines)
        wait.begin(node)
    }
}

/// A request that waits for the end of a join. Used on the node's loop only.
private final class JoinWait: @unchecked Sendable {
    // @unchecked: every mutable property is touched on the node's loop alone.

    private let client: ClientID
    private let timeout: Interval?
    private let call: MethodCall<JoinMethod>
    private let deadlines: DeadlineQueue
    /// `nil` before the wait begins and after its end.
    private var watcher: UInt64?
    private var deadline: UInt64 = 0
    private var closeAction: UInt64 = 0

    init(
        _ client: ClientID,
        _ timeout: Interval?,
        _ call: MethodCall<JoinMethod>,
        _ deadlines: DeadlineQueue
    ) {
        self.client = client
        self.timeout = timeout
        self.call = call
        self.deadlines = deadlines
    }

    /// How the join has ended; `nil` while it goes on.
    static func answer(_ client: ClientID, _ node: isolated Node) -> Result<JoinStatus, any Error>? {
        // The join goes on; a locked node does not say how.
        if node.isLocked { return .failure(controlError(NodeError.locked)) }
        return JoinView.endedJoin(client, node).map { .success($0) }
    }

    func begin(_ node: isolated Node) {
        watcher = node.watch { [self, unowned node] _ in
            node.assumeIsolated { node in if let answer = Self.answer(client, node) { end(node, answer) } }
        }
        deadline = deadlines.add(after: .milliseconds(timeout?.milliseconds ?? 60_000)) { [self, unowned node] in
            node.assumeIsolated { node in
                end(node, Result { try JoinView.join(client, node) }.mapError { controlError($0) })
            }
        }
        closeAction = call.session.onClose { [self, unowned node] in node.assumeIsolated { end($0, nil) } }
    }

    private func end(_ node: isolated Node, _ answer: Result<JoinStatus, any Error>?) {
        guard let watcher else { return }
        self.watcher = nil
        node.unwatch(watcher)
        deadlines.remove(deadline)
        call.session.removeOnClose(closeAction)
        if let answer { call.complete(answer) }
    }
}
