import Control
import Cryptography
import FoundationEssentials
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
                    let id = made.conversation.description
                    let result = ConversationCreateResult(
                        conversation: id, inbox: made.client.description, alias: node.alias(of: made.client),
                        name: params.name, inviteTag: made.tag?.description ?? "")
                    return invite(params.peers ?? [], to: id, named: params.name, node).map { result }
                }
            }
        }
        router.on(Methods.conversationList) { node, params in
            let all = try node.conversations().map { one in
                (one, ListPlace(at: node.createdAt(one.client), id: one.client.description))
            }
            let (shown, next) = try AnswerPage.list(
                all, from: params.from, byteCount: { AnswerPage.largestByteCount(of: $0) },
                show: { ConversationView.conversation($0, node) })
            return ConversationListResult(conversations: shown, next: next)
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
        for (method, isLocked) in [(Methods.conversationLock, true), (Methods.conversationUnlock, false)] {
            router.durably(method) { node, params in
                try node.setLocked(params.conversation, isLocked)
                return try view(params.conversation, node)
            }
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
    private static func invite(_ peers: [String], to id: String, named name: String?, _ node: isolated Node)
        -> EventLoopFuture<Void>
    {
        EventLoopFuture.andAllSucceed(
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

enum ConversationView {
    static func conversation(_ machine: Messaging.Conversation, _ node: isolated Node) -> Conversation {
        let paths = node.paths(of: machine)
        let losses = node.losses(of: machine)
        return Conversation(
            conversation: machine.conversation.description, alias: node.alias(of: machine.client),
            name: machine.record.name, role: machine.isCreator ? "creator" : "member",
            members: machine.currentMembers.map { one in
                let isOnline = machine.isOnline(one.key)
                return Member(
                    member: MemberName.id(one.key), profile: one.profile,
                    peer: node.peerName(of: one.key, in: machine.client), online: isOnline,
                    path: isOnline ? paths[one.key]?.kind.rawValue : nil,
                    link: isOnline ? paths[one.key].map { PeerView.link($0) } : nil,
                    lost: losses[one.key].map { PeerView.lost($0) }, mailbox: mailbox(of: one, machine, node),
                    copied: machine.isCopied(one.key, now: node.currentTime) ? true : nil,
                    reportsCopies: machine.reportsCopies(one.key, now: node.currentTime) ? true : nil)
            }, lifetime: machine.lifetime, mailbox: machine.agreement?.terms.mailbox.shown,
            expiresAt: machine.record.schedule?.expiresAt, locked: machine.record.group.isLocked,
            state: machine.record.isRemoved ? "removed" : machine.record.schedule == nil ? "ready" : "scheduled",
            unread: node.unreadCount(machine.client), profile: machine.record.own.profile,
            readReceipts: machine.record.sendsReadReceipts ?? node.sendsReadReceiptsByDefault,
            inbox: machine.client.description)
    }

    private static func mailbox(of member: Messaging.Member, _ machine: Messaging.Conversation, _ node: isolated Node)
        -> MemberMailbox?
    {
        guard machine.usesMailbox, member.mailbox != nil else { return nil }
        return node.isMailable(member.key, in: machine) ? .yes : .named
    }

    static func conversation(_ listed: ListedConversation, _ node: isolated Node) -> Conversation {
        switch listed {
        case .awake(let machine): return conversation(machine, node)
        case .asleep(let summary):
            // The record holds scheduled actions, such as an explosion.
            if summary.deadline != nil, let machine = try? node.conversation(summary.client.description) {
                return conversation(machine, node)
            }
            return Conversation(
                conversation: summary.conversation.description, alias: node.alias(of: summary.client),
                name: summary.name, role: summary.isCreator ? "creator" : "member",
                members: summary.members.map {
                    Member(
                        member: MemberName.id($0.key), profile: $0.profile,
                        peer: node.peerName(of: $0.key, in: summary.client), online: false, path: nil)
                }, lifetime: summary.lifetime, locked: summary.isLocked, state: summary.isRemoved ? "removed" : "ready",
                unread: node.unreadCount(summary.client), inbox: summary.client.description)
        }
    }
}

enum InboxView {
    static func inbox(_ inbox: InboxState) -> Inbox {
        Inbox(
            inbox: inbox.client.description, state: inbox.state.rawValue, wakeReason: inbox.wakeReason?.rawValue,
            lastActivity: inbox.lastActivity, protected: !inbox.protection.isEmpty,
            conversation: inbox.conversation?.description)
    }
}

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
        case nil:
            guard let offer = (try? node.joins())?.first(where: { $0.client == client })?.offer else { return nil }
            let names = Dictionary(offer.members.map { ($0.key, $0.profile) }) { $1 }
            return JoinStatus(
                join: client.description, state: .validated, name: offer.group.name,
                agreement: offer.agreement.map {
                    LifetimeView.agreement($0) { key in
                        let id = MemberName.id(key)
                        return NamedMember(member: id, name: (names[key] ?? nil) ?? id)
                    }
                })
        case .success(let machine):
            return JoinStatus(
                join: client.description, state: .ready, conversation: machine.conversation.description,
                alias: node.alias(of: client), name: machine.record.name,
                agreement: machine.agreement.map { LifetimeView.agreement($0, machine, node) })
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
    static func issued(_ issued: InviteBook.IssuedInvite, _ conversation: Messaging.Conversation) -> Invite {
        // The join secret is not stored, so the link cannot be shown again.
        Invite(
            slug: nil, id: issued.id.description, tag: issued.tag.description,
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
            slug: "mayfly:join/" + bare, id: invite.id.description, tag: invite.tag.description,
            expiresAt: invite.expiresAt, singleUse: invite.singleUse, creator: invite.creator.description,
            lifetime: invite.lifetime, signature: .valid, conversationExpiresAt: invite.conversationExpiresAt,
            name: invite.name, description: invite.description)
    }
}
