import Control
import Messaging
import NIOCore
import NodeRuntime

/// Explosions.
enum ExplosionHandlers {
    static func add(to router: inout NodeRouter) {
        router.later(ExplodeMethod.self) { node, call in
            let params = call.params
            if let record = try destroyed(params.conversation, node) {
                return node.loop.makeSucceededFuture(ExplosionView.explosion(record, node))
            }
            var time = ExplosionTime.now
            switch (params.at, params.delay) {
            case (nil, nil): break
            case (let at?, nil): time = .at(Messaging.Timestamp(milliseconds: at.milliseconds))
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
            // So that after a crash the members are still told. The keys are gone in any case, on a full disk too.
            return node.whenCommitted().flatMapErrorThrowing { _ in }.map { [node] in
                node.assumeIsolated { (try? explosion(id, $0)) ?? status }
            }
        }
        router.on(ExplodeStatusMethod.self) { node, params in
            do { return try explosion(params.conversation, node) } catch NodeError.unknownConversation(let text) {
                throw ControlError(
                    .notFound, "no conversation `\(text)`", hint: "`mayfly explode list` shows what has exploded")
            }
        }
        router.on(ExplodeListMethod.self) { node, params in try ExplosionView.explosions(after: params.from, node) }
    }

    /// What has exploded already; `nil` for what lives.
    private static func destroyed(_ text: String, _ node: isolated Node) throws -> ExplodeStateMachine.Record? {
        let record = try node.explosion(text)
        // Of what lives, a locked node knows no names: the beginning of an id may be one of them.
        if let record, node.isLocked, record.conversation.description != text.lowercased() { throw NodeError.locked }
        return record
    }

    private static func explosion(_ text: String, _ node: isolated Node) throws -> ExplosionStatus {
        if let record = try node.explosion(text) { return ExplosionView.explosion(record, node) }
        return ExplosionView.explosion(try node.conversation(text), node)
    }
}
