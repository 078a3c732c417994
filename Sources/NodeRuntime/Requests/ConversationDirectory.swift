import Cryptography
import Messaging
import Store

package enum ListedConversation {
    case awake(Conversation)
    case asleep(InboxSummary)

    package var client: ClientID {
        switch self {
        case .awake(let machine): machine.client
        case .asleep(let summary): summary.client
        }
    }
}

package enum ListedExplosion {
    case exploded(ExplosionRecord)
    /// The conversation still exists.
    case scheduled(Conversation)
}

/// Resolves the conversations and inboxes that users name, and runs commands on them.
final class ConversationDirectory: Part {
    /// Limit of matches shown for an ambiguous name.
    static let shownMatches = 16

    func checkUnlocked() throws(NodeError) { if store.isLocked { throw .locked } }

    /// - Parameter text: an id, an alias, an unambiguous prefix of an id or of an inbox's clientId, or an unambiguous
    ///   name.
    func resolve(_ text: String) throws(NodeError) -> ClientID {
        try checkUnlocked()
        if let id = ConversationID(hex: text), let client = core.machine.client(of: id) { return client }
        // Before names and ids, which other members choose: they must not take over an alias.
        if let client = try shell.aliases.client(aliased: text) { return client }
        let lowered = text.lowercased()
        let matches = core.machine.directory.clients(beginningWith: lowered)
        let all = matches.isEmpty ? core.machine.directory.clients(named: text) : matches
        if !lowered.isEmpty, all.count == 1 { return all[0] }
        // After a removal and rejoin, the text means the current copy; the other copy has its clientId.
        let conversations = Set(all.compactMap { core.machine.conversationID($0) })
        if !lowered.isEmpty, conversations.count == 1,
            let client = conversations.first.flatMap({ core.machine.client(of: $0) }), all.contains(client)
        {
            return client
        }
        if !lowered.isEmpty, all.count > 1 {
            let shown = all.prefix(Self.shownMatches).compactMap { client in
                core.machine.conversationID(client).map { id in
                    "\(id.description.prefix(12))\(shell.aliases.alias(of: client).map { " (\($0))" } ?? "")"
                }
            }
            let rest = all.count > shown.count ? ["and \(all.count - shown.count) more"] : []
            throw .ambiguous(text, matches: shown + rest)
        }
        if let gone = ConversationID(hex: lowered).flatMap({ core.machine.tombstone($0) }) { throw exploded(gone) }
        // An alias goes before the prefix of an id, as for live conversations.
        if shell.unread.error == nil, let gone = tombstones(named: text).last { throw exploded(gone) }
        if !lowered.isEmpty,
            let gone = core.machine.tombstones.first(where: { $0.conversation.description.hasPrefix(lowered) })
        {
            throw exploded(gone)
        }
        if let over = core.machine.conversations.first(where: {
            shell.explosions.isOver($0) && $0.conversation.description.hasPrefix(lowered)
        }), !lowered.isEmpty {
            throw .exploded(over.conversation, called: shell.aliases.alias(of: over.client))
        }
        // An unreadable inbox may match.
        throw shell.unread.error ?? unknown(text)
    }

    /// Suggests one of ``list()``, an alias before a name. A search of many conversations would hold up the links.
    private func unknown(_ text: String) -> NodeError {
        guard core.machine.clients.count <= 1_000 else { return .unknownConversation(text, meant: nil) }
        let clients = ((try? list()) ?? []).map(\.client)
        let aliases = clients.compactMap { shell.aliases.alias(of: $0) }
        let names = aliases + clients.compactMap { core.machine.name(of: $0) }
        return .unknownConversation(text, meant: names.nearest(to: text, folded: ShownName.folded))
    }

    /// - Parameter text: a clientId or its beginning, or a name of its conversation.
    func resolveInbox(_ text: String) throws(NodeError) -> ClientID {
        let lowered = text.lowercased()
        if let whole = ClientID(hex: lowered), core.machine.contains(whole) { return whole }
        if let client = try shell.aliases.client(aliased: text) { return client }
        let matches = lowered.isEmpty ? [] : core.machine.clients.filter { $0.description.hasPrefix(lowered) }
        if matches.count == 1 { return matches[0] }
        do throws(NodeError) { return try resolve(text) } catch {
            if matches.count > 1 { throw .ambiguous(text, matches: matches.map(\.description)) }
            if case .unknownConversation = error {
                throw .notFound("no inbox `\(text)`", "`mayfly inbox list` shows the inboxes")
            }
            throw error
        }
    }

    /// - Parameter text: as for ``resolve(_:)``. Throws the same errors.
    func conversation(_ text: String) throws(NodeError) -> Conversation {
        guard let machine = shell.sleep.peek(try resolve(text)) else { throw unknown(text) }
        return machine
    }

    /// In order of creation; wakes no inbox.
    /// - Throws: ``NodeError/locked``.
    func list() throws(NodeError) -> [ListedConversation] {
        try checkUnlocked()
        return core.machine.clients.compactMap { client in
            if let summary = core.machine.summary(client) { return .asleep(summary) }
            return core.machine.conversation(client).flatMap { shell.explosions.isOver($0) ? nil : .awake($0) }
        }
    }

