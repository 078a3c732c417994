import Dispatch
import Logging
import Messaging
import NIOCore
import Noise
import Primitives
import Store
import Transport
import Wire

/// The endpoints and tokens by which the members of an exploded conversation are told. Sealed under a seven-day column:
/// the inbox's own keys are gone.
struct FanOut: Codable {
    struct Target: Codable {
        var remote: PublicKey
        var endpoints: [Messaging.Endpoint]
        /// Knock tokens of the coming days, in hexadecimal; the first is for `firstDay`.
        var tokens: [String]
    }

    var conversation: ConversationID
    var firstDay: UInt32
    var targets: [Target]
}

enum KnockName: Hashable {
    case deliver(ConversationID, PublicKey)
    case ask(ClientID, PublicKey)
}

/// Explosions (section 7): the tombstone, the list of whom to tell, and the knocks that tell and ask.
extension Node {
    /// Keys first (section 7). The tombstone is the intent: found with a live inbox at the next start, the inbox goes.
    func explode(_ client: ClientID, _ record: ExplodeStateMachine.Record, fanOut: [Messaging.Member]) {
        guard let key = keys[client] else { return }
        let today = now.day
        var tokens: [[UInt8]] = []
        var targets: [FanOut.Target] = []
        for member in record.members {
            let accept = RoutingSecret.derive(
                own: key,
                remote: member,
                conversation: record.conversation.bytes,
                role: .responder
            )
            // Yesterday to the day after the tombstone's last: the late member's clock may differ.
            for day in 0...UInt32(Limits.tombstoneLifetime / .day) + 2 {
                tokens.append(Array(accept.knockToken(day: max(today, 1) - 1 + day).bytes.prefix(8)))
            }
        }
        for member in fanOut {
            let dial = RoutingSecret.derive(
                own: key,
                remote: member.key,
                conversation: record.conversation.bytes,
                role: .initiator
            )
            targets.append(
                FanOut.Target(
                    remote: member.key,
                    endpoints: member.endpoints,
                    tokens: (0...UInt32(Limits.fanOutLifetime / .day)).map {
                        Hex.encode(dial.knockToken(day: today + $0).bytes)
                    }
                )
            )
        }
        core.setKnockTokens(tokens, for: record.conversation)
        saveTombstone(record.conversation)
        if !targets.isEmpty {
            fanOuts[record.conversation] = FanOut(conversation: record.conversation, firstDay: today, targets: targets)
            saveFanOut(record.conversation)
            makeDurable()
        }
        destroyRow(client)
        if let record = core.tombstone(record.conversation) { register(tombstone: record) }
        scheduleCommit()
    }

    /// Waits for the disk: once the keys are gone, nobody can derive again whom to tell and how. A disk that hangs does
    /// not keep the keys alive for it.
    private func makeDurable() {
        guard !store.isLocked else { return }
        let done = DispatchSemaphore(value: 0)
        store.commit { _ in done.signal() }
        _ = done.wait(timeout: .now() + .seconds(2))
    }

    func saveTombstone(_ conversation: ConversationID) {
        guard let record = core.tombstone(conversation) else { return }
        guard !store.isLocked else {
            unsavedTombstones.insert(conversation)
            return
        }
        let payload = StoredCodec.encode(tombstone: record)
        do throws(StoreError) {
            if let id = tombstoneIDs[conversation] {
                try store.updateTombstone(id, payload: payload)
            } else {
                tombstoneIDs[conversation] = try store.addTombstone(
                    keepUntil: record.keepUntil.milliseconds,
                    payload: payload
                )
            }
        } catch {
            // The keys go all the same: forgetting is the promise, telling is the courtesy.
            log.error("a tombstone could not be written", metadata: ["error": "\(error)"])
        }
        if record.confirmed.count == record.members.count { removeFanOut(conversation) }
    }

    func saveFanOut(_ conversation: ConversationID) {
        guard !store.isLocked, let fanOut = fanOuts[conversation] else { return }
        let end = now + Limits.fanOutLifetime
        do throws(StoreError) {
            try store.saveFanOut(
                id: Array(conversation.bytes.prefix(16)),
                expiresAt: end.milliseconds,
                payload: StoredCodec.encode(record: fanOut)
            )
        } catch {
            log.error("the list of members to tell could not be written", metadata: ["error": "\(error)"])
        }
    }

    private func removeFanOut(_ conversation: ConversationID) {
        fanOuts[conversation] = nil
        guard !store.isLocked else { return }
        try? store.removeFanOut(id: Array(conversation.bytes.prefix(16)))
        scheduleCommit()
    }

    func removeTombstone(_ conversation: ConversationID) {
        removeFanOut(conversation)
        unregister(tombstone: conversation)
        guard let id = tombstoneIDs.removeValue(forKey: conversation), !store.isLocked else { return }
        try? store.removeTombstone(id)
    }

    // MARK: Knocks

