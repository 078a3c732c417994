import Control
import Messaging
import NIOCore
import NodeRuntime
import Primitives
import Store

/// Messages, their lifetime, explosions and the outbox.
extension ControlHandlers {
    // MARK: Messages

    func addMessages(_ router: inout ControlRouter) {
        later(&router, SendMethod.self) { node, params, connection in
            Self.answer(
                try Self.send(params, node),
                wait: params.wait,
                timeout: params.timeout,
                connection,
                node
            )
        }
        on(&router, ReadMethod.self) { node, params in
            if let last = params.last, last < 1 {
                throw ControlError(.usage, "`last` is \(last)", hint: "it is a number of messages, 1 or more")
            }
            var page = AnswerPage()
            let (conversation, messages) = try node.read(
                params.conversation,
                last: params.last,
                after: params.since
            ) {
                page.take(byteCount: NodeView.largestByteCount(of: $0, $1))
            }
            node.markRead(messages, client: conversation.client)
            return ReadMethod.Result(
                messages: messages.map { NodeView.message($0, conversation, node) },
                more: page.isFull ? true : nil
            )
        }
    }

    // MARK: Lifetime

    func addLifetime(_ router: inout ControlRouter) {
        addCapsAndAgreements(&router)
        on(&router, LifetimeShowMethod.self) { node, params in try NodeView.lifetime(params.conversation, node) }
        reaching(
            &router,
            LifetimeProposeMethod.self,
            { $0.conversation },
            { node, params in
                do {
                    try node.propose(params.conversation, try Self.terms(params))
                } catch {
                    // Proposing what is in force is done already.
                    guard case .command(.lifetime(.alreadyAgreed))? = error as? NodeError else { throw error }
                }
                return node.loop.makeSucceededFuture(try NodeView.lifetime(params.conversation, node))
            }
        )
        addAccept(&router)
        reaching(
            &router,
            LifetimeRejectMethod.self,
            { $0.conversation },
            { node, params in
                try node.reject(params.conversation)
                return node.loop.makeSucceededFuture(try NodeView.lifetime(params.conversation, node))
            }
        )
        reaching(
            &router,
            LifetimeWithdrawMethod.self,
            { $0.conversation },
            { node, params in
                try node.withdraw(params.conversation)
                return node.loop.makeSucceededFuture(try NodeView.lifetime(params.conversation, node))
            }
        )
        durably(&router, LifetimePolicyMethod.self) { node, params in
            if let text = params.policy {
                guard let policy = Messaging.LifetimePolicy(text) else {
                    throw ControlError(
                        .usage,
                        "`\(text)` is not a policy",
                        hint: "write accept-up-to:7d, ask or refuse"
                    )
                }
                if let conversation = params.conversation {
                    try node.setPolicy(conversation, policy)
                } else {
                    try node.setDefaultPolicy(policy)
                }
            }
            guard let conversation = params.conversation else {
                return Control.LifetimePolicy(policy: node.policyByDefault.text)
            }
            let machine = try node.conversation(conversation)
            return Control.LifetimePolicy(
                policy: (machine.policy ?? node.policyByDefault).text,
                conversation: machine.conversation.description
            )
        }
    }

    /// Consent is to what the user has looked at: while the members are reached, a proposer may put another one in its place.
    private func addAccept(_ router: inout ControlRouter) {
        later(&router, LifetimeAcceptMethod.self) { [node] current, params, _ in
            // Shorter ones can be made to fit.
            if let proposal = params.proposal, proposal.utf8.count < 12 {
                throw ControlError(.usage, "`\(proposal)` is too short", hint: "give 12 digits of the id, or more")
            }
            let before = try? current.conversation(params.conversation).pendingProposal?.proposal.id
            return current.whenReached(params.conversation).flatMap {
                node.assumeIsolated { node in
                    do {
                        guard let now = try node.conversation(params.conversation).pendingProposal?.proposal.id else {
                            throw NodeError.command(.lifetime(.noProposal))
                        }
                        let named = params.proposal.map { now.description.hasPrefix($0.lowercased()) }
                        guard named ?? (now == before) else { throw NodeError.command(.lifetime(.otherProposal)) }
                        return try node.accept(params.conversation, only: now).flatMapThrowing { [node] in
                            try node.assumeIsolated { try NodeView.lifetime(params.conversation, $0) }
                        }
                    } catch {
                        return node.loop.makeFailedFuture(error)
                    }
                }
            }
        }
    }

