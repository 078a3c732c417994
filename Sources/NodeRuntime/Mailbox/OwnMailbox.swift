import Crypto
import Logging
import Messaging
import NIOCore
import Store
import Wire

/// Our boxes at our mailbox: claims the boxes, takes the slots that have come, opens their contents, and discards each
/// slot when its contents are durable here.
final class OwnMailbox: CorePart {
    /// Number of slots that one `take` asks for.
    private static let batchCount = 16
    /// Time after which a box is listed again when its contents had no room here or its inbox could not be woken.
    private static let retryPause: Milliseconds = 15 * .second
    /// Time without an answer after which the link to the mailbox is closed and dialled anew.
    private static let patience: Milliseconds = 30 * .second
    /// Least time between two searches of a box in the whole window: a search takes a second for 31 members.
    private static let searchPause: Milliseconds = 10 * .minute

    /// One slot of ours in the box that is being emptied.
    private struct Match {
        let tag: SlotTag
        let member: PublicKey
        /// `nil` stands for the slot of the member's notice.
        let number: UInt64?
    }

    /// The box that is being emptied: one at a time.
    private struct Drain {
        let box: BoxID
        let client: ClientID
        let conversation: ConversationID
        let link: LinkID
        var secrets: [PublicKey: SlotSecret] = [:]
        var waiting: ArraySlice<Match> = []
        var asked: [SlotID: Match] = [:]
        /// Slots that were taken since the last `discard`.
        var taken: [Match] = []
        /// Slots whose contents nobody can open any more: they are discarded in any case.
        var dead: [SlotTag] = []
        /// A slot was taken or found dead: the box was worth listing.
        var isFruitful = false
        /// The mailbox has listed the slots of the box.
        var isListed = false
        /// Contents of a slot could not be taken: the box is listed again later.
        var isBlocked = false
        /// When the mailbox last answered.
        var answeredAt: Messaging.Timestamp
    }

    let core: ProtocolCore
    private let unread: UnreadInboxes
    private let peers: PeerBook
    private let links: MailboxLinks
    private let sleep: InboxSleep
    private let keys: SliceKeyMaker
    private let held: HeldEffects
    private var machine: MailboxOwnerStateMachine?
    private var card: ContactCard?
    private(set) var place: MailboxPlace?
    private var seeds: [BoxID: RelaySeed] = [:]
    /// Conversation of each box: of the boxes that are wanted, and of those whose conversation has exploded.
    private var conversations: [BoxLabel: ConversationID] = [:]
    private var waiting: [BoxID] = []
    private var drain: Drain?
    /// Number of the last dial.
    private var dialNumber: UInt64 = 0
    /// When the last list of a box led to no slot that was taken or found dead.
    private var emptyAt: [BoxID: Messaging.Timestamp] = [:]
    /// When slots of a box were last searched for in the whole window.
    private var searchedAt: [BoxID: Messaging.Timestamp] = [:]
    /// When a box is to be listed again, whatever the mailbox says.
    private var plannedAt: [BoxID: Messaging.Timestamp] = [:]
    /// Slots that were taken since the start.
    private(set) var takenCount: UInt64 = 0

    init(
        _ core: ProtocolCore,
        _ unread: UnreadInboxes,
        _ peers: PeerBook,
        _ links: MailboxLinks,
        _ sleep: InboxSleep,
        _ keys: SliceKeyMaker,
        _ held: HeldEffects
    ) {
        self.core = core
        self.unread = unread
        self.peers = peers
        self.links = links
        self.sleep = sleep
        self.keys = keys
        self.held = held
    }

    /// State of our mailbox for `status` and `doctor`; `nil` without a mailbox.
    var standing: OwnMailboxStanding? {
        guard let peer = peers.peers.first(where: { $0.isMailbox && !$0.isBlocked }) else { return nil }
        return OwnMailboxStanding(
            name: peer.name,
            standing: machine?.standing ?? .unreachable,
            boxCount: seeds.count,
            takenCount: takenCount
        )
    }

