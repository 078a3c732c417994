import Crypto
import Messaging
import NIOCore
import Store
import Wire

/// When a conversation of our own is to end everywhere.
package enum ExplosionTime {
    case now
    case at(Timestamp)
    /// Milliseconds from now.
    case after(Milliseconds)
}

/// What a user can ask of conversations. Each request is one turn; what waits for others is a future.
extension Node {
    // MARK: Lists and names

    /// - Parameter text: an id, an alias, an unambiguous prefix of an id or of an inbox's clientId, or an unambiguous name.
    package func resolve(_ text: String) throws(NodeError) -> ClientID { try directory.resolve(text) }

    /// - Parameter text: as for ``resolve(_:)``, and it throws as that does.
    package func conversation(_ text: String) throws(NodeError) -> ConversationStateMachine {
        try directory.conversation(text)
    }

    /// All of them, in the order in which they were made; nobody is woken.
    /// - Throws: ``NodeError/locked``.
    package func conversations() throws(NodeError) -> [ListedConversation] { try directory.list() }

    /// The inbox of a conversation, awake or asleep.
    package func client(of conversation: ConversationID) -> ClientID? { core.machine.client(of: conversation) }

    // MARK: Conversations

    /// Makes a conversation in the pooled inbox.
    /// - Parameter alias: what this node's user calls it; without one, its name.
    /// - Returns: it, when it is durable.
    /// - Throws: ``NodeError/locked``, ``NodeError/command(_:)``, ``NodeError/store(_:)``, ``NodeError/alias(_:)``.
    package func createConversation(name: String?, profile: String?, alias: String? = nil) throws(NodeError)
        -> EventLoopFuture<ConversationStateMachine>
    {
        try directory.checkUnlocked()
        let alias = try directory.aliases.new(alias, name: name)
        let client = try loading.take()
        directory.aliases.set(alias, of: client)
        do throws(NodeError) {
            _ = try core.request { turn throws(CommandError) in
                ((), try core.machine.createConversation(client, name: name, profile: ownName(profile), &turn))
            }
        } catch {
            if let inbox = core.inboxes[client] { core.inboxes.forgetNotes(of: inbox) }
            throw error
        }
        services.note(.conversationCreated(client))
        loading.ensureUnused()
        guard let machine = core.machine.conversation(client) else { throw .stopping }
        let made = NIOLoopBound(machine, eventLoop: loop)
        return held.whenDurable(client).map { made.value }
    }

    /// Ends the session and forgets what is in memory only.
    package func close(_ text: String) throws(NodeError) {
        _ = try directory.command(text) { machine, turn in ((), machine.close(turn)) }
    }

    /// Destroys our own copy and tells the member that is online.
    /// - Throws: also when the members were told and the keys could not be destroyed: the store tries again while it runs.
    package func leave(_ text: String) throws(NodeError) -> ConversationID {
        storage.refusal = nil
        let alias = core.inboxes[try directory.resolve(text)]?.notes.alias
        let (client, conversation) = try directory.command(text) { machine, turn in
            (machine.conversation, machine.leave(&turn))
        }
        services.note(.inboxLeft(client))
        // An earlier copy may have had the alias of the one that goes on.
        defer { codes.look() }
        if let failure = storage.refusal { throw .store(failure) }
        if let alias, let latest = core.machine.client(of: conversation), core.inboxes[latest]?.notes.alias == nil {
            try assignAlias(alias, to: latest)
        }
        return conversation
    }

    // MARK: Invites

    /// Makes an invite of a conversation of our own.
    /// - Parameter lifetime: milliseconds, 1 s to ``Limits/inviteMaximumLifetime``.
    /// - Returns: it and its text, when it is durable; the text cannot be had again.
    package func invite(_ text: String, lifetime: Milliseconds, singleUse: Bool) throws(NodeError) -> EventLoopFuture<
        (VerifiedInvite, slug: String)
    > {
        let (client, verified, slug) = try directory.invite(text, lifetime: lifetime, singleUse: singleUse)
        return held.whenDurable(client).map { (verified, slug: slug) }
    }

