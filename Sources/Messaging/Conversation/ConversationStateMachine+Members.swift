import Crypto

/// Who is in the conversation, what it is called, and how its members describe themselves. The creator signs the state,
/// each member its own description, whoever leaves its departure; so any member can pass any of it on.
extension ConversationStateMachine {
    // MARK: The creator's commands

    /// - Parameter name: `nil` for none.
    package mutating func rename(_ name: String?, _ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        guard isCreator else { throw .notCreator }
        try DisplayName.check(name)
        guard name != record.group.name else { return [] }
        return changeGroup(&turn) { $0.name = name } + [groupEvent(turn)]
    }

    /// A locked conversation admits nobody, and the invites made before stay void when it is unlocked.
    package mutating func setLocked(_ isLocked: Bool, _ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        guard issuer != nil else { throw .notCreator }
        if isLocked { issuer!.rotate(to: InviteTag.random(&turn.random)) }
        issuer!.setLocked(isLocked)
        guard isLocked != record.group.isLocked else { return [.save(client)] }
        return changeGroup(&turn) { $0.isLocked = isLocked } + [groupEvent(turn)]
    }

    /// The member gets nothing more. It is told, now or when it comes. The invites made before are void: who was removed
    /// may have one, and would come back by it with another key.
    package mutating func remove(_ member: PublicKey, _ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        guard isCreator else { throw .notCreator }
        guard members[member] != nil else { throw .unknownMember }
        issuer?.rotate(to: InviteTag.random(&turn.random))
        var told: [NodeAction] = []
        // In two steps: as one expression the optimiser of Swift 6.3 fails on it.
        if let link = link(to: member) { told = turnAway(member, on: link, &turn) }
        record.former.append(member)
        let gone = removed([member], turn)
        let changed = changeGroup(&turn) { state in
            state.members.removeAll { $0 == member }
            state.membership += 1
        }
        var result = changed + told + gone
        while record.former.count > Limits.departedCount {
            result.append(.unregister(client, .member(record.former.removeFirst())))
        }
        return result + lifetimeMembersChanged(&turn) + changeRelay(&turn)
    }

    // MARK: One's own description

    /// One's name in this conversation. `nil` for none.
    package mutating func setProfile(_ profile: String?, _ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        guard !record.isRemoved else { throw .removed }
        try DisplayName.check(profile)
        guard profile != record.own.profile else { return [] }
        return describe(profile, &turn)
    }

    /// Tells the others where we are now, if that has changed.
    package mutating func endpointsChanged(_ turn: inout Turn) -> [NodeAction] {
        guard !record.isRemoved, !key.isWiped,
            record.own.endpointTexts != turn.endpointTexts(of: relaySeed, usesMailbox: usesMailbox)
        else { return [] }
        // Another place may have another way to those whom only a relay reaches.
        for member in memberKeys { members[member]?.link.seekDirect(now: turn.now) }
        return describe(record.own.profile, &turn)
    }

    private mutating func describe(_ profile: String?, after version: UInt64 = 0, _ turn: inout Turn) -> [NodeAction] {
        record.own = Member(
            profile: profile, endpoints: turn.fittingEndpoints(of: relaySeed),
            mailbox: usesMailbox ? turn.mailbox?.address(of: relaySeed) : nil,
            version: max(UInt64(clamping: turn.now.milliseconds), max(record.own.version, version) + 1), key: key,
            &turn.random)
        return [.save(client)] + broadcast(.profile(record.own))
    }

    // MARK: Telling

    /// Signs a new state and tells everyone.
    mutating func changeGroup(
        _ turn: inout Turn, adding newcomer: Member? = nil, _ change: (inout GroupState.Unsigned) -> Void
    ) -> [NodeAction] {
        var state = record.group.unsigned
        state.version += 1
        change(&state)
        record.group = state.signed(by: key, &turn.random)
        let update = GroupUpdate(state: record.group, members: newcomer.map { [$0] } ?? [], departures: [])
        for member in memberKeys where member != newcomer?.key { members[member]!.noteWord() }
        return [.save(client)] + broadcast(.group(update), except: newcomer?.key) + askForWord(now: turn.now)
    }

    /// To every member whose session is established.
    func broadcast(_ frame: Frame, except: PublicKey? = nil) -> [NodeAction] {
        memberKeys.compactMap { member in
            guard member != except, members[member]!.isEstablished, let link = members[member]!.link.link else {
                return nil
            }
            return .transmit(link, frame)
        }
    }

