import Cryptography
import Messaging
import NIOCore
import Store

/// When a conversation of ours explodes.
package enum ExplosionTime {
    case now
    case at(Timestamp)
    /// Milliseconds from now.
    case after(Milliseconds)
}

/// User requests about conversations. Each is one turn; results that depend on peers are futures. Most functions
/// without a comment only forward to a part of the node.
extension Node {
    // MARK: Lists and names

    package func resolve(_ text: String) throws(NodeError) -> ClientID { try shell.directory.resolve(text) }

    package func conversation(_ text: String) throws(NodeError) -> Conversation {
        try shell.directory.conversation(text)
    }

    /// In the order of ``createdAt(_:)``.
    package func conversations() throws(NodeError) -> [ListedConversation] { try shell.directory.list() }

    package func createdAt(_ client: ClientID) -> Timestamp { core.machine.createdAt(client) }

    /// Runs a command of the core on a conversation, in one turn.
    /// - Parameter text: as for ``resolve(_:)``.
    @discardableResult package func command<Result>(
        _ text: String, _ body: (Conversation, inout Turn) throws(CommandError) -> Result
    ) throws(NodeError) -> (client: ClientID, result: Result) { try shell.directory.command(text, body) }

    package func client(of conversation: ConversationID) -> ClientID? { core.machine.client(of: conversation) }

    // MARK: Conversations

    /// Makes a conversation in the pooled inbox.
    /// - Parameter alias: the user's alias; `nil` uses the name.
    /// - Returns: the conversation, once durable.
    /// - Throws: ``NodeError/locked``, ``NodeError/command(_:)``, ``NodeError/store(_:)``, ``NodeError/alias(_:)``.
    package func createConversation(name: String?, profile: String?, alias: String? = nil) throws(NodeError)
        -> EventLoopFuture<(client: ClientID, conversation: ConversationID, tag: InviteTag?)>
    {
        try shell.directory.checkUnlocked()
        let alias = try shell.aliases.new(alias, name: name)
        let client = try shell.loading.take()
        shell.aliases.set(alias, of: client)
        do throws(NodeError) {
            _ = try core.request { turn throws(CommandError) in
                try core.machine.createConversation(client, name: name, profile: ownName(profile), &turn)
            }
        } catch {
            if let inbox = inboxes[client] { inboxes.forgetNotes(of: inbox) }
            throw error
        }
        services.note(.conversationCreated(client))
        shell.loading.ensureUnused()
        guard let made = core.machine.conversation(client) else { throw .stopping }
        let result = (client, made.conversation, made.invites?.tag)
        return shell.commits.whenDurable(client).map { result }
    }

    /// Destroys our copy, and tells members that are online.
    /// - Throws: also when the members were told but the keys could not be destroyed; the store retries while it runs.
    package func leave(_ text: String) throws(NodeError) -> ConversationID {
        storage.refusal = nil
        let alias = inboxes[try shell.directory.resolve(text)]?.notes.alias
        let (client, (conversation, departure)) = try shell.directory.command(text) { machine, turn in
            (machine.conversation, machine.leave(&turn))
        }
        services.note(.inboxLeft(client))
        // An earlier copy may have held the alias of the current one.
        defer { shell.codes.look() }
        if let failure = storage.refusal { throw .store(failure) }
        guard let latest = core.machine.client(of: conversation) else { return conversation }
        core.turn { core.machine.step(latest, &$0) { $0.relay(departure, &$1) } }
        if let alias, inboxes[latest]?.notes.alias == nil { try assignAlias(alias, to: latest) }
        return conversation
    }

    // MARK: Invites

    /// Makes an invite to a conversation of ours.
    /// - Parameter lifetime: milliseconds, 1 s to ``Limits/inviteMaximumLifetime``.
    /// - Returns: the invite and its text, once durable; the text cannot be retrieved later.
    package func invite(_ text: String, lifetime: Milliseconds, singleUse: Bool) throws(NodeError) -> EventLoopFuture<
        (VerifiedInvite, slug: String)
    > {
        let (client, verified, slug) = try shell.directory.invite(text, lifetime: lifetime, singleUse: singleUse)
        return shell.commits.whenDurable(client).map { (verified, slug: slug) }
    }

