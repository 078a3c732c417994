import Messaging
import NIOCore
import Primitives
import Store
import Wire

/// What a user can ask. Each request is one turn; what waits for others is a future.
extension Node {
    /// Runs a request of the core; what the core refuses, and what the store refuses, is thrown.
    func request<Result>(_ body: (inout Turn) throws(CommandError) -> (Result, [NodeAction])) throws(NodeError)
        -> Result
    {
        guard !isStopped else { throw .stopping }
        var turn = makeTurn()
        let outcome: (Result, [NodeAction])
        do throws(CommandError) { outcome = try body(&turn) } catch { throw .command(error) }
        storage.refusal = nil
        perform(outcome.1)
        schedule()
        if let failure = storage.refusal { throw .store(failure) }
        return outcome.0
    }

    func unlocked() throws(NodeError) {
        if store.isLocked { throw .locked }
    }

    package var isLocked: Bool { store.isLocked }

    /// Runs `body` when everything so far of this inbox is durable.
    func whenDurable(_ client: ClientID) -> EventLoopFuture<Void> {
        let promise = loop.makePromise(of: Void.self)
        leave(
            .run { [unowned self] isDurable in
                if isDurable {
                    promise.succeed(())
                } else {
                    promise.fail(storage.refusal.map(NodeError.store) ?? NodeError.stopping)
                }
            },
            for: client
        )
        return promise.futureResult
    }

    // MARK: Conversations

    /// - Parameter text: an id, an alias, an unambiguous prefix of an id or of an inbox's clientId, or an unambiguous name.
    package func resolve(_ text: String) throws(NodeError) -> ClientID {
        try unlocked()
        if let id = ConversationID(hex: text), let client = core.client(of: id) { return client }
        // Before all that other members choose, names and ids: whatever they do, an alias stays where it is.
        if let client = try aliased(text) { return client }
        let lowered = text.lowercased()
        let matches = core.directory.clients(beginningWith: lowered)
        let all = matches.isEmpty ? core.directory.clients(named: text) : matches
        if !lowered.isEmpty, all.count == 1 { return all[0] }
        // Who was removed and has joined again means the conversation that goes on; the other copy has its clientId.
        let conversations = Set(all.compactMap { core.conversationID($0) })
        if !lowered.isEmpty, conversations.count == 1,
            let client = conversations.first.flatMap({ core.client(of: $0) }),
            all.contains(client)
        {
            return client
        }
        if !lowered.isEmpty, all.count > 1 {
            let shown = all.prefix(Self.shownMatches).compactMap { client in
                core.conversationID(client).map { id in
                    "\(id.description.prefix(12))\(alias(of: client).map { " (\($0))" } ?? "")"
                }
            }
            let rest = all.count > shown.count ? ["and \(all.count - shown.count) more"] : []
            throw .ambiguous(text, matches: shown + rest)
        }
        if let id = ConversationID(hex: lowered), core.tombstone(id) != nil { throw .exploded(id) }
        if !lowered.isEmpty, let gone = core.tombstones.first(where: { $0.conversation.description.hasPrefix(lowered) })
        {
            throw .exploded(gone.conversation)
        }
        if let over = core.conversations.first(where: { isOver($0) && $0.conversation.description.hasPrefix(lowered) }),
            !lowered.isEmpty
        {
            throw .exploded(over.conversation)
        }
        // It may be one of those that the disk does not give.
        throw unreadError ?? .unknownConversation(text)
    }

    static let shownMatches = 16

    /// - Parameter text: as for ``resolve(_:)``, and it throws as that does.
    package func conversation(_ text: String) throws(NodeError) -> ConversationStateMachine {
        guard let machine = peek(try resolve(text)) else { throw .unknownConversation(text) }
        return machine
    }

    /// A conversation in a list.
    package enum ListedConversation {
        case awake(ConversationStateMachine)
        case asleep(InboxSummary)
    }

    /// All of them, in the order in which they were made; nobody is woken.
    /// - Throws: ``NodeError/locked``.
    package func conversations() throws(NodeError) -> [ListedConversation] {
        try unlocked()
        return core.clients.compactMap { client in
            if let summary = core.summary(client) { return .asleep(summary) }
            return core.conversation(client).flatMap { isOver($0) ? nil : .awake($0) }
        }
    }

