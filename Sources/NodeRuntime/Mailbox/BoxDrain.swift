import Cryptography
import Messaging
import Store

/// Empties one of our boxes: lists its slots, finds their members and numbers, takes and opens each slot. A slot is
/// discarded once its contents are durable here.
final class BoxDrain: Part {
    private static let batchCount = 16

    private struct Match {
        let tag: SlotTag
        let member: PublicKey
        /// `nil` for the slot of the member's notice.
        let number: UInt64?
    }

    let box: BoxID
    let link: LinkID
    private let client: ClientID
    private let conversation: ConversationID
    private var secrets: [PublicKey: SlotSecret] = [:]
    private var waiting: ArraySlice<Match> = []
    private var asked: [SlotID: Match] = [:]
    /// Slots taken since the last `discard`.
    private var taken: [Match] = []
    /// Slots whose contents cannot be opened any more; always discarded.
    private var dead: [SlotTag] = []
    /// A slot was taken or found unopenable: listing the box was useful.
    private var isFruitful = false
    private var isListed = false
    /// Some contents could not be taken: list the box again later.
    private var isBlocked = false
    /// The link has ended or the box is empty: no further requests.
    private var isOver = false
    private(set) var answeredAt: Messaging.Timestamp

    init(_ shell: Shell, box: BoxID, on link: LinkID, client: ClientID, conversation: ConversationID) {
        self.box = box
        self.link = link
        self.client = client
        self.conversation = conversation
        answeredAt = shell.services.now
        super.init(shell)
    }

    func start() { shell.anonymousLinks.say(.list(box), on: link) }

    /// Stops requests. Slots whose contents are being committed are still discarded if the link is open.
    func abandon() {
        isOver = true
        secrets = [:]
        waiting = []
        asked = [:]
        taken = []
    }

    private func finish() {
        guard !isOver else { return }
        abandon()
        if isBlocked { shell.ownMailbox.again(box) }
        shell.ownMailbox.drained(box, isFruitful: isFruitful)
    }

    /// - Returns: `false` for an unrequested answer.
    func listed(_ ids: [SlotID], in listed: BoxID) -> Bool {
        answeredAt = now
        guard listed == box, !isListed else { return false }
        isListed = true
        sort(ids)
        return true
    }

    /// - Parameter contents: `nil` if the mailbox cannot deliver the listed slot; its storage may be locked or failing
    ///   for a moment.
    /// - Returns: `false` for an unrequested answer.
    func answered(_ id: SlotID, in other: BoxID, _ contents: (body: [UInt8], dwell: Milliseconds)?) -> Bool {
        guard other == box, let match = asked.removeValue(forKey: id) else { return false }
        answeredAt = now
        if let contents { take(contents.body, match, dwell: contents.dwell) } else { isBlocked = true }
        if asked.isEmpty { settleBatch() }
        return true
    }

    /// Finds each slot's member and number, notices first. Purges slots that no member can have made.
    private func sort(_ ids: [SlotID]) {
        guard let key = inboxes[client]?.key, !key.isWiped, let conversation = core.machine.conversation(client) else {
            // The inbox was locked or fell asleep after the listing.
            isBlocked = true
            return finish()
        }
        var open = Set(ids)
        let notices = findNotices(in: &open, of: conversation, key)
        let found = findNumbered(in: &open)
        var requests: [MailboxRequest] = []
        if !open.isEmpty { requests.append(.purge(box, open.sorted())) }
        // A slot that was taken but not discarded is not opened again: its contents may have expired here.
        func isDone(_ match: Match) -> Bool {
            match.number.map { conversation.hasTaken($0, of: match.member) } ?? false
        }
        let done = found.filter(isDone)
        for start in stride(from: 0, to: done.count, by: Limits.slotTagCount) {
            let tags = done[start..<min(start + Limits.slotTagCount, done.count)].map(\.tag)
            requests.append(.discard(box, tags, answer: []))
        }
        let new = found.filter { !isDone($0) }.sorted { ($0.member, $0.number ?? 0) < ($1.member, $1.number ?? 0) }
        waiting = (notices + new)[...]
        for request in requests { shell.ownMailbox.discard(request, in: box, on: link) }
        takeMore()
    }

    private func findNotices(in open: inout Set<SlotID>, of conversation: Conversation, _ key: IdentityKey) -> [Match] {
        var result: [Match] = []
        for member in conversation.currentMembers.map(\.key).sorted() {
            let secret = SlotSecret(
                sender: member, owner: key.publicKey, box: box, conversation: conversation.conversation, own: key)
            secrets[member] = secret
            let tag = secret.noticeTag
            if open.remove(SlotID(tag)) != nil { result.append(Match(tag: tag, member: member, number: nil)) }
        }
        return result
    }

    private func findNumbered(in open: inout Set<SlotID>) -> [Match] {
        var found: [Match] = []
        let secrets = secrets.sorted { $0.key < $1.key }
        for id in open.sorted() {
            for (member, secret) in secrets {
                guard let number = secret.number(of: id) else { continue }
                found.append(Match(tag: secret.tag(number), member: member, number: number))
                open.remove(id)
                break
            }
        }
        return found
    }

