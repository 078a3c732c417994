import Control
import Crypto
import Messaging
import NodeRuntime

enum InviteView {
    static func issued(_ issued: InviteBook.IssuedInvite, _ conversation: ConversationStateMachine) -> Invite {
        // The join secret is not stored, so the link cannot be shown again.
        Invite(
            slug: nil, url: nil, invite: issued.id.description, tag: issued.tag.description,
            expiresAt: min(issued.expiresAt, conversation.record.schedule?.expiresAt ?? .latest),
            singleUse: issued.singleUse, creator: InboxID(conversation.key.publicKey).description,
            lifetime: conversation.lifetime, signature: .valid, name: conversation.record.name,
            admitted: issued.admitted.count)
    }
}

extension Invite {
    init(_ verified: VerifiedInvite, slug: String) {
        let invite = verified.invite
        let slug = slug.filter { !$0.isWhitespace }
        let bare = slug.hasPrefix("mayfly:join/") ? String(slug.dropFirst("mayfly:join/".count)) : slug
        self.init(
            slug: "mayfly:join/" + bare, url: "mayfly:join/" + bare, invite: invite.id.description,
            tag: invite.tag.description, expiresAt: invite.expiresAt, singleUse: invite.singleUse,
            creator: invite.creator.description, lifetime: invite.lifetime, signature: .valid,
            conversationExpiresAt: invite.conversationExpiresAt, name: invite.name, description: invite.description)
    }
}