    /// What `lifetime.propose` was asked.
    private static func terms(_ params: LifetimeProposeMethod.Params) throws -> LifetimeTerms {
        let terms = LifetimeTerms(
            Lifetime(params.lifetime),
            attachment: params.attachments.map { Lifetime($0) },
            unopened: params.unopened?.milliseconds,
            timer: params.timer == .read ? .read : .send
        )
        if let unopened = terms.unopened, !LifetimeTerms.unopenedRange.contains(unopened) {
            throw ControlError(.usage, "--unopened: between 1 min and 30 d", hint: "for example --unopened 1h")
        }
        guard terms.isValid else {
            throw ControlError(
                .usage,
                "what is not kept has no timer and cannot stay unopened",
                hint: "propose a lifetime with it: mayfly lifetime propose C 1d --unopened 1h"
            )
        }
        return terms
    }

    func addCapsAndAgreements(_ router: inout ControlRouter) {
        durably(&router, LifetimeCapMethod.self) { node, params in
            if let text = params.cap {
                let cap = Messaging.LifetimeCap(text)
                if cap == nil, text != "default" || params.conversation == nil {
                    throw ControlError(
                        .usage,
                        "`\(text)` is no cap",
                        hint: "write ephemeral, 1h, 6h, 1d, 7d, 30d or none"
                    )
                }
                if let conversation = params.conversation {
                    try node.setCap(conversation, cap)
                } else {
                    try node.setDefaultCap(cap ?? .none)
                }
            }
            guard let conversation = params.conversation else {
                return Control.LifetimeCap(cap: node.capByDefault.text)
            }
            let machine = try node.conversation(conversation)
            return Control.LifetimeCap(
                cap: (machine.cap ?? node.capByDefault).text,
                conversation: machine.conversation.description
            )
        }
        on(&router, LifetimeAgreementsMethod.self) { node, params in
            try NodeView.agreements(params.conversation, params.agreement, node)
        }
    }

    // MARK: Explosions

    func addExplosions(_ router: inout ControlRouter) {
        later(&router, ExplodeMethod.self) { node, params, _ in
            if let record = try Self.destroyed(params.conversation, node) {
                return node.loop.makeSucceededFuture(NodeView.explosion(record, node))
            }
            var time = Node.ExplosionTime.now
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
                    .failed,
                    "only the conversation's creator may explode it",
                    hint: "`mayfly conversation leave C` destroys your own copy"
                )
            }
            let id = conversation.description
            let status = try Self.explosion(id, node)
            if status.state == "scheduled" { return node.whenCommitted().map { status } }
            // So that after a crash the members are still told. The keys are gone in any case, on a full disk too.
            return node.whenCommitted().flatMapErrorThrowing { _ in }.map { [node] in
                node.assumeIsolated { (try? Self.explosion(id, $0)) ?? status }
            }
        }
        on(&router, ExplodeStatusMethod.self) { node, params in
            do {
                return try Self.explosion(params.conversation, node)
            } catch NodeError.unknownConversation(let text) {
                throw ControlError(
                    .notFound,
                    "no conversation `\(text)`",
                    hint: "the name is gone after an explosion; `mayfly explode list` shows the ids"
                )
            }
        }
        on(&router, ExplodeListMethod.self) { node, params in try NodeView.explosions(after: params.from, node) }
    }

    /// What has exploded already; `nil` for what lives.
    private static func destroyed(_ text: String, _ node: isolated Node) throws -> ExplodeStateMachine.Record? {
        let record = try node.explosion(text)
        // Of what lives, a locked node knows no names: the beginning of an id may be one of them.
        if let record, node.isLocked, record.conversation.description != text.lowercased() { throw NodeError.locked }
        return record
    }

    private static func explosion(_ text: String, _ node: isolated Node) throws -> ExplosionStatus {
        if let record = try node.explosion(text) { return NodeView.explosion(record, node) }
        return NodeView.explosion(try node.conversation(text), node)
    }

    // MARK: Outbox

    func addOutbox(_ router: inout ControlRouter) {
        on(&router, OutboxListMethod.self) { node, params in
            let only = try params.conversation.map { try node.resolve($0) }
            let from = try params.from.map { text in
                guard let place = Node.OutboxPlace(text) else {
                    throw ControlError(.usage, "`from` is no place in the outbox", hint: "give the `next` of an answer")
                }
                return place
            }
            var page = AnswerPage()
            var messages: [OutboxEntry] = []
            var last: Node.OutboxPlace?
            try node.visitOutbox(of: only, after: from) { item, place in
                let entry = NodeView.outbox(item, node)
                guard page.take(byteCount: NodeView.largestByteCount(of: entry)) else { return false }
                messages.append(entry)
                last = place
                return true
            }
            return OutboxListMethod.Result(messages: messages, next: page.isFull ? last?.description : nil)
        }
        durably(&router, OutboxCancelMethod.self) { node, params in
            var entry = NodeView.outbox(try node.cancelMessage(params.message), node)
            entry.state = "cancelled"
            return entry
        }
        on(&router, OutboxRetryMethod.self) { node, params in
            NodeView.outbox(try node.retryMessage(params.message), node)
        }
    }
}
