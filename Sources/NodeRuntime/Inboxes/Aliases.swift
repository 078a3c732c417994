import Cryptography
import Messaging

/// Aliases of conversations, and named peers of members who joined by a sent invite. Local to this node (Delivery.md).
final class Aliases: Part {
    func alias(of client: ClientID) -> String? {
        let own = inboxes[client]?.notes.alias
        // After a rejoin an earlier copy may hold the alias; it belongs to the latest copy.
        guard let conversation = core.machine.conversationID(client) else { return own }
        guard core.machine.client(of: conversation) == client else { return nil }
        return own ?? core.machine.clients(of: conversation).compactMap { inboxes[$0]?.notes.alias }.first
    }

    /// - Throws: if the alias is unfit or taken, and while any inbox is unreadable, since it might hold this alias.
    func check(_ alias: String, for client: ClientID? = nil) throws(NodeError) {
        try Alias.check(alias)
        if let holder = inboxes.holder(of: alias), holder != client {
            let conversation = core.machine.conversationID(holder).map { String($0.description.prefix(12)) }
            let free = conversation.map { ", or free this one: `mayfly conversation alias \($0) --remove`" } ?? ""
            throw .failed(
                "another conversation has this alias, or a similar one\(conversation.map { ": \($0)" } ?? "")",
                "choose another alias (create and join take --alias NAME)\(free)")
        }
        if let error = shell.unread.error { throw error }
    }

    /// For an inbox that has just become a conversation.
    func set(_ alias: String?, of client: ClientID) {
        guard let inbox = inboxes[client] else { return }
        var notes = inbox.notes
        notes.alias = alias
        inboxes.note(notes, of: inbox)
    }

    /// The alias for a new conversation: the requested one, or its name. A name that is another conversation's alias is
    /// refused, or the user would send its messages there.
    func new(_ alias: String?, name: String?) throws(NodeError) -> String? {
        let named = name.flatMap { (try? Alias.check($0)) == nil ? nil : $0 }
        guard let wanted = alias ?? named else { return nil }
        try check(wanted)
        return wanted
    }

    func client(aliased text: String) throws(NodeError) -> ClientID? {
        guard let holder = inboxes.holder(of: text) else { return nil }
        // The holder is unreadable; the alias refers to no other inbox.
        guard let conversation = core.machine.conversationID(holder) else {
            throw shell.unread.error ?? .unknownConversation(text)
        }
        return core.machine.client(of: conversation) ?? holder
    }

