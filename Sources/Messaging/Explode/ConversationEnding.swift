import Crypto

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
        var notice: ExplodeNotice
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

extension ConversationStateMachine {
    // MARK: The creator

    /// Ends the conversation for everyone: destroys the keys first, then tells the others over open links.
    /// - Parameters:
    ///   - time: when; now if `nil` or past, at most ``Limits/explosionHorizon`` ahead. It never delays a schedule.
    ///   - isTraceless: keep no list of members to tell.
    package mutating func explode(at time: Timestamp? = nil, isTraceless: Bool = false, _ turn: inout Turn)
        throws(CommandError) -> [NodeAction]
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
            return isTraceless ? [.save(client)] + arm(&turn) : []
        }
        return adopt(notice, isTraceless: isTraceless || record.schedule?.isTraceless ?? false, &turn)
    }

    /// A receipt before our own end: the member's clock is ahead.
    mutating func receiveEarly(_ receipt: DeletionReceipt, _ turn: inout Turn) -> [NodeAction] {
        guard isCreator, receipt.conversation == conversation,
            members[receipt.member] != nil || record.former.contains(receipt.member),
            record.schedule?.receipts.contains(where: { $0.member == receipt.member }) == false
        else { return [] }
        guard tally.holds(receipt.isSignatureValid) else { return [] }
        let told = Set(toldMembers.map(\.key))
        record.schedule?.receipts.removeAll { !told.contains($0.member) }
        record.schedule?.receipts.append(receipt)
        return [.save(client)] + arm(&turn) + [event(.deletionReceipt(receipt.member), turn)]
    }

    // MARK: Notices

    /// Handles a sealed notice from any peer. A notice of the creator takes effect now, or is kept for its time.
    mutating func receiveExplosion(_ sealed: [UInt8], _ path: ConversationEnding.Path, _ turn: inout Turn)
        -> [NodeAction]
    {
        guard let notice = ExplodeNotice(opening: sealed, conversation: conversation),
            needsNoCheck(notice, turn) || notice.isValid(for: record.genesis)
        else {
            _ = tally.holds(false)
            if case .link(let link, _) = path { return [.close(link)] }
            return []
        }
        if notice.isDue(now: turn.now) { return end(by: notice, path, isTraceless: false, &turn) }
        var result: [NodeAction] = []
        if record.schedule.map({ notice.precedes($0.notice) }) ?? true {
            if let wait = ending.bucket.take(now: turn.now) {
                tally.dropped += 1
                postpone(notice, by: wait, turn)
                // The notice cost a signature check and changes nothing yet.
                if case .link(_, let member) = path { noteCostlyFrame(of: member, now: turn.now) }
                return []
            }
            result = adopt(notice, isTraceless: record.schedule?.isTraceless ?? false, &turn)
        }
        guard case .link(let link, let member) = path, let schedule = record.schedule else { return result }
        if schedule.notice.precedes(notice) { return result + showSchedule(on: link, &turn) }
        return result + confirmSchedule(by: member)
    }

    /// A notice that we hold or have deferred, or with a later end than ours. Repeats must not cost a check each.
    private func needsNoCheck(_ notice: ExplodeNotice, _ turn: Turn) -> Bool {
        if notice == record.schedule?.notice || notice == ending.deferredNotice?.notice { return true }
        guard let known = record.schedule?.notice else { return false }
        return known.precedes(notice) && !notice.isDue(now: turn.now)
    }

    /// The rate limit spares every member's disk. No end is missed: deferred notices are about a time to come.
    private mutating func postpone(_ notice: ExplodeNotice, by wait: Milliseconds, _ turn: Turn) {
        guard let known = ending.deferredNotice else {
            ending.deferredNotice = ConversationEnding.DeferredNotice(notice: notice, until: turn.now + wait)
            return
        }
        if notice.precedes(known.notice) { ending.deferredNotice?.notice = notice }
    }

    private mutating func takeDeferred(_ turn: inout Turn) -> (actions: [NodeAction], hasEnded: Bool) {
        guard let deferred = ending.deferredNotice, deferred.until <= turn.now || deferred.notice.isDue(now: turn.now)
        else { return ([], false) }
        let notice = deferred.notice
        ending.deferredNotice = nil
        if notice.isDue(now: turn.now) { return (end(by: notice, .ourselves, isTraceless: false, &turn), true) }
        guard record.schedule.map({ notice.precedes($0.notice) }) ?? true else { return ([], false) }
        _ = ending.bucket.take(now: turn.now)
        return (adopt(notice, isTraceless: record.schedule?.isTraceless ?? false, &turn), false)
    }

    private mutating func confirmSchedule(by member: PublicKey) -> [NodeAction] {
        guard members[member] != nil, record.schedule?.confirmed.contains(member) == false else { return [] }
        // Drops former members, so that joining and leaving does not grow the list.
        record.schedule?.confirmed.removeAll { members[$0] == nil }
        record.schedule?.confirmed.append(member)
        return [.save(client)]
    }

    /// Whether the creator has signed this sealed notice for this conversation.
    package func holds(notice sealed: [UInt8]) -> Bool {
        ExplodeNotice(opening: sealed, conversation: conversation)?.isValid(for: record.genesis) ?? false
    }

    // MARK: The schedule

    /// Saves the schedule before it is told, so that a crash cannot lose it.
    private mutating func adopt(_ notice: ExplodeNotice, isTraceless: Bool, _ turn: inout Turn) -> [NodeAction] {
        let receipts = record.schedule?.receipts ?? []
        record.schedule = ExplosionSchedule(notice, now: turn.now)
        record.schedule?.isTraceless = isTraceless
        record.schedule?.receipts = receipts
        return [.save(client)] + enterSchedule(&turn)
    }

    /// Prepares the tombstone, then tells the user and the members.
    /// - Parameter afterLock: only the steps that the lock prevented.
    mutating func enterSchedule(afterLock: Bool = false, _ turn: inout Turn) -> [NodeAction] {
        if !afterLock { ending.isScheduleTold = record.schedule == nil }
        return arm(&turn) + tellSchedule(&turn)
    }

    private mutating func tellSchedule(_ turn: inout Turn) -> [NodeAction] {
        guard let schedule = record.schedule, !ending.isScheduleTold, !turn.isLocked else { return [] }
        ending.isScheduleTold = true
        var result = [event(.explosionScheduled(schedule.expiresAt), turn)]
        for member in memberKeys where members[member]?.isEstablished == true {
            if let link = link(to: member) { result += showSchedule(on: link, &turn) }
        }
        return result
    }

    /// Sends our notice. A member with the same notice confirms it by sending it.
    func showSchedule(on link: LinkID, _ turn: inout Turn) -> [NodeAction] {
        guard let schedule = record.schedule, ending.isScheduleTold, !turn.isLocked else { return [] }
        return [.transmit(link, .explosion(schedule.notice.sealed(&turn.random)))]
    }

    var endingDeadline: Timestamp? {
        guard let schedule = record.schedule else { return nil }
        if ending.armed != arming { return schedule.knownAt }
        let next = schedule.isReminded ? schedule.expiresAt : schedule.remindAt
        return ending.deferredNotice.map { min($0.until, $0.notice.expiresAt, next) } ?? next
    }

    /// Ends the conversation when it is time; else sends the reminder, and does the steps that a lock prevented.
    mutating func advanceEnding(_ turn: inout Turn) -> (actions: [NodeAction], hasEnded: Bool) {
        let late = takeDeferred(&turn)
        guard !late.hasEnded, let schedule = record.schedule else { return late }
        if schedule.expiresAt <= turn.now {
            return (end(by: schedule.notice, .ourselves, isTraceless: schedule.isTraceless, &turn), true)
        }
        var result = late.actions + arm(&turn) + tellSchedule(&turn)
        if !schedule.isReminded, schedule.remindAt <= turn.now {
            record.schedule?.isReminded = true
            result += [.save(client), event(.explosionReminder(schedule.expiresAt), turn)]
        }
        return (result, false)
    }

    private var arming: ConversationEnding.Arming? {
        guard let schedule = record.schedule else { return nil }
        return ConversationEnding.Arming(
            expiresAt: schedule.expiresAt, isTraceless: schedule.isTraceless, members: toldMembers,
            tag: record.issuer?.tag, invites: openInvites, receipts: schedule.receipts.count)
    }

    /// Prepares the tombstone again when its inputs have changed.
    private mutating func arm(_ turn: inout Turn) -> [NodeAction] {
        guard let schedule = record.schedule, let arming, ending.armed != arming || ending.isArmingOwed else {
            return []
        }
        ending.armed = arming
        ending.isArmingOwed = turn.isLocked
        guard !turn.isLocked else { return [] }
        let sealed = schedule.notice.sealed(&turn.random)
        let receipt = receipt(at: schedule.expiresAt, &turn)
        var tombstone = tombstone(sealed, at: schedule.expiresAt, receipt, &turn)
        tombstone.isPrepared = true
        tombstone.isTraceless = schedule.isTraceless
        return [.armExplosion(client, tombstone, fanOut: isCreator && !schedule.isTraceless ? toldMembers : [])]
    }

    // MARK: The end

    private func end(by notice: ExplodeNotice, _ path: ConversationEnding.Path, isTraceless: Bool, _ turn: inout Turn)
        -> [NodeAction]
    {
        let isTraceless = isCreator && (isTraceless || record.schedule?.isTraceless ?? false)
        let sealed = notice.sealed(&turn.random)
        let receipt = receipt(at: turn.now, &turn)
        var tombstone = tombstone(sealed, at: turn.now, receipt, &turn)
        tombstone.isTraceless = isTraceless
        let notices = isTraceless ? [] : notices(sealed, path, &turn)
        var result: [NodeAction] = notices.isEmpty ? [] : [.mailNotices(conversation, notices)]
        result.append(.explode(client, tombstone, fanOut: isCreator && !isTraceless ? toldMembers : []))
        let creator = record.genesis.creator
        for member in memberKeys {
            guard let link = link(to: member) else { continue }
            if member == creator, let receipt {
                result.append(.transmit(link, .deletionReceipt(receipt)))
            } else if case .link(link, member) = path {
                // The member that told us needs no notice.
                result.append(.close(link))
            } else {
                result.append(.transmit(link, .explosion(sealed)))
            }
        }
        if receipt != nil, link(to: creator) == nil, path != .knock {
            let endpoints = record.members.first { $0.key == creator }?.endpoints ?? []
            result.append(.knock(.report(conversation, endpoints)))
        }
        result.append(event(.exploded, turn))
        return result
    }

    /// Notices for mailboxes: the creator mails every member, another member only those without a link.
    private func notices(_ sealed: [UInt8], _ path: ConversationEnding.Path, _ turn: inout Turn) -> [MailNotice] {
        guard !key.isWiped else { return [] }
        var result: [MailNotice] = []
        for member in memberKeys {
            if case .link(_, member) = path { continue }
            guard isCreator || link(to: member) == nil,
                let address = record.members.first(where: { $0.key == member })?.mailbox
            else { continue }
            result.append(
                MailNotice(sealed, to: member, at: address, conversation: conversation, key: key, &turn.random))
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
    mutating func prepareForLock(_ turn: inout Turn) {
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
        return record.members.filter { members[$0.key] != nil }
            + record.members.filter { record.former.contains($0.key) }
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