    // MARK: Which mailbox, and which boxes

    /// The peers have changed, or the contact inbox is there.
    func changed() {
        let wanted = peers.peers.first { $0.isMailbox && !$0.isBlocked }?.card
        guard let contact = core.machine.contact, !contact.key.isWiped else { return }
        if wanted != card {
            if let link = machine?.link { links.close(link) }
            card = wanted
            place = wanted.flatMap { MailboxPlace($0, own: contact.key) }
            machine = place.map { _ in MailboxOwnerStateMachine(now: now) }
            waiting = []
            drain = nil
            core.turn { core.machine.endpointsChanged(&$0) }
        }
        settle(isForced: true)
    }

    /// Called at each tick: claims and drops boxes when the agreements have changed, and does what is due.
    func settle(isForced: Bool = false) {
        let isChanged = core.machine.takeMailboxChange()
        guard let place, !store.isLocked, !isStopped else { return }
        if isChanged || isForced {
            seeds = [:]
            var labels: [BoxLabel] = []
            for seed in core.machine.boxSeeds(now: now).prefix(Limits.boxLabelCount) {
                seeds[place.box(of: seed)] = seed
                let label = seed.boxLabel(at: place.key)
                labels.append(label)
                conversations[label] = core.machine.owner(of: seed).flatMap { core.machine.conversationID($0) }
            }
            // The members of an exploded conversation find our receipt in its box.
            let wanted = Set(labels)
            // While the disk does not give an inbox, its box is kept: a drop would destroy the slots in the box.
            if unread.isEmpty {
                conversations = conversations.filter {
                    wanted.contains($0.key) || core.machine.tombstone($0.value) != nil
                }
            }
            emptyAt = emptyAt.filter { seeds[$0.key] != nil || now - $0.value < .second }
            searchedAt = searchedAt.filter { seeds[$0.key] != nil || now - $0.value < Self.searchPause }
            perform(machine?.want(labels, keeping: Set(conversations.keys), now: now) ?? [])
        } else {
            perform(machine?.advance(now: now) ?? [])
        }
        if let drain, drain.link != machine?.link { self.drain = nil }
        if let drain, now - drain.answeredAt > Self.patience { links.close(drain.link) }
        if drain == nil { next() }
    }

    /// Whether ``settle(isForced:)`` has boxes to claim or drop.
    var isDue: Bool { place != nil && !store.isLocked && core.machine.boxesMayHaveChanged }

    var nextDeadline: Messaging.Timestamp? { store.isLocked ? nil : machine?.nextDeadline }

    private func perform(_ actions: [MailboxOwnerStateMachine.Action]) {
        for action in actions {
            switch action {
            case .dial: dial()
            case .claim(let link, let labels): claim(labels, on: link)
            case .drop(let link, let labels): links.say(.drop(labels), on: link)
            case .ping(let link): links.ping(link)
            case .close(let link): links.close(link)
            }
        }
    }

    private func claim(_ labels: [BoxLabel], on link: LinkID) {
        guard let place, let contact = core.machine.contact, let key = links.key(of: link) else { return }
        links.say(.claim(owner: contact.key.publicKey, proof: place.proof(of: key), labels), on: link)
    }

    private func dial() {
        guard let card else { return }
        let remote = MailboxLinks.Remote(
            endpoints: card.endpoints.filter { $0.relay == nil },
            key: card.key,
            routingSecret: card.routingSecret
        )
        dialNumber += 1
        let number = dialNumber
        var opened: LinkID?
        let purpose = MailboxLinks.Purpose(
            patience: nil,
            opened: { [weak self] link in
                opened = link
                guard let self else { return }
                guard number == dialNumber else { return links.close(link) }
                perform(machine?.opened(link, now: now) ?? [.close(link)])
                core.schedule()
            },
            answered: { [weak self] answer, link in self?.answered(answer, on: link) },
            heard: { [weak self] link in
                guard let self else { return }
                machine?.heard(link, now: now)
            },
            ended: { [weak self] in self?.ended(opened, dial: number) }
        )
        if !links.open(remote, for: purpose) { machine?.dialFailed(now: now) }
    }

