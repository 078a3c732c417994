import Control
import Messaging
import NIOCore
import NodeRuntime

enum InviteHandlers {
    static func add(to router: inout NodeRouter) {
        router.later(Methods.inviteCreate) { node, call in
            let params = call.params
            let lifetime = params.expiresIn?.milliseconds ?? Limits.inviteLifetime
            guard (1_000...Limits.inviteMaximumLifetime).contains(lifetime) else {
                throw ControlError(.usage, "--expires-in: an invite is valid for 1 s to 7 d")
            }
            return try node.invite(params.conversation, lifetime: lifetime, singleUse: params.singleUse ?? false).map {
                Invite($0, slug: $1)
            }
        }
        addCodes(&router)
        router.on(Methods.inviteList) { node, params in
            let conversation = try node.conversation(params.conversation)
            let now = node.currentTime
            let issued = conversation.invites?.invites ?? []
            return InviteListResult(
                invites: issued.filter { $0.expiresAt > now && $0.tag == conversation.invites?.tag && !$0.isRevoked }
                    .map { InviteView.issued($0, conversation) },
                codes: node.openCodes(of: conversation.conversation).map {
                    OpenInviteCode(code: $0.code.description, expiresAt: $0.expiresAt)
                })
        }
        router.durably(Methods.inviteRevoke) { node, params in
            if let invite = params.invite {
                try node.revokeInvite(params.conversation, invite)
            } else {
                try node.revokeInvites(params.conversation)
            }
            let conversation = try node.conversation(params.conversation)
            return InviteRevokeResult(
                ok: true, conversation: conversation.conversation.description,
                tag: conversation.invites?.tag.description ?? "")
        }
        router.on(Methods.inviteInspect) { _, params in Invite(try Node.inspect(params.slug), slug: params.slug) }
    }

    private static func addCodes(_ router: inout NodeRouter) {
        router.call(Methods.inviteCode) { node, call in
            let opened = try node.openCode(call.params.conversation)
            if call.params.wait == true {
                // After the code has ended, revoking it has no effect.
                _ = call.session.onClose { [node] in node.assumeIsolated { $0.revokeCode(opened.number) } }
            }
            call.succeed(
                InviteCodeResult(
                    code: opened.code.description, number: Int64(clamping: opened.number.value),
                    conversation: opened.conversation.description, expiresAt: opened.expiresAt,
                    endpoints: node.reachableAt.map(\.description)))
        }
        router.later(Methods.inviteOutcome) { node, call in
            let number = call.params.number
            return try node.whenCodeEnds(OpenCodes.Number(UInt64(clamping: number))).map { outcome in
                InviteOutcomeResult(number: number, outcome: outcome)
            }
        }
    }
}

struct JoinHandlers: Sendable {
    let deadlines: DeadlineQueue

