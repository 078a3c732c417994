import Primitives

/// The end of the conversation (section 7).
///
///     ready ──schedule, ours or a notice──▶ scheduled ──earlier notice──▶ scheduled
///       │                                       │ ──its time──▶ exploded
///       └────────── immediate notice ───────────┴─────────────▶ exploded
///
/// `exploded` is no state of this machine: the inbox goes with the action, and ``ExplodeStateMachine`` begins.
extension ConversationStateMachine {
    /// How a notice that ends the conversation has come.
    enum Ending: Hashable, Sendable {
        /// The user's command, or the scheduled time.
        case ourselves
        case link(LinkID, PublicKey)
        /// The creator has knocked; our receipt is the answer.
        case knock
        /// A tombstone has answered our question.
        case answer
    }

    /// What an explosion was last prepared for.
    struct Arming: Hashable, Sendable {
        var expiresAt: Timestamp
        var isTraceless: Bool
        var members: [Member]
        var tag: InviteTag?
        var invites: [InviteID]
        var receipts: Int
    }

    /// What an end needs that comes while the storage is locked.
    struct LockedWords: Hashable, Sendable {
        /// For the lock itself and for the scheduled end, if there is one, in this order.
        var receipts: [DeletionReceipt]
        /// For holders of invites.
        var statement: ExpiredStatement?
    }

    // MARK: The creator

    /// Ends the conversation for everyone: keys first, then the others are told over the links still open.
    /// - Parameters:
    ///   - time: when; now if `nil` or past, at most ``Limits/explosionHorizon`` ahead. A schedule is brought forward by
    ///     it or stays as it is.
    ///   - isTraceless: keep no list of whom to tell.
    package mutating func explode(
        at time: Timestamp? = nil,
        isTraceless: Bool = false,
        _ turn: inout Turn
    ) throws(CommandError) -> [NodeAction] {
        guard isCreator else { throw .notCreator }
        if isTraceless { record.schedule?.isTraceless = true }
        guard let time, time > turn.now else {
            let notice = ExplodeNotice(genesis: record.genesis, expiresAt: turn.now, key: key, &turn.random)
            return end(by: notice, .ourselves, isTraceless: isTraceless, &turn)
        }
        // Whole seconds, and not earlier than was asked for.
        let clamped = min(time, turn.now + Limits.explosionHorizon)
        let notice = ExplodeNotice(
            genesis: record.genesis,
            expiresAt: clamped + (Milliseconds.second - 1),
            isImmediate: false,
            key: key,
            &turn.random
        )
        if let known = record.schedule, !notice.precedes(known.notice) {
            return isTraceless ? [.save(client)] + arm(&turn) : []
        }
        return adopt(notice, isTraceless: isTraceless || record.schedule?.isTraceless ?? false, &turn)
    }

    /// A member whose clock is ahead has destroyed its copy before us.
    mutating func receiveEarly(_ receipt: DeletionReceipt, _ turn: inout Turn) -> [NodeAction] {
        guard isCreator, receipt.conversation == conversation, members[receipt.member] != nil,
            record.schedule?.receipts.contains(where: { $0.member == receipt.member }) == false
        else { return [] }
        guard receipt.isSignatureValid else {
            droppedCount += 1
            forgedCount += 1
            return []
        }
        record.schedule?.receipts.removeAll { members[$0.member] == nil }
        record.schedule?.receipts.append(receipt)
        return [.save(client)] + arm(&turn) + [event(.deletionReceipt(receipt.member), turn)]
    }

    // MARK: Notices

    /// The creator's word, from whomever: what it says takes effect now or is kept for its time. Anything else changes
    /// nothing.
    mutating func receiveExplosion(_ sealed: [UInt8], _ path: Ending, _ turn: inout Turn) -> [NodeAction] {
        guard let notice = ExplodeNotice(opening: sealed, conversation: conversation),
            needsNoCheck(notice, turn) || notice.isValid(for: record.genesis)
        else {
            droppedCount += 1
            forgedCount += 1
            if case .link(let link, _) = path { return [.close(link)] }
            return []
        }
        if notice.isDue(now: turn.now) { return end(by: notice, path, isTraceless: false, &turn) }
        var result: [NodeAction] = []
        if record.schedule.map({ notice.precedes($0.notice) }) ?? true {
            if let wait = scheduleBucket.take(now: turn.now) {
                // It has cost a signature's check, and changes nothing yet.
                if case .link(_, let member) = path { noteCostlyFrame(of: member, now: turn.now) }
                return postpone(notice, by: wait, turn)
            }
            result = adopt(notice, isTraceless: record.schedule?.isTraceless ?? false, &turn)
        }
        guard case .link(let link, let member) = path, let schedule = record.schedule else { return result }
        if schedule.notice.precedes(notice) { return result + showSchedule(on: link, &turn) }
        return result + confirmSchedule(by: member)
    }