    /// All that we know.
    var wholeGroup: GroupUpdate {
        GroupUpdate(state: record.group, members: [record.own] + record.current, departures: record.departures)
    }

    /// Equal where two members know the same of the group.
    package var groupDigest: [UInt8] {
        var transcript = Transcript()
        transcript.append(record.group.digest)
        let known = ([record.own] + record.current).sorted { $0.key < $1.key }
        for member in known { transcript.append(member.digest) }
        return Array(transcript.digest("mayfly/group_digest").prefix(8))
    }

    // MARK: Being told

    /// Takes over what is newer and signed by whom it should be, and passes it on.
    mutating func receive(_ update: GroupUpdate, from sender: PublicKey, _ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        var news = GroupUpdate(state: nil, members: [], departures: [])
        let before = Set(record.members.map(\.key) + [key.publicKey])
        let described = before.union(update.members.map(\.key))
        // A state is taken over whole or not at all: everyone in it is described, or we are not in it.
        let state = update.state.flatMap { candidate in
            let isConflict = candidate.conflicts(with: record.group)
            let isNews =
                candidate.supersedes(record.group)
                && (!candidate.members.contains(key.publicKey) || described.isSuperset(of: candidate.members))
            guard isNews || isConflict, tally.holds(candidate.isValid(for: record.genesis)) else {
                return nil as GroupState?
            }
            if isConflict { result += noteConflict(of: candidate, isNews: isNews, from: sender, turn) }
            return isNews ? candidate : nil
        }
        let listed = Set((state ?? record.group).members)
        // We have said more of ourselves than we remember, locked before a crash: what we say now must count as newer.
        if let newest = update.members.first(where: { $0.key == key.publicKey }), newest.version >= record.own.version,
            newest.digest != record.own.digest, !key.isWiped, tally.holds(newest.isValid)
        {
            result += describe(record.own.profile, after: newest.version, &turn)
        }
        // Nobody honest passes on what does not verify: the rest of it is not worth a signature check each.
        let forged = tally.forged
        for member in update.members.prefix(Limits.memberCount)
        where listed.contains(member.key) && tally.forged == forged {
            if takeOver(member, from: sender, turn) { news.members.append(member) }
        }
        let known = Set(record.members.map(\.key) + [key.publicKey])
        if let state, state.members.contains(key.publicKey) == false || known.isSuperset(of: state.members) {
            result += apply(state, &turn)
            news.state = state
            if record.isRemoved { return result }
        } else {
            record.members.removeAll { !before.contains($0.key) && !record.group.members.contains($0.key) }
            news.members.removeAll { !before.contains($0.key) && !record.group.members.contains($0.key) }
        }
        for departure in update.departures.prefix(Limits.memberCount) {
            guard members[departure.member] != nil else { continue }
            guard tally.holds(departure.isValid(for: conversation, by: departure.member)) else { break }
            result += apply(departure, &turn)
            news.departures.append(departure)
        }
        guard !news.isEmpty else { return result }
        return [.save(client)] + result + broadcast(.group(news), except: sender)
            + news.members.compactMap { member in
                members[member.key] == nil ? nil : event(.profileChanged(member.key, profile: member.profile), turn)
            }
    }

    /// The creator has signed two states of one version. Watchers are told once for each version, and who has the one that
    /// does not count is sent ours.
    private mutating func noteConflict(of state: GroupState, isNews: Bool, from sender: PublicKey, _ turn: Turn)
        -> [NodeAction]
    {
        var result: [NodeAction] = []
        if conflictTold != state.version {
            conflictTold = state.version
            result.append(event(.groupConflict(version: state.version), turn))
        }
        if !isNews, let link = link(to: sender), members[sender]?.isEstablished == true {
            let ours = GroupUpdate(state: record.group, members: [record.own] + record.current, departures: [])
            result.append(.transmit(link, .group(ours)))
        }
        return result
    }

    /// A member describes itself, over its own link.
    mutating func receive(_ description: Member, from sender: PublicKey, _ turn: inout Turn) -> [NodeAction] {
        let before = record.members.first { $0.key == sender }?.profile
        guard description.key == sender, takeOver(description, from: sender, turn) else { return [] }
        let news = GroupUpdate(state: nil, members: [description], departures: [])
        let isRenamed = before != description.profile
        return [.save(client)] + broadcast(.group(news), except: sender)
            + (isRenamed ? [event(.profileChanged(sender, profile: description.profile), turn)] : [])
    }