    func add(to router: inout NodeRouter) {
        router.call(Methods.join) { node, call in
            // `call.params` is cleared when this body returns.
            let params = call.params
            guard SpokenCode.isMeant(by: params.slug) else {
                guard params.at == nil else {
                    throw ControlError(.usage, "--at requires a code; an invite contains its endpoints")
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
                    } catch { call.fail(controlError(error)) }
                }
            }
        }
        router.on(Methods.joinList) { node, _ in
            let joins = try node.joins().map { try JoinView.join($0.client, node) }
            return JoinListResult(joins: node.peers.invitations().map(JoinView.invitation) + joins)
        }
        router.on(Methods.joinRetry) { node, params in try JoinView.join(try node.retryJoin(params.join), node) }
        router.durably(Methods.joinCancel) { node, params in
            let prefix = params.join.lowercased()
            let invitations = node.peers.invitations().filter { $0.id.description.hasPrefix(prefix) }
            // A prefix that fits an invitation and a join is ambiguous.
            let ids =
                invitations.map(\.id.description)
                + (try node.joins()).map(\.client.description).filter { $0.hasPrefix(prefix) }
            if !prefix.isEmpty, ids.count > 1 { throw NodeError.ambiguous(params.join, matches: ids) }
            if !prefix.isEmpty, let invitation = invitations.first {
                node.peers.dismissInvitation(invitation.id)
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

    /// Starts a join and answers the call when the join has started or ended.
    /// - Parameter found: the answer to a spoken code, if the invite came from one.
    private func join(
        by slug: String, _ found: CodeInvite?, _ params: JoinParams, _ call: MethodCall<JoinParams, JoinStatus>,
        _ node: isolated Node
    ) throws {
        // Only a user may name an invitation by its id. A code's invite comes from another node.
        let slug = found == nil ? try JoinView.slug(slug, node) : slug
        let (profile, alias, asks) = (params.profile, params.alias, params.accept == false ? true : nil)
        let begin: JoinWait.Beginning = { (node: isolated Node) throws(NodeError) in
            try node.join(slug, profile: profile, alias: alias, asks: asks)
        }
        let waiting = params.wait == false ? nil : call
        // A user who names a join that asks agrees to it.
        if params.slug.count >= 4, let asking = try? node.resolveJoin(params.slug), asking.offer != nil {
            node.agreeToJoin(asking.client)
            let wait = JoinWait(asking.client, params.timeout, waiting, deadlines)
            return waiting == nil ? call.succeed(try JoinView.join(asking.client, node)) : wait.begin(node)
        }
        let wait: JoinWait
        do throws(NodeError) { wait = JoinWait(try begin(node), params.timeout, waiting, deadlines) } catch {
            if found != nil, case .invite = error {
                throw ControlError(
                    .refused, "the node that has the code sent no invite",
                    hint: "ask the person who made it for a new one")
            }
            // A repeated request: use the running join, or the conversation it led to.
            guard case .command(.alreadyMember(let known)) = error else { throw error }
            wait = JoinWait(known, params.timeout, waiting, deadlines)
            if asks == nil { node.agreeToJoin(known) }
            if node.joinOutcome(known) != nil, node.isMember(known) == nil {
                try node.askCreator(of: known, by: slug)
                wait.membership = JoinWait.Membership(alias: alias, begin: begin)
            } else if let alias {
                try node.assignAlias(alias, to: known)
            }
        }
        if let found { node.dial(wait.client, found) }
        var started = try JoinView.join(wait.client, node)
        if wait.membership != nil { started.state = .validating }
        wait.begin(node)
        guard waiting == nil else { return }
        node.whenCommitted().assumeIsolated().whenComplete { outcome in
            call.complete(outcome.map { started }.mapError { controlError($0) })
        }
    }
}

/// A request waiting for the end of a join. Used on the node's loop only.
private final class JoinWait: @unchecked Sendable {
    // @unchecked: mutable state is confined to the node's loop.

    typealias Beginning = (isolated Node) throws(NodeError) -> ClientID

    /// For an invite to a known conversation. The creator may have removed us while one of the nodes was offline.
    struct Membership {
        /// New alias of the conversation, if we are still a member.
        let alias: String?
        /// Joins by the invite, if we are no longer a member.
        let begin: Beginning
    }

    private(set) var client: ClientID
    /// `nil` after the creator's answer, and for a new conversation.
    var membership: Membership?
    private let timeout: Interval?
    /// `nil` when the request was already answered and only the membership check goes on.
    private let call: MethodCall<JoinParams, JoinStatus>?
    private let deadlines: DeadlineQueue
    /// `nil` except during the wait.
    private var watcher: UInt64?
    private var deadline: UInt64 = 0
    private var closeAction: UInt64 = 0

    init(
        _ client: ClientID, _ timeout: Interval?, _ call: MethodCall<JoinParams, JoinStatus>?,
        _ deadlines: DeadlineQueue
    ) {
        self.client = client
        self.timeout = timeout
        self.call = call
        self.deadlines = deadlines
    }

    /// The outcome of the join; `nil` while it is in progress.
    private func answer(_ node: isolated Node) -> Result<JoinStatus, any Error>? {
        // The join goes on, but a locked node cannot read its state.
        if node.isLocked { return .failure(controlError(NodeError.locked)) }
        if let membership {
            guard let isMember = node.isMember(client) else { return nil }
            self.membership = nil
            do throws(NodeError) {
                if !isMember {
                    client = try membership.begin(node)
                } else if let alias = membership.alias {
                    try node.assignAlias(alias, to: client)
                }
            } catch {
                guard case .command(.alreadyMember(let other)) = error else { return .failure(controlError(error)) }
                client = other
            }
        }
        return JoinView.endedJoin(client, node).map { .success($0) }
    }

    private func lateAnswer(_ node: isolated Node) -> Result<JoinStatus, any Error> {
        guard membership == nil else {
            return .failure(
                ControlError(
                    .timedOut,
                    "the conversation exists here, but its creator does not answer whether you are still a member",
                    hint: "try again when the creator's node runs"))
        }
        return Result { try JoinView.join(client, node) }.mapError { controlError($0) }
    }

    // MARK: The wait

    /// Answers now, after the event that ends the join, or at the timeout.
    func begin(_ node: isolated Node) {
        guard call != nil || membership != nil else { return }
        if let answer = answer(node) {
            call?.complete(answer)
            return
        }
        watcher = node.watch { [self, unowned node] _ in
            // Deferred: an event arrives within a turn of the core, and a join starts its own turn.
            node.loop.execute { [self] in node.assumeIsolated { look($0) } }
        }
        deadline = deadlines.add(after: .milliseconds(timeout?.milliseconds ?? 60_000)) { [self, unowned node] in
            node.assumeIsolated { node in end(node, lateAnswer(node)) }
        }
        closeAction = call?.session.onClose { [self, unowned node] in node.assumeIsolated { end($0, nil) } } ?? 0
    }

    private func look(_ node: isolated Node) {
        guard watcher != nil, let answer = answer(node) else { return }
        end(node, answer)
    }

    private func end(_ node: isolated Node, _ answer: Result<JoinStatus, any Error>?) {
        guard let watcher else { return }
        self.watcher = nil
        node.unwatch(watcher)
        deadlines.remove(deadline)
        call?.session.removeOnClose(closeAction)
        if let answer { call?.complete(answer) }
    }
}