    /// What we hold ourselves, or have checked and put off, or what would be later than ours: whoever repeats it does not
    /// make us check it each time.
    private func needsNoCheck(_ notice: ExplodeNotice, _ turn: Turn) -> Bool {
        if notice == record.schedule?.notice || notice == deferredNotice?.notice { return true }
        guard let known = record.schedule?.notice else { return false }
        return known.precedes(notice) && !notice.isDue(now: turn.now)
    }

    /// A creator that brings the end forward over and over does not keep everyone's disk busy: of what comes too often
    /// the earliest is taken a little later. Nothing is lost by it, since that is only a change of a time to come.
    private mutating func postpone(_ notice: ExplodeNotice, by wait: Milliseconds, _ turn: Turn) -> [NodeAction] {
        droppedCount += 1
        guard let known = deferredNotice else {
            deferredNotice = DeferredNotice(notice: notice, until: turn.now + wait)
            return []
        }
        if notice.precedes(known.notice) { deferredNotice?.notice = notice }
        return []
    }

    /// Takes the notice that had to wait.
    private mutating func takeDeferred(_ turn: inout Turn) -> (actions: [NodeAction], hasEnded: Bool) {
        guard let deferred = deferredNotice, deferred.until <= turn.now || deferred.notice.isDue(now: turn.now) else {
            return ([], false)
        }
        let notice = deferred.notice
        deferredNotice = nil
        if notice.isDue(now: turn.now) { return (end(by: notice, .ourselves, isTraceless: false, &turn), true) }
        guard record.schedule.map({ notice.precedes($0.notice) }) ?? true else { return ([], false) }
        _ = scheduleBucket.take(now: turn.now)
        return (adopt(notice, isTraceless: record.schedule?.isTraceless ?? false, &turn), false)
    }

    private mutating func confirmSchedule(by member: PublicKey) -> [NodeAction] {
        guard members[member] != nil, record.schedule?.confirmed.contains(member) == false else { return [] }
        // Those who are gone are forgotten, so that coming and going fills nothing.
        record.schedule?.confirmed.removeAll { members[$0] == nil }
        record.schedule?.confirmed.append(member)
        return [.save(client)]
    }

    // MARK: The schedule

    /// Durable before anybody hears of it, so that it is kept whatever happens then.
    private mutating func adopt(_ notice: ExplodeNotice, isTraceless: Bool, _ turn: inout Turn) -> [NodeAction] {
        let receipts = record.schedule?.receipts ?? []
        record.schedule = ExplosionSchedule(notice, now: turn.now)
        record.schedule?.isTraceless = isTraceless
        record.schedule?.receipts = receipts
        return [.save(client)] + enterSchedule(&turn)
    }

    /// Prepares for the time, then tells the user and the members.
    mutating func enterSchedule(_ turn: inout Turn) -> [NodeAction] {
        isScheduleTold = record.schedule == nil
        return arm(&turn) + tellSchedule(&turn)
    }

    private mutating func tellSchedule(_ turn: inout Turn) -> [NodeAction] {
        guard let schedule = record.schedule, !isScheduleTold, !turn.isLocked else { return [] }
        isScheduleTold = true
        var result = [event(.explosionScheduled(schedule.expiresAt), turn)]
        for member in memberKeys where members[member]?.isEstablished == true {
            if let link = link(to: member) { result += showSchedule(on: link, &turn) }
        }
        return result
    }

    /// The notice that we hold; whoever holds the same confirms it by showing it.
    func showSchedule(on link: LinkID, _ turn: inout Turn) -> [NodeAction] {
        guard let schedule = record.schedule, isScheduleTold, !turn.isLocked else { return [] }
        return [.transmit(link, .explosion(schedule.notice.sealed(&turn.random)))]
    }

    /// When the schedule wants something done; `nil` without one.
    var scheduleDeadline: Timestamp? {
        guard let schedule = record.schedule else { return nil }
        if armed != arming { return schedule.knownAt }
        let next = schedule.isReminded ? schedule.expiresAt : schedule.remindAt
        return deferredNotice.map { min($0.until, $0.notice.expiresAt, next) } ?? next
    }