    /// Tells a member that we keep its description: it leaves after what it is about is on the disk. Until a member has
    /// said so, whoever has moved looks for it.
    func confirm(_ description: Member, from sender: PublicKey, on link: LinkID, _ turn: Turn) -> [NodeAction] {
        guard !turn.isLocked, let kept = record.members.first(where: { $0.key == sender }),
            kept.version >= description.version
        else { return [] }
        return [.transmit(link, .pong(description.version))]
    }

    /// - Returns: whether it is news.
    private mutating func takeOver(_ description: Member, from sender: PublicKey, _ turn: Turn) -> Bool {
        guard description.key != key.publicKey else { return false }
        let index = record.members.firstIndex { $0.key == description.key }
        if let index, !description.supersedes(record.members[index]) { return false }
        // A member that describes itself over and over keeps neither our processor busy, nor everyone's disk.
        if description.key == sender, members[sender]?.profileBucket.isSpent(now: turn.now) ?? false {
            postpone(description)
            return false
        }
        // While a newer or the same description waits for the rate, this one is not worth a signature check.
        if let known = members[description.key], known.profileBucket.isSpent(now: turn.now),
            let later = known.laterDescription, !description.supersedes(later)
        {
            tally.dropped += 1
            return false
        }
        guard tally.holds(description.isValid) else { return false }
        if let index {
            if members[description.key]?.profileBucket.take(now: turn.now) != nil {
                postpone(description)
                return false
            }
            let hasMoved = record.members[index].endpointTexts != description.endpointTexts
            record.members[index] = description
            if hasMoved, !description.endpoints.isEmpty { members[description.key]?.link.hurry(now: turn.now) }
        } else {
            record.members.append(description)
        }
        return true
    }

    /// Keeps the newest description that comes too fast, from the member itself or with a valid signature.
    private mutating func postpone(_ description: Member) {
        tally.dropped += 1
        guard var member = members[description.key] else { return }
        if let later = member.laterDescription, !description.supersedes(later) { return }
        member.laterDescription = description
        members[description.key] = member
    }

    /// Takes over descriptions that came too fast before.
    mutating func advanceDescriptions(_ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for member in memberKeys {
            guard let description = members[member]!.laterDescription,
                !members[member]!.profileBucket.isSpent(now: turn.now)
            else { continue }
            members[member]!.laterDescription = nil
            let actions = receive(description, from: member, &turn)
            guard !actions.isEmpty else { continue }
            result += actions
            if let link = members[member]!.establishedLink {
                result += confirm(description, from: member, on: link, turn)
            }
            result += mail.askForSlices(mailContext, now: turn.now)
        }
        return result
    }

    private mutating func apply(_ state: GroupState, _ turn: inout Turn) -> [NodeAction] {
        let before = record.group
        record.group = state
        var result: [NodeAction] = []
        guard state.members.contains(key.publicKey) else { return becomeRemoved(turn) }
        record.departures.removeAll { !state.members.contains($0.member) }
        let gone = members.keys.filter { !state.members.contains($0) }.sorted()
        let left = Set(record.departures.map(\.member))
        for newcomer in record.members
        where members[newcomer.key] == nil && state.members.contains(newcomer.key) && !left.contains(newcomer.key) {
            result += enter(newcomer, turn)
        }
        // After those who are new: who is in no list any more is forgotten.
        result += removed(gone, turn)
        if before.name != state.name || before.isLocked != state.isLocked { result.append(groupEvent(turn)) }
        if before.membership != state.membership || Set(before.members) != Set(state.members) {
            result += lifetimeMembersChanged(&turn)
        }
        return gone.isEmpty ? result : result + changeRelay(&turn)
    }

    /// Another member is there now.
    mutating func enter(_ newcomer: Member, _ turn: Turn) -> [NodeAction] {
        members[newcomer.key] = ConversationMember(newcomer, own: key.publicKey, hasEnded: false, now: turn.now)
        return [
            .register(client, .member(newcomer.key)),
            event(.memberJoined(newcomer.key, profile: newcomer.profile), turn),
        ]
    }

    /// Lets go of members that the creator has removed. At the creator their routes stay, so that they are told when
    /// they come.
    private mutating func removed(_ gone: [PublicKey], _ turn: Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for member in gone {
            if let link = members[member]?.link.link { result.append(.close(link)) }
            result += letGo(of: member, turn)
            if !record.former.contains(member) { result.append(.unregister(client, .member(member))) }
            result.append(event(.memberRemoved(member), turn))
        }
        return result
    }

