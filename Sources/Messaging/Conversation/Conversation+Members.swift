import Cryptography

/// Members, group state and profiles. Each value is signed by its author, so any member can relay it.
extension Conversation {
    // MARK: The creator's commands

    package func rename(_ name: String?, _ turn: inout Turn) throws(CommandError) {
        guard isCreator else { throw .notCreator }
        try DisplayName.check(name)
        guard name != record.group.name else { return }
        changeGroup(&turn) { $0.name = name }
        tellGroup(&turn)
    }

    /// A locked conversation admits no joiner. Earlier invites stay void after the unlock.
    package func setLocked(_ isLocked: Bool, _ turn: inout Turn) throws(CommandError) {
        guard record.issuer != nil else { throw .notCreator }
        if isLocked { record.issuer!.tag = InviteTag.random(&turn.random) }
        record.issuer!.isLocked = isLocked
        guard isLocked != record.group.isLocked else { return turn.save(client) }
        changeGroup(&turn) { $0.isLocked = isLocked }
        tellGroup(&turn)
    }

    /// All earlier invites become void: the removed member may hold one, and rejoin with another key.
    package func remove(_ member: PublicKey, _ turn: inout Turn) throws(CommandError) {
        guard isCreator else { throw .notCreator }
        guard let peer = peer(member) else { throw .unknownMember }
        record.issuer?.tag = InviteTag.random(&turn.random)
        // The others learn the new group first.
        let farewell = turn.apart { turn in
            if let link = peer.link.link { turnAway(member, on: link, &turn) }
            record.former.append(member)
            removed([peer], &turn)
        }
        changeGroup(&turn) { state in
            state.members.removeAll { $0 == member }
            state.membership += 1
        }
        turn.add(farewell)
        while record.former.count > Limits.departedCount {
            turn.add(.unregister(client, .member(record.former.removeFirst())))
        }
        lifetimeMembersChanged(&turn)
        changeRelay(&turn)
    }

    // MARK: Our own profile

    package func setProfile(_ profile: String?, _ turn: inout Turn) throws(CommandError) {
        guard !record.isRemoved else { throw .removed }
        try DisplayName.check(profile)
        if profile != record.own.profile { describe(profile, &turn) }
    }

    package func endpointsChanged(_ turn: inout Turn) {
        guard !record.isRemoved, !key.isWiped,
            record.own.endpointTexts != turn.endpointTexts(of: relaySeed, usesMailbox: usesMailbox)
        else { return }
        // From new endpoints, members reached only by a relay may be reachable directly.
        for peer in peers { peer.link.seekDirect(now: turn.now) }
        describe(record.own.profile, &turn)
    }

    private func describe(_ profile: String?, after version: UInt64 = 0, _ turn: inout Turn) {
        record.own = Member(
            profile: profile, endpoints: turn.fittingEndpoints(of: relaySeed),
            mailbox: usesMailbox ? turn.mailbox?.address(of: relaySeed) : nil,
            version: max(UInt64(clamping: turn.now.milliseconds), max(record.own.version, version) + 1), key: key,
            &turn.random)
        turn.save(client)
        broadcast(.profile(record.own), &turn)
    }

    // MARK: Sending the group

    func changeGroup(_ turn: inout Turn, adding newcomer: Member? = nil, _ change: (inout GroupState) -> Void) {
        record.group.version += 1
        change(&record.group)
        record.group = record.group.signed(by: key, &turn.random)
        let update = GroupUpdate(state: record.group, members: newcomer.map { [$0] } ?? [])
        for peer in peers where peer.key != newcomer?.key {
            peer.noteWord()
            record.unheard.insert(peer.key)
        }
        turn.save(client)
        broadcast(.group(update), except: newcomer?.key, &turn)
        askForWord(&turn)
    }

