import Cryptography

/// The end of the conversation (Explode.md).
///
/// `exploded` is no state here: the inbox is destroyed with the action, and ``ExplosionRecord`` begins.
struct ConversationEnding: Sendable {
    enum Path: Hashable, Sendable {
        /// The user's command, or the scheduled time.
        case ourselves
        case link(LinkID, PublicKey)
        /// The creator has knocked; our receipt is the answer.
        case knock
        /// A tombstone's answer to our question.
        case answer
    }

    /// A notice of an earlier end, deferred by the rate limit.
    struct DeferredNotice: Sendable {
        let notice: ExplodeNotice
        let until: Timestamp
    }

    /// The inputs of the last prepared tombstone.
    fileprivate struct Arming: Hashable, Sendable {
        var expiresAt: Timestamp
        var isTraceless: Bool
        var members: [Member]
        var tag: InviteTag?
        var invites: [InviteID]
        var receipts: Int
    }

    /// Signed before a lock, for an end while our key is wiped.
    struct LockedWords: Hashable, Sendable {
        /// For an end at the lock, then for the scheduled end, if there is one.
        var receipts: [DeletionReceipt]
        var statement: ExpiredStatement?
    }

    /// The scheduled explosion was reported to watchers and members.
    fileprivate var isScheduleTold = true
    fileprivate var armed: Arming?
    /// The storage was locked, so the tombstone is still to be prepared.
    fileprivate var isArmingOwed = false
    /// Rate limit for notices of others that bring the schedule forward.
    fileprivate var bucket = TokenBucket(Limits.scheduleRate)
    var deferredNotice: DeferredNotice?
    var lockedWords: LockedWords?
}

extension Conversation {
    /// Ends the conversation for everyone: destroys the keys first, then tells the others over open links.
    /// - Parameters:
    ///   - time: when; now if `nil` or past, at most ``Limits/explosionHorizon`` ahead. It never delays a schedule.
    ///   - isTraceless: keep no list of members to tell.
    package func explode(at time: Timestamp? = nil, isTraceless: Bool = false, _ turn: inout Turn) throws(CommandError)
    {
        guard isCreator else { throw .notCreator }
        if isTraceless { record.schedule?.isTraceless = true }
        guard let time, time > turn.now else {
            let notice = ExplodeNotice(genesis: record.genesis, expiresAt: turn.now, key: key, &turn.random)
            return end(by: notice, .ourselves, isTraceless: isTraceless, &turn)
        }
        // Rounded up to whole seconds.
        let clamped = min(time, turn.now + Limits.explosionHorizon)
        let notice = ExplodeNotice(
            genesis: record.genesis, expiresAt: clamped + (Milliseconds.second - 1), isImmediate: false, key: key,
            &turn.random)
        if let known = record.schedule, !notice.precedes(known.notice) {
            if isTraceless {
                turn.save(client)
                arm(&turn)
            }
            return
        }
        adopt(notice, isTraceless: isTraceless || record.schedule?.isTraceless ?? false, &turn)
    }

    /// A receipt before our own end: the member's clock is ahead.
    func receiveEarly(_ receipt: DeletionReceipt, _ turn: inout Turn) {
        guard isCreator, receipt.conversation == conversation,
            peer(receipt.member) != nil || record.former.contains(receipt.member),
            record.schedule?.receipts.contains(where: { $0.member == receipt.member }) == false
        else { return }
        guard tally.holds(receipt.isSignatureValid) else { return }
        let told = Set(toldMembers.map(\.key))
        record.schedule?.receipts.removeAll { !told.contains($0.member) }
        record.schedule?.receipts.append(receipt)
        turn.save(client)
        arm(&turn)
        tell(.deletionReceipt(receipt.member), &turn)
    }

