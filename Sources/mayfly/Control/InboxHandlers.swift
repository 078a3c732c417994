import Control
import Messaging
import NIOCore
import NodeRuntime

/// Inboxes: which are awake.
enum InboxHandlers {
    static func add(to router: inout NodeRouter) {
        router.on(InboxListMethod.self) { node, _ in
            InboxListMethod.Result(inboxes: try node.inboxStates().map(NodeView.inbox))
        }
        router.durably(InboxWakeMethod.self) { node, params in NodeView.inbox(try node.wakeInbox(params.inbox)) }
        router.durably(InboxSleepMethod.self) { node, params in NodeView.inbox(try node.sleepInbox(params.inbox)) }
        router.durably(InboxRebalanceMethod.self) { node, _ in
            let (slept, woken) = try node.rebalance()
            return InboxRebalanceMethod.Result(woken: woken, slept: slept, capacity: node.capacity)
        }
    }
}

extension NodeView {
    static func inbox(_ inbox: Node.InboxState) -> Control.Inbox {
        Control.Inbox(
            inbox: inbox.client.description,
            state: inbox.state.rawValue,
            wakeReason: inbox.wakeReason?.rawValue,
            lastActivity: inbox.lastActivity.map(timestamp),
            protected: !inbox.protection.isEmpty,
            conversation: inbox.conversation?.description
        )
    }

    static func conversation(_ listed: Node.ListedConversation, _ node: isolated Node) -> Conversation {
        switch listed {
        case .awake(let machine): return conversation(machine, node)
        case .asleep(let summary):
            // What it is to do by itself, such as explode, stands in its record.
            if summary.deadline != nil, let machine = try? node.conversation(summary.client.description) {
                return conversation(machine, node)
            }
            return Conversation(
                conversation: summary.conversation.description,
                alias: node.alias(of: summary.client),
                name: summary.name,
                role: summary.isCreator ? "creator" : "member",
                members: summary.members.map {
                    Control.Member(
                        member: member($0.key),
                        profile: $0.profile,
                        peer: node.peerName(of: $0.key, in: summary.client),
                        online: false,
                        path: nil
                    )
                },
                lifetime: LifetimeValue(summary.lifetime),
                locked: summary.isLocked,
                state: summary.isRemoved ? "removed" : "ready",
                inbox: summary.client.description
            )
        }
    }
}