    /// Makes a conversation in the pooled inbox.
    /// - Parameter alias: what this node's user calls it; without one, its name.
    /// - Returns: it, when it is durable.
    /// - Throws: ``NodeError/locked``, ``NodeError/command(_:)``, ``NodeError/store(_:)``, ``NodeError/alias(_:)``.
    package func createConversation(name: String?, profile: String?, alias: String? = nil) throws(NodeError)
        -> EventLoopFuture<ConversationStateMachine>
    {
        try unlocked()
        let alias = try newAlias(alias, name: name)
        let client: ClientID
        do { client = try takeInbox() } catch { throw Self.wrap(error) }
        setAlias(alias, of: client)
        do throws(NodeError) {
            _ = try request { turn throws(CommandError) in
                ((), try core.createConversation(client, name: name, profile: profile, &turn))
            }
        } catch {
            if let inbox = inboxes[client] { inboxes.forgetNotes(of: inbox) }
            throw error
        }
        note(.conversationCreated(client))
        ensureUnused()
        guard let machine = core.conversation(client) else { throw .stopping }
        let made = NIOLoopBound(machine, eventLoop: loop)
        return whenDurable(client).map { made.value }
    }

    private static func wrap(_ error: any Error) -> NodeError {
        switch error {
        case let error as NodeError: error
        case let error as StoreError: .store(error)
        case let error as HomeFileError: .homeFile(error)
        default: .stopping
        }
    }

    /// Runs a command on one conversation.
    func command<Result>(
        _ text: String,
        _ body: (inout ConversationStateMachine, inout Turn) throws(CommandError) -> (Result, [NodeAction])
    ) throws(NodeError) -> (ClientID, Result) {
        let client = try resolve(text)
        try wake(client, .userInteraction)
        return (client, try request { turn throws(CommandError) in try core.command(client, &turn, body) })
    }

    /// Ends the session and forgets what is in memory only.
    package func close(_ text: String) throws(NodeError) {
        _ = try command(text) { machine, turn in ((), machine.close(turn)) }
    }

    /// Destroys our own copy and tells the member that is online.
    /// - Throws: also when the members were told and the keys could not be destroyed: the store tries again while it runs.
    package func leave(_ text: String) throws(NodeError) -> ConversationID {
        storage.refusal = nil
        let (client, conversation) = try command(text) { machine, turn in (machine.conversation, machine.leave(&turn)) }
        note(.inboxLeft(client))
        if let failure = storage.refusal { throw .store(failure) }
        return conversation
    }

    // MARK: Invites

    /// Makes an invite of a conversation of our own.
    /// - Parameter lifetime: milliseconds, 1 s to ``Limits/inviteMaximumLifetime``.
    /// - Returns: it and its text, when it is durable; the text cannot be had again.
    package func invite(_ text: String, lifetime: Milliseconds, singleUse: Bool) throws(NodeError)
        -> EventLoopFuture<(VerifiedInvite, slug: String)>
    {
        let (client, invite) = try command(text) { machine, turn throws(CommandError) in
            try machine.invite(lifetime: lifetime, singleUse: singleUse, &turn)
        }
        guard let key = inboxes[client]?.key else { throw .stopping }
        let signed = SignedInvite(payload: InviteSlug.encodePayload(invite), signedBy: key.secret)
        guard let verified = InviteSlug.verify(signed) else { throw .stopping }
        return whenDurable(client).map { (verified, slug: InviteSlug.encode(signed)) }
    }

    /// Voids one invite.
    /// - Parameter invite: its text, or the beginning of its id.
    /// - Throws: ``NodeError/unknownInvite(_:)``, ``NodeError/ambiguous(_:matches:)``.
    package func revokeInvite(_ text: String, _ invite: String) throws(NodeError) {
        let issued = try conversation(text).invites?.invites ?? []
        let named = (try? Self.inspect(invite)).map { $0.invite.id }
        let matches = issued.map(\.id).filter { id in
            named.map { $0 == id } ?? (!invite.isEmpty && id.description.hasPrefix(invite.lowercased()))
        }
        guard let first = matches.first else { throw .unknownInvite(String(invite.prefix(24))) }
        guard matches.count == 1 else { throw .ambiguous(invite, matches: matches.map { "\($0)" }) }
        _ = try command(text) { machine, turn throws(CommandError) in ((), try machine.revoke(first)) }
    }

    /// Voids all invites made so far.
    package func revokeInvites(_ text: String) throws(NodeError) {
        _ = try command(text) { machine, turn throws(CommandError) in ((), try machine.revokeAll(&turn)) }
    }

