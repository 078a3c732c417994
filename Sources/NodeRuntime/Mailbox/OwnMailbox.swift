import Cryptography
import Messaging
import NIOCore
import Store

/// Our boxes at our mailbox: claims boxes, and drains those with waiting slots, one at a time.
final class OwnMailbox: Part {
    /// Pause before listing a box again whose contents had no room, or whose inbox could not wake.
    private static let retryPause: Milliseconds = 15 * .second
    /// Without an answer for this long, the link is closed and dialled again.
    private static let patience: Milliseconds = 30 * .second

    private var machine: MailboxOwnerStateMachine?
    private var card: ContactCard?
    private(set) var place: MailboxPlace?
    private var seeds: [BoxID: RelaySeed] = [:]
    /// The conversation of each box, wanted or of an exploded conversation.
    private var conversations: [BoxLabel: ConversationID] = [:]
    /// Boxes of exploded conversations, and those of them in which contents may wait.
    private var exploded: [BoxID: BoxLabel] = [:]
    private var unpurged: Set<BoxID> = []
    /// Boxes whose purge is under way on the link.
    private var purging: Set<BoxID> = []
    /// Requests on the link that the mailbox has not answered by `discarded`.
    private var discards: [BoxID: Int] = [:]
    private var waiting: [BoxID] = []
    private var drain: BoxDrain? { didSet { if oldValue !== drain { oldValue?.abandon() } } }
    private var dialNumber: UInt64 = 0
    /// New boxes wait for a commit.
    private var awaitsCommit = false
    /// When a listing last yielded no slot that was taken or found unopenable.
    private var emptyAt: [BoxID: Messaging.Timestamp] = [:]
    /// When to list a box again, whatever the mailbox reports.
    private var plannedAt: [BoxID: Messaging.Timestamp] = [:]
    private(set) var takenCount: UInt64 = 0

    /// For `status` and `doctor`; `nil` without a mailbox.
    var standing: OwnMailboxStanding? {
        guard let peer = shell.book.peers.first(where: { $0.isMailbox && !$0.isBlocked }) else { return nil }
        return OwnMailboxStanding(
            name: peer.name, standing: machine?.standing ?? .unreachable, boxCount: seeds.count, takenCount: takenCount)
    }

    /// Call this when the peers have changed or the contact inbox is loaded.
    func changed() {
        let wanted = shell.book.peers.first { $0.isMailbox && !$0.isBlocked }?.card
        guard let contact = core.machine.contact, !contact.key.isWiped else { return }
        if wanted != card {
            if let link = machine?.link { shell.anonymousLinks.close(link) }
            card = wanted
            place = wanted.flatMap { MailboxPlace($0, own: contact.key) }
            machine = place.map { _ in MailboxOwnerStateMachine(now: now) }
            waiting = []
            drain = nil
            core.turn { core.machine.endpointsChanged(&$0) }
        }
        settle(isForced: true)
    }