    private func takeMore() {
        // A failed link ends the drain at once.
        guard !isOver else { return }
        guard !waiting.isEmpty else { return finish() }
        let batch = waiting.prefix(Self.batchCount)
        waiting = waiting.dropFirst(Self.batchCount)
        for match in batch { asked[SlotID(match.tag)] = match }
        shell.anonymousLinks.say(.take(box, batch.map(\.tag)), on: link)
    }

    /// The batch is answered: discards taken slots once their contents are durable here.
    private func settleBatch() {
        guard !isOver else { return }
        // A failed commit reset the inbox to its durable state, so its slots are taken again.
        let conversation = core.machine.conversation(client)
        let stored = taken.filter { match in
            match.number.map { conversation?.hasTaken($0, of: match.member) ?? false } ?? true
        }
        if stored.count < taken.count { isBlocked = true }
        let over = stored.map(\.tag) + dead
        taken = []
        dead = []
        guard !over.isEmpty else { return takeMore() }
        isFruitful = true
        shell.ownMailbox.took(over.count)
        shell.commits.sendWhenDurable(
            .run { [self] isDurable in
                // The contents are not durable here, so the box's slots are taken again.
                guard isDurable else { return shell.ownMailbox.again(box) }
                shell.ownMailbox.discard(.discard(box, over, answer: []), in: box, on: link)
            }, for: client)
        takeMore()
    }

    private func take(_ body: [UInt8], _ match: Match, dwell: Milliseconds) {
        guard let secret = secrets[match.member] else { return }
        guard let number = match.number else { return takeNotice(body, match, secret) }
        let frames: [Frame]
        let age: SlotAge
        switch open(body, number, secret, dwell) {
        case .opened(let decoded, let known): (frames, age) = (decoded, known)
        case .dead:
            dead.append(match.tag)
            return
        case .unavailable:
            isBlocked = true
            return
        }
        var isTaken = true
        core.turn { turn in
            isTaken = core.machine.receiveMailed(
                frames, number: number, from: match.member, age: age, client: client, &turn)
        }
        if isTaken { taken.append(match) } else { isBlocked = true }
    }

    private enum Opened {
        case opened([Frame], SlotAge)
        /// The slice key is destroyed, or no member sealed the contents.
        case dead
        /// The inbox sleeps or the disk failed: take the slot later.
        case unavailable
    }

    private func open(_ body: [UInt8], _ number: UInt64, _ secret: SlotSecret, _ dwell: Milliseconds) -> Opened {
        guard let inbox = inboxes[client], let conversation = core.machine.conversation(client), !store.isLocked else {
            return .unavailable
        }
        guard let hint = SlotSealing.hint(of: body, number: number, secret),
            let terms = conversation.knownTerms(of: hint)
        else { return .dead }
        let schedule = SliceSchedule(terms)
        do throws(StoreError) {
            let key = try shell.sliceKeys.key(hint.slice, schedule, inbox, isMade: false)
            // An unconfirmed clock step must not destroy contents.
            if key == nil, readClock().isInDoubt { return .unavailable }
            guard let key, let frames = SlotSealing.open(body, with: key, number: number, secret, box: box) else {
                return .dead
            }
            let decoded = frames.compactMap { try? FrameCodec.decode($0) }
            return .opened(decoded, schedule.age(in: hint.slice, dwell: dwell, now: now))
        } catch {
            say("a slice key is not available", of: error)
            return .unavailable
        }
    }

    /// The notice explodes the conversation. Our receipt replaces every member's notice.
    private func takeNotice(_ body: [UInt8], _ match: Match, _ secret: SlotSecret) {
        if core.machine.tombstone(conversation) == nil {
            guard let notice = SlotSealing.notice(in: body, secret, box: box),
                core.machine.conversation(client)?.holds(notice: notice) ?? true
            else {
                // A remaining slot would block a later notice of this member.
                dead.append(match.tag)
                return
            }
            var isTaken = true
            core.turn { turn in
                isTaken = core.machine.receiveMailed(
                    [.explosion(notice)], number: nil, from: match.member, age: SlotAge(dwell: 0), client: client, &turn
                )
            }
            // The inbox fell asleep: take the notice later.
            if !isTaken, core.machine.tombstone(conversation) == nil { isBlocked = true }
        }
        // An early notice stays in the box until its time.
        guard let receipt = core.machine.tombstone(conversation)?.receipt else { return }
        let nonce = randomBytes(XChaChaPoly.nonceByteCount)
        let answer = SlotSealing.seal(answer: receipt, secret, box: box, nonce: nonce)
        shell.ownMailbox.discard(.discard(box, [match.tag], answer: answer), in: box, on: link)
        isFruitful = true
        // Contents of an exploded conversation are no longer taken.
        waiting.removeAll { $0.number != nil }
        taken = []
    }
}
