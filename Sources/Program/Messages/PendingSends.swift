import Control
import Messaging
import NIOCore
import NodeRuntime
import Transport

protocol WaitingParams {
    var wait: DeliveryStage? { get }
    var timeout: Interval? { get }
}

extension SendParams: WaitingParams {}

/// Messages sent in one turn, and the delivery stage that they must reach before their answer.
final class PendingSend: @unchecked Sendable {
    // @unchecked: mutable state is confined to the node's loop.

    enum Outcome {
        case waiting(Node.Sent, reached: DeliveryStage)
        case done(SentMessage)
        /// The id is `nil` when no message was made.
        case failed(ControlError, Messaging.MessageID?)
    }

    enum Answer {
        /// Runs for each message, by its index, when it waits no longer.
        case each((Int, Outcome) -> Void)
        /// Runs once, when no message waits.
        case all(([Outcome]) -> Void)
    }

    fileprivate let stage: DeliveryStage
    fileprivate var outcomes: [Outcome] = []
    fileprivate var waitingCount = 0
    /// The refused messages, once all others are durable, or in memory as their lifetime says; `nil` until then.
    fileprivate var refused: [Messaging.MessageID: any Error]?
    fileprivate var deadline: Scheduled<Void>?
    fileprivate var closeAction: (ControlSession, UInt64)?
    /// `nil` once it is given, or the client has disconnected.
    fileprivate var answer: Answer?

    fileprivate init(_ stage: DeliveryStage, _ answer: Answer) {
        self.stage = stage
        self.answer = answer
    }

    fileprivate func answer(_ index: Int) { if case .each(let body)? = answer { body(index, outcomes[index]) } }
}

/// The `send` requests that wait for their messages; events of the messages complete them.
final class PendingSends: @unchecked Sendable {
    // @unchecked: mutable state is confined to the node's loop.

    private struct Slot {
        let request: PendingSend
        let index: Int
    }

    private let node: Node
    private var slots: [Messaging.MessageID: Slot] = [:]
    /// States of messages without a slot yet, because an event may precede its slot. `nil` except while making
    /// messages.
    private var early: [(Messaging.MessageID, DeliveryState)]?
    private var watcher: UInt64?

    init(_ node: Node) { self.node = node }

    /// Makes messages and answers when each has reached the awaited stage.
    /// - Parameters:
    ///   - make: makes the messages; its argument runs when all are durable.
    func send(
        to conversation: String, _ params: some WaitingParams, _ session: ControlSession, _ node: isolated Node,
        _ answer: PendingSend.Answer, make: (@escaping Node.WhenDurable) throws -> [Result<Node.Sent, NodeError>]
    ) throws {
        if params.wait == .mailed, let machine = try? node.conversation(conversation),
            machine.agreement?.terms.mailbox ?? .no == .no,
            !machine.currentMembers.allSatisfy({ machine.isOnline($0.key) })
        {
            throw ControlError(
                .failed, "nothing was sent: a member is away, and the members have not agreed on a mailbox",
                hint: "propose one with `mayfly lifetime propose C 1d --mailbox ram`, or wait for `delivered`")
        }
        if watcher == nil { watcher = node.watch { [weak self] entry in self?.happened(entry) } }
        let request = PendingSend(params.wait ?? .queued, answer)
        early = []
        defer { early = nil }
        let made = try make { [self] refused in
            request.refused = refused
            // While messages are being made they have no slots yet.
            if !request.outcomes.isEmpty { becameDurable(request) }
        }
        for (index, one) in made.enumerated() {
            switch one {
            case .success(let sent):
                request.outcomes.append(.waiting(sent, reached: .queued))
                request.waitingCount += 1
                slots[sent.message] = Slot(request: request, index: index)
            case .failure(let error):
                request.outcomes.append(.failed(controlError(error), nil))
                request.answer(index)
            }
        }
        for (message, state) in early ?? [] { advance(message, state) }
        if request.refused != nil || request.waitingCount == 0 { becameDurable(request) }
        guard request.waitingCount > 0, params.wait != nil || params.timeout != nil else { return }
        // The timeout covers the commit, because a disk may hang.
        let time = TimeAmount.milliseconds(params.timeout?.milliseconds ?? 60_000)
        request.deadline = node.loop.assumeIsolated().scheduleTask(in: time) { [self] in timedOut(request) }
        let number = session.onClose { [self] in
            request.answer = nil
            for index in request.outcomes.indices { end(request, index, .done(SentMessage())) }
            answerIfDone(request)
        }
        request.closeAction = (session, number)
    }

