import Control
import Messaging
import NIOCore
import NodeRuntime

enum ExplosionHandlers {
    static func add(to router: inout NodeRouter) {
        router.later(Methods.explode) { node, call in
            let params = call.params
            if let record = try destroyed(params.conversation, node) {
                return node.loop.makeSucceededFuture(ExplosionView.explosion(record, node))
            }
            var time = ExplosionTime.now
            switch (params.at, params.delay) {
            case (nil, nil): break
            case (let at?, nil): time = .at(at)
            case (nil, let delay?): time = .after(delay.milliseconds)
            case (_?, _?): throw ControlError(.usage, "give only one of `at` and `in`")
            }
            let conversation: ConversationID
            do throws(NodeError) {
                conversation = try node.explode(params.conversation, time, isTraceless: params.noTrace ?? false)
            } catch {
                guard case .command(.notCreator) = error else { throw error }
                throw ControlError(
                    .failed, "only the conversation's creator may explode it",
                    hint: "`mayfly conversation leave C` destroys your own copy")
            }
            let id = conversation.description
            let status = try explosion(id, node)
            if status.state == "scheduled" { return node.whenCommitted().map { status } }
            // Waits for the commit, so that members are notified even after a crash. The keys are destroyed even if a
            // full disk refuses the commit.
            return node.whenCommitted().flatMapErrorThrowing { _ in }.map { [node] in
                node.assumeIsolated { (try? explosion(id, $0)) ?? status }
            }
        }
        router.on(Methods.explodeStatus) { node, params in
            do { return try explosion(params.conversation, node) } catch NodeError.unknownConversation(let text, nil) {
                throw ControlError(
                    .notFound, "no conversation `\(text)`", hint: "`mayfly explode list` shows what has exploded")
            }
        }
        router.on(Methods.explodeList) { node, params in try ExplosionView.explosions(after: params.from, node) }
    }

    /// The record of an exploded conversation; `nil` for a living one.
    private static func destroyed(_ text: String, _ node: isolated Node) throws -> ExplosionRecord? {
        let record = try node.explosion(text)
        // A locked node does not know the names of living conversations, so a prefix could mean one of them. It accepts
        // only a full id.
        if let record, node.isLocked, record.conversation.description != text.lowercased() { throw NodeError.locked }
        return record
    }

    private static func explosion(_ text: String, _ node: isolated Node) throws -> ExplosionStatus {
        if let record = try node.explosion(text) { return ExplosionView.explosion(record, node) }
        return ExplosionView.explosion(try node.conversation(text), node)
    }
}
