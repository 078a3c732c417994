import Cryptography
import Messaging
import Transport

/// Identifies a knock in flight; at most one per name.
enum KnockName: Hashable {
    case deliver(ConversationID, PublicKey)
    case ask(ClientID, PublicKey)
    case askByInvite(ClientID)
    case report(ConversationID, Int)
}

/// A knock in flight, and the remaining attempts.
struct PendingKnock {
    enum Content {
        case question
        /// A notice or a receipt: its kind and its sealed bytes.
        case sealed([UInt8])
    }

    /// An endpoint, and the token to try there: of the day, or of any day, which works despite clock differences.
    struct Attempt {
        var endpoint: Messaging.Endpoint
        var isOfAnyDay: Bool
    }

    var name: KnockName
    var content: Content
    var secret: KnockSecret
    var token: RoutingToken
    var payload: [UInt8]
    var isOfAnyDay: Bool
    var rest: [Attempt]
}

/// Knocks (Explode.md): sealed messages without a handshake, which announce an explosion or ask about one.
final class Knocks: Part {
    private var knocking: Set<KnockName> = []
    private var forgedKnocks = KnockAllowance.forged
    private var answeredKnocks = KnockAllowance.answered

    /// The first byte of a knock's sealed bytes, and of its answer.
    private enum KnockKind {
        static let notice: UInt8 = 1
        static let question: UInt8 = 2
        static let receipt: UInt8 = 3
        static let statement: UInt8 = 4
    }

    /// - Parameter source: the sender's network, a /24 or /48.
    /// - Returns: the answer; `nil` for none.
    func receive(_ token: RoutingToken, _ payload: [UInt8], from source: UInt64?) -> [UInt8]? {
        guard let match = shell.routes.match(token), match.isKnock, let kind = payload.first else { return nil }
        let sealed = Array(payload.dropFirst())
        switch match.route {
        case .member(let number):
            guard case .inbox(let client, _)? = shell.routes.target(of: number), kind == KnockKind.notice else {
                return nil
            }
            return receiveNotice(sealed, for: client, number, from: source)
        case .knockOnly(let number):
            guard case .tombstone(let conversation, let knocker)? = shell.routes.target(of: number) else { return nil }
            if kind == KnockKind.receipt {
                receiveReceipt(sealed, of: conversation, number, from: source)
                return nil
            }
            // No amplification: an answer is never longer than the knock.
            guard sealed.count >= Limits.noticeByteCount, answeredKnocks.allows(number, from: source, now: now),
                let answer = answer(kind, sealed, token, conversation, knocker)
            else { return nil }
            answeredKnocks.charge(number, from: source, now: now)
            return answer
        case .shared: return nil
        }
    }

    /// Opening is cheap and proves that a member sealed the notice. A notice that opens and fails verification has cost
    /// a signature check, and is charged.
    private func receiveNotice(_ sealed: [UInt8], for client: ClientID, _ route: UInt64, from source: UInt64?)
        -> [UInt8]?
    {
        guard let conversation = core.machine.conversationID(client) ?? core.machine.summary(client)?.conversation,
            ExplodeNotice(opening: sealed, conversation: conversation) != nil,
            forgedKnocks.allows(route, from: source, now: now)
        else { return nil }
        let latest = core.machine.client(of: conversation) ?? client
        if core.machine.isSleeping(latest) { shell.sleep.wakeIfPossible(latest, .pushNotification) }
        let before = core.machine.conversation(latest)?.forgedCount ?? 0
        var answer: [UInt8]?
        core.turn { answer = core.machine.receiveNotice(sealed, for: client, &$0) }
        if (core.machine.conversation(latest)?.forgedCount ?? 0) > before {
            forgedKnocks.charge(route, from: source, now: now)
        }
        return answer.map { [KnockKind.receipt] + $0 }
    }

    private func receiveReceipt(
        _ sealed: [UInt8], of conversation: ConversationID, _ route: UInt64, from source: UInt64?
    ) {
        guard let record = core.machine.tombstone(conversation),
            let receipt = DeletionReceipt(opening: sealed, conversation: conversation),
            record.waiting.contains(receipt.member), forgedKnocks.allows(route, from: source, now: now)
        else { return }
        core.turn { core.machine.receiveReceipt(sealed, for: conversation, &$0) }
        let isStillAwaited = core.machine.tombstone(conversation)?.waiting.contains(receipt.member) ?? false
        if isStillAwaited { forgedKnocks.charge(route, from: source, now: now) }
    }

