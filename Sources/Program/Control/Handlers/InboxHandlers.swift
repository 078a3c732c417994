import Control
import Messaging
import NIOCore
import NodeRuntime

enum InboxHandlers {
    static func add(to router: inout NodeRouter) {
        router.on(Methods.inboxList) { node, _ in InboxListResult(inboxes: try node.inboxStates().map(InboxView.inbox))
        }
        router.durably(Methods.inboxWake) { node, params in InboxView.inbox(try node.wakeInbox(params.inbox)) }
        router.durably(Methods.inboxSleep) { node, params in InboxView.inbox(try node.sleepInbox(params.inbox)) }
        router.durably(Methods.inboxRebalance) { node, _ in
            let (slept, woken) = try node.rebalance()
            return InboxRebalanceResult(woken: woken, slept: slept, capacity: node.capacity)
        }
    }
}