    /// A dial has failed or its link is closed. The end of an earlier dial changes nothing.
    private func ended(_ link: LinkID?, dial number: UInt64) {
        if let link {
            machine?.closed(link, now: now)
            if drain?.link == link { drain = nil }
        } else if number == dialNumber {
            machine?.dialFailed(now: now)
        }
        core.schedule()
    }

    // MARK: Answers

    private func answered(_ answer: MailboxAnswer, on link: LinkID) {
        guard machine?.link == link else { return }
        machine?.heard(link, now: now)
        switch answer {
        case .granted(let grant): machine?.granted(grant, on: link)
        case .refused(let refusal): perform(machine?.refused(refusal, on: link, now: now) ?? [])
        case .waiting(let box):
            guard seeds[box] != nil else { return }
            if !waiting.contains(box) { waiting.append(box) }
            if drain == nil { next() }
        case .slots(let box, let ids):
            drain?.answeredAt = now
            guard drain?.box == box, drain?.isListed == false else { return links.abort(link) }
            drain?.isListed = true
            listed(ids)
        case .slot(let box, let id, let dwell, _, let body):
            guard drain?.box == box, let match = drain?.asked.removeValue(forKey: id) else { return links.abort(link) }
            drain?.answeredAt = now
            take(body, match, dwell: dwell)
            if drain?.asked.isEmpty ?? false { settleBatch() }
        case .absent(let box, let id):
            guard drain?.box == box, drain?.asked.removeValue(forKey: id) != nil else { return links.abort(link) }
            drain?.answeredAt = now
            // The mailbox has listed this slot: its storage may be locked, or its disk may refuse, for a moment.
            drain?.isBlocked = true
            if drain?.asked.isEmpty ?? false { settleBatch() }
        case .discarded: break
        case .put: links.abort(link)
        }
        core.schedule()
    }

    // MARK: Emptying a box

    private func next() {
        guard drain == nil, !store.isLocked, let link = machine?.link, machine?.isGranted ?? false else { return }
        while !waiting.isEmpty {
            let box = waiting.removeFirst()
            guard let seed = seeds[box], let client = core.machine.owner(of: seed) else { continue }
            if let last = emptyAt[box], now - last < .second {
                again(box, in: .second)
                continue
            }
            sleep.wakeIfPossible(client, .pushNotification)
            guard let conversation = core.machine.conversation(client)?.conversation, inboxes[client]?.key != nil else {
                again(box)
                continue
            }
            drain = Drain(box: box, client: client, conversation: conversation, link: link, answeredAt: now)
            return links.say(.list(box), on: link)
        }
    }

