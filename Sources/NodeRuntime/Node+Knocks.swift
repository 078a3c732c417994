import Messaging
import NIOCore
import Noise
import Primitives
import Store
import Transport

/// A knock on its way: one of a kind at a time.
enum KnockName: Hashable {
    case deliver(ConversationID, PublicKey)
    case ask(ClientID, PublicKey)
    case askByInvite(ClientID)
    case report(ConversationID)
}

/// Knocks (section 7): sealed words without a handshake, to tell of an explosion and to ask for one.
extension Node {
    /// The first byte of a knock's sealed bytes, and of its answer, says what it is.
    private enum KnockKind {
        static let notice: UInt8 = 1
        static let question: UInt8 = 2
        static let receipt: UInt8 = 3
        static let statement: UInt8 = 4
    }

    // MARK: Incoming

    func receiveKnock(_ token: RoutingToken, _ payload: [UInt8]) -> [UInt8]? {
        guard let match = routing.match(token), match.isKnock, let kind = payload.first else { return nil }
        let sealed = Array(payload.dropFirst())
        switch match.route {
        case .member(let number):
            guard case .inbox(let client, _)? = routeTargets[number], kind == KnockKind.notice else { return nil }
            if let asleep = core.summary(client) {
                // Only what a member can have made wakes anybody.
                guard ExplodeNotice(opening: sealed, conversation: asleep.conversation) != nil else { return nil }
                wakeIfPossible(client, .pushNotification)
            }
            var answer: [UInt8]?
            turn { turn in
                let result = core.receiveNotice(sealed, for: client, &turn)
                answer = result.answer
                return result.actions
            }
            return answer.map { [KnockKind.receipt] + $0 }
        case .knockOnly(let number):
            guard case .tombstone(let conversation, let knocker)? = routeTargets[number] else { return nil }
            if kind == KnockKind.receipt {
                turn { core.receiveReceipt(sealed, for: conversation, &$0) }
                return nil
            }
            // Nobody is made to send more than was sent to them.
            guard sealed.count >= Limits.noticeByteCount else { return nil }
            return answer(kind, sealed, token, conversation, knocker)
        case .shared: return nil
        }
    }

    private func answer(
        _ kind: UInt8,
        _ sealed: [UInt8],
        _ token: RoutingToken,
        _ conversation: ConversationID,
        _ knocker: RouteTarget.Knocker
    ) -> [UInt8]? {
        guard let record = core.tombstone(conversation) else { return nil }
        let machine = ExplodeStateMachine(record: record)
        switch (knocker, kind) {
        case (.member(let member), KnockKind.notice):
            return machine.answer(toNoticeOf: member).map { [KnockKind.receipt] + $0 }
        case (.member(let member), KnockKind.question):
            guard let secret = record.memberKnocks[member].flatMap(KnockSecret.init(bytes:)),
                KnockQuestion.isAuthentic(sealed, key: secret.sealingKey, token: token.bytes)
            else { return nil }
            return machine.answer(toQuestionOf: member).map { [KnockKind.notice] + $0 }
        case (.invite(let index), KnockKind.question):
            guard record.inviteKnocks.indices.contains(index), let statement = record.statement,
                let secret = KnockSecret(bytes: record.inviteKnocks[index]),
                KnockQuestion.isAuthentic(sealed, key: secret.sealingKey, token: token.bytes)
            else { return nil }
            var random = Randomness.system
            return [KnockKind.statement] + statement.sealed(key: secret.sealingKey, token: token.bytes, &random)
        case (.member, _), (.invite, _): return nil
        }
    }

    // MARK: Outgoing

    func knock(_ knock: NodeAction.Knock) {
        switch knock {
        case .deliver(let conversation, let member):
            guard let record = core.tombstone(conversation),
                let target = fanOut(conversation)?.targets.first(where: { $0.remote == member }),
                let secret = Hex.decode(target.knock).flatMap(KnockSecret.init(bytes:))
            else { return }
            send([KnockKind.notice] + record.notice, secret, to: target.endpoints, .deliver(conversation, member))
        case .ask(let client, let member, let endpoints):
            guard let key = keys[client], let conversation = core.conversationID(client) else { return }
            let secret = RoutingSecret.derive(
                own: key,
                remote: member,
                conversation: conversation.bytes,
                role: .initiator
            ).knock
            send(question(secret), secret, to: endpoints, .ask(client, member))
        case .askByInvite(let client, let invite, let endpoints):
            let secret = RoutingSecret.derive(invite: invite).knock
            send(question(secret), secret, to: endpoints, .askByInvite(client))
        case .report(let conversation, let endpoints):
            guard let secret = reports.removeValue(forKey: conversation),
                let receipt = core.tombstone(conversation)?.receipt
            else { return }
            send([KnockKind.receipt] + receipt, secret, to: endpoints, .report(conversation))
        }
    }

    /// As long as a notice, the longest that may come back.
    private func question(_ secret: KnockSecret) -> [UInt8] {
        var random = Randomness.system
        let token = secret.token(day: now.day)
        return [KnockKind.question] + KnockQuestion.seal(key: secret.sealingKey, token: token.bytes, &random)
    }

    private func send(
        _ payload: [UInt8],
        _ secret: KnockSecret,
        to endpoints: [Messaging.Endpoint],
        _ name: KnockName
    ) {
        guard let transport, let endpoint = endpoints.first, knocking.insert(name).inserted else { return }
        let token = secret.token(day: now.day)
        transport.knock(
            at: Transport.Endpoint(host: endpoint.host, port: Int(endpoint.port)),
            token: token,
            sealed: payload
        ) { [weak self] result in
            // A connection may outlive the node that made it.
            self?.assumeIsolated { node in
                node.knocking.remove(name)
                guard !node.isStopped else { return }
                switch (result, name) {
                case (.success(let answer?), _): node.receive(answer, to: name, secret, token)
                // A receipt has no answer.
                case (.success(nil), .report): break
                case (.success(nil), _), (.failure, _):
                    node.send(payload, secret, to: Array(endpoints.dropFirst()), name)
                }
            }
        }
    }

    private func receive(_ answer: [UInt8], to name: KnockName, _ secret: KnockSecret, _ token: RoutingToken) {
        let sealed = Array(answer.dropFirst())
        switch (name, answer.first) {
        case (.deliver(let conversation, _), KnockKind.receipt):
            turn { core.receiveReceipt(sealed, for: conversation, &$0) }
        case (.ask(let client, _), KnockKind.notice):
            turn { core.receiveNotice(sealed, for: client, isAnswer: true, &$0).actions }
        case (.askByInvite(let client), KnockKind.statement):
            guard let statement = ExpiredStatement(opening: sealed, key: secret.sealingKey, token: token.bytes) else {
                return
            }
            turn { core.receive(statement, for: client, &$0) }
        case (.deliver, _), (.ask, _), (.askByInvite, _), (.report, _): break
        }
    }
}

extension RoutingSecret {
    /// Of the links and knocks of an invite's holders.
    static func derive(invite: InviteID) -> RoutingSecret {
        derive(shared: SecretBytes(copying: invite.bytes), purpose: "invite")
    }
}