    /// Voids one invite.
    /// - Parameter invite: its text, or the beginning of its id; or a code that leads to one.
    /// - Throws: ``NodeError/unknownInvite(_:)``, ``NodeError/ambiguous(_:matches:)``, ``NodeError/code(_:)``.
    package func revokeInvite(_ text: String, _ invite: String) throws(NodeError) {
        if SpokenCode.isMeant(by: invite) { return try revokeCode(text, invite) }
        let issued = try directory.conversation(text).invites?.invites ?? []
        let named = (try? Self.inspect(invite)).map { $0.invite.id }
        let matches = issued.map(\.id).filter { id in
            named.map { $0 == id } ?? (!invite.isEmpty && id.description.hasPrefix(invite.lowercased()))
        }
        guard let first = matches.first else { throw .unknownInvite(String(invite.prefix(24))) }
        guard matches.count == 1 else { throw .ambiguous(invite, matches: matches.map { "\($0)" }) }
        _ = try directory.command(text) { machine, turn throws(CommandError) in ((), try machine.revoke(first)) }
    }

    /// Voids all invites made so far, and all codes that lead to one.
    package func revokeInvites(_ text: String) throws(NodeError) {
        let client = try directory.resolve(text)
        codes.revoke { $0.client == client }
        _ = try directory.command(text) { machine, turn throws(CommandError) in ((), try machine.revokeAll(&turn)) }
    }

    /// Reads an invite and checks its signature.
    /// - Throws: ``NodeError/invite(_:)``.
    package nonisolated static func inspect(_ slug: String) throws(NodeError) -> VerifiedInvite {
        do throws(InviteSlug.Failure) { return try InviteSlug.decode(slug) } catch { throw .invite(error) }
    }

    // MARK: Codes to say aloud (SpokenCodes.md)

    /// Makes a code that leads to a single-use invite to a conversation of our own.
    /// - Throws: as ``invite(_:lifetime:singleUse:)``, and ``NodeError/code(_:)``.
    package func openCode(_ text: String) throws(NodeError) -> OpenCodes.Entry { try codes.open(text) }

    /// The codes of a conversation that have not been taken.
    package func openCodes(of conversation: ConversationID) -> [OpenCodes.Entry] {
        codes.entries.filter { $0.conversation == conversation && $0.isOpen }
    }

    /// What becomes of a code.
    /// - Throws: ``NodeError/code(_:)`` for one that is not known, or not any more.
    package func whenCodeEnds(_ number: OpenCodes.Number) throws(NodeError) -> EventLoopFuture<CodeOutcome> {
        guard let end = codes.whenEnded(number) else { throw .code(.unknown) }
        return end
    }

    /// Takes a code back; one that has ended stays as it is.
    package func revokeCode(_ number: OpenCodes.Number) { codes.revoke { $0.number == number } }

    /// Takes a code of a conversation back.
    /// - Throws: ``NodeError/code(_:)``.
    package func revokeCode(_ text: String, _ code: String) throws(NodeError) {
        let client = try directory.resolve(text)
        let code = try Self.code(code)
        guard codes.revoke(where: { $0.client == client && $0.code == code }) else { throw .code(.unknown) }
    }

    /// Reads a code.
    /// - Throws: ``NodeError/code(_:)``.
    package nonisolated static func code(_ text: String) throws(NodeError) -> SpokenCode {
        do throws(SpokenCode.Failure) { return try SpokenCode(text) } catch { throw .code(.text(error)) }
    }

    /// Asks for the invite that a code leads to.
    /// - Parameter endpoint: where the code was made; `nil` looks for it on this machine's networks.
    /// - Returns: fails with ``NodeError``.
    package func invite(for code: SpokenCode, at endpoint: Endpoint?) throws(NodeError) -> EventLoopFuture<CodeInvite> {
        try directory.checkUnlocked()
        return codeJoins.invite(for: code, at: endpoint)
    }

    /// A join by a code's invite has begun: its creator is also dialled where the code has reached it.
    package func dial(_ client: ClientID, _ found: CodeInvite) {
        guard let invite = try? Self.inspect(found.slug), !invite.invite.endpoints.contains(found.endpoint) else {
            return
        }
        core.turn { core.machine.found(client, invite.creatorKey, at: found.endpoint, &$0) }
    }

    /// Where others reach this node directly.
    package var reachableAt: [Endpoint] { network.reachableAt }

    // MARK: Members