    /// At each tick: claims and drops boxes after changes of agreements, and performs due actions.
    /// - Parameter agreed: new boxes whose agreements are durable, whatever has changed in their inboxes since.
    func settle(isForced: Bool = false, agreed: Set<BoxLabel> = []) {
        let isChanged = core.machine.takeMailboxChange()
        // The secrets of the members' slots must not outlive a lock.
        if store.isLocked, let box = drain?.box {
            if !waiting.contains(box) { waiting.append(box) }
            drain = nil
        }
        guard let place, !store.isLocked, !isStopped else { return }
        if isChanged || isForced {
            let (before, commits) = (seeds, shell.commits)
            seeds = [:]
            var labels: [BoxLabel] = []
            var early: Set<BoxLabel> = []
            for seed in core.machine.boxSeeds(now: now).prefix(Limits.boxLabelCount) {
                let (box, label, owner) = (
                    place.box(of: seed), seed.boxLabel(at: place.key), core.machine.owner(of: seed)
                )
                // A failed commit takes the agreement back, which the mailbox must not have heard of.
                guard before[box] != nil || agreed.contains(label) || commits.isDurable(owner) else {
                    early.insert(label)
                    continue
                }
                seeds[box] = seed
                labels.append(label)
                conversations[label] = owner.flatMap { core.machine.conversationID($0) }
            }
            if !early.isEmpty { claim(early, after: commits) }
            exploded = [:]
            for seed in core.machine.explodedSeeds { exploded[place.box(of: seed)] = seed.boxLabel(at: place.key) }
            unpurged = unpurged.union(before.keys).filter { seeds[$0] == nil && exploded[$0] != nil }
            labels += unpurged.sorted().compactMap { exploded[$0] }
            // The members of an exploded conversation find our receipt in its box.
            let wanted = Set(labels)
            // An unreadable inbox keeps its box, because dropping it would destroy the slots.
            if shell.unread.isEmpty {
                conversations = conversations.filter {
                    wanted.contains($0.key) || core.machine.tombstone($0.value) != nil
                }
            }
            emptyAt = emptyAt.filter { seeds[$0.key] != nil || now - $0.value < .second }
            perform(machine?.want(labels, keeping: Set(conversations.keys), now: now) ?? [])
        } else {
            perform(machine?.advance(now: now) ?? [])
        }
        purge()
        if let link = drain?.link, link != machine?.link { drain = nil }
        if let drain, now - drain.answeredAt > Self.patience { shell.anonymousLinks.close(drain.link) }
        if drain == nil { next() }
    }

    private func claim(_ early: Set<BoxLabel>, after commits: Commits) {
        guard !awaitsCommit else { return }
        awaitsCommit = true
        // The wait may span several commits. One that fails may take back an agreement that is then made anew.
        let failures = commits.figures.failureCount
        commits.whenCommitted().assumeIsolated().whenComplete { [weak self] _ in
            guard let self else { return }
            awaitsCommit = false
            settle(isForced: true, agreed: commits.figures.failureCount == failures ? early : [])
            core.schedule()
        }
    }

    /// Whether ``settle(isForced:agreed:)`` may have boxes to claim or drop.
    var isDue: Bool { place != nil && !store.isLocked && core.machine.boxesMayHaveChanged }

    var nextDeadline: Messaging.Timestamp? { store.isLocked ? nil : machine?.nextDeadline }

    private func perform(_ actions: [MailboxOwnerStateMachine.Action]) {
        for action in actions {
            switch action {
            case .dial: dial()
            case .claim(let link, let labels): claim(labels, on: link)
            case .drop(let link, let labels): shell.anonymousLinks.say(.drop(labels), on: link)
            case .ping(let link): shell.anonymousLinks.send(.ping(0), on: link)
            case .close(let link): shell.anonymousLinks.close(link)
            }
        }
    }

    private func claim(_ labels: [BoxLabel], on link: LinkID) {
        guard let place, let contact = core.machine.contact, let key = shell.anonymousLinks.key(of: link) else {
            return
        }
        shell.anonymousLinks.say(.claim(owner: contact.key.publicKey, proof: place.proof(of: key), labels), on: link)
    }

    private func dial() {
        guard let card else { return }
        let remote = AnonymousLinks.Remote(
            endpoints: card.endpoints.filter { $0.relay == nil }, key: card.key, routingSecret: card.routingSecret)
        dialNumber += 1
        let number = dialNumber
        var opened: LinkID?
        let purpose = AnonymousLinks.Purpose(
            patience: nil,
            opened: { [weak self] link in
                opened = link
                guard let self else { return }
                guard number == dialNumber else { return shell.anonymousLinks.close(link) }
                (discards, purging) = ([:], [])
                perform(machine?.opened(link, now: now) ?? [.close(link)])
                core.schedule()
            }, answered: { [weak self] answer, link in self?.answered(answer, on: link) },
            heard: { [weak self] link in
                guard let self else { return }
                machine?.heard(link, now: now)
            }, ended: { [weak self] in self?.ended(opened, dial: number) })
        if shell.anonymousLinks.open(remote, for: purpose) == nil { machine?.dialFailed(now: now) }
    }

    /// A dial failed or its link closed. The end of an earlier dial has no effect.
    private func ended(_ link: LinkID?, dial number: UInt64) {
        if let link {
            machine?.closed(link, now: now)
            if drain?.link == link { drain = nil }
        } else if number == dialNumber {
            machine?.dialFailed(now: now)
        }
        core.schedule()
    }