    /// The first byte of a knock's sealed bytes says what it is.
    private enum KnockKind {
        static let notice: UInt8 = 1
        static let question: UInt8 = 2
        static let receipt: UInt8 = 3
    }

    func receiveKnock(_ token: RoutingToken, _ payload: [UInt8]) -> [UInt8]? {
        guard let match = routing.match(token), match.isKnock, let kind = payload.first else { return nil }
        switch match.route {
        case .member(let number):
            guard case .inbox(let client, _)? = routeTargets[number], kind == KnockKind.notice else { return nil }
            if let asleep = core.summary(client) {
                // Only what a member can have made wakes anybody.
                guard ExplodeNotice(opening: Array(payload.dropFirst()), conversation: asleep.conversation) != nil
                else { return nil }
                wakeIfPossible(client, .pushNotification)
            }
            var answer: [UInt8]?
            turn { turn in
                let result = core.receiveNotice(Array(payload.dropFirst()), for: client, &turn)
                answer = result.answer
                return result.actions
            }
            return answer.map { [KnockKind.receipt] + $0 }
        case .knockOnly(let number):
            guard case .tombstone(let conversation)? = routeTargets[number], let record = core.tombstone(conversation)
            else { return nil }
            // What does not look like one of ours, or is shorter than the answer, gets none.
            guard payload.count > Limits.noticeByteCount || kind == KnockKind.receipt else { return nil }
            if kind == KnockKind.receipt {
                turn { core.receiveReceipt(Array(payload.dropFirst()), for: conversation, &$0) }
                return nil
            }
            if let receipt = record.receipt { return [KnockKind.receipt] + receipt }
            return [KnockKind.notice] + record.notice
        case .shared: return nil
        }
    }

    func knock(_ knock: NodeAction.Knock) {
        guard let transport else { return }
        switch knock {
        case .deliver(let conversation, let member):
            guard let fanOut = fanOut(conversation), let record = core.tombstone(conversation),
                let target = fanOut.targets.first(where: { $0.remote == member })
            else { return }
            let index = Int(now.day) - Int(fanOut.firstDay)
            guard target.tokens.indices.contains(index), let bytes = Hex.decode(target.tokens[index]),
                let token = RoutingToken(bytes)
            else { return }
            send(
                [KnockKind.notice] + record.notice,
                token,
                to: target.endpoints,
                .deliver(conversation, member),
                transport
            )
        case .ask(let client, let member, let endpoints):
            guard let key = keys[client], let conversation = core.conversationID(client) else { return }
            let token = RoutingSecret.derive(
                own: key,
                remote: member,
                conversation: conversation.bytes,
                role: .initiator
            ).knockToken(day: now.day)
            // As long as the notice that may come back: no amplification.
            let question = [KnockKind.question] + [UInt8](repeating: 0, count: Limits.noticeByteCount)
            send(question, token, to: endpoints, .ask(client, member), transport)
        }
    }

    private func send(
        _ payload: [UInt8],
        _ token: RoutingToken,
        to endpoints: [Messaging.Endpoint],
        _ name: KnockName,
        _ transport: TCPTransport
    ) {
        guard let endpoint = endpoints.first, knocking.insert(name).inserted else { return }
        transport.knock(
            at: Transport.Endpoint(host: endpoint.host, port: Int(endpoint.port)),
            token: token,
            sealed: payload
        ) { [unowned self] result in
            assumeIsolated { node in
                node.knocking.remove(name)
                guard !node.isStopped else { return }
                if case .success(let answer?) = result {
                    node.receive(answer, to: name, token, at: endpoints)
                } else if payload.first != KnockKind.receipt {
                    node.send(payload, token, to: Array(endpoints.dropFirst()), name, transport)
                }
            }
        }
    }

    private func receive(
        _ answer: [UInt8],
        to name: KnockName,
        _ token: RoutingToken,
        at endpoints: [Messaging.Endpoint]
    ) {
        let sealed = Array(answer.dropFirst())
        switch (name, answer.first) {
        case (.deliver(let conversation, _), KnockKind.receipt):
            turn { core.receiveReceipt(sealed, for: conversation, &$0) }
        case (.ask(let client, _), KnockKind.notice):
            var receipt: [UInt8]?
            turn { turn in
                let result = core.receiveNotice(sealed, for: client, &turn)
                receipt = result.answer
                return result.actions
            }
            // We have learned it ourselves; the creator still waits for our word, and may not be able to knock here.
            if let receipt, let transport {
                send([KnockKind.receipt] + receipt, token, to: endpoints, name, transport)
            }
        case (.deliver, _), (.ask, _): break
        }
    }

    private func fanOut(_ conversation: ConversationID) -> FanOut? {
        if let known = fanOuts[conversation] { return known }
        guard !store.isLocked, let stored = try? store.fanOuts(now: now.milliseconds) else { return nil }
        for message in stored {
            guard let fanOut = try? StoredCodec.decode(FanOut.self, message.payload) else { continue }
            fanOuts[fanOut.conversation] = fanOut
        }
        return fanOuts[conversation]
    }
}