    private func answer(
        _ kind: UInt8, _ sealed: [UInt8], _ token: RoutingToken, _ conversation: ConversationID, _ knocker: Knocker
    ) -> [UInt8]? {
        guard let record = core.machine.tombstone(conversation) else { return nil }
        switch (knocker, kind) {
        case (.member(let member), KnockKind.notice):
            return record.answer(toNoticeOf: member).map { [KnockKind.receipt] + $0 }
        case (.member(let member), KnockKind.question):
            guard let secret = record.memberKnocks[member].flatMap(KnockSecret.init(bytes:)),
                KnockQuestion.isAuthentic(sealed, key: secret.sealingKey, token: token.bytes)
            else { return nil }
            return record.answer(toQuestionOf: member).map { [KnockKind.notice] + $0 }
        case (.invite(let index), KnockKind.question):
            guard record.inviteKnocks.indices.contains(index), let statement = record.statement,
                let secret = KnockSecret(bytes: record.inviteKnocks[index]),
                KnockQuestion.isAuthentic(sealed, key: secret.sealingKey, token: token.bytes)
            else { return nil }
            return [KnockKind.statement] + statement.sealed(key: secret.sealingKey, token: token.bytes, &random)
        case (.earlierCopy(let index), KnockKind.notice):
            guard record.earlierCopies.indices.contains(index) else { return nil }
            return [KnockKind.receipt] + record.earlierCopies[index].receipt.sealed(&random)
        case (.member, _), (.invite, _), (.earlierCopy, _): return nil
        }
    }

    func knock(_ knock: NodeAction.Knock) {
        switch knock {
        case .deliver(let conversation, let member):
            guard let record = core.machine.tombstone(conversation),
                let target = shell.explosions.fanOut(conversation)?.targets.first(where: { $0.remote == member }),
                let secret = Hex.decode(target.knock).flatMap(KnockSecret.init(bytes:))
            else { return }
            send(
                .sealed([KnockKind.notice] + record.notice), secret, to: target.endpoints,
                .deliver(conversation, member))
        case .ask(let client, let member, let endpoints):
            guard let key = inboxes[client]?.key, !key.isWiped, let conversation = core.machine.conversationID(client)
            else { return }
            let secret = RoutingSecret.derive(
                own: key, remote: member, conversation: conversation.bytes, role: .initiator
            ).knock
            send(.question, secret, to: endpoints, .ask(client, member))
        case .askByInvite(let client, let invite, let endpoints):
            let secret = RoutingSecret.derive(invite: invite).knock
            send(.question, secret, to: endpoints, .askByInvite(client))
        case .report(let conversation, let endpoints):
            let report = shell.endings[conversation].report
            shell.endings[conversation].report = nil
            guard let secret = report, let record = core.machine.tombstone(conversation), let receipt = record.receipt
            else { return }
            let receipts = record.earlierCopies.map { $0.receipt.sealed(&random) } + [receipt]
            for (number, receipt) in receipts.enumerated() {
                send(.sealed([KnockKind.receipt] + receipt), secret, to: endpoints, .report(conversation, number))
            }
        }
    }

    /// Tries all endpoints with the token of the day, then all with the token of any day.
    private func send(
        _ content: PendingKnock.Content, _ secret: KnockSecret, to endpoints: [Messaging.Endpoint], _ name: KnockName
    ) {
        let attempts = [false, true].flatMap { isOfAnyDay in
            endpoints.map { PendingKnock.Attempt(endpoint: $0, isOfAnyDay: isOfAnyDay) }
        }
        send(content, secret, attempts[...], name)
    }

    private func send(
        _ content: PendingKnock.Content, _ secret: KnockSecret, _ attempts: ArraySlice<PendingKnock.Attempt>,
        _ name: KnockName
    ) {
        guard let transport = shell.listening.transport, let attempt = attempts.first, knocking.insert(name).inserted
        else { return }
        let endpoint = attempt.endpoint
        let token = attempt.isOfAnyDay ? secret.token : secret.token(day: now.day)
        let payload: [UInt8]
        switch content {
        case .sealed(let bytes): payload = bytes
        case .question:
            // As long as a notice, the longest possible answer.
            payload = [KnockKind.question] + KnockQuestion.seal(key: secret.sealingKey, token: token.bytes, &random)
        }
        let knock = PendingKnock(
            name: name, content: content, secret: secret, token: token, payload: payload,
            isOfAnyDay: attempt.isOfAnyDay, rest: Array(attempts.dropFirst()))
        guard endpoint.relay == nil else {
            shell.streams.open(
                at: endpoint, opened: { [unowned self] channel, _ in self.knock(knock, over: channel) },
                failed: { [unowned self] in knocked(.failure(.unreachable), knock) })
            return
        }
        transport.knock(
            at: Transport.Endpoint(endpoint), token: knock.token, sealed: payload, completion: completion(of: knock))
    }