    private func becameDurable(_ request: PendingSend) {
        for index in request.outcomes.indices {
            guard case .waiting(let sent, let reached) = request.outcomes[index] else { continue }
            if let error = request.refused?[sent.message] {
                end(request, index, .failed(controlError(error), nil))
            } else if reached.isAtLeast(request.stage) {
                end(request, index, .done(SentMessage(sent, reached)))
            }
        }
        answerIfDone(request)
    }

    private func timedOut(_ request: PendingSend) {
        request.deadline = nil
        for index in request.outcomes.indices {
            guard case .waiting(let sent, _) = request.outcomes[index] else { continue }
            var words =
                request.refused == nil
                ? "message \(sent.message) was not stored in time; it is sent once it is stored"
                : "message \(sent.message) was not \(request.stage.rawValue) in time; it stays in the outbox"
            if isUnacknowledged(sent.client) { words += "; the last link was lost: \(Words.unacknowledged)" }
            end(request, index, .failed(ControlError(.timedOut, words, hint: "give a longer --timeout"), sent.message))
        }
        answerIfDone(request)
    }

    /// Whether a link of the conversation timed out without an acknowledgement.
    private func isUnacknowledged(_ client: ClientID) -> Bool {
        node.assumeIsolated { node in
            guard let machine = try? node.conversation(client.description) else { return false }
            return node.losses(of: machine).values.contains { $0.reason == .unacknowledged }
        }
    }

    private func end(_ request: PendingSend, _ index: Int, _ outcome: PendingSend.Outcome) {
        guard case .waiting(let sent, _) = request.outcomes[index] else { return }
        slots[sent.message] = nil
        request.waitingCount -= 1
        request.outcomes[index] = outcome
        request.answer(index)
    }

    private func answerIfDone(_ request: PendingSend) {
        guard request.waitingCount == 0 else { return }
        request.deadline?.cancel()
        request.deadline = nil
        if let (session, number) = request.closeAction { session.removeOnClose(number) }
        request.closeAction = nil
        if case .all(let body)? = request.answer { body(request.outcomes) }
        request.answer = nil
    }

    private func happened(_ entry: EventLog.Entry) {
        switch entry.event.kind {
        case .messageState(let message, let state, _):
            if early != nil { early?.append((message, state)) }
            advance(message, state)
        case .messageExpired(let message): fail(message, Self.gone(message))
        case .exploded, .locked:
            // Messages of an exploded conversation end without an event.
            node.assumeIsolated { node in
                for (message, slot) in slots {
                    guard case .waiting(let sent, _) = slot.request.outcomes[slot.index],
                        node.message(message, client: sent.client) == nil
                    else { continue }
                    fail(message, node.isLockedAway(sent.client) ? controlError(NodeError.locked) : Self.gone(message))
                }
            }
        default: break
        }
    }

    private static func gone(_ message: Messaging.MessageID) -> ControlError {
        ControlError(.expired, "message \(message) has expired or its conversation has exploded")
    }

    private func advance(_ message: Messaging.MessageID, _ state: DeliveryState) {
        guard let slot = slots[message], case .waiting(let sent, let before) = slot.request.outcomes[slot.index] else {
            return
        }
        let reached: DeliveryStage
        switch state {
        case .queued, .received, .receiving: reached = .queued
        case .sent: reached = .sent
        case .mailed: reached = .mailed
        case .delivered, .read: reached = .delivered
        case .failed:
            return fail(
                message,
                ControlError(
                    .refused, "a member refused the file of message \(message)",
                    hint: "the file exceeds that member's limit, or was damaged in transfer"))
        case .expiredUndelivered: return fail(message, ControlError(.expired, "message \(message) expired undelivered"))
        case .cancelled: return fail(message, ControlError(.failed, "message \(message) was cancelled"))
        }
        let furthest = before.isAtLeast(reached) ? before : reached
        guard slot.request.refused != nil, furthest.isAtLeast(slot.request.stage) else {
            slot.request.outcomes[slot.index] = .waiting(sent, reached: furthest)
            return
        }
        end(slot.request, slot.index, .done(SentMessage(sent, furthest)))
        answerIfDone(slot.request)
    }

    private func fail(_ message: Messaging.MessageID, _ error: ControlError) {
        guard let slot = slots[message] else { return }
        end(slot.request, slot.index, .failed(error, message))
        answerIfDone(slot.request)
    }
}

extension DeliveryStage {
    fileprivate func isAtLeast(_ other: DeliveryStage) -> Bool {
        switch other {
        case .queued: true
        case .sent: self != .queued
        case .mailed: self == .mailed || self == .delivered
        case .delivered: self == .delivered
        }
    }
}

extension SentMessage {
    /// Everything but the stage is known when the message is made.
    fileprivate init(_ sent: Node.Sent, _ reached: DeliveryStage) {
        self.init(message: HexID(sent.message), state: reached, stored: sent.isStored, expiresAt: sent.expiresAt)
    }
}
