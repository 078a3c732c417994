import Control
import Messaging
import NIOCore
import NodeRuntime

enum JoinMethods {
    static let all: [any ServedMethod] = [join, list, retry, cancel]

    static let join = NodeMethod<JoinParams, JoinStatus>(
        "join", "Join a conversation by an invitation or a code.",
        waits: .when { ($0.wait ?? true) || SpokenCode.isMeant(by: $0.slug) }
    ) { call, node, _ in
        // `call.params` is cleared when this body returns.
        let params = call.params
        guard SpokenCode.isMeant(by: params.slug) else {
            guard params.at == nil else {
                throw ControlError(.usage, "--at requires a code; an invite contains its endpoints")
            }
            return try join(by: params.slug, nil, params, call, node)
        }
        let code = try Node.code(params.slug)
        let place = try params.at.map { text throws(ControlError) in try EndpointOption.place(text, option: "--at") }
        try node.invite(for: code, at: place).assumeIsolated().whenComplete { [node] outcome in
            node.assumeIsolated { node in
                do {
                    let found = try outcome.get()
                    try join(by: found.slug, found, params, call, node)
                } catch { call.fail(controlError(error)) }
            }
        }
    }

    static let list = NodeMethod<Nothing, JoinListResult>(
        "join.list", "List the joins in progress and the invitations to answer."
    ) { _, node in
        let joins = try node.joins().map { try JoinStatus($0.client, node) }
        return .now(JoinListResult(joins: node.peers.invitations().map { JoinStatus($0) } + joins))
    }

    static let retry = NodeMethod<JoinIDParams, JoinStatus>("join.retry", "Dial the creator of a join again now.") {
        params, node in .now(try JoinStatus(try node.retryJoin(params.join), node))
    }

    static let cancel = NodeMethod<JoinIDParams, JoinStatus>("join.cancel", "Cancel a join or decline an invitation.") {
        params, node in
        let prefix = params.join.lowercased()
        let invitations = node.peers.invitations().filter { $0.id.description.hasPrefix(prefix) }
        // A prefix that fits an invitation and a join is ambiguous.
        let ids =
            invitations.map(\.id.description)
            + (try node.joins()).map(\.client.description).filter { $0.hasPrefix(prefix) }
        if !prefix.isEmpty, ids.count > 1 { throw NodeError.ambiguous(params.join, matches: ids) }
        if !prefix.isEmpty, let invitation = invitations.first {
            node.peers.dismissInvitation(invitation.id)
            var status = JoinStatus(invitation)
            status.state = .cancelled
            return .durable(status, node)
        }
        var status = try JoinStatus(try node.resolveJoin(params.join).client, node)
        try node.cancelJoin(params.join)
        status.state = .cancelled
        return .durable(status, node)
    }

