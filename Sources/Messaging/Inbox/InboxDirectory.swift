import Cryptography

/// The node's conversations, awake or asleep, by id, prefix of an id, and name.
package struct InboxDirectory {
    /// Several copies if a member was removed and has joined again: in order of creation, the present member's copy
    /// last.
    private var entries: [ConversationID: [InboxEntry]] = [:]
    private var names: [String: Set<InboxEntry>] = [:]
    /// By the first two bytes of conversation ids and of clientIds.
    private var buckets: [UInt16: Set<InboxEntry>] = [:]
    package private(set) var count = 0

    mutating func set(_ entry: InboxEntry, _ listing: InboxListing) {
        if entry.listing == listing { return }
        remove(entry)
        entry.listing = listing
        count += 1
        var copies = entries[listing.conversation] ?? []
        let later = copies.firstIndex { copy in
            guard let other = copy.listing, other.isRemoved == listing.isRemoved else { return listing.isRemoved }
            return (copy.createdAt, copy.client) > (entry.createdAt, entry.client)
        }
        copies.insert(entry, at: later ?? copies.count)
        entries[listing.conversation] = copies
        if let name = listing.name { names[name, default: []].insert(entry) }
        for head in Self.heads(entry.client, listing.conversation) { buckets[head, default: []].insert(entry) }
    }

    mutating func remove(_ entry: InboxEntry) {
        guard let listing = entry.listing else { return }
        entry.listing = nil
        count -= 1
        entries[listing.conversation]?.removeAll { $0 == entry }
        if entries[listing.conversation]?.isEmpty ?? false { entries[listing.conversation] = nil }
        if let name = listing.name {
            names[name]?.remove(entry)
            if names[name]?.isEmpty ?? false { names[name] = nil }
        }
        for head in Self.heads(entry.client, listing.conversation) {
            buckets[head]?.remove(entry)
            if buckets[head]?.isEmpty ?? false { buckets[head] = nil }
        }
    }

    private static func heads(_ client: ClientID, _ conversation: ConversationID) -> [UInt16] {
        [client.bytes, conversation.bytes].map { UInt16($0[0]) << 8 | UInt16($0[1]) }
    }

    /// The present member's copy, if there are several.
    package func client(of conversation: ConversationID) -> ClientID? { entries[conversation]?.last?.client }
    package func clients(of conversation: ConversationID) -> [ClientID] { copies(of: conversation).map(\.client) }
    func copies(of conversation: ConversationID) -> [InboxEntry] { entries[conversation] ?? [] }

    /// In the order of their ids.
    package func clients(named name: String) -> [ClientID] { names[name]?.map(\.client).sorted() ?? [] }

    /// By conversation id or clientId, in the order of their ids.
    /// - Parameter prefix: hexadecimal in lower case, with all dashes of a clientId or none; any other text matches
    ///   nothing.
    package func clients(beginningWith prefix: String) -> [ClientID] {
        let digits = prefix.filter { $0 != "-" }
        guard !digits.isEmpty, digits.utf8.count <= 64, let nibbles = Hex.values(digits) else { return [] }
        // With dashes, only a clientId can match.
        let isDashed = digits.utf8.count != prefix.utf8.count
        func matches(_ entry: InboxEntry) -> Bool {
            if isDashed { return entry.client.description.hasPrefix(prefix) }
            return Self.begins(entry.client.bytes, nibbles)
                || (entry.listing.map { Self.begins($0.conversation.bytes, nibbles) } ?? false)
        }
        guard nibbles.count >= 4 else { return entries.values.joined().filter(matches).map(\.client).sorted() }
        let head = nibbles[..<4].reduce(UInt16(0)) { $0 << 4 | UInt16($1) }
        return (buckets[head] ?? []).filter(matches).map(\.client).sorted()
    }

    private static func begins(_ bytes: [UInt8], _ nibbles: [UInt8]) -> Bool {
        nibbles.count <= 2 * bytes.count
            && nibbles.indices.allSatisfy { bytes[$0 / 2] >> ($0 % 2 == 0 ? 4 : 0) & 0x0f == nibbles[$0] }
    }
}