    /// Lists a box once more after a pause, or sooner if a list is planned already.
    private func again(_ box: BoxID, in pause: Milliseconds = OwnMailbox.retryPause) {
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

    /// Finds the member and the number of each listed slot, notices first, and purges slots that no member can have made.
    private func listed(_ ids: [SlotID]) {
        guard var drain, let key = inboxes[drain.client]?.key, !key.isWiped,
            let conversation = core.machine.conversation(drain.client)
        else {
            // The inbox was locked, or has fallen asleep, since the box was listed.
            self.drain?.isBlocked = true
            return finish()
        }
        var open = Set(ids)
        var notices: [Match] = []
        var found: [Match] = []
        var isWhole = false
        for member in conversation.currentMembers.map(\.key).sorted() {
            let secret = SlotSecret(
                sender: member,
                owner: key.publicKey,
                box: drain.box,
                conversation: conversation.conversation,
                own: key
            )
            drain.secrets[member] = secret
            let tag = secret.noticeTag
            if open.remove(SlotID(tag)) != nil { notices.append(Match(tag: tag, member: member, number: nil)) }
        }
        for window in [64, 1_024, Limits.slotWindow] where !open.isEmpty {
            if window == Limits.slotWindow {
                // Slots without a known member stay until the next search: noise in a box costs one search in this time.
                let pause = searchedAt[drain.box].map { $0 + Self.searchPause - now } ?? 0
                guard pause <= 0 else {
                    again(drain.box, in: pause)
                    break
                }
                searchedAt[drain.box] = now
                isWhole = true
            }
            for (member, secret) in drain.secrets.sorted(by: { $0.key < $1.key }) where !open.isEmpty {
                let first = conversation.firstSlot(of: member)
                // Slots that were taken but not discarded have slightly lower numbers.
                let start = first - min(first, UInt64(min(window, 1_024)))
                let end = first.addingReportingOverflow(UInt64(window))
                for number in start..<(end.overflow ? .max : end.partialValue) where !open.isEmpty {
                    let tag = secret.tag(number)
                    if open.remove(SlotID(tag)) != nil { found.append(Match(tag: tag, member: member, number: number)) }
                }
            }
        }
        var requests: [MailboxRequest] = []
        if !open.isEmpty, isWhole { requests.append(.purge(drain.box, open.sorted())) }
        // A slot that was taken and not discarded is not opened again: its contents may have expired here.
        let done = found.filter { match in
            match.number.map { conversation.hasTaken($0, of: match.member) } ?? false
        }
        found.removeAll { match in match.number.map { conversation.hasTaken($0, of: match.member) } ?? false }
        for start in stride(from: 0, to: done.count, by: Limits.slotTagCount) {
            let tags = done[start..<min(start + Limits.slotTagCount, done.count)].map(\.tag)
            requests.append(.discard(drain.box, tags, answer: []))
        }
        found.sort { ($0.member, $0.number ?? 0) < ($1.member, $1.number ?? 0) }
        drain.waiting = (notices + found)[...]
        self.drain = drain
        for request in requests { links.say(request, on: drain.link) }
        // A link that fails ends the drain at once.
        if self.drain != nil { takeMore() }
    }

    private func takeMore() {
        guard var drain else { return }
        guard !drain.waiting.isEmpty else { return finish() }
        let batch = drain.waiting.prefix(Self.batchCount)
        drain.waiting = drain.waiting.dropFirst(Self.batchCount)
        for match in batch { drain.asked[SlotID(match.tag)] = match }
        self.drain = drain
        links.say(.take(drain.box, batch.map(\.tag)), on: drain.link)
    }

    private func finish() {
        guard let drain else { return }
        if drain.isBlocked { again(drain.box) }
        // A box of which no slot could be taken is listed at most once a second, whatever the mailbox says.
        if !drain.isFruitful { emptyAt[drain.box] = now }
        self.drain = nil
        next()
    }

    /// The mailbox has answered for each slot of the batch. Taken slots are discarded when their contents are durable here.
    private func settleBatch() {
        guard let drain else { return }
        // A commit that failed meanwhile has reset the inbox to its durable state: its slots are taken again.
        let conversation = core.machine.conversation(drain.client)
        let stored = drain.taken.filter { match in
            match.number.map { conversation?.hasTaken($0, of: match.member) ?? false } ?? true
        }
        if stored.count < drain.taken.count { self.drain?.isBlocked = true }
        let taken = stored.map(\.tag) + drain.dead
        if !taken.isEmpty { self.drain?.isFruitful = true }
        self.drain?.taken = []
        self.drain?.dead = []
        guard !taken.isEmpty else { return takeMore() }
        takenCount += UInt64(taken.count)
        held.leave(
            .run { [weak self] isDurable in
                guard let self else { return }
                // The box still holds slots whose contents are not durable here: they are taken again.
                guard isDurable else { return again(drain.box) }
                links.say(.discard(drain.box, taken, answer: []), on: drain.link)
            },
            for: drain.client
        )
        takeMore()
    }

    private func take(_ body: [UInt8], _ match: Match, dwell: Milliseconds) {
        guard let drain, let secret = drain.secrets[match.member] else { return }
        guard let number = match.number else { return takeNotice(body, match, secret) }
        let frames: [Frame]
        let age: SlotAge
        switch open(body, number, secret, drain, dwell) {
        case .opened(let decoded, let known): (frames, age) = (decoded, known)
        case .dead:
            self.drain?.dead.append(match.tag)
            return
        case .unavailable:
            self.drain?.isBlocked = true
            return
        }
        var isTaken = true
        core.turn { turn in
            let result = core.machine.receiveMailed(
                frames,
                number: number,
                from: match.member,
                age: age,
                client: drain.client,
                &turn
            )
            isTaken = result.isTaken
            return result.actions
        }
        if isTaken { self.drain?.taken.append(match) } else { self.drain?.isBlocked = true }
    }

    private enum Opened {
        case opened([Frame], SlotAge)
        /// The key of the slice is destroyed, or no member has sealed the contents.
        case dead
        /// The inbox sleeps or the disk has failed: the slot is taken later.
        case unavailable
    }

    private func open(
        _ body: [UInt8],
        _ number: UInt64,
        _ secret: SlotSecret,
        _ drain: Drain,
        _ dwell: Milliseconds
    ) -> Opened {
        guard let inbox = inboxes[drain.client], let conversation = core.machine.conversation(drain.client),
            !store.isLocked
        else { return .unavailable }
        guard let hint = SlotSealing.hint(of: body, number: number, secret),
            let terms = conversation.knownTerms(of: hint)
        else { return .dead }
        let schedule = SliceSchedule(terms)
        do throws(StoreError) {
            let key = try keys.key(hint.slice, schedule, inbox, isMade: false)
            // A step of the clock that is taken back destroys nothing.
            if key == nil, readClock().isInDoubt { return .unavailable }
            guard let key,
                let frames = SlotSealing.open(body, with: key, number: number, secret, box: drain.box)
            else { return .dead }
            let decoded = frames.compactMap { try? FrameCodec.decode($0) }
            return .opened(decoded, schedule.age(in: hint.slice, dwell: dwell, now: now))
        } catch {
            say("a key of a slice could not be had", of: error)
            return .unavailable
        }
    }

    // MARK: Notices

    /// The notice explodes the conversation. Our receipt replaces each member's notice.
    private func takeNotice(_ body: [UInt8], _ match: Match, _ secret: SlotSecret) {
        guard let drain else { return }
        if core.machine.tombstone(drain.conversation) == nil {
            guard let notice = SlotSealing.notice(in: body, secret, box: drain.box) else {
                self.drain?.dead.append(match.tag)
                return
            }
            var isTaken = true
            core.turn { turn in
                let result = core.machine.receiveMailed(
                    [.explosion(notice)],
                    number: nil,
                    from: match.member,
                    age: SlotAge(dwell: 0),
                    client: drain.client,
                    &turn
                )
                isTaken = result.isTaken
                return result.actions
            }
            // The inbox has fallen asleep: the notice is taken later.
            if !isTaken, core.machine.tombstone(drain.conversation) == nil { self.drain?.isBlocked = true }
        }
        // A notice that has exploded nothing stays in the box until its time is over.
        guard let receipt = core.machine.tombstone(drain.conversation)?.receipt else { return }
        let answer = SlotSealing.seal(answer: receipt, secret, box: drain.box)
        links.say(.discard(drain.box, [match.tag], answer: answer), on: drain.link)
        self.drain?.isFruitful = true
        // The contents of an exploded conversation are not taken any more.
        self.drain?.waiting.removeAll { $0.number != nil }
        self.drain?.taken = []
    }
}
