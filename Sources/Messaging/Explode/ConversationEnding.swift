import Crypto

/// The end of the conversation (Explode.md).
///
///     ready ──schedule, ours or a notice──▶ scheduled ──earlier notice──▶ scheduled
///       │                                       │ ──its time──▶ exploded
///       └────────── immediate notice ───────────┴─────────────▶ exploded
///
/// `exploded` is no state of this machine: the inbox goes with the action, and ``ExplodeStateMachine`` begins. The schedule
/// itself is part of the record (``ConversationRecord/schedule``), with which it is saved.
struct ConversationEnding: Sendable {
    /// How a notice that ends the conversation has come.
    enum Path: Hashable, Sendable {
        /// The user's command, or the scheduled time.
        case ourselves
        case link(LinkID, PublicKey)
        /// The creator has knocked; our receipt is the answer.
        case knock
        /// A tombstone has answered our question.
        case answer
    }

    /// The rest of the conversation, as its end needs it.
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

    /// An earlier end that came too soon after others, and when it is taken.
    struct DeferredNotice: Sendable {
        var notice: ExplodeNotice
        let until: Timestamp
    }

    /// What an explosion was last prepared for.
    private struct Arming: Hashable, Sendable {
        var expiresAt: Timestamp
        var isTraceless: Bool
        var members: [Member]
        var tag: InviteTag?
        var invites: [InviteID]
        var receipts: Int
    }

    /// What an end needs that comes while the storage is locked.
    private struct LockedWords: Hashable, Sendable {
        /// For the lock itself and for the scheduled end, if there is one, in this order.
        var receipts: [DeletionReceipt]
        /// For holders of invites.
        var statement: ExpiredStatement?
    }

    /// Watchers and members know of the scheduled explosion.
    private var isScheduleTold = true
    /// What the scheduled explosion was prepared for.
    private var armed: Arming?
    /// It could not be prepared: the storage was locked.
    private var isArmingOwed = false
    /// How often the schedule may be brought forward by others.
    private var bucket = TokenBucket(interval: Limits.scheduleInterval, burst: Limits.scheduleBurst)
    /// The earliest of those that came too soon.
    var deferredNotice: DeferredNotice?
    /// What we may have to say while our key is wiped, signed before.
    private var lockedWords: LockedWords?

    // MARK: The creator