    private func answered(_ answer: MailboxAnswer, on link: LinkID) {
        guard machine?.link == link else { return }
        machine?.heard(link, now: now)
        switch answer {
        case .granted(let grant):
            perform(machine?.granted(grant, on: link, now: now) ?? [])
            purge()
        case .refused(let refusal): perform(machine?.refused(refusal, on: link, now: now) ?? [])
        case .waiting(let box):
            if exploded[box] != nil {
                unpurged.insert(box)
                purge()
            }
            guard seeds[box] != nil else { return }
            if !waiting.contains(box) { waiting.append(box) }
            if drain == nil { next() }
        case .slots(let box, let ids):
            guard drain?.listed(ids, in: box) ?? store.isLocked else { return shell.anonymousLinks.abort(link) }
        case .slot(let box, let id, let dwell, _, let body):
            guard drain?.answered(id, in: box, (body, dwell)) ?? store.isLocked else {
                return shell.anonymousLinks.abort(link)
            }
        case .absent(let box, let id):
            guard drain?.answered(id, in: box, nil) ?? store.isLocked else { return shell.anonymousLinks.abort(link) }
        case .discarded(let box, _):
            guard let count = discards[box] else { return shell.anonymousLinks.abort(link) }
            discards[box] = count > 1 ? count - 1 : nil
            guard count == 1 else { break }
            if purging.remove(box) == nil { purge() } else if unpurged.remove(box) != nil { settle(isForced: true) }
        case .put: shell.anonymousLinks.abort(link)
        }
        core.schedule()
    }

    /// Destroys contents that wait at the mailbox for an exploded conversation.
    private func purge() {
        guard let link = machine?.link, machine?.isGranted ?? false else { return }
        for box in unpurged.sorted() where discards[box] == nil {
            purging.insert(box)
            discard(.purge(box, []), in: box, on: link)
        }
    }

    /// - Parameter request: the mailbox answers it by `discarded`.
    func discard(_ request: MailboxRequest, in box: BoxID, on link: LinkID) {
        guard machine?.link == link else { return }
        discards[box, default: 0] += 1
        shell.anonymousLinks.say(request, on: link)
    }

    private func next() {
        guard drain == nil, !store.isLocked, let link = machine?.link, machine?.isGranted ?? false else { return }
        while !waiting.isEmpty {
            let box = waiting.removeFirst()
            guard let seed = seeds[box], let client = core.machine.owner(of: seed) else { continue }
            if let last = emptyAt[box], now - last < .second {
                again(box, in: .second)
                continue
            }
            shell.sleep.wakeIfPossible(client, .pushNotification)
            guard let conversation = core.machine.conversation(client)?.conversation, inboxes[client]?.key != nil else {
                again(box)
                continue
            }
            drain = BoxDrain(shell, box: box, on: link, client: client, conversation: conversation)
            drain?.start()
            return
        }
    }

    func took(_ count: Int) { takenCount += UInt64(count) }

    func drained(_ box: BoxID, isFruitful: Bool) {
        // An unproductive box is listed at most once a second, whatever the mailbox reports.
        if !isFruitful { emptyAt[box] = now }
        drain = nil
        next()
    }

    /// Lists a box again after a pause, or earlier if that is already planned.
    func again(_ box: BoxID, in pause: Milliseconds = OwnMailbox.retryPause) {
        let due = now + pause
        if let planned = plannedAt[box], planned <= due, planned > now { return }
        plannedAt[box] = due
        loop.assumeIsolated().scheduleTask(in: .milliseconds(pause)) { [weak self] in
            guard let self else { return }
            if plannedAt[box] == due { plannedAt[box] = nil }
            guard seeds[box] != nil, !waiting.contains(box) else { return }
            waiting.append(box)
            if drain == nil { next() }
        }
    }
}

package struct OwnMailboxStanding: Sendable {
    /// Its name in `peers.json`.
    package let name: String
    package let standing: MailboxOwnerStateMachine.Standing
    package let boxCount: Int
    package let takenCount: UInt64
}
