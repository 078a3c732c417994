import Crypto
import Messaging

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

extension AliasRefusal {
    /// - Throws: if the text itself is unfit; does not look for other holders.
    static func check(_ alias: String) throws(AliasRefusal) {
        guard ShownName.isOrdinary(alias), alias.utf8.count <= Limits.nameByteCount, !alias.hasPrefix("-"),
            alias.unicodeScalars.allSatisfy({ $0.value >= 0x20 && !(0x7f..<0xa0).contains($0.value) })
        else { throw .notAnAlias }
        if digitCount(ofID: alias).map({ $0 >= idDigitCount }) ?? false { throw .looksLikeID }
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