    /// Ends the conversation for everyone: keys first, then the others are told over the links still open.
    /// - Parameters:
    ///   - time: when; now if `nil` or past, at most ``Limits/explosionHorizon`` ahead. A schedule is brought forward by
    ///     it or stays as it is.
    ///   - isTraceless: keep no list of whom to tell.
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
        // Whole seconds, and not earlier than was asked for.
        let clamped = min(time, turn.now + Limits.explosionHorizon)
        let notice = ExplodeNotice(
            genesis: record.genesis, expiresAt: clamped + (Milliseconds.second - 1), isImmediate: false,
            key: context.key, &turn.random)
        if let known = record.schedule, !notice.precedes(known.notice) {
            return isTraceless ? [.save(context.names.client)] + arm(record, context, &turn) : []
        }
        return adopt(notice, isTraceless: isTraceless || record.schedule?.isTraceless ?? false, &record, context, &turn)
    }

    /// A member whose clock is ahead has destroyed its copy before us.
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

    /// The creator's word, from whomever: what it says takes effect now or is kept for its time. Anything else changes
    /// nothing.
    /// - Returns: `isCostly` when it has cost a signature check and changes nothing yet.
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

    /// What we hold ourselves, or have checked and put off, or what would be later than ours: whoever repeats it does not
    /// make us check it each time.
    private func needsNoCheck(_ notice: ExplodeNotice, _ record: ConversationRecord, _ turn: Turn) -> Bool {
        if notice == record.schedule?.notice || notice == deferredNotice?.notice { return true }
        guard let known = record.schedule?.notice else { return false }
        return known.precedes(notice) && !notice.isDue(now: turn.now)
    }

    /// A creator that brings the end forward over and over does not keep everyone's disk busy: of what comes too often
    /// the earliest is taken a little later. Nothing is lost by it, since that is only a change of a time to come.
    private mutating func postpone(_ notice: ExplodeNotice, by wait: Milliseconds, _ turn: Turn) {
        guard let known = deferredNotice else {
            deferredNotice = DeferredNotice(notice: notice, until: turn.now + wait)
            return
        }
        if notice.precedes(known.notice) { deferredNotice?.notice = notice }
    }

    /// Takes the notice that had to wait.
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
        // Those who are gone are forgotten, so that coming and going fills nothing.
        record.schedule?.confirmed.removeAll { context.members[$0] == nil }
        record.schedule?.confirmed.append(member)
        return [.save(context.names.client)]
    }

    // MARK: The schedule

    /// Durable before anybody hears of it, so that it is kept whatever happens then.
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

    /// Prepares for the time, then tells the user and the members.
    /// - Parameter afterLock: only what could not be done while the storage was locked.
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

    /// The notice that we hold; whoever holds the same confirms it by showing it.
    func showSchedule(on link: LinkID, _ record: ConversationRecord, _ turn: inout Turn) -> [NodeAction] {
        guard let schedule = record.schedule, isScheduleTold, !turn.isLocked else { return [] }
        return [.transmit(link, .explosion(schedule.notice.sealed(&turn.random)))]
    }

    /// When the schedule wants something done; `nil` without one.
    func deadline(_ record: ConversationRecord, _ context: () -> Context) -> Timestamp? {
        guard let schedule = record.schedule else { return nil }
        if armed != arming(record, context()) { return schedule.knownAt }
        let next = schedule.isReminded ? schedule.expiresAt : schedule.remindAt
        return deferredNotice.map { min($0.until, $0.notice.expiresAt, next) } ?? next
    }

    /// The end when its time has come; else the reminder, and what could not be done while the storage was locked.
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

    /// Prepares the end again whenever what it depends on has changed.
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
                // It has told us, so it has nothing more to say.
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

    /// For the boxes of members that may be away. Of a member's own word nobody is owed more than those without a link.
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

    /// Our word that our copy is gone; a creator owes it to nobody. While the key is wiped it is the newest that was signed
    /// for a time that has come.
    func receipt(at time: Timestamp, _ context: Context, _ turn: inout Turn) -> DeletionReceipt? {
        guard !context.isCreator else { return nil }
        guard !context.key.isWiped else { return lockedWords?.receipts.last { $0.destroyedAt <= time } }
        return DeletionReceipt(
            conversation: context.names.conversation, destroyedAt: time, key: context.key, &turn.random)
    }

    /// The storage is about to be locked, and our key wiped: the conversation may end before it is there again.
    mutating func prepareForLock(_ record: ConversationRecord, _ context: Context, _ turn: inout Turn) {
        guard !context.key.isWiped else { return }
        let times = [turn.now] + [record.schedule?.expiresAt].compactMap { $0 }.filter { $0 > turn.now }
        lockedWords = LockedWords(
            receipts: times.compactMap { receipt(at: $0, context, &turn) },
            statement: statement(at: turn.now, record, context, &turn))
    }

    /// The key is there again.
    mutating func unlocked() { lockedWords = nil }

    /// Our word to those who hold an invite.
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

    /// Who is concerned: at the creator also those whom it has removed, who keep their copy until they are told; in a
    /// removed one the creator.
    private func told(_ record: ConversationRecord, _ context: Context) -> [Member] {
        if record.isRemoved { return record.members.filter { $0.key == record.genesis.creator } }
        return record.members.filter { context.members[$0.key] != nil }
            + record.members.filter { record.former.contains($0.key) }
    }

    /// Those whose holders learn of the end: of the present tag, the newest first.
    private func openInvites(_ record: ConversationRecord, _ context: Context) -> [InviteID] {
        guard let issued = context.issuer else { return [] }
        // A tombstone is one page.
        let limit =
            told(record, context).count < Limits.memberCount
            ? Limits.tombstoneInviteCount : Limits.tombstoneInviteCount / 4
        return issued.invites.filter { $0.tag == issued.tag && !$0.isRevoked }.reversed().prefix(limit).map(\.id)
    }
}