    /// Handles a sealed notice from any peer. A notice of the creator takes effect now, or is kept for its time.
    func receiveExplosion(_ sealed: [UInt8], _ path: ConversationEnding.Path, _ turn: inout Turn) {
        guard let notice = ExplodeNotice(opening: sealed, conversation: conversation),
            needsNoCheck(notice, turn) || notice.isValid(for: record.genesis)
        else {
            _ = tally.holds(false)
            if case .link(let link, _) = path { turn.close(link) }
            return
        }
        if notice.isDue(now: turn.now) { return end(by: notice, path, isTraceless: false, &turn) }
        if record.schedule.map({ notice.precedes($0.notice) }) ?? true {
            if let wait = ending.bucket.take(now: turn.now) {
                tally.dropped += 1
                postpone(notice, by: wait, turn)
                // The notice cost a signature check and changes nothing yet.
                if case .link(_, let member) = path {
                    _ = peer(member)?.idleFrames.note(elements: Limits.costlyFrame, now: turn.now)
                }
                return
            }
            adopt(notice, isTraceless: record.schedule?.isTraceless ?? false, &turn)
        }
        guard case .link(let link, let member) = path, let schedule = record.schedule else { return }
        if schedule.notice.precedes(notice) { return showSchedule(on: link, &turn) }
        confirmSchedule(by: member, &turn)
    }

    /// A notice that we hold or have deferred, or with a later end than ours. Repeats must not cost a check each.
    private func needsNoCheck(_ notice: ExplodeNotice, _ turn: Turn) -> Bool {
        if notice == record.schedule?.notice || notice == ending.deferredNotice?.notice { return true }
        guard let known = record.schedule?.notice else { return false }
        return known.precedes(notice) && !notice.isDue(now: turn.now)
    }

    /// The rate limit spares every member's disk. No end is missed: deferred notices are about a time to come.
    private func postpone(_ notice: ExplodeNotice, by wait: Milliseconds, _ turn: Turn) {
        let known = ending.deferredNotice
        if let known, !notice.precedes(known.notice) { return }
        ending.deferredNotice = ConversationEnding.DeferredNotice(
            notice: notice, until: known?.until ?? turn.now + wait)
    }

    /// - Returns: whether the conversation has ended.
    private func takeDeferred(_ turn: inout Turn) -> Bool {
        guard let deferred = ending.deferredNotice, deferred.until <= turn.now || deferred.notice.isDue(now: turn.now)
        else { return false }
        let notice = deferred.notice
        ending.deferredNotice = nil
        if notice.isDue(now: turn.now) {
            end(by: notice, .ourselves, isTraceless: false, &turn)
            return true
        }
        if record.schedule.map({ notice.precedes($0.notice) }) ?? true {
            _ = ending.bucket.take(now: turn.now)
            adopt(notice, isTraceless: record.schedule?.isTraceless ?? false, &turn)
        }
        return false
    }

    private func confirmSchedule(by member: PublicKey, _ turn: inout Turn) {
        guard peer(member) != nil, record.schedule?.confirmed.contains(member) == false else { return }
        // Drops former members, so that joining and leaving does not grow the list.
        record.schedule?.confirmed.removeAll { peer($0) == nil }
        record.schedule?.confirmed.append(member)
        turn.save(client)
    }

    /// Whether the creator has signed this sealed notice for this conversation.
    package func holds(notice sealed: [UInt8]) -> Bool {
        ExplodeNotice(opening: sealed, conversation: conversation)?.isValid(for: record.genesis) ?? false
    }

    /// Saves the schedule before it is told, so that a crash cannot lose it. A later notice puts no end off.
    private func adopt(_ notice: ExplodeNotice, isTraceless: Bool, _ turn: inout Turn) {
        var schedule = ExplosionSchedule(notice, now: turn.now)
        schedule.expiresAt = min(schedule.expiresAt, record.schedule?.expiresAt ?? .latest)
        (schedule.isTraceless, schedule.receipts) = (isTraceless, record.schedule?.receipts ?? [])
        record.schedule = schedule
        turn.save(client)
        enterSchedule(&turn)
    }

    /// Prepares the tombstone, then tells the user and the members.
    /// - Parameter afterLock: only the steps that the lock prevented.
    func enterSchedule(afterLock: Bool = false, _ turn: inout Turn) {
        if !afterLock { ending.isScheduleTold = record.schedule == nil }
        arm(&turn)
        tellSchedule(&turn)
    }

    private func tellSchedule(_ turn: inout Turn) {
        guard let schedule = record.schedule, !ending.isScheduleTold, !turn.isLocked else { return }
        ending.isScheduleTold = true
        tell(.explosionScheduled(schedule.expiresAt), &turn)
        let who = isCreator ? "you have" : "\(name(of: record.genesis.creator)) has"
        systemMessage("\(who) scheduled the explosion of this conversation: \(schedule.expiresAt.exactISO8601)", &turn)
        for peer in peers { if let link = peer.establishedLink { showSchedule(on: link, &turn) } }
    }

