import Crypto
import Messaging

/// What this node notes for its own user about one conversation, and tells nobody. Sealed with the inbox's state, it goes
/// with it.
struct InboxNotes: Hashable, Sendable, Codable {
    /// An invite that was sent to a named peer and that nobody has used yet.
    struct SentInvite: Hashable, Sendable, Codable {
        var invite: InviteID
        /// Of the peer's contact inbox, so that the note follows `peers.json`.
        var peer: PublicKey
    }

    /// A member that has joined by an invite that was sent to a named peer.
    struct Guest: Hashable, Sendable, Codable {
        var member: PublicKey
        /// Of the peer's contact inbox.
        var peer: PublicKey
    }

    /// What the user calls the conversation; unique on this node.
    var alias: String?
    /// The conversation's name becomes its alias as soon as it can. Not any more once the user has said otherwise.
    var takesName = true
    /// At most as many as the conversation has open invites.
    var sentInvites: [SentInvite] = []
    /// At most as many as the conversation has members, present and former.
    var guests: [Guest] = []
    /// ``MessageArchive/shownPlace`` at the last save.
    var shownPlace: UInt64 = 0
    /// The number of unread stored messages when the inbox fell asleep; `nil` when messages came since.
    var unreadCount: UInt32?

    /// Takes up what the conversation says now: who has come by which invite, and which invites are gone.
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

/// Who has an alias, by the alias as it reads, so that no two read alike.
struct AliasTable {
    private var holders: [String: ClientID] = [:]

    /// An inbox gives one alias up and takes another.
    /// - Returns: the alias that it has now: none where another inbox has it already.
    mutating func replace(_ old: String?, by new: String?, of client: ClientID) -> String? {
        if let old { holders[ShownName.folded(old)] = nil }
        guard let new, holder(of: new) == nil else { return nil }
        holders[ShownName.folded(new)] = client
        return new
    }

    /// The inbox whose alias reads like this one.
    func holder(of alias: String) -> ClientID? { holders[ShownName.folded(alias)] }
}

/// Why an alias is not given.
package enum AliasRefusal: Error, Hashable {
    /// Another conversation has it, or one that reads like it.
    case taken(ConversationID?)
    /// It could be taken for the beginning of an id.
    case looksLikeID
    /// Not ordinary text of at most ``Messaging/Limits/nameByteCount`` bytes, or an option of the command line.
    case notAnAlias

    /// - Throws: what is wrong with the alias itself.
    static func check(_ alias: String) throws(AliasRefusal) {
        guard ShownName.isOrdinary(alias), alias.utf8.count <= Limits.nameByteCount, !alias.hasPrefix("-"),
            alias.unicodeScalars.allSatisfy({ $0.value >= 0x20 && !(0x7f..<0xa0).contains($0.value) })
        else { throw .notAnAlias }
        if digitCount(ofID: alias).map({ $0 >= idDigitCount }) ?? false { throw .looksLikeID }
    }

    /// Whether a name that another member has chosen may become an alias by itself: it must not stand for the beginning
    /// of an id, however short.
    static func isFit(_ name: String) -> Bool { (try? check(name)) != nil && digitCount(ofID: name) == nil }

    /// As many hexadecimal digits of an id as people and scripts copy.
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