    private mutating func letGo(of member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard var state = members.removeValue(forKey: member) else { return [] }
        let undelivered = state.outbox.removeAll(onlyInMemory: false)
        record.undelivered[member] = nil
        record.missed[member] = nil
        record.told[member] = nil
        let present = Set(members.keys).union(record.former)
        let gone = record.members.filter { !present.contains($0.key) }
        let forgotten = Set(gone.dropLast(Limits.departedCount).map(\.key))
        record.members.removeAll { forgotten.contains($0.key) }
        mail.forget(member)
        var result: [NodeAction] = []
        for id in undelivered where MessageDeliveries.isSettled(id, of: members) {
            result += deliveries.waited(for: id, by: member, of: members, turn)
        }
        return result + files.abandon(of: member, turn)
    }

    /// The creator's route stays: an explosion is for us too.
    private mutating func becomeRemoved(_ turn: Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for member in memberKeys {
            if let link = members[member]!.link.link { result.append(.close(link)) }
            result += letGo(of: member, turn)
            if member != record.genesis.creator { result.append(.unregister(client, .member(member))) }
        }
        record.isRemoved = true
        record.departures = []
        lifetimes.begin(record, members)
        return [.save(client)] + result + [event(.removed, turn)]
    }

    /// Somebody whom the creator has removed has come: it is told, and nothing else.
    package func turnAway(_ former: PublicKey, on link: LinkID, _ turn: inout Turn) -> [NodeAction] {
        guard !key.isWiped else { return [.close(link)] }
        let word = Departure(of: former, conversation: conversation, key: key, &turn.random)
        return [.transmit(link, .memberLeft(word)), .close(link)]
    }

    private func groupEvent(_ turn: Turn) -> NodeAction {
        event(.conversationUpdated(name: record.group.name, isLocked: record.group.isLocked), turn)
    }

    // MARK: Leaving

    /// Tells the others and destroys one's own copy.
    package func leave(_ turn: inout Turn) -> [NodeAction] {
        let departure = Departure(of: key.publicKey, conversation: conversation, key: key, &turn.random)
        return memberKeys.compactMap { link(to: $0) }.map { .transmit($0, .memberLeft(departure)) } + [.destroy(client)]
            // What was prepared for a scheduled explosion goes with it.
            + (record.schedule == nil ? [] : [.removeTombstone(conversation)])
    }

    /// Whoever brings it: the departed has signed it. Of ourselves it is the creator's word.
    mutating func receive(_ departure: Departure, from sender: PublicKey, _ turn: inout Turn) -> [NodeAction] {
        if departure.member == key.publicKey, !isCreator {
            return tally.holds(departure.isValid(for: conversation, by: record.genesis.creator))
                ? becomeRemoved(turn) : []
        }
        guard members[departure.member] != nil else {
            tally.dropped += 1
            return []
        }
        guard tally.holds(departure.isValid(for: conversation, by: departure.member)) else { return [] }
        let news = GroupUpdate(state: nil, members: [], departures: [departure])
        let actions = apply(departure, &turn)
        return [.save(client)] + actions + broadcast(.group(news), except: sender)
    }

    /// A joiner that we have admitted gives up before it has entered: it goes as if it had left.
    mutating func receiveJoinCancelled(from joiner: PublicKey, _ turn: inout Turn) -> [NodeAction] {
        guard isCreator, members[joiner]?.isEstablished == false else {
            tally.dropped += 1
            return []
        }
        return [.save(client)] + left(joiner, nil, &turn)
    }

    private mutating func apply(_ departure: Departure, _ turn: inout Turn) -> [NodeAction] {
        left(departure.member, departure, &turn)
    }

    /// The key is there again.
    mutating func unlocked(_ turn: inout Turn) -> [NodeAction] {
        ending.unlocked()
        let gone = leftWhileLocked.filter { members[$0] != nil }
        leftWhileLocked = []
        notePlaces(turn)
        let result = gone.flatMap { [.save(client)] + left($0, nil, &turn) }
        return result + endpointsChanged(&turn) + enterSchedule(afterLock: true, &turn)
    }

    private mutating func left(_ member: PublicKey, _ departure: Departure?, _ turn: inout Turn) -> [NodeAction] {
        let link = members[member]?.link.link
        if isCreator, key.isWiped {
            // The group's new state has to be signed.
            if !leftWhileLocked.contains(member) { leftWhileLocked.append(member) }
            return link.map { [.close($0)] } ?? []
        }
        var result = letGo(of: member, turn)
        result += [.unregister(client, .member(member)), event(.memberLeft(member), turn)]
        if let link { result.append(.close(link)) }
        if isCreator {
            result += changeGroup(&turn) { state in
                state.members.removeAll { $0 == member }
                state.membership += 1
            }
        } else if let departure {
            record.departures.append(departure)
        }
        return result + lifetimeMembersChanged(&turn) + changeRelay(&turn)
    }