    func broadcast(_ frame: Frame, except: PublicKey? = nil, _ turn: inout Turn) {
        for peer in peers where peer.key != except { if let link = peer.establishedLink { turn.send(frame, on: link) } }
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
    func receive(_ update: GroupUpdate, from sender: Peer, _ turn: inout Turn) {
        let mark = turn.mark
        var news = GroupUpdate()
        let before = Set(record.members.map(\.key) + [key.publicKey])
        let described = before.union(update.members.map(\.key))
        // A state is adopted whole or not at all: the profile of every listed member is known, or the state removes us.
        var state: GroupState?
        if let candidate = update.state {
            let isConflict = candidate.conflicts(with: record.group)
            let isNews =
                candidate.supersedes(record.group)
                && (!candidate.members.contains(key.publicKey) || described.isSuperset(of: candidate.members))
            if isNews || isConflict, tally.holds(candidate.isValid(for: record.genesis)) {
                if isConflict { noteConflict(of: candidate, isNews: isNews, from: sender, &turn) }
                if isNews { state = candidate }
            }
        }
        let listed = Set((state ?? record.group).members)
        // Others hold a newer profile of ours than our disk (crash while locked). Publish one with a higher version.
        if let newest = update.members.first(where: { $0.key == key.publicKey }), newest.version >= record.own.version,
            newest.digest != record.own.digest, !key.isWiped, tally.holds(newest.isValid)
        {
            describe(record.own.profile, after: newest.version, &turn)
        }
        // Honest members relay no invalid signature. After the first one the rest is not worth a check.
        let forged = tally.forged
        for member in update.members.prefix(Limits.memberCount)
        where listed.contains(member.key) && tally.forged == forged {
            if takeOver(member, from: sender, turn) { news.members.append(member) }
        }
        let known = Set(record.members.map(\.key) + [key.publicKey])
        if let state, state.members.contains(key.publicKey) == false || known.isSuperset(of: state.members) {
            apply(state, &turn)
            news.state = state
            if record.isRemoved { return }
        } else {
            let present = before.union(record.group.members)
            record.members.removeAll { !present.contains($0.key) }
            news.members.removeAll { !present.contains($0.key) }
        }
        for departure in update.departures.prefix(Limits.memberCount) {
            guard let peer = peer(departure.member) else { continue }
            guard tally.holds(departure.isValid(for: conversation, by: departure.member)) else { break }
            left(peer, departure, &turn)
            news.departures.append(departure)
        }
        guard !news.isEmpty else { return }
        turn.actions.insert(.save(client), at: mark)
        broadcast(.group(news), except: sender.key, &turn)
        for member in news.members where peer(member.key) != nil {
            tell(.profileChanged(member.key, profile: member.profile), &turn)
        }
    }

    /// Reports two states of one version once per version, and sends ours to a sender with the losing one.
    private func noteConflict(of state: GroupState, isNews: Bool, from sender: Peer, _ turn: inout Turn) {
        if conflictTold != state.version {
            conflictTold = state.version
            tell(.groupConflict(version: state.version), &turn)
        }
        if !isNews, let link = sender.establishedLink {
            turn.send(.group(GroupUpdate(state: record.group, members: [record.own] + record.current)), on: link)
        }
    }

    /// Adopts a member's own profile, received on its own link.
    /// - Returns: whether the profile was adopted.
    @discardableResult func receive(_ description: Member, from sender: Peer, _ turn: inout Turn) -> Bool {
        let before = profile(of: sender.key)?.profile
        guard description.key == sender.key, takeOver(description, from: sender, turn) else { return false }
        turn.save(client)
        broadcast(.group(GroupUpdate(members: [description])), except: sender.key, &turn)
        if before != description.profile { tell(.profileChanged(sender.key, profile: description.profile), &turn) }
        return true
    }

    /// Acknowledges a profile after it is on disk. Until then a member that has moved keeps dialling us.
    func confirm(_ description: Member, from sender: Peer, on link: LinkID, _ turn: inout Turn) {
        guard !turn.isLocked, let kept = profile(of: sender.key), kept.version >= description.version else { return }
        turn.send(.pong(description.version), on: link)
    }

    /// - Returns: whether the profile was adopted.
    private func takeOver(_ description: Member, from sender: Peer, _ turn: Turn) -> Bool {
        guard description.key != key.publicKey else { return false }
        let index = record.members.firstIndex { $0.key == description.key }
        if let index, !description.supersedes(record.members[index]) { return false }
        let peer = peer(description.key)
        let isSpent = peer?.profileBucket.isSpent(now: turn.now) ?? false
        // The limit spares our processor and the disk of every member.
        if peer === sender, isSpent {
            postpone(description, of: peer)
            return false
        }
        // A deferred profile is newer or the same, so this one is not worth a signature check.
        if isSpent, let later = peer?.laterDescription, !description.supersedes(later) {
            tally.dropped += 1
            return false
        }
        guard tally.holds(description.isValid) else { return false }
        if let index {
            if peer?.profileBucket.take(now: turn.now) != nil {
                postpone(description, of: peer)
                return false
            }
            let hasMoved = record.members[index].endpointTexts != description.endpointTexts
            record.members[index] = description
            if hasMoved, !description.endpoints.isEmpty { peer?.link.hurry(now: turn.now) }
        } else {
            record.members.append(description)
        }
        return true
    }

    /// Defers the newest profile beyond the rate limit. It is the sender's own, or has a valid signature.
    private func postpone(_ description: Member, of peer: Peer?) {
        tally.dropped += 1
        if let later = peer?.laterDescription, !description.supersedes(later) { return }
        peer?.laterDescription = description
    }

    func advanceDescriptions(_ turn: inout Turn) {
        for peer in peers {
            guard let description = peer.laterDescription, !peer.profileBucket.isSpent(now: turn.now) else { continue }
            peer.laterDescription = nil
            guard receive(description, from: peer, &turn) else { continue }
            if let link = peer.establishedLink { confirm(description, from: peer, on: link, &turn) }
            askForSlices(&turn)
        }
    }

    private func apply(_ state: GroupState, _ turn: inout Turn) {
        let before = record.group
        record.group = state
        guard state.members.contains(key.publicKey) else { return becomeRemoved(&turn) }
        record.departures.removeAll { !state.members.contains($0.member) }
        let gone = peers.filter { !state.members.contains($0.key) }
        let left = Set(record.departures.map(\.member))
        for newcomer in record.members
        where peer(newcomer.key) == nil && state.members.contains(newcomer.key) && !left.contains(newcomer.key) {
            enter(newcomer, &turn)
        }
        // After the newcomers, since this also forgets profiles of members that no list names.
        removed(gone, &turn)
        if before.name != state.name || before.isLocked != state.isLocked { tellGroup(&turn) }
        if before.membership != state.membership || Set(before.members) != Set(state.members) {
            lifetimeMembersChanged(&turn)
        }
        if !gone.isEmpty { changeRelay(&turn) }
    }

    func enter(_ newcomer: Member, _ turn: inout Turn) {
        insert(Peer(newcomer, own: key.publicKey, hasEnded: false, now: turn.now))
        turn.add(.register(client, .member(newcomer.key)))
        tell(.memberJoined(newcomer.key, profile: newcomer.profile), &turn)
        memberMessage(newcomer.key, "has joined", &turn)
    }

    /// A system message about a member, with a rate limit: a hostile creator could fill every disk.
    private func memberMessage(_ member: PublicKey, _ what: String, _ turn: inout Turn) {
        if memberMessages.take(now: turn.now) == nil { systemMessage("\(name(of: member)) \(what)", &turn) }
    }

    /// Drops members that the creator has removed. The creator keeps their routes, to tell them when they connect.
    private func removed(_ gone: [Peer], _ turn: inout Turn) {
        for peer in gone {
            memberMessage(peer.key, "was removed", &turn)
            if let link = peer.link.link { turn.close(link) }
            letGo(of: peer, &turn)
            if !record.former.contains(peer.key) { turn.add(.unregister(client, .member(peer.key))) }
            tell(.memberRemoved(peer.key), &turn)
        }
    }

    private func letGo(of peer: Peer, _ turn: inout Turn) {
        peers.removeAll { $0 === peer }
        let undelivered = peer.outbox.removeAll(onlyInMemory: false)
        record.undelivered[peer.key] = nil
        record.missed[peer.key] = nil
        record.told[peer.key] = nil
        record.unheard.remove(peer.key)
        let present = Set(peers.map(\.key)).union(record.former)
        let gone = record.members.filter { !present.contains($0.key) }
        let forgotten = Set(gone.dropLast(Limits.departedCount).map(\.key))
        record.members.removeAll { forgotten.contains($0.key) }
        record.mailbox.outgoing[peer.key] = nil
        record.mailbox.incoming[peer.key] = nil
        record.mailbox.acknowledgements[peer.key] = nil
        for id in undelivered where isSettled(id) { waited(for: id, by: peer, &turn) }
        abandonFiles(of: peer, &turn)
    }

    /// Keeps the creator's route: its explosion destroys our copy too.
    private func becomeRemoved(_ turn: inout Turn) {
        turn.save(client)
        systemMessage("the creator has removed you: you can no longer send or receive", &turn)
        for peer in peers {
            if let link = peer.link.link { turn.close(link) }
            letGo(of: peer, &turn)
            if peer.key != record.genesis.creator { turn.add(.unregister(client, .member(peer.key))) }
        }
        record.isRemoved = true
        record.departures = []
        beginLifetimes()
        tell(.removed, &turn)
    }

    /// Tells a removed member of its removal, and nothing else.
    package func turnAway(_ former: PublicKey, on link: LinkID, _ turn: inout Turn) {
        if !key.isWiped {
            turn.send(.memberLeft(Departure(of: former, conversation: conversation, key: key, &turn.random)), on: link)
        }
        turn.close(link)
    }

    private func tellGroup(_ turn: inout Turn) {
        tell(.conversationUpdated(name: record.group.name, isLocked: record.group.isLocked), &turn)
    }

    // MARK: Leaving

    /// - Returns: the departure; a later copy of ours relays it.
    @discardableResult package func leave(_ turn: inout Turn) -> Departure {
        let departure = Departure(of: key.publicKey, conversation: conversation, key: key, &turn.random)
        for peer in peers { if let link = peer.link.link { turn.send(.memberLeft(departure), on: link) } }
        turn.add(.destroy(client))
        // The tombstone prepared for a scheduled explosion goes too.
        if record.schedule != nil { turn.add(.removeTombstone(conversation)) }
        return departure
    }

    /// Tells the creator that an earlier copy of ours is gone: an explosion then waits for no receipt of it.
    package func relay(_ departure: Departure, _ turn: inout Turn) {
        if let link = peer(record.genesis.creator)?.establishedLink { turn.send(.memberLeft(departure), on: link) }
    }

    /// Any member may relay a leave notice. One that names us is our removal, signed by the creator.
    func receive(_ departure: Departure, from sender: Peer, _ turn: inout Turn) {
        if departure.member == key.publicKey, !isCreator {
            if tally.holds(departure.isValid(for: conversation, by: record.genesis.creator)) { becomeRemoved(&turn) }
            return
        }
        let peer = peer(departure.member)
        guard peer != nil || record.former.contains(departure.member) else { return drop() }
        guard tally.holds(departure.isValid(for: conversation, by: departure.member)) else { return }
        turn.save(client)
        guard let peer else {
            record.former.removeAll { $0 == departure.member }
            return turn.add(.unregister(client, .member(departure.member)))
        }
        left(peer, departure, &turn)
        broadcast(.group(GroupUpdate(departures: [departure])), except: sender.key, &turn)
    }

    /// An admitted joiner gave up before it entered: this counts as leaving.
    func receiveJoinCancelled(from joiner: Peer, _ turn: inout Turn) {
        guard isCreator, !joiner.isEstablished else { return drop() }
        turn.save(client)
        left(joiner, nil, &turn)
    }

    func unlocked(_ turn: inout Turn) {
        ending.lockedWords = nil
        let gone = leftWhileLocked.compactMap(peer)
        leftWhileLocked = []
        notePlaces(turn)
        for peer in gone {
            turn.save(client)
            left(peer, nil, &turn)
        }
        endpointsChanged(&turn)
        enterSchedule(afterLock: true, &turn)
    }

    private func left(_ peer: Peer, _ departure: Departure?, _ turn: inout Turn) {
        let link = peer.link.link
        if isCreator, key.isWiped {
            // Deferred to the unlock: the new group state needs our signature.
            if !leftWhileLocked.contains(peer.key) { leftWhileLocked.append(peer.key) }
            if let link { turn.close(link) }
            return
        }
        memberMessage(peer.key, "has left", &turn)
        letGo(of: peer, &turn)
        turn.add(.unregister(client, .member(peer.key)))
        tell(.memberLeft(peer.key), &turn)
        if let link { turn.close(link) }
        if isCreator {
            changeGroup(&turn) { state in
                state.members.removeAll { $0 == peer.key }
                state.membership += 1
            }
        } else if let departure {
            record.departures.append(departure)
        }
        lifetimeMembersChanged(&turn)
        changeRelay(&turn)
    }

    // MARK: Reservations at rendezvous nodes

    /// Replaces our reservations, whose addresses gone members know. The caller saves.
    func changeRelay(_ turn: inout Turn) {
        guard !record.isRemoved else { return }
        record.relay.memberGone(now: turn.now)
        notePlaces(turn)
        endpointsChanged(&turn)
        pruneRelay(&turn)
    }

    /// Gives up earlier reservations that no member and no invite needs.
    func pruneRelay(_ turn: inout Turn) {
        guard !record.relay.retired.isEmpty else { return }
        let named = record.issuer?.relayGenerations(now: turn.now) ?? []
        // A removed member publishes no new address, so the creator may still use an earlier one.
        let isTold = isFound && !record.isRemoved
        let isLess = record.relay.prune(isTold: isTold, named: named, now: turn.now)
        notePlaces(turn)
        if isLess { turn.save(client) }
    }

    func advanceRelay(_ turn: inout Turn) {
        if record.relay.advance(now: turn.now) {
            notePlaces(turn)
            turn.save(client)
            endpointsChanged(&turn)
        }
        pruneRelay(&turn)
    }

    /// Called after each change of ``ConversationRecord/relay``.
    private func notePlaces(_ turn: Turn) { places.note(record.relay, record.issuer, key: key, now: turn.now) }

    var relaySeed: RelaySeed { places.seeds[0] }
}