    /// - Parameter invite: its text, the beginning of its id, or a code that leads to an invite.
    package func revokeInvite(_ text: String, _ invite: String) throws(NodeError) {
        if SpokenCode.isMeant(by: invite) { return try revokeCode(text, invite) }
        let issued = try shell.directory.conversation(text).invites?.invites ?? []
        let named = (try? Self.inspect(invite)).map { $0.invite.id }
        let matches = issued.map(\.id).filter { id in
            named.map { $0 == id } ?? (!invite.isEmpty && id.description.hasPrefix(invite.lowercased()))
        }
        guard let first = matches.first else {
            throw .notFound("no invite `\(invite.prefix(24))`", "`mayfly invite list C` shows the invites")
        }
        guard matches.count == 1 else { throw .ambiguous(invite, matches: matches.map { "\($0)" }) }
        _ = try shell.directory.command(text) { machine, turn throws(CommandError) in try machine.revoke(first, &turn) }
    }

    /// Revokes all existing invites and codes.
    package func revokeInvites(_ text: String) throws(NodeError) {
        let client = try shell.directory.resolve(text)
        shell.codes.revoke { $0.client == client }
        _ = try shell.directory.command(text) { machine, turn throws(CommandError) in try machine.revokeAll(&turn) }
    }

    /// Parses an invite and checks its signature.
    /// - Throws: ``NodeError/invite(_:)``.
    package nonisolated static func inspect(_ slug: String) throws(NodeError) -> VerifiedInvite {
        do throws(InviteSlug.Failure) { return try InviteSlug.decode(slug) } catch { throw .invite(error) }
    }

    // MARK: Spoken codes (Join.md)

    /// Opens a code that leads to a single-use invite to a conversation of ours.
    package func openCode(_ text: String) throws(NodeError) -> OpenCodes.Entry { try shell.codes.open(text) }

    package func openCodes(of conversation: ConversationID) -> [OpenCodes.Entry] {
        shell.codes.entries.filter { $0.conversation == conversation && $0.isOpen }
    }

    /// The result of a code.
    package func whenCodeEnds(_ number: OpenCodes.Number) throws(NodeError) -> EventLoopFuture<CodeOutcome> {
        guard let end = shell.codes.whenEnded(number) else { throw .unknownCode }
        return end
    }

    package func revokeCode(_ number: OpenCodes.Number) { shell.codes.revoke { $0.number == number } }

    package func revokeCode(_ text: String, _ code: String) throws(NodeError) {
        let client = try shell.directory.resolve(text)
        let code = try Self.code(code)
        guard shell.codes.revoke(where: { $0.client == client && $0.code == code }) else { throw .unknownCode }
    }

    package nonisolated static func code(_ text: String) throws(NodeError) -> SpokenCode {
        do throws(SpokenCode.Failure) { return try SpokenCode(text) } catch { throw .command(error.explained) }
    }

    /// Exchanges a code for an invite.
    /// - Parameter endpoint: the address of the code's node; `nil` searches this machine's networks.
    /// - Returns: fails with ``NodeError``.
    package func invite(for code: SpokenCode, at endpoint: Endpoint?) throws(NodeError) -> EventLoopFuture<CodeInvite> {
        try shell.directory.checkUnlocked()
        return shell.codeJoins.invite(for: code, at: endpoint)
    }

    /// After a join by a code's invite: also dials the creator at the endpoint of the exchange.
    package func dial(_ client: ClientID, _ found: CodeInvite) {
        guard let invite = try? Self.inspect(found.slug), !invite.invite.endpoints.contains(found.endpoint) else {
            return
        }
        core.turn { core.machine.found(client, invite.creatorKey, at: found.endpoint, &$0) }
    }

    package var reachableAt: [Endpoint] { shell.addresses.advertised }

    // MARK: Members

    /// Our own name in a new conversation.
    /// - Parameter profile: `nil` for the configured name, empty for none.
    private func ownName(_ profile: String?) -> String? {
        guard let profile else { return services.configuration.name.flatMap { PeersFile.isName($0) ? $0 : nil } }
        return profile.isEmpty ? nil : profile
    }

    /// - Parameter member: the beginning of its id, its unambiguous name, or its peer's name.
    package func removeMember(_ text: String, _ member: String) throws(NodeError) {
        let machine = try shell.directory.conversation(text)
        let lowered = member.lowercased()
        let matches = machine.currentMembers.filter { one in
            (one.profile ?? shell.aliases.peerName(of: one.key, in: machine.client)) == member
                || !lowered.isEmpty && InboxID(one.key).description.hasPrefix(lowered)
        }
        guard let first = matches.first else {
            throw .notFound("no member `\(member)`", "`mayfly conversation members C` shows the members")
        }
        guard matches.count == 1 else {
            throw .ambiguous(member, matches: matches.map { String(InboxID($0.key).description.prefix(12)) })
        }
        try command(text) { machine, turn throws(CommandError) in try machine.remove(first.key, &turn) }
    }