    /// - Parameter name: empty for none.
    package func rename(_ text: String, to name: String) throws(NodeError) {
        _ = try directory.command(text) { machine, turn throws(CommandError) in
            ((), try machine.rename(name.isEmpty ? nil : name, &turn))
        }
    }

    /// Our own name in a new conversation.
    /// - Parameter profile: `nil` for that of the configuration, empty for none.
    private func ownName(_ profile: String?) -> String? {
        guard let profile else { return services.configuration.name.flatMap { PeersFile.isName($0) ? $0 : nil } }
        return profile.isEmpty ? nil : profile
    }

    /// Our own name in one conversation.
    /// - Parameter profile: empty for none.
    package func setProfile(_ text: String, to profile: String) throws(NodeError) {
        _ = try directory.command(text) { machine, turn throws(CommandError) in
            ((), try machine.setProfile(profile.isEmpty ? nil : profile, &turn))
        }
    }

    /// Locks or unlocks a conversation of our own: a locked one admits nobody.
    package func setLocked(_ text: String, _ isLocked: Bool) throws(NodeError) {
        _ = try directory.command(text) { machine, turn throws(CommandError) in
            ((), try machine.setLocked(isLocked, &turn))
        }
    }

    /// - Parameter member: the beginning of its id, its unambiguous name, or that of the peer as which it was invited.
    package func removeMember(_ text: String, _ member: String) throws(NodeError) {
        let machine = try directory.conversation(text)
        let lowered = member.lowercased()
        let matches = machine.currentMembers.filter { one in
            (one.profile ?? directory.aliases.peerName(of: one.key, in: machine.client)) == member
                || !lowered.isEmpty && InboxID(one.key).description.hasPrefix(lowered)
        }
        guard let first = matches.first else { throw .unknownMember(member) }
        guard matches.count == 1 else {
            throw .ambiguous(member, matches: matches.map { String(InboxID($0.key).description.prefix(12)) })
        }
        _ = try directory.command(text) { machine, turn throws(CommandError) in
            ((), try machine.remove(first.key, &turn))
        }
    }

    // MARK: Aliases

    /// What the user calls a conversation.
    package func alias(of client: ClientID) -> String? { directory.aliases.alias(of: client) }

    /// Gives a conversation an alias, another one, or none.
    /// - Parameter text: as for ``resolve(_:)``.
    /// - Throws: ``NodeError/alias(_:)``, ``NodeError/store(_:)``, and as ``resolve(_:)``.
    package func setAlias(_ text: String, to alias: String?) throws(NodeError) -> ClientID {
        let client = try directory.resolve(text)
        try assignAlias(alias, to: client)
        return client
    }

    /// As ``setAlias(_:to:)``, of an inbox that may still be joining.
    package func assignAlias(_ alias: String?, to client: ClientID) throws(NodeError) {
        try directory.checkUnlocked()
        if let alias { try directory.aliases.check(alias, for: client) }
        guard let inbox = core.inboxes[client] else { throw .unknownConversation(client.description) }
        guard inbox.notes.alias != alias || alias == nil else { return }
        try directory.sleep.wake(client, .userInteraction)
        var notes = inbox.notes
        notes.alias = alias
        notes.takesName = false
        core.inboxes.note(notes, of: inbox)
        storage.refusal = nil
        core.perform([.save(client)])
        core.schedule()
        if let failure = storage.refusal { throw .store(failure) }
    }

    /// An invite is about to be sent to a named peer: who joins by it goes by the peer's name here.
    /// - Parameter text: as for ``resolve(_:)``.
    package func noteInvitation(_ invite: InviteID, of text: String, to peerName: String) throws(NodeError) {
        let client = try directory.resolve(text)
        guard let key = try peers.peer(peerName).0.contact?.key else { throw .peerWithoutCard(peerName) }
        guard let inbox = core.inboxes[client] else { return }
        var notes = inbox.notes
        notes.sentInvites.append(InboxNotes.SentInvite(invite: invite, peer: key))
        core.inboxes.note(notes, of: inbox)
        core.perform([.save(client)])
    }

    /// The named peer that a member was invited as; `nil` for a member that came otherwise, or whose peer is not in
    /// `peers.json` any more.
    package func peerName(of member: PublicKey, in client: ClientID) -> String? {
        directory.aliases.peerName(of: member, in: client)
    }

