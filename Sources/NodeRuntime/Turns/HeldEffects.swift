import Crypto
import Logging
import Messaging
import NIOCore
import Store

/// Sends frames, link closes, events and answers only after the inbox's earlier changes are durable.
final class HeldEffects: Part {
    /// Beyond this ``EffectQueue/weight`` the node stops reading the inbox's links.
    private static let waitingWeight = 1_024

    /// Sends an effect now, or after pending commits.
    func leave(_ effect: EffectQueue.Effect, for client: ClientID) {
        guard let inbox = inboxes[client], shell.commits.enqueue(effect, inbox.effects) else {
            return release(effect, isDurable: true)
        }
        if inbox.effects.weight > Self.waitingWeight { shell.output.pause(inbox) }
    }

    func leave(_ action: NodeAction, on link: LinkID) {
        if let client = links[link]?.client { leave(.action(action), for: client) }
    }

    func leave(_ action: NodeAction, telling event: Event) {
        guard let client = event.client else { return shell.events.notify(event) }
        leave(.action(action), for: client)
    }

    private func release(_ effect: EffectQueue.Effect, isDurable: Bool) {
        switch effect {
        case .run(let body): body(isDurable)
        case .action(let action):
            guard isDurable else { return }
            switch action {
            case .transmit(let link, let frame): shell.output.transmit(frame, on: link)
            case .transmitMessages(let link, let client, let messages):
                guard let archive = inboxes[client]?.archive else { return }
                let now = now
                shell.output.transmit(
                    messages.compactMap { one in archive.content(one.id, now: now).map { AgedContent($0, age: one.age) }
                    }, on: link)
            case .close(let link): shell.output.close(link)
            case .notify(let event): shell.events.notify(event)
            case .notifyMessages(let happened): for event in happened.events { shell.events.notify(event) }
            case .save, .keep, .setState, .forgetMemory, .explode, .destroy, .saveTombstone, .removeTombstone,
                .register, .unregister, .dial, .knock, .armExplosion, .setDelivery, .keepChunk, .forgetChunks,
                .verifyAttachment, .serveChunks, .transmitChunk, .reschedule, .eraseSent, .wake, .sleep, .forward,
                .relayed, .endpointsMayHaveChanged, .gatherCandidates, .dialPunching, .punch, .pauseReading, .mail,
                .makeSlices, .mailNotices, .mailbox:
                preconditionFailure("\(action) does not leave the node")
            }
        }
    }

    /// Removes an inbox's waiting effects from the commits.
    /// - Parameter isDurable: whether to send them now.
    func drop(_ inbox: Inbox, isDurable: Bool) {
        for effect in shell.commits.drop(inbox.effects) { release(effect, isDurable: isDurable) }
    }

    /// Succeeds when all changes of this inbox so far are durable.
    func whenDurable(_ client: ClientID) -> EventLoopFuture<Void> {
        let promise = loop.makePromise(of: Void.self)
        leave(
            .run { [storage] isDurable in
                if isDurable {
                    promise.succeed(())
                } else {
                    promise.fail(storage.refusal.map(NodeError.store) ?? NodeError.stopping)
                }
            }, for: client)
        return promise.futureResult
    }

    func committed(_ commit: CommitSchedule.Ended) {
        if let error = commit.failure {
            log.error("a change could not be made durable", metadata: ["error": "\(error)"])
            storage.failed(error, at: now)
        }
        for one in commit.effects {
            for effect in one.effects { release(effect, isDurable: commit.failure == nil) }
            guard let inbox = inboxes[one.queue.client] else { continue }
            if commit.failure == nil { shell.output.resume(inbox) } else { shell.loading.reload(inbox) }
        }
        shell.output.flush()
        core.schedule()
    }
}
