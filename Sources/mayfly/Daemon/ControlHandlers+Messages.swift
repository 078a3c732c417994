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
            if params.file != nil {
                throw ControlError(.failed, "files are not supported by this version", hint: "send text")
            }
            if params.replyTo != nil {
                throw ControlError(
                    .failed,
                    "replies are not supported by this version",
                    hint: "send without --reply-to"
                )
            }
            let (client, sent) = try node.send(params.conversation, text: params.text)
            return sent.flatMap { [node] id in
                node.assumeIsolated { node in
                    Self.wait(
                        node,
                        for: connection,
                        message: id,
                        concerns: { kind in
                            // That it was sent is no news to who waits for its delivery.
                            if case .messageState(_, .sent, _) = kind { params.wait != .delivered } else { true }
                        },
                        timeout: params.timeout?.milliseconds ?? 60_000,
                        timedOut: { _ in
                            .failure(
                                NodeError.timedOut(
                                    "message \(id) was not \(params.wait?.rawValue ?? "sent") in time; it stays in the outbox"
                                )
                            )
                        },
                        check: { node in NodeView.sentMessage(id, client, until: params.wait ?? .queued, node) }
                    )
                }
            }
        }
        on(&router, ReadMethod.self) { node, params in
            let page = 256
            let (conversation, messages) = try node.read(params.conversation, last: params.last, after: params.since)
            let shown = messages.prefix(page)
            return ReadMethod.Result(
                messages: shown.map { NodeView.message($0, conversation) },
                more: messages.count > page ? true : nil
            )
        }
    }

    // MARK: Lifetime

    func addLifetime(_ router: inout ControlRouter) {
        addCapsAndAgreements(&router)
        on(&router, LifetimeShowMethod.self) { node, params in try NodeView.lifetime(params.conversation, node) }
        on(&router, LifetimeProposeMethod.self) { node, params in
            do {
                try node.propose(params.conversation, try Self.terms(params))
            } catch {
                // Proposing what is in force is done already.
                guard case .command(.lifetime(.alreadyAgreed))? = error as? NodeError else { throw error }
            }
            return try NodeView.lifetime(params.conversation, node)
        }
        later(&router, LifetimeAcceptMethod.self) { node, params, _ in
            try node.accept(params.conversation).flatMapThrowing { [node] in
                try node.assumeIsolated { try NodeView.lifetime(params.conversation, $0) }
            }
        }
        on(&router, LifetimeRejectMethod.self) { node, params in
            try node.reject(params.conversation)
            return try NodeView.lifetime(params.conversation, node)
        }
        on(&router, LifetimeWithdrawMethod.self) { node, params in
            try node.withdraw(params.conversation)
            return try NodeView.lifetime(params.conversation, node)
        }
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
            if params.at != nil || params.delay != nil {
                throw ControlError(
                    .failed,
                    "scheduled explosions are not supported by this version",
                    hint: "explode without --at and --in"
                )
            }
            if params.noTrace == true {
                throw ControlError(.failed, "--no-trace is not supported by this version")
            }
            if let record = try? node.explosion(params.conversation) {
                return node.loop.makeSucceededFuture(NodeView.explosion(record))
            }
            let conversation = try node.explode(params.conversation)
            guard let record = try node.explosion(conversation.description) else {
                throw ControlError(.failed, "the conversation could not be exploded")
            }
            // So that after a crash the members are still told. The keys are gone in any case, on a full disk too.
            let status = NodeView.explosion(record)
            return node.whenCommitted().map { status }.flatMapErrorThrowing { _ in status }
        }
        on(&router, ExplodeStatusMethod.self) { node, params in
            if let record = try node.explosion(params.conversation) { return NodeView.explosion(record) }
            let conversation = try node.conversation(params.conversation)
            return ExplosionStatus(
                conversation: conversation.conversation.description,
                state: "none",
                confirmed: [],
                waiting: []
            )
        }
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
