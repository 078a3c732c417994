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
            let page = 256
            if let last = params.last, last < 1 {
                throw ControlError(.usage, "`last` is \(last)", hint: "it is a number of messages, 1 or more")
            }
            let (conversation, messages) = try node.read(params.conversation, last: params.last, after: params.since)
            let shown = Array(messages.prefix(page))
            node.markRead(shown, client: conversation.client)
            return ReadMethod.Result(
                messages: shown.map { NodeView.message($0, conversation, node) },
                more: messages.count > page ? true : nil
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
        reaching(
            &router,
            LifetimeAcceptMethod.self,
            { $0.conversation },
            { node, params in
                try node.accept(params.conversation).flatMapThrowing { [node] in
                    try node.assumeIsolated { try NodeView.lifetime(params.conversation, $0) }
                }
            }
        )
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
            if let record = try? node.explosion(params.conversation) {
                return node.loop.makeSucceededFuture(NodeView.explosion(record, node))
            }
            var time = Node.ExplosionTime.now
            switch (params.at, params.delay) {
            case (nil, nil): break
            case (let at?, nil): time = .at(Messaging.Timestamp(milliseconds: at.milliseconds))
            case (nil, let delay?): time = .after(delay.milliseconds)
            case (_?, _?): throw ControlError(.usage, "give only one of `at` and `in`")
            }
            let conversation = try node.explode(params.conversation, time, isTraceless: params.noTrace ?? false)
            let id = conversation.description
            let status = try Self.explosion(id, node)
            if status.state == "scheduled" { return node.whenCommitted().map { status } }
            // So that after a crash the members are still told. The keys are gone in any case, on a full disk too.
            return node.whenCommitted().flatMapErrorThrowing { _ in }.map { [node] in
                node.assumeIsolated { (try? Self.explosion(id, $0)) ?? status }
            }
        }
        on(&router, ExplodeStatusMethod.self) { node, params in
            try Self.explosion(params.conversation, node)
        }
    }

    private static func explosion(_ text: String, _ node: isolated Node) throws -> ExplosionStatus {
        if let record = try node.explosion(text) { return NodeView.explosion(record, node) }
        return NodeView.explosion(try node.conversation(text))
    }

    // MARK: Outbox

    func addOutbox(_ router: inout ControlRouter) {
        on(&router, OutboxListMethod.self) { node, params in
            let only = try params.conversation.map { try node.resolve($0) }
            return OutboxListMethod.Result(
                messages: try node.outbox().filter { only == nil || $0.conversation.client == only }
                    .map { NodeView.outbox($0) }
            )
        }
        durably(&router, OutboxCancelMethod.self) { node, params in
            var entry = NodeView.outbox(try node.cancelMessage(params.message))
            entry.state = "cancelled"
            return entry
        }
        on(&router, OutboxRetryMethod.self) { node, params in NodeView.outbox(try node.retryMessage(params.message)) }
    }
}
