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
