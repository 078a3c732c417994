import Control
import Messaging
import NodeRuntime

enum ConversationView {
    static func conversation(_ machine: ConversationStateMachine, _ node: isolated Node) -> Conversation {
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

    private static func mailbox(of member: Messaging.Member, _ machine: ConversationStateMachine, _ node: isolated Node)
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