    /// Reads an invite and checks its signature.
    /// - Throws: ``NodeError/invite(_:)``.
    package nonisolated static func inspect(_ slug: String) throws(NodeError) -> VerifiedInvite {
        do throws(InviteSlug.Failure) { return try InviteSlug.decode(slug) } catch { throw .invite(error) }
    }

    // MARK: Joins

    /// Begins to join, in the pooled inbox.
    /// - Parameter alias: what this node's user calls the conversation; without one its name, or the first of `name-2`,
    ///   `name-3` … that is free.
    /// - Returns: the inbox; ``joinOutcome(_:)`` says how it ends.
    package func join(_ slug: String, profile: String?, alias: String? = nil) throws(NodeError) -> ClientID {
        try unlocked()
        let invite = try Self.inspect(slug)
        do throws(CommandError) { try core.checkJoin(invite, makeTurn()) } catch { throw .command(error) }
        if let alias { try checkAlias(alias) }
        let client: ClientID
        do { client = try takeInbox() } catch { throw Self.wrap(error) }
        setAlias(alias, of: client)
        do throws(NodeError) {
            _ = try request { turn throws(CommandError) in
                ((), try core.join(client, invite: invite, profile: profile, &turn))
            }
        } catch {
            if let inbox = inboxes[client] { inboxes.forgetNotes(of: inbox) }
            throw error
        }
        note(.joinBegan(client))
        ensureUnused()
        for received in core.contact?.record.received ?? [] where received.invitation.slug == slug {
            turn { core.withContact(&$0) { contact, _ in contact.dismiss(received.invitation.id) } }
        }
        return client
    }

    /// - Throws: ``NodeError/locked``.
    package func joins() throws(NodeError) -> [JoiningStateMachine] {
        try unlocked()
        return core.joins
    }

    /// - Parameter text: the beginning of an inbox's clientId.
    package func resolveJoin(_ text: String) throws(NodeError) -> JoiningStateMachine {
        let matches = try joins().filter { $0.client.description.hasPrefix(text.lowercased()) }
        guard let first = matches.first, !text.isEmpty else { throw .unknownJoin(text) }
        guard matches.count == 1 else { throw .ambiguous(text, matches: matches.map(\.client.description)) }
        return first
    }

    /// Gives a join up, or forgets one that has ended. Its inbox is destroyed.
    package func cancelJoin(_ text: String) throws(NodeError) {
        let join = try resolveJoin(text)
        guard let actions = core.cancelJoin(join.client) else {
            // Ended already: its inbox goes.
            perform([.destroy(join.client)])
            core.remove(join.client)
            return
        }
        perform(actions)
        schedule()
    }

    /// Dials the creator of a join under way now.
    /// - Throws: ``NodeError/joinEnded(_:)`` when there is nothing to retry.
    package func retryJoin(_ text: String) throws(NodeError) -> ClientID {
        let join = try resolveJoin(text)
        guard join.record.state == .joining else { throw .joinEnded(text) }
        turn { core.retryJoin(join.client, &$0) }
        return join.client
    }

    /// How a join has ended; `nil` while it goes on.
    package func joinOutcome(_ client: ClientID) -> Result<ConversationStateMachine, NodeError>? {
        if let conversation = peek(client) { return .success(conversation) }
        guard let join = core.joins.first(where: { $0.client == client }) else { return .failure(.joinCancelled) }
        switch join.record.state {
        case .joining: return nil
        case .joinFailed(let type): return .failure(.joinFailed(type))
        case .cancelled: return .failure(.joinCancelled)
        case .ready: return nil
        }
    }

    // MARK: Lifetime

    /// Proposes a lifetime; see ``LifetimeStateMachine``.
    package func propose(_ text: String, _ terms: LifetimeTerms) throws(NodeError) {
        _ = try command(text) { machine, turn throws(CommandError) in ((), try machine.propose(terms, &turn)) }
    }

    /// The own bound of one conversation; `nil`: the node's default.
    package func setCap(_ text: String, _ cap: LifetimeCap?) throws(NodeError) {
        _ = try command(text) { machine, _ in ((), machine.setCap(cap)) }
    }

    /// The bound of conversations that have none of their own; saved in `config.json`.
    package func setDefaultCap(_ cap: LifetimeCap) throws(NodeError) {
        try configure { $0.cap = cap.text }
    }

    package var capByDefault: LifetimeCap { defaultCap }

