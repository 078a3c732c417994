import Crypto
import Messaging

/// Aliases of conversations, and which member came by an invite that was sent to a named peer: knowledge of this node's
/// user (specification, *Inboxes*).
final class Aliases: CorePart {
    let core: ProtocolCore
    private let unread: UnreadInboxes
    private let peers: PeerBook

    init(_ core: ProtocolCore, _ unread: UnreadInboxes, _ peers: PeerBook) {
        self.core = core
        self.unread = unread
        self.peers = peers
    }

    /// What the user calls a conversation.
    func alias(of client: ClientID) -> String? {
        let own = inboxes[client]?.notes.alias
        // Of a conversation that was joined again, an earlier copy may have the alias, and the latest one is meant by it.
        guard let conversation = core.machine.conversationID(client) else { return own }
        guard core.machine.client(of: conversation) == client else { return nil }
        return own ?? core.machine.clients(of: conversation).compactMap { inboxes[$0]?.notes.alias }.first
    }

    /// - Throws: ``NodeError/alias(_:)``; another one while an inbox, whose alias this may be, cannot be read.
    func check(_ alias: String, for client: ClientID? = nil) throws(NodeError) {
        do throws(AliasRefusal) { try AliasRefusal.check(alias) } catch { throw .alias(error) }
        if let holder = inboxes.holder(of: alias), holder != client {
            throw .alias(.taken(core.machine.conversationID(holder)))
        }
        if let error = unread.error { throw error }
    }

    /// Of an inbox that has just been taken for a conversation.
    func set(_ alias: String?, of client: ClientID) {
        guard let inbox = inboxes[client] else { return }
        var notes = inbox.notes
        notes.alias = alias
        inboxes.note(notes, of: inbox)
    }

    /// The alias of a conversation that is being made: what was asked for, else its name. A name that means another
    /// conversation here is refused: whoever goes on with that name would say there what is for the new one.
    func new(_ alias: String?, name: String?) throws(NodeError) -> String? {
        let named = name.flatMap { (try? AliasRefusal.check($0)) == nil ? nil : $0 }
        guard let wanted = alias ?? named else { return nil }
        try check(wanted)
        return wanted
    }

    /// The conversation that goes by this alias; of one that was joined again, the copy that goes on.
    func client(aliased text: String) throws(NodeError) -> ClientID? {
        guard let holder = inboxes.holder(of: text) else { return nil }
        // It is there, and the disk does not give it: nobody else is meant.
        guard let conversation = core.machine.conversationID(holder) else {
            throw unread.error ?? .unknownConversation(text)
        }
        return core.machine.client(of: conversation) ?? holder
    }

    /// Before an inbox is saved: its notes follow what has become of it.
    func follow(_ record: InboxRecord, _ inbox: Inbox) {
        let client = record.client
        var changed = inbox.notes
        switch record.role {
        case .unused, .contact: return
        case .joining(let join):
            // Another join may have it.
            if join.state != .joining { changed.alias = nil }
        case .conversation(let conversation):
            changed.follow(conversation)
            if changed.alias == nil, changed.takesName, let name = conversation.name {
                changed.alias = automaticAlias(for: client, name)
            }
            if changed.alias != nil { changed.takesName = false }
        }
        if changed != inbox.notes { inboxes.note(changed, of: inbox) }
    }

    /// The name, or with a number behind it the first that is free: no conversation is called so by its user or by its
    /// members. Otherwise a member could name its conversation as another one is called here.
    private func automaticAlias(for client: ClientID, _ name: String) -> String? {
        guard unread.isEmpty, AliasRefusal.isFit(name) else { return nil }
        let copies = core.machine.conversationID(client).map(core.machine.clients(of:)) ?? []
        // The copy from before has it.
        if copies.contains(where: { $0 != client && inboxes[$0]?.notes.alias != nil }) { return nil }
        let clients = core.machine.clients
        var names: Set<String> = []
        for other in clients where other != client && !copies.contains(other) {
            if let name = core.machine.name(of: other) { names.insert(ShownName.folded(name)) }
        }
        // More numbers than there are conversations are not needed.
        for number in 1...(names.count + clients.count + 2) {
            let candidate = number == 1 ? name : "\(name)-\(number)"
            guard candidate.utf8.count <= Limits.nameByteCount else { return nil }
            if inboxes.holder(of: candidate) == nil, !names.contains(ShownName.folded(candidate)) { return candidate }
        }
        return nil
    }

    /// The named peer that a member was invited as; `nil` for a member that came otherwise, or whose peer is not in
    /// `peers.json` any more.
    func peerName(of member: PublicKey, in client: ClientID) -> String? {
        guard let guest = inboxes[client]?.notes.guests.first(where: { $0.member == member }) else { return nil }
        return peers.peer(guest.peer)?.name
    }
}
