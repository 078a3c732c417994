import Control
import Messaging
import NIOCore
import NodeRuntime
import Primitives
import Store

/// Conversations, invites and joins.
extension ControlHandlers {
    // MARK: Conversations

    func addConversations(_ router: inout ControlRouter) {
        later(&router, ConversationCreateMethod.self) { node, params, _ in
            for name in params.peers ?? [] {
                let (peer, _) = try node.peer(name)
                if peer.isBlocked { throw NodeError.peerBlocked(name) }
                if peer.card == nil { throw NodeError.peerWithoutCard(name) }
            }
            return try node.createConversation(
                name: params.name,
                profile: params.profile,
                alias: params.alias
            ).flatMap { [node] made in
                node.assumeIsolated { node in
                    let result = ConversationCreateMethod.Result(
                        conversation: made.conversation.description,
                        inbox: made.client.description,
                        alias: node.alias(of: made.client),
                        name: made.record.name,
                        inviteTag: made.invites?.tag.description ?? ""
                    )
                    return Self.invite(params.peers ?? [], to: made, node).map { result }
                }
            }
        }
        on(&router, ConversationListMethod.self) { node, _ in
            let listed = try node.conversations()
            return ConversationListMethod.Result(conversations: listed.map { NodeView.conversation($0, node) })
        }
        on(&router, ConversationShowMethod.self) { node, params in
            NodeView.conversation(try node.conversation(params.conversation), node)
        }
        on(&router, ConversationMembersMethod.self) { node, params in
            NodeView.conversation(try node.conversation(params.conversation), node)
        }
        durably(&router, ConversationCloseMethod.self) { node, params in
            try node.close(params.conversation)
            return NodeView.conversation(try node.conversation(params.conversation), node)
        }
        reaching(
            &router,
            ConversationLeaveMethod.self,
            { $0.conversation },
            { node, params in
                var view = NodeView.conversation(try node.conversation(params.conversation), node)
                _ = try node.leave(params.conversation)
                view.state = "left"
                return node.whenCommitted().map { [view] in view }
            }
        )
        durably(&router, ConversationLockMethod.self) { node, params in
            try node.setLocked(params.conversation, true)
            return NodeView.conversation(try node.conversation(params.conversation), node)
        }
        durably(&router, ConversationUnlockMethod.self) { node, params in
            try node.setLocked(params.conversation, false)
            return NodeView.conversation(try node.conversation(params.conversation), node)
        }
    }

    func addMembership(_ router: inout ControlRouter) {
        durably(&router, ConversationAliasMethod.self) { node, params in
            let client = try node.setAlias(params.conversation, to: params.alias)
            return NodeView.conversation(try node.conversation(client.description), node)
        }
        durably(&router, ConversationRenameMethod.self) { node, params in
            let client = try node.conversation(params.conversation).client
            try node.rename(params.conversation, to: params.name)
            return NodeView.conversation(try node.conversation(client.description), node)
        }
        durably(&router, ConversationProfileMethod.self) { node, params in
            try node.setProfile(params.conversation, to: params.profile)
            return NodeView.conversation(try node.conversation(params.conversation), node)
        }
        durably(&router, ConversationRemoveMethod.self) { node, params in
            try node.removeMember(params.conversation, params.member)
            return NodeView.conversation(try node.conversation(params.conversation), node)
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
                            try node.assumeIsolated { node in
                                try node.noteInvitation(invite.invite.id, of: id, to: peer)
                                try node.sendInvitation(slug, invite: invite, name: name, to: peer)
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

    func addInvites(_ router: inout ControlRouter) {
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
            if let invite = params.invite {
                try node.revokeInvite(params.conversation, invite)
            } else {
                try node.revokeInvites(params.conversation)
            }
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

    func addJoins(_ router: inout ControlRouter) {
        later(&router, JoinMethod.self) { node, params, connection in
            let client: ClientID
            do throws(NodeError) {
                client = try node.join(
                    try NodeView.slug(params.slug, node),
                    profile: params.profile,
                    alias: params.alias
                )
            } catch {
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
            if params.wait == false {
                let started = try NodeView.join(client, node)
                return node.whenCommitted().map { started }
            }
            return Self.wait(
                node,
                for: connection,
                timeout: params.timeout?.milliseconds ?? 60_000,
                timedOut: { node in Result { try NodeView.join(client, node) } },
                check: { node in
                    // The join goes on, and nobody is told how until the node is unlocked.
                    if node.isLocked { return .failure(NodeError.locked) }
                    return NodeView.endedJoin(client, node).map { .success($0) }
                }
            )
        }
        on(&router, JoinListMethod.self) { node, _ in
            let joins = try node.joins().map { try NodeView.join($0.client, node) }
            return JoinListMethod.Result(joins: node.invitations().map(NodeView.invitation) + joins)
        }
        on(&router, JoinRetryMethod.self) { node, params in try NodeView.join(try node.retryJoin(params.join), node) }
        durably(&router, JoinCancelMethod.self) { node, params in
            let prefix = params.join.lowercased()
            let invitations = node.invitations().filter { $0.id.description.hasPrefix(prefix) }
            // Neither is given up for the other.
            let ids =
                invitations.map(\.id.description)
                + (try node.joins()).map(\.client.description).filter { $0.hasPrefix(prefix) }
            if !prefix.isEmpty, ids.count > 1 { throw NodeError.ambiguous(params.join, matches: ids) }
            if !prefix.isEmpty, let invitation = invitations.first {
                node.dismissInvitation(invitation.id)
                var status = NodeView.invitation(invitation)
                status.state = .cancelled
                return status
            }
            var status = try NodeView.join(try node.resolveJoin(params.join).client, node)
            try node.cancelJoin(params.join)
            status.state = .cancelled
            return status
        }
    }
}