    /// Updates the notes before an inbox is saved.
    func follow(_ record: InboxRecord, _ inbox: Inbox) {
        let client = record.client
        var changed = inbox.notes
        switch record.role {
        case .unused, .contact: return
        case .joining(let join):
            // Frees the alias for another join.
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

    /// The name, with a number if it is taken as an alias or a name of another conversation. Otherwise a member could
    /// give its conversation the name that the user gave another one.
    private func automaticAlias(for client: ClientID, _ name: String) -> String? {
        guard shell.unread.isEmpty, Alias.isFit(name) else { return nil }
        let copies = core.machine.conversationID(client).map(core.machine.clients(of:)) ?? []
        if copies.contains(where: { $0 != client && inboxes[$0]?.notes.alias != nil }) { return nil }
        let clients = core.machine.clients
        var names: Set<String> = []
        for other in clients where other != client && !copies.contains(other) {
            if let name = core.machine.name(of: other) { names.insert(ShownName.folded(name)) }
        }
        // One of these numbers is free, whatever the names are.
        for number in 1...(names.count + clients.count + 2) {
            let candidate = number == 1 ? name : "\(name)-\(number)"
            guard candidate.utf8.count <= Limits.nameByteCount else { return nil }
            if inboxes.holder(of: candidate) == nil, !names.contains(ShownName.folded(candidate)) { return candidate }
        }
        return nil
    }

    /// The named peer that a member was invited as; `nil` for other members, or if the peer has left `peers.json`.
    func peerName(of member: PublicKey, in client: ClientID) -> String? {
        guard let guest = inboxes[client]?.notes.guests.first(where: { $0.member == member }) else { return nil }
        return shell.book.peer(guest.peer)?.name
    }
}

/// Comparison of displayed names, and the check for names that cannot be confused.
package enum ShownName {
    /// The name with a single space in place of each run of invisible characters, and none at its ends.
    package static func onOneBlank(_ name: String) -> String {
        name.split { !$0.unicodeScalars.contains(where: \.isVisible) }.joined(separator: " ")
    }

    /// The name without case and invisible characters. Ordinary names that read alike compare equal, since strings
    /// compare by canonical equivalence.
    package static func folded(_ name: String) -> String {
        // Both conversions, since some letters exist in one case only: `ß` becomes `ss`.
        String(String.UnicodeScalarView(name.unicodeScalars.filter(\.isVisible))).uppercased().lowercased()
    }

    /// Whether a name has visible characters only, single spaces between them, and no compatibility characters, such as
    /// fullwidth letters. Compatibility characters would need NFKC first. A terminal may show nothing for an unassigned
    /// code point.
    package static func isOrdinary(_ name: String) -> Bool {
        let folded = folded(name)
        return !folded.isEmpty && name == onOneBlank(name)
            && !folded.unicodeScalars.contains {
                $0.properties.changesWhenNFKCCaseFolded || $0.properties.generalCategory == .unassigned
            }
    }
}

/// Local notes about one conversation, never sent. Sealed with the inbox's state.
struct InboxNotes: Hashable, Sendable, Codable {
    /// An unused invite that was sent to a named peer.
    struct SentInvite: Hashable, Sendable, Codable {
        var invite: InviteID
        /// The key of the peer's contact inbox, so that the note follows `peers.json`.
        var peer: PublicKey
    }

    /// A member that joined by an invite sent to a named peer.
    struct Guest: Hashable, Sendable, Codable {
        var member: PublicKey
        /// The key of the peer's contact inbox.
        var peer: PublicKey
    }

    /// Unique on this node.
    var alias: String?
    /// The conversation's name becomes its alias when possible. False once the user has set or removed an alias.
    var takesName = true
    /// At most as many as open invites.
    var sentInvites: [SentInvite] = []
    /// At most as many as present and former members.
    var guests: [Guest] = []
    /// ``MessageArchive/shownPlace`` at the last save.
    var shownPlace: UInt64 = 0
    /// The number of unread stored messages when the inbox fell asleep; `nil` once messages have come since.
    var unreadCount: UInt32?

    /// Moves redeemed invites to `guests`, and drops invites that no longer exist.
    mutating func follow(_ record: ConversationRecord) {
        if !sentInvites.isEmpty {
            let issued = record.issuer?.invites ?? []
            for sent in sentInvites {
                guard let member = issued.first(where: { $0.id == sent.invite })?.admitted.first else { continue }
                guests.append(Guest(member: member, peer: sent.peer))
            }
            sentInvites.removeAll { sent in issued.first { $0.id == sent.invite }.map { !$0.admitted.isEmpty } ?? true }
        }
        if !guests.isEmpty { guests.removeAll { guest in !record.members.contains { $0.key == guest.member } } }
    }
}

/// The holders of aliases, by folded alias, so that no two aliases read alike.
struct AliasTable {
    private var holders: [String: ClientID] = [:]

    /// Replaces the alias of an inbox.
    /// - Returns: its alias now; `nil` if another inbox holds the new one.
    mutating func replace(_ old: String?, by new: String?, of client: ClientID) -> String? {
        if let old { holders[ShownName.folded(old)] = nil }
        guard let new, holder(of: new) == nil else { return nil }
        holders[ShownName.folded(new)] = client
        return new
    }

    func holder(of alias: String) -> ClientID? { holders[ShownName.folded(alias)] }
}

enum Alias {
    /// - Throws: if the text itself is unfit; does not look for other holders.
    static func check(_ alias: String) throws(NodeError) {
        guard ShownName.isOrdinary(alias), alias.utf8.count <= Limits.nameByteCount, !alias.hasPrefix("-") else {
            throw .usage(
                "this is not an alias",
                "use up to \(Limits.nameByteCount) bytes of visible characters, one blank between words, no `-` first")
        }
        if digitCount(ofID: alias).map({ $0 >= idDigitCount }) ?? false {
            throw .usage("an alias may not look like the beginning of an id", "choose another")
        }
    }

    /// Whether a conversation's name may become its alias automatically. Stricter than ``check(_:)``: a member chose
    /// it, so it must not match the beginning of an id, however short.
    static func isFit(_ name: String) -> Bool { (try? check(name)) != nil && digitCount(ofID: name) == nil }

    /// The number of hexadecimal digits of an id that people and scripts copy.
    private static let idDigitCount = 8

    /// - Returns: the number of hexadecimal digits; `nil` for a text that cannot begin an id.
    private static func digitCount(ofID text: String) -> Int? {
        let digits = text.utf8.filter { $0 != UInt8(ascii: "-") }
        let isHexadecimal = digits.allSatisfy { byte in
            (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
                || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains(byte | 0x20)
        }
        return isHexadecimal ? digits.count : nil
    }
}
