import Control
import Crypto
import Messaging
import NodeRuntime

enum JoinView {
    static func slug(_ text: String, _ node: isolated Node) throws(NodeError) -> String {
        let matches = node.peers.invitations().filter { $0.id.description.hasPrefix(text.lowercased()) }
        return matches.count == 1 && text.utf8.count >= 4 ? matches[0].slug : text
    }

    static func invitation(_ invitation: ReceivedInvitation) -> JoinStatus {
        let from = invitation.from ?? "a node that is not in peers.json"
        let name = invitation.name.map { " to \"\($0)\"" } ?? ""
        return JoinStatus(
            join: invitation.id.description, state: .invited, name: invitation.name, from: invitation.from,
            message: "\(from) invites you\(name); accept: mayfly join \(invitation.id.description.prefix(12))",
            startedAt: invitation.receivedAt)
    }

    static func join(_ client: ClientID, _ node: isolated Node) throws(NodeError) -> JoinStatus {
        let joins = try node.joins()
        if let ended = endedJoin(client, node) { return ended }
        guard let join = joins.first(where: { $0.client == client }) else {
            return JoinStatus(join: client.description, state: .cancelled)
        }
        return JoinStatus(
            join: client.description, state: .joining, inviteTag: join.record.invite.tag.description,
            startedAt: join.record.startedAt, expiresAt: join.record.startedAt + Limits.joinLifetime,
            attempts: join.attempts, nextAttempt: join.nextAttempt)
    }

    static func endedJoin(_ client: ClientID, _ node: isolated Node) -> JoinStatus? {
        switch node.joinOutcome(client) {
        case nil: return nil
        case .success(let machine):
            return JoinStatus(
                join: client.description, state: .ready, conversation: machine.conversation.description,
                alias: node.alias(of: client), name: machine.record.name)
        case .failure(.joinFailed(let type)):
            let tag = (try? node.joins())?.first { $0.client == client }?.record.invite.tag.description
            return JoinStatus(
                join: client.description, state: .joinFailed, inviteTag: tag, errorType: type.rawValue,
                title: type.userFacingTitle, message: type.userFacingMessage)
        case .failure: return JoinStatus(join: client.description, state: .cancelled)
        }
    }
}

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