    /// Changes `config.json`, of which everything else stays as it stands there now: what somebody has edited since the start
    /// holds from the next start on. What could not be saved does not hold.
    func configure(_ change: (inout NodeConfiguration) -> Void) throws(NodeError) {
        var file = configuration
        do throws(HomeFileError) { file = try NodeConfiguration.load(home: options.home) } catch {
            guard error.kind == .missing else { throw .homeFile(error) }
        }
        change(&file)
        do throws(HomeFileError) { try file.save(home: options.home) } catch { throw .homeFile(error) }
        change(&configuration)
    }

    /// Accepts the open proposal.
    /// - Parameter seen: what the user has looked at; anything else is refused.
    /// - Returns: when the agreement is durable.
    package func accept(_ text: String, only seen: ProposalID) throws(NodeError) -> EventLoopFuture<Void> {
        let (client, _) = try command(text) { machine, turn throws(CommandError) in
            ((), try machine.accept(only: seen, &turn))
        }
        return whenDurable(client)
    }

    /// Turns the open proposal down.
    package func reject(_ text: String) throws(NodeError) {
        _ = try command(text) { machine, turn throws(CommandError) in ((), try machine.reject(&turn)) }
    }

    /// Takes our own proposal back.
    package func withdraw(_ text: String) throws(NodeError) {
        _ = try command(text) { machine, turn throws(CommandError) in ((), try machine.withdraw(&turn)) }
    }

    /// The standing answer of one conversation.
    package func setPolicy(_ text: String, _ policy: LifetimePolicy) throws(NodeError) {
        _ = try command(text) { machine, _ in ((), machine.setPolicy(policy)) }
    }

    /// The standing answer of conversations that have none; saved in `config.json`.
    package func setDefaultPolicy(_ policy: LifetimePolicy) throws(NodeError) {
        try configure { $0.policy = policy.text }
    }

    package var policyByDefault: LifetimePolicy { defaultPolicy }

    // MARK: Explosion

    /// When a conversation of our own is to end everywhere.
    package enum ExplosionTime {
        case now
        case at(Timestamp)
        /// Milliseconds from now.
        case after(Milliseconds)
    }

    /// Destroys a conversation of our own everywhere, now or at a time (section 7).
    /// - Parameter isTraceless: keep no list of whom to tell.
    /// - Returns: its id, under which ``explosion(_:)`` answers.
    package func explode(_ text: String, _ time: ExplosionTime = .now, isTraceless: Bool = false) throws(NodeError)
        -> ConversationID
    {
        let (_, conversation) = try command(text) { machine, turn throws(CommandError) in
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

    /// An explosion in a list.
    package enum ListedExplosion {
        case exploded(ExplodeStateMachine.Record)
        /// Of a conversation that is still there.
        case scheduled(ConversationStateMachine)
    }

    /// Explosions that have a tombstone, and those that are scheduled; no inbox is woken.
    /// - Throws: ``NodeError/locked``.
    package func explosions() throws(NodeError) -> [ListedExplosion] {
        let scheduled = try conversations().compactMap { listed -> ListedExplosion? in
            let machine: ConversationStateMachine?
            switch listed {
            case .awake(let awake): machine = awake
            // A schedule is a deadline of its conversation: without one the record need not be read.
            case .asleep(let summary): machine = summary.deadline == nil ? nil : peek(summary.client)
            }
            return machine.flatMap { $0.record.schedule == nil || isOver($0) ? nil : .scheduled($0) }
        }
        return scheduled + core.tombstones.map { .exploded($0) }
    }

    /// What is left of a conversation that has exploded; `nil` for one that lives. What lives goes first: an old tombstone
    /// whose id begins with the name of a conversation must not stand for it.
    /// - Parameter text: as for ``resolve(_:)``; the whole id means its conversation, whatever others are named.
    /// - Throws: as ``resolve(_:)`` for what is neither.
    package func explosion(_ text: String) throws(NodeError) -> ExplodeStateMachine.Record? {
        let lowered = text.lowercased()
        if let id = ConversationID(hex: lowered), core.client(of: id) == nil, let record = core.tombstone(id) {
            return record
        }
        let failure: NodeError
        do throws(NodeError) {
            _ = try resolve(text)
            return nil
        } catch {
            failure = error
        }
        switch failure {
        case .exploded, .unknownConversation, .locked: break
        default: throw failure
        }
        let matches = lowered.isEmpty ? [] : core.tombstones.filter { $0.conversation.description.hasPrefix(lowered) }
        if matches.count > 1 {
            throw .ambiguous(text, matches: matches.map { String($0.conversation.description.prefix(12)) })
        }
        guard let match = matches.first else { throw failure }
        return match
    }
}
