import Crypto

/// Members, group state and profiles. Each value is signed by its author, so any member can relay it.
extension ConversationStateMachine {
    // MARK: The creator's commands

    package mutating func rename(_ name: String?, _ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        guard isCreator else { throw .notCreator }
        try DisplayName.check(name)
        guard name != record.group.name else { return [] }
        return changeGroup(&turn) { $0.name = name } + [groupEvent(turn)]
    }

    /// A locked conversation admits no joiner. Earlier invites stay void after the unlock.
    package mutating func setLocked(_ isLocked: Bool, _ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        guard record.issuer != nil else { throw .notCreator }
        if isLocked { record.issuer!.tag = InviteTag.random(&turn.random) }
        record.issuer!.isLocked = isLocked
        guard isLocked != record.group.isLocked else { return [.save(client)] }
        return changeGroup(&turn) { $0.isLocked = isLocked } + [groupEvent(turn)]
    }

    /// All earlier invites become void: the removed member may hold one, and rejoin with another key.
    package mutating func remove(_ member: PublicKey, _ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        guard isCreator else { throw .notCreator }
        guard members[member] != nil else { throw .unknownMember }
        record.issuer?.tag = InviteTag.random(&turn.random)
        var told: [NodeAction] = []
        // Two statements: the optimiser of Swift 6.3 fails on a single expression.
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

    // MARK: Our own profile

    package mutating func setProfile(_ profile: String?, _ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        guard !record.isRemoved else { throw .removed }
        try DisplayName.check(profile)
        guard profile != record.own.profile else { return [] }
        return describe(profile, &turn)
    }

    /// Publishes our endpoints if they have changed.
    package mutating func endpointsChanged(_ turn: inout Turn) -> [NodeAction] {
        guard !record.isRemoved, !key.isWiped,
            record.own.endpointTexts != turn.endpointTexts(of: relaySeed, usesMailbox: usesMailbox)
        else { return [] }
        // From new endpoints, members reached only by a relay may be reachable directly.
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

    // MARK: Sending the group

    mutating func changeGroup(_ turn: inout Turn, adding newcomer: Member? = nil, _ change: (inout GroupState) -> Void)
        -> [NodeAction]
    {
        record.group.version += 1
        change(&record.group)
        record.group = record.group.signed(by: key, &turn.random)
        let update = GroupUpdate(state: record.group, members: newcomer.map { [$0] } ?? [], departures: [])
        for member in memberKeys where member != newcomer?.key { members[member]!.noteWord() }
        return [.save(client)] + broadcast(.group(update), except: newcomer?.key) + askForWord(now: turn.now)
    }

    func broadcast(_ frame: Frame, except: PublicKey? = nil) -> [NodeAction] {
        memberKeys.compactMap { member in
            guard member != except, members[member]!.isEstablished, let link = members[member]!.link.link else {
                return nil
            }
            return .transmit(link, frame)
        }
    }

    var wholeGroup: GroupUpdate {
        GroupUpdate(state: record.group, members: [record.own] + record.current, departures: record.departures)
    }

    /// Equal at two members that know the same state and the same profiles.
    package var groupDigest: [UInt8] {
        let known = ([record.own] + record.current).sorted { $0.key < $1.key }
        let transcript = Transcript("mayfly/group_digest").adding(record.group.digest)
        return Array(known.reduce(transcript) { $0.adding($1.digest) }.digest.prefix(8))
    }

    // MARK: Receiving the group

    /// Adopts newer values with valid signatures, and relays them.
    mutating func receive(_ update: GroupUpdate, from sender: PublicKey, _ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        var news = GroupUpdate(state: nil, members: [], departures: [])
        let before = Set(record.members.map(\.key) + [key.publicKey])
        let described = before.union(update.members.map(\.key))
        // A state is adopted whole or not at all: the profile of every listed member is known, or the state removes us.
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
        // Others hold a newer profile of ours than our disk (crash while locked). Publish one with a higher version.
        if let newest = update.members.first(where: { $0.key == key.publicKey }), newest.version >= record.own.version,
            newest.digest != record.own.digest, !key.isWiped, tally.holds(newest.isValid)
        {
            result += describe(record.own.profile, after: newest.version, &turn)
        }
        // Honest members relay no invalid signature. After the first one the rest is not worth a check.
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

    /// Reports two states of one version once per version, and sends ours to a sender with the losing one.
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

    /// Adopts a member's own profile, received on its own link.
    mutating func receive(_ description: Member, from sender: PublicKey, _ turn: inout Turn) -> [NodeAction] {
        let before = record.members.first { $0.key == sender }?.profile
        guard description.key == sender, takeOver(description, from: sender, turn) else { return [] }
        let news = GroupUpdate(state: nil, members: [description], departures: [])
        let isRenamed = before != description.profile
        return [.save(client)] + broadcast(.group(news), except: sender)
            + (isRenamed ? [event(.profileChanged(sender, profile: description.profile), turn)] : [])
    }

    /// Acknowledges a profile after it is on disk. Until then a member that has moved keeps dialling us.
    func confirm(_ description: Member, from sender: PublicKey, on link: LinkID, _ turn: Turn) -> [NodeAction] {
        guard !turn.isLocked, let kept = record.members.first(where: { $0.key == sender }),
            kept.version >= description.version
        else { return [] }
        return [.transmit(link, .pong(description.version))]
    }

    /// - Returns: whether the profile was adopted.
    private mutating func takeOver(_ description: Member, from sender: PublicKey, _ turn: Turn) -> Bool {
        guard description.key != key.publicKey else { return false }
        let index = record.members.firstIndex { $0.key == description.key }
        if let index, !description.supersedes(record.members[index]) { return false }
        // The limit spares our processor and the disk of every member.
        if description.key == sender, members[sender]?.profileBucket.isSpent(now: turn.now) ?? false {
            postpone(description)
            return false
        }
        // A deferred profile is newer or the same, so this one is not worth a signature check.
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

    /// Defers the newest profile beyond the rate limit. It is the sender's own, or has a valid signature.
    private mutating func postpone(_ description: Member) {
        tally.dropped += 1
        guard var member = members[description.key] else { return }
        if let later = member.laterDescription, !description.supersedes(later) { return }
        member.laterDescription = description
        members[description.key] = member
    }

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
            result += askForSlices(now: turn.now)
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
        // After the newcomers, since this also forgets profiles of members that no list names.
        result += removed(gone, turn)
        if before.name != state.name || before.isLocked != state.isLocked { result.append(groupEvent(turn)) }
        if before.membership != state.membership || Set(before.members) != Set(state.members) {
            result += lifetimeMembersChanged(&turn)
        }
        return gone.isEmpty ? result : result + changeRelay(&turn)
    }

    mutating func enter(_ newcomer: Member, _ turn: Turn) -> [NodeAction] {
        members[newcomer.key] = ConversationMember(newcomer, own: key.publicKey, hasEnded: false, now: turn.now)
        return [
            .register(client, .member(newcomer.key)),
            event(.memberJoined(newcomer.key, profile: newcomer.profile), turn),
        ]
    }

    /// Drops members that the creator has removed. The creator keeps their routes, to tell them when they connect.
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
        forgetMail(of: member)
        var result: [NodeAction] = []
        for id in undelivered where isSettled(id) { result += waited(for: id, by: member, turn) }
        return result + abandonFiles(of: member, turn)
    }

    /// Keeps the creator's route: its explosion destroys our copy too.
    private mutating func becomeRemoved(_ turn: Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for member in memberKeys {
            if let link = members[member]!.link.link { result.append(.close(link)) }
            result += letGo(of: member, turn)
            if member != record.genesis.creator { result.append(.unregister(client, .member(member))) }
        }
        record.isRemoved = true
        record.departures = []
        beginLifetimes()
        return [.save(client)] + result + [event(.removed, turn)]
    }

    /// Tells a removed member of its removal, and nothing else.
    package func turnAway(_ former: PublicKey, on link: LinkID, _ turn: inout Turn) -> [NodeAction] {
        guard !key.isWiped else { return [.close(link)] }
        let word = Departure(of: former, conversation: conversation, key: key, &turn.random)
        return [.transmit(link, .memberLeft(word)), .close(link)]
    }

    private func groupEvent(_ turn: Turn) -> NodeAction {
        event(.conversationUpdated(name: record.group.name, isLocked: record.group.isLocked), turn)
    }

    // MARK: Leaving

    package func leave(_ turn: inout Turn) -> [NodeAction] {
        let departure = Departure(of: key.publicKey, conversation: conversation, key: key, &turn.random)
        return memberKeys.compactMap { link(to: $0) }.map { .transmit($0, .memberLeft(departure)) } + [.destroy(client)]
            // The tombstone prepared for a scheduled explosion goes too.
            + (record.schedule == nil ? [] : [.removeTombstone(conversation)])
    }

    /// Any member may relay a leave notice. One that names us is our removal, signed by the creator.
    mutating func receive(_ departure: Departure, from sender: PublicKey, _ turn: inout Turn) -> [NodeAction] {
        if departure.member == key.publicKey, !isCreator {
            return tally.holds(departure.isValid(for: conversation, by: record.genesis.creator))
                ? becomeRemoved(turn) : []
        }
        guard members[departure.member] != nil else { return drop() }
        guard tally.holds(departure.isValid(for: conversation, by: departure.member)) else { return [] }
        let news = GroupUpdate(state: nil, members: [], departures: [departure])
        let actions = apply(departure, &turn)
        return [.save(client)] + actions + broadcast(.group(news), except: sender)
    }

    /// An admitted joiner gave up before it entered: this counts as leaving.
    mutating func receiveJoinCancelled(from joiner: PublicKey, _ turn: inout Turn) -> [NodeAction] {
        guard isCreator, members[joiner]?.isEstablished == false else { return drop() }
        return [.save(client)] + left(joiner, nil, &turn)
    }

    private mutating func apply(_ departure: Departure, _ turn: inout Turn) -> [NodeAction] {
        left(departure.member, departure, &turn)
    }

    mutating func unlocked(_ turn: inout Turn) -> [NodeAction] {
        ending.lockedWords = nil
        let gone = leftWhileLocked.filter { members[$0] != nil }
        leftWhileLocked = []
        notePlaces(turn)
        let result = gone.flatMap { [.save(client)] + left($0, nil, &turn) }
        return result + endpointsChanged(&turn) + enterSchedule(afterLock: true, &turn)
    }

    private mutating func left(_ member: PublicKey, _ departure: Departure?, _ turn: inout Turn) -> [NodeAction] {
        let link = members[member]?.link.link
        if isCreator, key.isWiped {
            // Deferred to the unlock: the new group state needs our signature.
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

    // MARK: Reservations at rendezvous nodes

    /// Replaces our reservations, whose addresses gone members know. The caller saves.
    mutating func changeRelay(_ turn: inout Turn) -> [NodeAction] {
        guard !record.isRemoved else { return [] }
        record.relay.memberGone(now: turn.now)
        notePlaces(turn)
        return endpointsChanged(&turn) + pruneRelay(turn)
    }

    /// Gives up earlier reservations that no member and no invite needs.
    mutating func pruneRelay(_ turn: Turn) -> [NodeAction] {
        guard !record.relay.retired.isEmpty else { return [] }
        let named = record.issuer?.relayGenerations(now: turn.now) ?? []
        // A removed member publishes no new address, so the creator may still use an earlier one.
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

    /// Called after each change of ``ConversationRecord/relay``.
    private mutating func notePlaces(_ turn: Turn) { places.note(record.relay, record.issuer, key: key, now: turn.now) }

    var relaySeed: RelaySeed { places.seeds[0] }
}