    func command<Result>(_ text: String, _ body: (Conversation, inout Turn) throws(CommandError) -> Result)
        throws(NodeError) -> (ClientID, Result)
    {
        let client = try resolve(text)
        try shell.sleep.wake(client, .userInteraction)
        do throws(NodeError) {
            return (
                client, try core.request { turn throws(CommandError) in try core.machine.command(client, &turn, body) }
            )
        } catch {
            guard case .command(.unknownConversation) = error else { throw error }
            throw unknown(text)
        }
    }

    /// Makes an invite to a conversation of ours.
    func invite(_ text: String, lifetime: Milliseconds, singleUse: Bool) throws(NodeError) -> (
        client: ClientID, VerifiedInvite, slug: String
    ) {
        let (client, invite) = try command(text) { machine, turn throws(CommandError) in
            try machine.invite(lifetime: lifetime, singleUse: singleUse, &turn)
        }
        guard let key = inboxes[client]?.key else { throw .stopping }
        let signed = SignedInvite(payload: InviteSlug.encodePayload(invite), signedBy: key.secret)
        guard let verified = InviteSlug.verify(signed) else { throw .stopping }
        return (client, verified, InviteSlug.encode(signed))
    }

    /// Checks whether an invite could be made now.
    /// - Throws: the errors of ``invite(_:lifetime:singleUse:)``.
    func checkInvite(_ text: String, lifetime: Milliseconds) throws(NodeError) -> (ClientID, ConversationID) {
        let machine = try conversation(text)
        do throws(CommandError) { try machine.checkInvite(now: now) } catch { throw .command(error) }
        return (machine.client, machine.conversation)
    }

    func joins() throws(NodeError) -> [JoiningStateMachine] {
        try checkUnlocked()
        return core.machine.joins
    }

    func resolveJoin(_ text: String) throws(NodeError) -> JoiningStateMachine {
        let matches = try joins().filter { $0.client.description.hasPrefix(text.lowercased()) }
        guard let first = matches.first, !text.isEmpty else {
            throw .notFound("no join `\(text)`", "`mayfly join list` shows the joins")
        }
        guard matches.count == 1 else { throw .ambiguous(text, matches: matches.map(\.client.description)) }
        return first
    }

    /// The result of a join; `nil` while it is running.
    func joinOutcome(_ client: ClientID) -> Result<Conversation, NodeError>? {
        if let conversation = shell.sleep.peek(client) { return .success(conversation) }
        guard let join = core.machine.joins.first(where: { $0.client == client }) else {
            return .failure(.joinCancelled)
        }
        switch join.record.state {
        case .joining: return nil
        case .joinFailed(let type): return .failure(.joinFailed(type))
        case .cancelled: return .failure(.joinCancelled)
        case .ready: return nil
        }
    }

    /// Explosions with a tombstone, and scheduled ones; wakes no inbox.
    /// - Throws: ``NodeError/locked``.
    func listExplosions() throws(NodeError) -> [ListedExplosion] {
        let scheduled = try list().compactMap { listed -> ListedExplosion? in
            let machine: Conversation?
            switch listed {
            case .awake(let awake): machine = awake
            // A schedule is a deadline: without one, the record need not be read.
            case .asleep(let summary): machine = summary.deadline == nil ? nil : shell.sleep.peek(summary.client)
            }
            return machine.flatMap { $0.record.schedule == nil || shell.explosions.isOver($0) ? nil : .scheduled($0) }
        }
        return scheduled + core.machine.tombstones.map { .exploded($0) }
    }

    /// The tombstone of an exploded conversation; `nil` for a live one. Live conversations go first: an old tombstone
    /// must not match a live conversation's name by its id.
    /// - Parameter text: as for ``resolve(_:)``; a complete id always means its own conversation.
    /// - Throws: the errors of ``resolve(_:)`` if neither exists.
    func explosion(_ text: String) throws(NodeError) -> ExplosionRecord? {
        let lowered = text.lowercased()
        if let id = ConversationID(hex: lowered), core.machine.client(of: id) == nil,
            let record = core.machine.tombstone(id)
        {
            return record
        }
        let failure: NodeError
        do throws(NodeError) {
            _ = try resolve(text)
            return nil
        } catch { failure = error }
        switch failure {
        case .exploded, .unknownConversation, .locked: break
        default: throw failure
        }
        if let named = tombstones(named: text).last { return named }
        let matches =
            lowered.isEmpty ? [] : core.machine.tombstones.filter { $0.conversation.description.hasPrefix(lowered) }
        if matches.count > 1 {
            throw .ambiguous(text, matches: matches.map { String($0.conversation.description.prefix(12)) })
        }
        guard let match = matches.first else { throw failure }
        return match
    }

    private func exploded(_ gone: ExplosionRecord) -> NodeError { .exploded(gone.conversation, called: gone.name) }

    /// Tombstones with this alias, newest last.
    private func tombstones(named text: String) -> [ExplosionRecord] {
        let name = ShownName.folded(text)
        return core.machine.tombstones.filter { $0.name.map { ShownName.folded($0) == name } ?? false }.sorted {
            $0.explodedAt < $1.explodedAt
        }
    }
}