    // MARK: Our places at rendezvous nodes: another when a member is gone, the earlier one for as long as it is needed

    /// After members are gone: they know where we can be reached, and are to know it no longer. The caller saves.
    mutating func changeRelay(_ turn: inout Turn) -> [NodeAction] {
        guard !record.isRemoved else { return [] }
        record.relay.memberGone(now: turn.now)
        notePlaces(turn)
        return endpointsChanged(&turn) + pruneRelay(turn)
    }

    /// Gives earlier places up that no member and no invite needs.
    mutating func pruneRelay(_ turn: Turn) -> [NodeAction] {
        guard !record.relay.retired.isEmpty else { return [] }
        let named = issuer?.relayGenerations(now: turn.now) ?? []
        // Who was removed tells nobody of another place: the creator may know an earlier one.
        let isTold = isFound && !record.isRemoved
        let isLess = record.relay.prune(isTold: isTold, named: named, now: turn.now)
        notePlaces(turn)
        return isLess ? [.save(client)] : []
    }

    mutating func advanceRelay(_ turn: inout Turn) -> [NodeAction] {
        guard record.relay.advance(now: turn.now) else { return pruneRelay(turn) }
        notePlaces(turn)
        return [.save(client)] + endpointsChanged(&turn) + pruneRelay(turn)
    }

    /// After each change of ``ConversationRecord/relay``.
    private mutating func notePlaces(_ turn: Turn) { places.note(record.relay, issuer, key: key, now: turn.now) }

    /// Of the present generation.
    var relaySeed: RelaySeed { places.seeds[0] }

    // MARK: Mailboxes

    /// All members have agreed to a mailbox.
    package var usesMailbox: Bool { !record.isRemoved && (agreement?.terms.mailbox ?? .no) != .no }

    /// Until when we have a box: members that have been away since before an agreement ended still put into it. `nil`: none.
    package var boxUntil: Timestamp? {
        if usesMailbox { return .latest }
        guard !record.isRemoved else { return nil }
        let known = lifetimes.machine?.record.known ?? record.lifetime.known
        return known.filter { $0.terms.mailbox != .no }.map { ($0.endedAt ?? .latest) + Limits.sliceHorizon }.max()
    }

    var mailContext: ConversationMailbox.Context {
        ConversationMailbox.Context(
            members: members, described: record.members, own: record.own, told: record.told, agreement: agreement)
    }

    /// Whether contents for this member would go to its mailbox, were it away.
    package func isMailable(_ member: PublicKey, now: Timestamp) -> Bool { mail.reaches(member, mailContext, now: now) }

    /// Something waits for a member without a link.
    mutating func noteMail(for member: PublicKey, _ turn: Turn) {
        guard usesMailbox, mail.reaches(member, mailContext, now: turn.now) else { return }
        mail.waits(for: member, now: turn.now)
    }

    mutating func advanceMail(_ turn: inout Turn) -> [NodeAction] {
        guard usesMailbox else { return [] }
        for member in memberKeys where members[member]!.establishedLink == nil {
            if members[member]!.outbox.hasUnmailed(now: turn.now) || mail.owes(member) { noteMail(for: member, turn) }
        }
        return mail.advance(mailContext, turn)
    }

    /// An order has ended.
    mutating func mailed(_ order: MailOrder, _ result: MailResult, _ turn: inout Turn) -> [NodeAction] {
        let member = order.member
        let known = members[member]?.outbox.mailed(result.mailed) ?? []
        let isMore = members[member]?.outbox.hasUnmailed(now: turn.now) ?? false
        mail.ended(order, result, isMore: isMore, now: turn.now)
        return deliveries.mailed(known, to: member, of: members, turn)
    }

    package func hasTaken(_ number: UInt64, of member: PublicKey) -> Bool { mail.hasTaken(number, of: member) }

    mutating func took(_ number: UInt64, of member: PublicKey) -> [NodeAction] {
        mail.took(number, of: member)
        return [.save(client)]
    }

    /// The terms under which a body may have been sealed that names the beginning of an agreement's id.
    package func knownTerms(of hint: SlotSealing.Hint) -> LifetimeTerms? {
        lifetimes.machine?.record.known.last { hint.names($0.id) }?.terms
    }
}
