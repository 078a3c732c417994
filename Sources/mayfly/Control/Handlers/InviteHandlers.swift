import Control
import Messaging
import NIOCore
import NodeRuntime

/// Invites.
enum InviteHandlers {
    static func add(to router: inout NodeRouter) {
        router.later(InviteCreateMethod.self) { node, call in
            let params = call.params
            let lifetime = params.expiresIn?.milliseconds ?? Limits.inviteLifetime
            guard (1_000...Limits.inviteMaximumLifetime).contains(lifetime) else {
                throw ControlError(.usage, "--expires-in: an invite lives between 1 s and 7 d")
            }
            return try node.invite(params.conversation, lifetime: lifetime, singleUse: params.singleUse ?? false)
                .map { Control.Invite($0, slug: $1) }
        }
        router.on(InviteListMethod.self) { node, params in
            let conversation = try node.conversation(params.conversation)
            let now = node.currentTime
            let issued = conversation.invites?.invites ?? []
            return InviteListMethod.Result(
                invites: issued.filter { $0.expiresAt > now && $0.tag == conversation.invites?.tag && !$0.isRevoked }
                    .map {
                        InviteView.issued($0, conversation)
                    }
            )
        }
        router.durably(InviteRevokeMethod.self) { node, params in
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
        router.on(InviteInspectMethod.self) { _, params in
            Control.Invite(try Node.inspect(params.slug), slug: params.slug)
        }
    }
}