    private func knock(_ knock: PendingKnock, over socket: RelayedSocket) {
        shell.listening.transport?.knock(
            over: socket, token: knock.token, sealed: knock.payload, completion: completion(of: knock))
    }

    private func completion(of knock: PendingKnock) -> (Result<[UInt8]?, DialFailure>) -> Void {
        // Weak: a connection may outlive its node.
        { [weak self] result in self?.knocked(result, knock) }
    }

    private func knocked(_ result: Result<[UInt8]?, DialFailure>, _ knock: PendingKnock) {
        knocking.remove(knock.name)
        guard !isStopped else { return }
        switch (result, knock.name) {
        case (.success(let answer?), _): receive(answer, to: knock.name, knock.secret, knock.token)
        // A receipt has no answer, so success is unknown: both tokens are used.
        case (.success(nil), .report) where knock.isOfAnyDay: break
        case (.success(nil), .report):
            send(knock.content, knock.secret, knock.rest.filter(\.isOfAnyDay)[...], knock.name)
        case (.success(nil), _), (.failure, _): send(knock.content, knock.secret, knock.rest[...], knock.name)
        }
    }

    private func receive(_ answer: [UInt8], to name: KnockName, _ secret: KnockSecret, _ token: RoutingToken) {
        let sealed = Array(answer.dropFirst())
        switch (name, answer.first) {
        case (.deliver(let conversation, _), KnockKind.receipt):
            core.turn { core.machine.receiveReceipt(sealed, for: conversation, &$0) }
        case (.ask(let client, _), KnockKind.notice):
            core.turn { core.machine.receiveNotice(sealed, for: client, isAnswer: true, &$0) }
        case (.askByInvite(let client), KnockKind.statement):
            guard let statement = ExpiredStatement(opening: sealed, key: secret.sealingKey, token: token.bytes) else {
                return
            }
            core.turn { core.machine.receive(statement, for: client, &$0) }
        case (.deliver, _), (.ask, _), (.askByInvite, _), (.report, _): break
        }
    }
}

/// Rate limit for knocks of one kind, by route and by source network (Explode.md, "This program's measures").
///
/// A route belongs to one member, or to all holders of one invite. An attacker with an overheard token or the invite
/// can exhaust it. So a network with a full bucket may exceed the route's limit, at the expense of a reserve shared by
/// all routes.
struct KnockAllowance {
    private var routes: RateTable<UInt64>
    private var sources: RateTable<UInt64>
    private var reserve = TokenBucket(Limits.knockReserveRate)

    static var forged: KnockAllowance {
        KnockAllowance(routes: Limits.forgedKnockRate, sources: Limits.forgedKnockRate)
    }

    static var answered: KnockAllowance {
        KnockAllowance(routes: Limits.answeredKnockRate, sources: Limits.knockSourceRate)
    }

    private init(routes: Rate, sources: Rate) {
        self.routes = RateTable(routes, limit: Limits.knockBucketCount, sharesRest: true)
        self.sources = RateTable(sources, limit: Limits.knockBucketCount, sharesRest: true)
    }

    /// All knocks through rendezvous nodes count as one network.
    private static func name(_ source: UInt64?) -> UInt64 { source ?? .max }

    /// Whether a knock may be processed.
    /// - Parameters:
    ///   - route: its routing number.
    ///   - source: a /24 or /48; `nil` for none.
    func allows(_ route: UInt64, from source: UInt64?, now: Timestamp) -> Bool {
        let source = Self.name(source)
        guard !sources.isSpent(source, now: now) else { return false }
        if !routes.isSpent(route, now: now) { return true }
        return sources.isFull(source, now: now) && !reserve.isSpent(now: now)
    }

    mutating func charge(_ route: UInt64, from source: UInt64?, now: Timestamp) {
        _ = sources.take(Self.name(source), now: now)
        if !routes.take(route, now: now) { _ = reserve.take(now: now) }
    }
}
