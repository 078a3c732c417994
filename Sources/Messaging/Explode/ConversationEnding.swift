import Crypto

/// The end of the conversation (Explode.md).
///
///     ready ──schedule, ours or a notice──▶ scheduled ──earlier notice──▶ scheduled
///       │                                       │ ──its time──▶ exploded
///       └────────── immediate notice ───────────┴─────────────▶ exploded
///
/// `exploded` is no state here: the inbox is destroyed with the action, and ``ExplodeStateMachine`` begins.
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

    /// The parts of the conversation that this machine reads.
    struct Context {
        let names: ConversationNames
        let key: IdentityKey
        let isCreator: Bool
        let members: [PublicKey: ConversationMember]
        let issuer: IssuerStateMachine.Record?
        let relaySeeds: [RelaySeed]

        var memberKeys: [PublicKey] { members.keys.sorted() }
        func link(to member: PublicKey) -> LinkID? { members[member]?.link.link }
    }

    /// A notice of an earlier end, deferred by the rate limit.
    struct DeferredNotice: Sendable {
        var notice: ExplodeNotice
        let until: Timestamp
    }

    /// The inputs of the last prepared tombstone.
    private struct Arming: Hashable, Sendable {
        var expiresAt: Timestamp
        var isTraceless: Bool
        var members: [Member]
        var tag: InviteTag?
        var invites: [InviteID]
        var receipts: Int
    }

    /// Signed before a lock, for an end while our key is wiped.
    private struct LockedWords: Hashable, Sendable {
        /// For an end at the lock, then for the scheduled end, if there is one.
        var receipts: [DeletionReceipt]
        var statement: ExpiredStatement?
    }

    /// The scheduled explosion was reported to watchers and members.
    private var isScheduleTold = true
    private var armed: Arming?
    /// The storage was locked, so the tombstone is still to be prepared.
    private var isArmingOwed = false
    /// Rate limit for notices of others that bring the schedule forward.
    private var bucket = TokenBucket(Limits.scheduleRate)
    var deferredNotice: DeferredNotice?
    private var lockedWords: LockedWords?

    // MARK: The creator

    /// Ends the conversation for everyone: destroys the keys first, then tells the others over open links.
    /// - Parameters:
    ///   - time: when; now if `nil` or past, at most ``Limits/explosionHorizon`` ahead. It never delays a schedule.
    ///   - isTraceless: keep no list of members to tell.
    mutating func explode(
        at time: Timestamp? = nil, isTraceless: Bool = false, _ record: inout ConversationRecord, _ context: Context,
        _ turn: inout Turn
    ) throws(CommandError) -> [NodeAction] {
        guard context.isCreator else { throw .notCreator }
        if isTraceless { record.schedule?.isTraceless = true }
        guard let time, time > turn.now else {
            let notice = ExplodeNotice(genesis: record.genesis, expiresAt: turn.now, key: context.key, &turn.random)
            return end(by: notice, .ourselves, isTraceless: isTraceless, record, context, &turn)
        }
        // Rounded up to whole seconds.
        let clamped = min(time, turn.now + Limits.explosionHorizon)
        let notice = ExplodeNotice(
            genesis: record.genesis, expiresAt: clamped + (Milliseconds.second - 1), isImmediate: false,
            key: context.key, &turn.random)
        if let known = record.schedule, !notice.precedes(known.notice) {
            return isTraceless ? [.save(context.names.client)] + arm(record, context, &turn) : []
        }
        return adopt(notice, isTraceless: isTraceless || record.schedule?.isTraceless ?? false, &record, context, &turn)
    }

    /// A receipt before our own end: the member's clock is ahead.
    mutating func receiveEarly(
        _ receipt: DeletionReceipt, _ record: inout ConversationRecord, _ context: Context, _ tally: inout FrameTally,
        _ turn: inout Turn
    ) -> [NodeAction] {
        guard context.isCreator, receipt.conversation == context.names.conversation,
            context.members[receipt.member] != nil || record.former.contains(receipt.member),
            record.schedule?.receipts.contains(where: { $0.member == receipt.member }) == false
        else { return [] }
        guard tally.holds(receipt.isSignatureValid) else { return [] }
        let told = Set(told(record, context).map(\.key))
        record.schedule?.receipts.removeAll { !told.contains($0.member) }
        record.schedule?.receipts.append(receipt)
        return [.save(context.names.client)] + arm(record, context, &turn) + [
            context.names.event(.deletionReceipt(receipt.member), turn)
        ]
    }

    // MARK: Notices

    /// Handles a sealed notice from any peer. A notice of the creator takes effect now, or is kept for its time.
    /// - Returns: `isCostly`: the notice cost a signature check and changes nothing yet.
    mutating func receive(
        _ sealed: [UInt8], _ path: Path, _ record: inout ConversationRecord, _ context: Context,
        _ tally: inout FrameTally, _ turn: inout Turn
    ) -> (actions: [NodeAction], isCostly: Bool) {
        guard let notice = ExplodeNotice(opening: sealed, conversation: context.names.conversation),
            needsNoCheck(notice, record, turn) || notice.isValid(for: record.genesis)
        else {
            _ = tally.holds(false)
            if case .link(let link, _) = path { return ([.close(link)], false) }
            return ([], false)
        }
        if notice.isDue(now: turn.now) {
            return (end(by: notice, path, isTraceless: false, record, context, &turn), false)
        }
        var result: [NodeAction] = []
        if record.schedule.map({ notice.precedes($0.notice) }) ?? true {
            if let wait = bucket.take(now: turn.now) {
                tally.dropped += 1
                postpone(notice, by: wait, turn)
                return ([], true)
            }
            result = adopt(notice, isTraceless: record.schedule?.isTraceless ?? false, &record, context, &turn)
        }
        guard case .link(let link, let member) = path, let schedule = record.schedule else { return (result, false) }
        if schedule.notice.precedes(notice) { return (result + showSchedule(on: link, record, &turn), false) }
        return (result + confirmSchedule(by: member, &record, context), false)
    }

    /// A notice that we hold or have deferred, or with a later end than ours. Repeats must not cost a check each.
    private func needsNoCheck(_ notice: ExplodeNotice, _ record: ConversationRecord, _ turn: Turn) -> Bool {
        if notice == record.schedule?.notice || notice == deferredNotice?.notice { return true }
        guard let known = record.schedule?.notice else { return false }
        return known.precedes(notice) && !notice.isDue(now: turn.now)
    }

    /// The rate limit spares every member's disk. No end is missed: deferred notices are about a time to come.
    private mutating func postpone(_ notice: ExplodeNotice, by wait: Milliseconds, _ turn: Turn) {
        guard let known = deferredNotice else {
            deferredNotice = DeferredNotice(notice: notice, until: turn.now + wait)
            return
        }
        if notice.precedes(known.notice) { deferredNotice?.notice = notice }
    }

    private mutating func takeDeferred(_ record: inout ConversationRecord, _ context: Context, _ turn: inout Turn) -> (
        actions: [NodeAction], hasEnded: Bool
    ) {
        guard let deferred = deferredNotice, deferred.until <= turn.now || deferred.notice.isDue(now: turn.now) else {
            return ([], false)
        }
        let notice = deferred.notice
        deferredNotice = nil
        if notice.isDue(now: turn.now) {
            return (end(by: notice, .ourselves, isTraceless: false, record, context, &turn), true)
        }
        guard record.schedule.map({ notice.precedes($0.notice) }) ?? true else { return ([], false) }
        _ = bucket.take(now: turn.now)
        return (adopt(notice, isTraceless: record.schedule?.isTraceless ?? false, &record, context, &turn), false)
    }

    private func confirmSchedule(by member: PublicKey, _ record: inout ConversationRecord, _ context: Context)
        -> [NodeAction]
    {
        guard context.members[member] != nil, record.schedule?.confirmed.contains(member) == false else { return [] }
        // Drops former members, so that joining and leaving does not grow the list.
        record.schedule?.confirmed.removeAll { context.members[$0] == nil }
        record.schedule?.confirmed.append(member)
        return [.save(context.names.client)]
    }

    // MARK: The schedule

    /// Saves the schedule before it is told, so that a crash cannot lose it.
    private mutating func adopt(
        _ notice: ExplodeNotice, isTraceless: Bool, _ record: inout ConversationRecord, _ context: Context,
        _ turn: inout Turn
    ) -> [NodeAction] {
        let receipts = record.schedule?.receipts ?? []
        record.schedule = ExplosionSchedule(notice, now: turn.now)
        record.schedule?.isTraceless = isTraceless
        record.schedule?.receipts = receipts
        return [.save(context.names.client)] + enterSchedule(record, context, &turn)
    }

    /// Prepares the tombstone, then tells the user and the members.
    /// - Parameter afterLock: only the steps that the lock prevented.
    mutating func enterSchedule(
        afterLock: Bool = false, _ record: ConversationRecord, _ context: Context, _ turn: inout Turn
    ) -> [NodeAction] {
        if !afterLock { isScheduleTold = record.schedule == nil }
        return arm(record, context, &turn) + tellSchedule(record, context, &turn)
    }

    private mutating func tellSchedule(_ record: ConversationRecord, _ context: Context, _ turn: inout Turn)
        -> [NodeAction]
    {
        guard let schedule = record.schedule, !isScheduleTold, !turn.isLocked else { return [] }
        isScheduleTold = true
        var result = [context.names.event(.explosionScheduled(schedule.expiresAt), turn)]
        for member in context.memberKeys where context.members[member]?.isEstablished == true {
            if let link = context.link(to: member) { result += showSchedule(on: link, record, &turn) }
        }
        return result
    }

    /// Sends our notice. A member with the same notice confirms it by sending it.
    func showSchedule(on link: LinkID, _ record: ConversationRecord, _ turn: inout Turn) -> [NodeAction] {
        guard let schedule = record.schedule, isScheduleTold, !turn.isLocked else { return [] }
        return [.transmit(link, .explosion(schedule.notice.sealed(&turn.random)))]
    }

    func deadline(_ record: ConversationRecord, _ context: () -> Context) -> Timestamp? {
        guard let schedule = record.schedule else { return nil }
        if armed != arming(record, context()) { return schedule.knownAt }
        let next = schedule.isReminded ? schedule.expiresAt : schedule.remindAt
        return deferredNotice.map { min($0.until, $0.notice.expiresAt, next) } ?? next
    }

    /// Ends the conversation when it is time; else sends the reminder, and does the steps that a lock prevented.
    mutating func advance(_ record: inout ConversationRecord, _ context: Context, _ turn: inout Turn) -> (
        actions: [NodeAction], hasEnded: Bool
    ) {
        let late = takeDeferred(&record, context, &turn)
        guard !late.hasEnded, let schedule = record.schedule else { return late }
        if schedule.expiresAt <= turn.now {
            return (
                end(by: schedule.notice, .ourselves, isTraceless: schedule.isTraceless, record, context, &turn), true
            )
        }
        var result = late.actions + arm(record, context, &turn) + tellSchedule(record, context, &turn)
        if !schedule.isReminded, schedule.remindAt <= turn.now {
            record.schedule?.isReminded = true
            result += [.save(context.names.client), context.names.event(.explosionReminder(schedule.expiresAt), turn)]
        }
        return (result, false)
    }

    private func arming(_ record: ConversationRecord, _ context: Context) -> Arming? {
        guard let schedule = record.schedule else { return nil }
        return Arming(
            expiresAt: schedule.expiresAt, isTraceless: schedule.isTraceless, members: told(record, context),
            tag: context.issuer?.tag, invites: openInvites(record, context), receipts: schedule.receipts.count)
    }

    /// Prepares the tombstone again when its inputs have changed.
    private mutating func arm(_ record: ConversationRecord, _ context: Context, _ turn: inout Turn) -> [NodeAction] {
        guard let schedule = record.schedule, let arming = arming(record, context), armed != arming || isArmingOwed
        else { return [] }
        armed = arming
        isArmingOwed = turn.isLocked
        guard !turn.isLocked else { return [] }
        let sealed = schedule.notice.sealed(&turn.random)
        let receipt = receipt(at: schedule.expiresAt, context, &turn)
        var tombstone = tombstone(sealed, at: schedule.expiresAt, receipt, record, context, &turn)
        tombstone.isPrepared = true
        tombstone.isTraceless = schedule.isTraceless
        return [
            .armExplosion(
                context.names.client, tombstone,
                fanOut: context.isCreator && !schedule.isTraceless ? told(record, context) : [])
        ]
    }

    // MARK: The end

    private func end(
        by notice: ExplodeNotice, _ path: Path, isTraceless: Bool, _ record: ConversationRecord, _ context: Context,
        _ turn: inout Turn
    ) -> [NodeAction] {
        let isTraceless = context.isCreator && (isTraceless || record.schedule?.isTraceless ?? false)
        let sealed = notice.sealed(&turn.random)
        let receipt = receipt(at: turn.now, context, &turn)
        var tombstone = tombstone(sealed, at: turn.now, receipt, record, context, &turn)
        tombstone.isTraceless = isTraceless
        let notices = isTraceless ? [] : notices(sealed, path, record, context, &turn)
        var result: [NodeAction] = notices.isEmpty ? [] : [.mailNotices(context.names.conversation, notices)]
        result.append(
            .explode(
                context.names.client, tombstone, fanOut: context.isCreator && !isTraceless ? told(record, context) : [])
        )
        let creator = record.genesis.creator
        for member in context.memberKeys {
            guard let link = context.link(to: member) else { continue }
            if member == creator, let receipt {
                result.append(.transmit(link, .deletionReceipt(receipt)))
            } else if case .link(link, member) = path {
                // The member that told us needs no notice.
                result.append(.close(link))
            } else {
                result.append(.transmit(link, .explosion(sealed)))
            }
        }
        if receipt != nil, context.link(to: creator) == nil, path != .knock {
            let endpoints = record.members.first { $0.key == creator }?.endpoints ?? []
            result.append(.knock(.report(context.names.conversation, endpoints)))
        }
        result.append(context.names.event(.exploded, turn))
        return result
    }

    /// Notices for mailboxes: the creator mails every member, another member only those without a link.
    private func notices(
        _ sealed: [UInt8], _ path: Path, _ record: ConversationRecord, _ context: Context, _ turn: inout Turn
    ) -> [MailNotice] {
        guard !context.key.isWiped else { return [] }
        var result: [MailNotice] = []
        for member in context.memberKeys {
            if case .link(_, member) = path { continue }
            guard context.isCreator || context.link(to: member) == nil,
                let address = record.members.first(where: { $0.key == member })?.mailbox
            else { continue }
            result.append(
                MailNotice(
                    sealed, to: member, at: address, conversation: context.names.conversation, key: context.key,
                    &turn.random))
        }
        return result
    }

    /// Our deletion receipt; `nil` at the creator. While the key is wiped: the newest one signed for a past time.
    func receipt(at time: Timestamp, _ context: Context, _ turn: inout Turn) -> DeletionReceipt? {
        guard !context.isCreator else { return nil }
        guard !context.key.isWiped else { return lockedWords?.receipts.last { $0.destroyedAt <= time } }
        return DeletionReceipt(
            conversation: context.names.conversation, destroyedAt: time, key: context.key, &turn.random)
    }

    /// Signs in advance: the conversation may end before the unlock restores our key.
    mutating func prepareForLock(_ record: ConversationRecord, _ context: Context, _ turn: inout Turn) {
        guard !context.key.isWiped else { return }
        let times = [turn.now] + [record.schedule?.expiresAt].compactMap { $0 }.filter { $0 > turn.now }
        lockedWords = LockedWords(
            receipts: times.compactMap { receipt(at: $0, context, &turn) },
            statement: statement(at: turn.now, record, context, &turn))
    }

    mutating func unlocked() { lockedWords = nil }

    /// The creator's statement for holders of invites.
    private func statement(at time: Timestamp, _ record: ConversationRecord, _ context: Context, _ turn: inout Turn)
        -> ExpiredStatement?
    {
        guard let tag = context.issuer?.tag, !openInvites(record, context).isEmpty else { return nil }
        guard !context.key.isWiped else { return lockedWords?.statement }
        return ExpiredStatement(tag: tag, timestamp: time, key: context.key, &turn.random)
    }

    private func tombstone(
        _ sealed: [UInt8], at time: Timestamp, _ receipt: DeletionReceipt?, _ record: ConversationRecord,
        _ context: Context, _ turn: inout Turn
    ) -> ExplodeStateMachine.Record {
        var tombstone = ExplodeStateMachine.Record(
            conversation: context.names.conversation, role: context.isCreator ? .creator : .member, explodedAt: time,
            keepUntil: time + Limits.tombstoneLifetime, notice: sealed, receipt: receipt?.sealed(&turn.random),
            members: told(record, context).map(\.key))
        tombstone.creator = context.isCreator ? nil : record.genesis.creator
        tombstone.relaySeeds = Array(context.relaySeeds.prefix(Limits.tombstoneSeedCount))
        for receipt in record.schedule?.receipts ?? [] where tombstone.members.contains(receipt.member) {
            tombstone.confirmed[receipt.member] = receipt.destroyedAt
        }
        if let statement = statement(at: time, record, context, &turn) {
            tombstone.openInvites = openInvites(record, context)
            tombstone.statement = statement
        }
        return tombstone
    }

    /// The members to tell: at the creator also removed ones, which still have a copy; after our removal the creator.
    private func told(_ record: ConversationRecord, _ context: Context) -> [Member] {
        if record.isRemoved { return record.members.filter { $0.key == record.genesis.creator } }
        return record.members.filter { context.members[$0.key] != nil }
            + record.members.filter { record.former.contains($0.key) }
    }

    /// Invites whose holders are told: with the current tag, newest first.
    private func openInvites(_ record: ConversationRecord, _ context: Context) -> [InviteID] {
        guard let issued = context.issuer else { return [] }
        // A tombstone must fit one page.
        let limit =
            told(record, context).count < Limits.memberCount
            ? Limits.tombstoneInviteCount : Limits.tombstoneInviteCount / 4
        return issued.invites.filter { $0.tag == issued.tag && !$0.isRevoked }.reversed().prefix(limit).map(\.id)
    }
}
