import Control
import Logging
import NIOCore
import NodeRuntime

/// The node's methods on the control socket. A request without a wait is answered in the turn of the node's loop that
/// received it.
enum ControlHandlers {
    static func router(_ node: Node, _ handlers: NodeHandlers, stack: StackWiper, log: Logger) -> ControlRouter {
        var router = NodeRouter(node, log: log) { perform in
            stack.wipeSoon()
            perform()
        }
        let sends = PendingSends(node, router.deadlines)
        handlers.add(to: &router)
        PassphraseHandlers.add(to: &router)
        PeerHandlers.add(to: &router)
        ConversationHandlers.add(to: &router)
        InviteHandlers.add(to: &router)
        JoinHandlers(deadlines: router.deadlines).add(to: &router)
        MessageHandlers(sends: sends).add(to: &router)
        AttachmentHandlers(sends: sends).add(to: &router)
        LifetimeHandlers.add(to: &router)
        ExplosionHandlers.add(to: &router)
        OutboxHandlers.add(to: &router)
        InboxHandlers.add(to: &router)
        EventHandlers.add(to: &router)
        return router.router
    }
}