    /// The end when its time has come; else the reminder, and what could not be done while the storage was locked.
    mutating func advanceSchedule(_ turn: inout Turn) -> (actions: [NodeAction], hasEnded: Bool) {
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

    private var arming: Arming? {
        guard let schedule = record.schedule else { return nil }
        return Arming(
            expiresAt: schedule.expiresAt,
            isTraceless: schedule.isTraceless,
            members: told,
            tag: issuer?.record.tag,
            invites: openInvites,
            receipts: schedule.receipts.count
        )
    }

    /// Prepares the end again whenever what it depends on has changed.
    private mutating func arm(_ turn: inout Turn) -> [NodeAction] {
        guard let schedule = record.schedule, let arming, armed != arming || isArmingOwed else { return [] }
        armed = arming
        isArmingOwed = turn.isLocked
        guard !turn.isLocked else { return [] }
        let sealed = schedule.notice.sealed(&turn.random)
        let receipt = receipt(at: schedule.expiresAt, &turn)
        var tombstone = tombstone(sealed, at: schedule.expiresAt, receipt, &turn)
        tombstone.isPrepared = true
        tombstone.isTraceless = schedule.isTraceless
        return [.armExplosion(client, tombstone, fanOut: isCreator && !schedule.isTraceless ? told : [])]
    }

    // MARK: The end

    private mutating func end(
        by notice: ExplodeNotice,
        _ path: Ending,
        isTraceless: Bool,
        _ turn: inout Turn
    ) -> [NodeAction] {
        let isTraceless = isCreator && (isTraceless || record.schedule?.isTraceless ?? false)
        let sealed = notice.sealed(&turn.random)
        let receipt = receipt(at: turn.now, &turn)
        var tombstone = tombstone(sealed, at: turn.now, receipt, &turn)
        tombstone.isTraceless = isTraceless
        var result: [NodeAction] = [
            .explode(client, tombstone, fanOut: isCreator && !isTraceless ? told : [])
        ]
        let creator = record.genesis.creator
        for member in memberKeys {
            guard let link = link(to: member) else { continue }
            if member == creator, let receipt {
                result.append(.transmit(link, .deletionReceipt(receipt)))
            } else if case .link(link, member) = path {
                // It has told us, so it has nothing more to say.
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

    /// Our word that our copy is gone; a creator owes it to nobody. While the key is wiped it is the newest that was signed
    /// for a time that has come.
    private func receipt(at time: Timestamp, _ turn: inout Turn) -> DeletionReceipt? {
        guard !isCreator else { return nil }
        guard !key.isWiped else { return lockedWords?.receipts.last { $0.destroyedAt <= time } }
        return DeletionReceipt(conversation: conversation, destroyedAt: time, key: key, &turn.random)
    }

    /// The storage is about to be locked, and our key wiped: the conversation may end before it is there again.
    mutating func prepareForLock(_ turn: inout Turn) {
        guard !key.isWiped else { return }
        let times = [turn.now] + [record.schedule?.expiresAt].compactMap { $0 }.filter { $0 > turn.now }
        lockedWords = LockedWords(
            receipts: times.compactMap { receipt(at: $0, &turn) },
            statement: statement(at: turn.now, &turn)
        )
    }

    /// Our word to those who hold an invite.
    private func statement(at time: Timestamp, _ turn: inout Turn) -> ExpiredStatement? {
        guard let tag = issuer?.record.tag, !openInvites.isEmpty else { return nil }
        guard !key.isWiped else { return lockedWords?.statement }
        return ExpiredStatement(tag: tag, timestamp: time, key: key, &turn.random)
    }

    private func tombstone(
        _ sealed: [UInt8],
        at time: Timestamp,
        _ receipt: DeletionReceipt?,
        _ turn: inout Turn
    ) -> ExplodeStateMachine.Record {
        var tombstone = ExplodeStateMachine.Record(
            conversation: conversation,
            role: isCreator ? .creator : .member,
            explodedAt: time,
            keepUntil: time + Limits.tombstoneLifetime,
            notice: sealed,
            receipt: receipt?.sealed(&turn.random),
            members: told.map(\.key)
        )
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

    /// Who is concerned: at the creator also those whom it has removed, who keep their copy until they are told; in a
    /// removed one the creator.
    private var told: [Member] {
        if record.isRemoved { return record.members.filter { $0.key == record.genesis.creator } }
        return currentMembers + record.members.filter { record.former.contains($0.key) }
    }

    /// Those whose holders learn of the end: of the present tag, the newest first.
    private var openInvites: [InviteID] {
        guard let issued = issuer?.record else { return [] }
        // A tombstone is one page.
        let limit = told.count < Limits.memberCount ? Limits.tombstoneInviteCount : Limits.tombstoneInviteCount / 2
        return issued.invites.filter { $0.tag == issued.tag && !$0.isRevoked }.reversed().prefix(limit).map(\.id)
    }
}