    // MARK: Joins

    /// Begins to join, in the pooled inbox.
    /// - Parameter alias: what this node's user calls the conversation; without one its name, or the first of `name-2`,
    ///   `name-3` … that is free.
    /// - Returns: the inbox; ``joinOutcome(_:)`` says how it ends.
    package func join(_ slug: String, profile: String?, alias: String? = nil) throws(NodeError) -> ClientID {
        try directory.checkUnlocked()
        let invite = try Self.inspect(slug)
        do throws(CommandError) { try core.machine.checkJoin(invite, core.makeTurn()) } catch { throw .command(error) }
        if let alias { try directory.aliases.check(alias) }
        let client = try loading.take()
        directory.aliases.set(alias, of: client)
        do throws(NodeError) {
            _ = try core.request { turn throws(CommandError) in
                ((), try core.machine.join(client, invite: invite, profile: ownName(profile), &turn))
            }
        } catch {
            if let inbox = core.inboxes[client] { core.inboxes.forgetNotes(of: inbox) }
            throw error
        }
        services.note(.joinBegan(client))
        loading.ensureUnused()
        for received in core.machine.contact?.record.received ?? [] where received.invitation.slug == slug {
            core.turn { core.machine.withContact(&$0) { contact, _ in contact.dismiss(received.invitation.id) } }
        }
        return client
    }

    /// Dials the creator of a conversation that this node has, where its record and an invite say.
    /// - Parameter slug: an invite of that creator.
    package func askCreator(of client: ClientID, by slug: String) throws(NodeError) {
        let invite = try Self.inspect(slug)
        try directory.sleep.wake(client, .userInteraction)
        core.turn { core.machine.reach(client, &$0) }
        let members = core.machine.conversation(client)?.record.members ?? []
        let known = members.first { $0.key == invite.creatorKey }?.endpoints ?? []
        for endpoint in invite.invite.endpoints where !known.contains(endpoint) {
            core.turn { core.machine.found(client, invite.creatorKey, at: endpoint, &$0) }
        }
    }

    /// Whether the creator of a conversation counts us as a member; `nil` while there is no session with the creator.
    package func isMember(_ client: ClientID) -> Bool? {
        if core.machine.isSleeping(client) { return nil }
        guard let machine = core.machine.conversation(client), !machine.record.isRemoved else { return false }
        let creator = machine.record.genesis.creator
        // After the creator has left, no member is removed any more.
        guard machine.currentMembers.contains(where: { $0.key == creator }) else { return true }
        return machine.isShownOnline(creator) ? true : nil
    }

    /// - Throws: ``NodeError/locked``.
    package func joins() throws(NodeError) -> [JoiningStateMachine] { try directory.joins() }

    /// - Parameter text: the beginning of an inbox's clientId.
    package func resolveJoin(_ text: String) throws(NodeError) -> JoiningStateMachine {
        try directory.resolveJoin(text)
    }

    /// How a join has ended; `nil` while it goes on.
    package func joinOutcome(_ client: ClientID) -> Result<ConversationStateMachine, NodeError>? {
        directory.joinOutcome(client)
    }

    /// Gives a join up, or forgets one that has ended. Its inbox is destroyed.
    package func cancelJoin(_ text: String) throws(NodeError) {
        let join = try directory.resolveJoin(text)
        guard let actions = core.machine.cancelJoin(join.client) else {
            // Ended already: its inbox goes.
            core.perform([.destroy(join.client)])
            core.machine.remove(join.client)
            return
        }
        core.perform(actions)
        core.schedule()
    }

    /// Dials the creator of a join under way now.
    /// - Throws: ``NodeError/joinEnded(_:)`` when there is nothing to retry.
    package func retryJoin(_ text: String) throws(NodeError) -> ClientID {
        let join = try directory.resolveJoin(text)
        guard join.record.state == .joining else { throw .joinEnded(text) }
        core.turn { core.machine.retryJoin(join.client, &$0) }
        return join.client
    }

    // MARK: Lifetime

    /// Proposes a lifetime; see ``LifetimeStateMachine``.
    package func propose(_ text: String, _ terms: LifetimeTerms) throws(NodeError) {
        _ = try directory.command(text) { machine, turn throws(CommandError) in ((), try machine.propose(terms, &turn))
        }
    }

