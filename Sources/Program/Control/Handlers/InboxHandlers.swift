import Control
import Messaging
import NIOCore
import NodeRuntime

enum InboxHandlers {
    static func add(to router: inout NodeRouter) {
        router.on(InboxListMethod.self) { node, _ in
            InboxListMethod.Result(inboxes: try node.inboxStates().map(InboxView.inbox))
        }
        router.durably(InboxWakeMethod.self) { node, params in InboxView.inbox(try node.wakeInbox(params.inbox)) }
        router.durably(InboxSleepMethod.self) { node, params in InboxView.inbox(try node.sleepInbox(params.inbox)) }
        router.durably(InboxRebalanceMethod.self) { node, _ in
            let (slept, woken) = try node.rebalance()
            return InboxRebalanceMethod.Result(woken: woken, slept: slept, capacity: node.capacity)
        }
    }
}