    /// Sends our notice. A member with the same notice confirms it by sending it.
    func showSchedule(on link: LinkID, _ turn: inout Turn) {
        guard let schedule = record.schedule, ending.isScheduleTold, !turn.isLocked else { return }
        turn.send(.explosion(schedule.notice.sealed(&turn.random)), on: link)
    }

    var endingDeadline: Timestamp? {
        guard let schedule = record.schedule else { return nil }
        if ending.armed != arming { return schedule.knownAt }
        let next = schedule.isReminded ? schedule.expiresAt : schedule.remindAt
        return ending.deferredNotice.map { min($0.until, $0.notice.expiresAt, next) } ?? next
    }

    /// Ends the conversation when it is time; else sends the reminder, and does the steps that a lock prevented.
    /// - Returns: whether the conversation has ended.
    func advanceEnding(_ turn: inout Turn) -> Bool {
        if takeDeferred(&turn) { return true }
        guard let schedule = record.schedule else { return false }
        if schedule.expiresAt <= turn.now {
            end(by: schedule.notice, .ourselves, isTraceless: schedule.isTraceless, &turn)
            return true
        }
        enterSchedule(afterLock: true, &turn)
        if !schedule.isReminded, schedule.remindAt <= turn.now {
            record.schedule?.isReminded = true
            turn.save(client)
            tell(.explosionReminder(schedule.expiresAt), &turn)
        }
        return false
    }

    private var arming: ConversationEnding.Arming? {
        guard let schedule = record.schedule else { return nil }
        return ConversationEnding.Arming(
            expiresAt: schedule.expiresAt, isTraceless: schedule.isTraceless, members: toldMembers,
            tag: record.issuer?.tag, invites: openInvites, receipts: schedule.receipts.count)
    }

    /// Prepares the tombstone again when its inputs have changed.
    private func arm(_ turn: inout Turn) {
        guard let schedule = record.schedule, let arming, ending.armed != arming || ending.isArmingOwed else { return }
        ending.armed = arming
        ending.isArmingOwed = turn.isLocked
        guard !turn.isLocked else { return }
        let sealed = schedule.notice.sealed(&turn.random)
        let receipt = receipt(at: schedule.expiresAt, &turn)
        var tombstone = tombstone(sealed, at: schedule.expiresAt, receipt, &turn)
        tombstone.isPrepared = true
        tombstone.isTraceless = schedule.isTraceless
        turn.add(.armExplosion(client, tombstone, fanOut: isCreator && !schedule.isTraceless ? toldMembers : []))
    }

    private func end(by notice: ExplodeNotice, _ path: ConversationEnding.Path, isTraceless: Bool, _ turn: inout Turn) {
        let isTraceless = isCreator && (isTraceless || record.schedule?.isTraceless ?? false)
        let sealed = notice.sealed(&turn.random)
        let receipt = receipt(at: turn.now, &turn)
        var tombstone = tombstone(sealed, at: turn.now, receipt, &turn)
        tombstone.isTraceless = isTraceless
        let notices = isTraceless ? [] : notices(sealed, path, &turn)
        if !notices.isEmpty { turn.add(.mailNotices(conversation, notices)) }
        turn.add(.explode(client, tombstone, fanOut: isCreator && !isTraceless ? toldMembers : []))
        let creator = record.genesis.creator
        for peer in peers {
            guard let link = peer.link.link else { continue }
            if peer.key == creator, let receipt {
                turn.send(.deletionReceipt(receipt), on: link)
            } else if path == .link(link, peer.key) {
                // The member that told us needs no notice.
                turn.close(link)
            } else {
                turn.send(.explosion(sealed), on: link)
            }
        }
        if receipt != nil, link(to: creator) == nil, path != .knock {
            turn.add(.knock(.report(conversation, profile(of: creator)?.endpoints ?? [])))
        }
        tell(.exploded, &turn)
    }

    /// Notices for mailboxes: the creator mails every member, another member only those without a link.
    private func notices(_ sealed: [UInt8], _ path: ConversationEnding.Path, _ turn: inout Turn) -> [MailNotice] {
        guard !key.isWiped else { return [] }
        var result: [MailNotice] = []
        for peer in peers {
            if case .link(_, peer.key) = path { continue }
            guard isCreator || peer.link.link == nil, let address = profile(of: peer.key)?.mailbox else { continue }
            result.append(
                MailNotice(sealed, to: peer.key, at: address, conversation: conversation, key: key, &turn.random))
        }
        return result
    }