    // MARK: Aliases

    package func alias(of client: ClientID) -> String? { shell.aliases.alias(of: client) }

    /// Sets or removes the alias of an inbox, which may still be joining.
    /// - Throws: ``NodeError/alias(_:)``, ``NodeError/store(_:)``.
    package func assignAlias(_ alias: String?, to client: ClientID) throws(NodeError) {
        try shell.directory.checkUnlocked()
        if let alias { try shell.aliases.check(alias, for: client) }
        guard let inbox = inboxes[client] else { throw .unknownConversation(client.description) }
        guard inbox.notes.alias != alias || alias == nil else { return }
        try shell.sleep.wake(client, .userInteraction)
        var notes = inbox.notes
        notes.alias = alias
        notes.takesName = false
        inboxes.note(notes, of: inbox)
        storage.refusal = nil
        core.perform([.save(client)])
        core.schedule()
        if let failure = storage.refusal { throw .store(failure) }
    }

    /// Call this before an invite is sent to a named peer: the member that joins by it is shown under the peer's name.
    /// - Parameter text: as for ``resolve(_:)``.
    package func noteInvitation(_ invite: InviteID, of text: String, to peerName: String) throws(NodeError) {
        let client = try shell.directory.resolve(text)
        guard let key = try shell.peers.peer(peerName).0.contact?.key else { throw .peerWithoutCard(peerName) }
        guard let inbox = inboxes[client] else { return }
        var notes = inbox.notes
        notes.sentInvites.append(InboxNotes.SentInvite(invite: invite, peer: key))
        inboxes.note(notes, of: inbox)
        core.perform([.save(client)])
    }

    package func peerName(of member: PublicKey, in client: ClientID) -> String? {
        shell.aliases.peerName(of: member, in: client)
    }

    // MARK: Joins

    /// Starts a join in the pooled inbox.
    /// - Parameter alias: the user's alias; `nil` uses the name, or the first free of `name-2`, `name-3` ….
    /// - Returns: the inbox; ``joinOutcome(_:)`` tells the result.
    package func join(_ slug: String, profile: String?, alias: String? = nil, asks: Bool? = nil) throws(NodeError)
        -> ClientID
    {
        try shell.directory.checkUnlocked()
        let invite = try Self.inspect(slug)
        do throws(CommandError) { try core.machine.checkJoin(invite, core.makeTurn()) } catch { throw .command(error) }
        if let alias { try shell.aliases.check(alias) }
        let client = try shell.loading.take()
        shell.aliases.set(alias, of: client)
        do throws(NodeError) {
            _ = try core.request { turn throws(CommandError) in
                try core.machine.join(client, invite: invite, profile: ownName(profile), asks: asks, &turn)
            }
        } catch {
            if let inbox = inboxes[client] { inboxes.forgetNotes(of: inbox) }
            throw error
        }
        services.note(.joinBegan(client))
        shell.loading.ensureUnused()
        for received in core.machine.contact?.record.received ?? [] where received.invitation.slug == slug {
            core.turn { core.machine.withContact(&$0) { contact, _ in contact.dismiss(received.invitation.id) } }
        }
        return client
    }

    /// Dials the creator of an existing conversation, at the endpoints of its record and of an invite.
    /// - Parameter slug: an invite of that creator.
    package func askCreator(of client: ClientID, by slug: String) throws(NodeError) {
        let invite = try Self.inspect(slug)
        try shell.sleep.wake(client, .userInteraction)
        core.turn { core.machine.step(client, &$0) { $0.reach(&$1) } }
        let members = core.machine.conversation(client)?.record.members ?? []
        let known = members.first { $0.key == invite.creatorKey }?.endpoints ?? []
        for endpoint in invite.invite.endpoints where !known.contains(endpoint) {
            core.turn { core.machine.found(client, invite.creatorKey, at: endpoint, &$0) }
        }
    }

    /// Whether the creator still lists us as a member; `nil` without a session with the creator.
    package func isMember(_ client: ClientID) -> Bool? {
        if core.machine.isSleeping(client) { return nil }
        guard let machine = core.machine.conversation(client), !machine.record.isRemoved else { return false }
        let creator = machine.record.genesis.creator
        // Without the creator, no member can be removed.
        guard machine.currentMembers.contains(where: { $0.key == creator }) else { return true }
        return machine.isShownOnline(creator) ? true : nil
    }

