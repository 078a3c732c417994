import Control
import Messaging
import NIOCore
import NodeRuntime

enum OutboxHandlers {
    static func add(to router: inout NodeRouter) {
        router.on(Methods.outboxList) { node, params in
            let only = try params.conversation.map { try node.resolve($0) }
            let from = try params.from.map { text in
                guard let place = OutboxPlace(text) else {
                    throw ControlError(
                        .usage, "`from` is not a position in the outbox", hint: "give the `next` of an answer")
                }
                return place
            }
            var page = AnswerPage()
            var messages: [OutboxEntry] = []
            var last: OutboxPlace?
            try node.visitOutbox(of: only, after: from) { item, place in
                let entry = OutboxView.outbox(item, node)
                guard page.take(byteCount: AnswerPage.largestByteCount(of: entry)) else { return false }
                messages.append(entry)
                last = place
                return true
            }
            return OutboxListResult(messages: messages, next: page.isFull ? last?.description : nil)
        }
        router.durably(Methods.outboxCancel) { node, params in
            var entry = OutboxView.outbox(try node.cancelMessage(params.message), node)
            entry.state = "cancelled"
            return entry
        }
        router.on(Methods.outboxRetry) { node, params in OutboxView.outbox(try node.retryMessage(params.message), node)
        }
    }
}
