import Control
import Messaging
import NIOCore
import NodeRuntime

enum ConversationHandlers {
    static func add(to router: inout NodeRouter) {
        addMembership(&router)
        router.later(Methods.conversationCreate) { node, call in
            let params = call.params
            for name in params.peers ?? [] {
                let (peer, _) = try node.peers.peer(name)
                if peer.isBlocked { throw NodeError.peerBlocked(name) }
                if peer.card == nil { throw NodeError.peerWithoutCard(name) }
            }
            return try node.createConversation(name: params.name, profile: params.profile, alias: params.alias).flatMap
            { [node] made in
                node.assumeIsolated { node in
                    let result = ConversationCreateResult(
                        conversation: made.conversation.description, inbox: made.client.description,
                        alias: node.alias(of: made.client), name: made.record.name,
                        inviteTag: made.invites?.tag.description ?? "")
                    return invite(params.peers ?? [], to: made, node).map { result }
                }
            }
        }
        router.on(Methods.conversationList) { node, _ in
            let listed = try node.conversations()
            return ConversationListResult(conversations: listed.map { ConversationView.conversation($0, node) })
        }
        for method in [Methods.conversationShow, Methods.conversationMembers] {
            router.on(method) { node, params in try view(params.conversation, node) }
        }
        router.durably(Methods.conversationClose) { node, params in
            try node.close(params.conversation)
            return try view(params.conversation, node)
        }
        router.reaching(
            Methods.conversationLeave, { $0.conversation },
            { node, params in
                var left = try view(params.conversation, node)
                _ = try node.leave(params.conversation)
                left.state = "left"
                return node.whenCommitted().map { [left] in left }
            })
        router.durably(Methods.conversationLock) { node, params in
            try node.setLocked(params.conversation, true)
            return try view(params.conversation, node)
        }
        router.durably(Methods.conversationUnlock) { node, params in
            try node.setLocked(params.conversation, false)
            return try view(params.conversation, node)
        }
    }

    private static func view(_ conversation: String, _ node: isolated Node) throws(NodeError) -> Conversation {
        ConversationView.conversation(try node.conversation(conversation), node)
    }

    private static func addMembership(_ router: inout NodeRouter) {
        router.durably(Methods.conversationAlias) { node, params in
            let client = try node.setAlias(params.conversation, to: params.alias)
            return try view(client.description, node)
        }
        router.durably(Methods.conversationRename) { node, params in
            let client = try node.conversation(params.conversation).client
            try node.rename(params.conversation, to: params.name)
            return try view(client.description, node)
        }
        router.durably(Methods.conversationProfile) { node, params in
            try node.setProfile(params.conversation, to: params.profile)
            return try view(params.conversation, node)
        }
        router.durably(Methods.conversationRemove) { node, params in
            try node.removeMember(params.conversation, params.member)
            return try view(params.conversation, node)
        }
    }

    /// Sends a single-use invite to each peer's contact inbox.
    private static func invite(_ peers: [String], to conversation: ConversationStateMachine, _ node: isolated Node)
        -> EventLoopFuture<Void>
    {
        let id = conversation.conversation.description
        let name = conversation.record.name
        return EventLoopFuture.andAllSucceed(
            peers.map { peer in
                do {
                    return try node.invite(id, lifetime: Limits.inviteLifetime, singleUse: true).flatMapThrowing {
                        [node] invite, slug in
                        try node.assumeIsolated { node in
                            try node.noteInvitation(invite.invite.id, of: id, to: peer)
                            try node.peers.sendInvitation(slug, invite: invite, name: name, to: peer)
                        }
                    }
                } catch { return node.loop.makeFailedFuture(error) }
            }, on: node.loop)
    }
}