    /// The own bound of one conversation; `nil`: the node's default.
    package func setCap(_ text: String, _ cap: LifetimeCap?) throws(NodeError) {
        _ = try directory.command(text) { machine, _ in ((), machine.setCap(cap)) }
    }

    /// The bound of conversations that have none of their own; saved in `config.json`.
    package func setDefaultCap(_ cap: LifetimeCap) throws(NodeError) { try services.configure { $0.cap = cap.text } }

    package var capByDefault: LifetimeCap { services.defaultCap }

    /// Accepts the open proposal.
    /// - Parameter seen: what the user has looked at; anything else is refused.
    /// - Returns: when the agreement is durable.
    package func accept(_ text: String, only seen: ProposalID) throws(NodeError) -> EventLoopFuture<Void> {
        let (client, _) = try directory.command(text) { machine, turn throws(CommandError) in
            ((), try machine.accept(only: seen, &turn))
        }
        return held.whenDurable(client)
    }

    /// Turns the open proposal down.
    package func reject(_ text: String) throws(NodeError) {
        _ = try directory.command(text) { machine, turn throws(CommandError) in ((), try machine.reject(&turn)) }
    }

    /// Takes our own proposal back.
    package func withdraw(_ text: String) throws(NodeError) {
        _ = try directory.command(text) { machine, turn throws(CommandError) in ((), try machine.withdraw(&turn)) }
    }

    /// The standing answer of one conversation.
    package func setPolicy(_ text: String, _ policy: LifetimePolicy) throws(NodeError) {
        _ = try directory.command(text) { machine, _ in ((), machine.setPolicy(policy)) }
    }

    /// Widens the standing answer so that it accepts these terms, after a restart for example.
    /// - Returns: when it is durable.
    /// - Throws: ``NodeError/notRenewable`` when no policy accepts them.
    package func renew(_ text: String, _ terms: LifetimeTerms) throws(NodeError) -> EventLoopFuture<Void> {
        let machine = try directory.conversation(text)
        guard !(machine.policy ?? policyByDefault).accepts(terms) else { return loop.makeSucceededVoidFuture() }
        guard let policy = LifetimePolicy.accepting(terms) else { throw .notRenewable }
        try setPolicy(text, policy)
        return held.whenDurable(machine.client)
    }

    /// The standing answer of conversations that have none; saved in `config.json`.
    package func setDefaultPolicy(_ policy: LifetimePolicy) throws(NodeError) {
        try services.configure { $0.policy = policy.text }
    }

    package var policyByDefault: LifetimePolicy { services.defaultPolicy }

    // MARK: Explosion

    /// Destroys a conversation of our own everywhere, now or at a time (Explode.md).
    /// - Parameter isTraceless: keep no list of whom to tell.
    /// - Returns: its id, under which ``explosion(_:)`` answers.
    package func explode(_ text: String, _ time: ExplosionTime = .now, isTraceless: Bool = false) throws(NodeError)
        -> ConversationID
    {
        let (_, conversation) = try directory.command(text) { machine, turn throws(CommandError) in
            let moment: Timestamp? =
                switch time {
                case .now: nil
                case .at(let moment): moment
                case .after(let delay): turn.now + delay
                }
            return (machine.conversation, try machine.explode(at: moment, isTraceless: isTraceless, &turn))
        }
        return conversation
    }

    /// Explosions that have a tombstone, and those that are scheduled; no inbox is woken.
    /// - Throws: ``NodeError/locked``.
    package func explosions() throws(NodeError) -> [ListedExplosion] { try directory.listExplosions() }

    /// What is left of a conversation that has exploded; `nil` for one that lives.
    /// - Parameter text: as for ``resolve(_:)``; the whole id means its conversation, whatever others are named.
    /// - Throws: as ``resolve(_:)`` for what is neither.
    package func explosion(_ text: String) throws(NodeError) -> ExplodeStateMachine.Record? {
        try directory.explosion(text)
    }

    /// Of a conversation that has a tombstone.
    package func progress(of conversation: ConversationID) -> ExplosionProgress {
        directory.explosions.progress(of: conversation)
    }
}