    /// Starts a join and answers the call when the join has started or ended.
    /// - Parameter found: the answer to a spoken code, if the invite came from one.
    private static func join(
        by slug: String, _ found: CodeInvite?, _ params: JoinParams, _ call: MethodCall<JoinParams, JoinStatus>,
        _ node: isolated Node
    ) throws {
        // Only a user may name an invitation by its id. A code's invite comes from another node.
        let slug = found == nil ? try JoinStatus.slug(slug, node) : slug
        let (profile, alias, asks) = (params.profile, params.alias, params.accept == false ? true : nil)
        let begin: JoinWait.Beginning = { (node: isolated Node) throws(NodeError) in
            try node.join(slug, profile: profile, alias: alias, asks: asks)
        }
        let waiting = params.wait == false ? nil : call
        // A user who names a join that asks agrees to it.
        if params.slug.count >= 4, let asking = try? node.resolveJoin(params.slug), asking.offer != nil {
            node.agreeToJoin(asking.client)
            let wait = JoinWait(asking.client, params.timeout, waiting)
            return waiting == nil ? call.succeed(try JoinStatus(asking.client, node)) : wait.begin(node)
        }
        let wait: JoinWait
        do throws(NodeError) { wait = JoinWait(try begin(node), params.timeout, waiting) } catch {
            if found != nil, case .invite = error {
                throw ControlError(
                    .refused, "the node that has the code sent no invite",
                    hint: "ask the person who made it for a new one")
            }
            // A repeated request: use the running join, or the conversation it led to.
            guard case .command(let refusal) = error, let known = refusal.client else { throw error }
            wait = JoinWait(known, params.timeout, waiting)
            if asks == nil { node.agreeToJoin(known) }
            if node.joinOutcome(known) != nil, node.isMember(known) == nil {
                try node.askCreator(of: known, by: slug)
                wait.membership = JoinWait.Membership(alias: alias, begin: begin)
            } else if let alias {
                try node.assignAlias(alias, to: known)
            }
        }
        if let found { node.dial(wait.client, found) }
        var started = try JoinStatus(wait.client, node)
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
    /// `nil` except during the wait.
    private var watcher: UInt64?
    private var deadline: Scheduled<Void>?
    private var closeAction: UInt64 = 0

    init(_ client: ClientID, _ timeout: Interval?, _ call: MethodCall<JoinParams, JoinStatus>?) {
        (self.client, self.timeout, self.call) = (client, timeout, call)
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
                guard case .command(let refusal) = error, let other = refusal.client else {
                    return .failure(controlError(error))
                }
                client = other
            }
        }
        return JoinStatus.ended(client, node).map { .success($0) }
    }

    private func lateAnswer(_ node: isolated Node) -> Result<JoinStatus, any Error> {
        guard membership == nil else {
            return .failure(
                ControlError(
                    .timedOut,
                    "the conversation exists here, but its creator does not answer whether you are still a member",
                    hint: "try again when the creator's node runs"))
        }
        return Result { try JoinStatus(client, node) }.mapError { controlError($0) }
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
        let time = TimeAmount.milliseconds(timeout?.milliseconds ?? 60_000)
        deadline = node.loop.assumeIsolated().scheduleTask(in: time) { [self, unowned node] in
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
        deadline?.cancel()
        call?.session.removeOnClose(closeAction)
        if let answer { call?.complete(answer) }
    }
}

extension JoinStatus {
    init(_ invitation: ReceivedInvitation) {
        let from = invitation.from ?? "a node that is not in peers.json"
        let name = invitation.name.map { " to \"\($0)\"" } ?? ""
        self.init(
            join: invitation.id.description, state: .invited, name: invitation.name, from: invitation.from,
            message: "\(from) invites you\(name); accept: mayfly join \(invitation.id.description.prefix(12))",
            startedAt: invitation.receivedAt)
    }

    init(_ client: ClientID, _ node: isolated Node) throws(NodeError) {
        let joins = try node.joins()
        if let ended = Self.ended(client, node) {
            self = ended
            return
        }
        guard let join = joins.first(where: { $0.client == client }) else {
            self.init(join: client.description, state: .cancelled)
            return
        }
        self.init(
            join: client.description, state: .joining, inviteTag: join.record.invite.tag.description,
            startedAt: join.record.startedAt, expiresAt: join.record.startedAt + Limits.joinLifetime,
            attempts: join.attempts, nextAttempt: join.nextAttempt)
    }

    /// `nil` while the join is in progress.
    fileprivate static func ended(_ client: ClientID, _ node: isolated Node) -> JoinStatus? {
        switch node.joinOutcome(client) {
        case nil:
            guard let offer = (try? node.joins())?.first(where: { $0.client == client })?.offer else { return nil }
            let names = Dictionary(offer.members.map { ($0.key, $0.profile) }) { $1 }
            return JoinStatus(
                join: client.description, state: .validated, name: offer.group.name,
                agreement: offer.agreement.map {
                    LifetimeAgreement($0) { key in
                        let id = MemberName.id(key)
                        return NamedMember(member: id, name: (names[key] ?? nil) ?? id)
                    }
                })
        case .success(let machine):
            return JoinStatus(
                join: client.description, state: .ready, conversation: machine.conversation.description,
                alias: node.alias(of: client), name: machine.record.name,
                agreement: machine.agreement.map { LifetimeAgreement($0, machine, node) })
        case .failure(.joinFailed(let type)):
            let tag = (try? node.joins())?.first { $0.client == client }?.record.invite.tag.description
            return JoinStatus(
                join: client.description, state: .joinFailed, inviteTag: tag, errorType: type.rawValue,
                title: type.userFacingTitle, message: type.userFacingMessage)
        case .failure: return JoinStatus(join: client.description, state: .cancelled)
        }
    }

    fileprivate static func slug(_ text: String, _ node: isolated Node) throws(NodeError) -> String {
        let matches = node.peers.invitations().filter { $0.id.description.hasPrefix(text.lowercased()) }
        return matches.count == 1 && text.utf8.count >= 4 ? matches[0].slug : text
    }
}