    /// The user agrees to what the conversation keeps. Without such a question this does nothing.
    package func agreeToJoin(_ client: ClientID) { core.turn { core.machine.retryJoin(client, agrees: true, &$0) } }

    package func joins() throws(NodeError) -> [JoiningStateMachine] { try shell.directory.joins() }

    package func resolveJoin(_ text: String) throws(NodeError) -> JoiningStateMachine {
        try shell.directory.resolveJoin(text)
    }

    package func joinOutcome(_ client: ClientID) -> Result<Conversation, NodeError>? {
        shell.directory.joinOutcome(client)
    }

    /// Cancels a join, or drops an ended one. Its inbox is destroyed, once a creator that has admitted it knows.
    package func cancelJoin(_ text: String) throws(NodeError) {
        let join = try shell.directory.resolveJoin(text)
        core.turn { _ = core.machine.cancelJoin(join.client, &$0) }
    }

    /// Dials the creator of a running join now.
    package func retryJoin(_ text: String) throws(NodeError) -> ClientID {
        let join = try shell.directory.resolveJoin(text)
        guard join.record.state == .joining else {
            throw .failed(
                "the join `\(text)` has ended", "ask for a new invite; `mayfly join cancel \(text)` forgets this one")
        }
        core.turn { core.machine.retryJoin(join.client, &$0) }
        return join.client
    }

    // MARK: Lifetime

    package func propose(_ text: String, _ terms: LifetimeTerms) throws(NodeError) {
        try command(text) { machine, turn throws(CommandError) in try machine.propose(terms, &turn) }
    }

    /// Sets the default cap; saved in `config.json`.
    package func setDefaultCap(_ cap: LifetimeCap) throws(NodeError) { try services.configure { $0.cap = cap.text } }

    package var capByDefault: LifetimeCap { services.defaultCap }

    /// - Parameter seen: the proposal shown to the user; any other is refused.
    /// - Returns: ends when our signature is durable; if it was the last one, when the agreement is, or after 3 s.
    package func accept(_ text: String, only seen: ProposalID) throws(NodeError) -> EventLoopFuture<Void> {
        let (client, _) = try shell.directory.command(text) { machine, turn throws(CommandError) in
            try machine.accept(only: seen, &turn)
        }
        return shell.commits.whenDurable(client).flatMap { [self] in
            assumeIsolated { $0.shell.sleep.whenGathered(seen, client) }
        }.flatMap { [self] in assumeIsolated { $0.shell.commits.whenDurable(client) } }
    }

    /// Accepts these terms again after each session, for example after a restart.
    /// - Returns: ends when this is durable.
    package func renew(_ text: String, _ terms: LifetimeTerms) throws(NodeError) -> EventLoopFuture<Void> {
        let (client, _) = try shell.directory.command(text) { $0.renew(terms, &$1) }
        return shell.commits.whenDurable(client)
    }

    /// Sets the default policy; saved in `config.json`.
    package func setDefaultPolicy(_ policy: LifetimePolicy) throws(NodeError) {
        try services.configure { $0.policy = policy.text }
    }

    package var policyByDefault: LifetimePolicy { services.defaultPolicy }

    // MARK: Explosion

    /// Explodes a conversation of ours, now or at a time (Explode.md).
    /// - Parameter isTraceless: keep no fan-out list.
    /// - Returns: the id for ``explosion(_:)``.
    package func explode(_ text: String, _ time: ExplosionTime = .now, isTraceless: Bool = false) throws(NodeError)
        -> ConversationID
    {
        let (_, conversation) = try shell.directory.command(text) { machine, turn throws(CommandError) in
            let moment: Timestamp? =
                switch time {
                case .now: nil
                case .at(let moment): moment
                case .after(let delay): turn.now + delay
                }
            try machine.explode(at: moment, isTraceless: isTraceless, &turn)
            return machine.conversation
        }
        return conversation
    }

    package func explosions() throws(NodeError) -> [ListedExplosion] { try shell.directory.listExplosions() }

    package func explosion(_ text: String) throws(NodeError) -> ExplosionRecord? { try shell.directory.explosion(text) }

    package func names(ofExploded conversation: ConversationID) -> [PublicKey: String] {
        core.machine.names(ofExploded: conversation)
    }

    package func progress(of conversation: ConversationID) -> ExplosionProgress {
        shell.explosions.progress(of: conversation)
    }
}