    /// Our deletion receipt; `nil` at the creator. While the key is wiped: the newest one signed for a past time.
    func receipt(at time: Timestamp, _ turn: inout Turn) -> DeletionReceipt? {
        guard !isCreator else { return nil }
        guard !key.isWiped else { return ending.lockedWords?.receipts.last { $0.destroyedAt <= time } }
        return DeletionReceipt(conversation: conversation, destroyedAt: time, key: key, &turn.random)
    }

    /// Signs in advance: the conversation may end before the unlock restores our key.
    func prepareForLock(_ turn: inout Turn) {
        guard !key.isWiped else { return }
        let times = [turn.now] + [record.schedule?.expiresAt].compactMap { $0 }.filter { $0 > turn.now }
        ending.lockedWords = ConversationEnding.LockedWords(
            receipts: times.compactMap { receipt(at: $0, &turn) }, statement: statement(at: turn.now, &turn))
    }

    /// The creator's statement for holders of invites.
    private func statement(at time: Timestamp, _ turn: inout Turn) -> ExpiredStatement? {
        guard let tag = record.issuer?.tag, !openInvites.isEmpty else { return nil }
        guard !key.isWiped else { return ending.lockedWords?.statement }
        return ExpiredStatement(tag: tag, timestamp: time, key: key, &turn.random)
    }

    private func tombstone(_ sealed: [UInt8], at time: Timestamp, _ receipt: DeletionReceipt?, _ turn: inout Turn)
        -> ExplosionRecord
    {
        var tombstone = ExplosionRecord(
            conversation: conversation, role: isCreator ? .creator : .member, explodedAt: time,
            keepUntil: time + Limits.tombstoneLifetime, notice: sealed, receipt: receipt?.sealed(&turn.random),
            members: toldMembers.map(\.key))
        tombstone.creator = isCreator ? nil : record.genesis.creator
        tombstone.relaySeeds = Array(relaySeeds.prefix(Limits.tombstoneSeedCount))
        for receipt in record.schedule?.receipts ?? [] where tombstone.members.contains(receipt.member) {
            tombstone.confirmed[receipt.member] = receipt.destroyedAt
        }
        if let statement = statement(at: time, &turn) {
            tombstone.openInvites = openInvites
            tombstone.statement = statement
        }
        return tombstone
    }

    /// The members to tell: at the creator also removed ones, which still have a copy; after our removal the creator.
    private var toldMembers: [Member] {
        if record.isRemoved { return record.members.filter { $0.key == record.genesis.creator } }
        return record.members.filter { peer($0.key) != nil } + record.members.filter { record.former.contains($0.key) }
    }

    /// Invites whose holders are told: with the current tag, newest first.
    private var openInvites: [InviteID] {
        guard let issued = record.issuer else { return [] }
        // A tombstone must fit one page.
        let limit =
            toldMembers.count < Limits.memberCount ? Limits.tombstoneInviteCount : Limits.tombstoneInviteCount / 4
        return issued.invites.filter { $0.tag == issued.tag && !$0.isRevoked }.reversed().prefix(limit).map(\.id)
    }
}

/// A scheduled explosion at one member: the notice with the earliest end so far, and the members known to have it. Part
/// of the conversation's record, so it dies with it.
package struct ExplosionSchedule: Hashable, Sendable, Codable {
    package var notice: ExplodeNotice
    /// The end by our clock: the notice's time, at most ``Limits/explosionHorizon`` after the first notice arrived.
    package var expiresAt: Timestamp
    /// When the notice arrived, by our clock.
    package var knownAt: Timestamp
    package var isReminded = false
    /// At the creator: there is no list of members to tell.
    package var isTraceless = false
    /// Members that have sent the same notice.
    package var confirmed: [PublicKey] = []
    /// From members that have already destroyed their copy: their clocks are ahead of ours.
    package var receipts: [DeletionReceipt] = []

    package init(_ notice: ExplodeNotice, now: Timestamp) {
        self.notice = notice
        expiresAt = min(notice.expiresAt, now + Limits.explosionHorizon)
        knownAt = now
    }

    /// The reminder comes a tenth of the time before the end, at most ten minutes.
    package var remindAt: Timestamp { expiresAt - min(Limits.reminderLead, max(0, expiresAt - knownAt) / 10) }
}
