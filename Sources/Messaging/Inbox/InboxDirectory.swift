import Primitives

/// The conversations of a node by id, beginning of an id and name, whether they are awake or asleep.
package struct InboxDirectory: Sendable {
    /// More than one where a member was removed and has joined again: that of before comes first.
    private var clients: [ConversationID: [ClientID]] = [:]
    private var names: [String: Set<ClientID>] = [:]
    private var entries: [ClientID: Entry] = [:]
    /// By the first two bytes of conversation ids and of clientIds.
    private var buckets: [UInt16: Set<ClientID>] = [:]

    private struct Entry: Equatable {
        let conversation: ConversationID
        let name: String?
        let isRemoved: Bool
    }

    package var count: Int { entries.count }

    /// Enters a conversation, or changes its name.
    /// - Parameter isRemoved: it is the copy of a member that was removed; one of a member comes before it.
    mutating func set(_ client: ClientID, _ conversation: ConversationID, name: String?, isRemoved: Bool) {
        let entry = Entry(conversation: conversation, name: name, isRemoved: isRemoved)
        if entries[client] == entry { return }
        remove(client)
        entries[client] = entry
        clients[conversation, default: []].insert(client, at: isRemoved ? 0 : clients[conversation]?.count ?? 0)
        if let name { names[name, default: []].insert(client) }
        for head in Self.heads(client, conversation) { buckets[head, default: []].insert(client) }
    }

    mutating func remove(_ client: ClientID) {
        guard let entry = entries.removeValue(forKey: client) else { return }
        let (conversation, name) = (entry.conversation, entry.name)
        clients[conversation]?.removeAll { $0 == client }
        if clients[conversation]?.isEmpty ?? false { clients[conversation] = nil }
        if let name {
            names[name]?.remove(client)
            if names[name]?.isEmpty ?? false { names[name] = nil }
        }
        for head in Self.heads(client, conversation) {
            buckets[head]?.remove(client)
            if buckets[head]?.isEmpty ?? false { buckets[head] = nil }
        }
    }

    private static func heads(_ client: ClientID, _ conversation: ConversationID) -> [UInt16] {
        [client.bytes, conversation.bytes].map { UInt16($0[0]) << 8 | UInt16($0[1]) }
    }

    // MARK: Finding

    package func client(of conversation: ConversationID) -> ClientID? { clients[conversation]?.last }
    package func clients(of conversation: ConversationID) -> [ClientID] { clients[conversation] ?? [] }
    package func conversation(of client: ClientID) -> ConversationID? { entries[client]?.conversation }
    package func name(of client: ClientID) -> String? { entries[client]?.name }

    /// In the order of their ids.
    package func clients(named name: String) -> [ClientID] { names[name]?.sorted() ?? [] }

    /// Those whose conversation id or clientId begins so, in the order of their ids.
    /// - Parameter prefix: hexadecimal in lower case, with the dashes of a clientId or without; nothing matches another.
    package func clients(beginningWith prefix: String) -> [ClientID] {
        let digits = prefix.filter { $0 != "-" }
        guard !digits.isEmpty, digits.utf8.count <= 64 else { return [] }
        var nibbles: [UInt8] = []
        for digit in digits.utf8 {
            switch digit {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): nibbles.append(digit - UInt8(ascii: "0"))
            case UInt8(ascii: "a")...UInt8(ascii: "f"): nibbles.append(digit - UInt8(ascii: "a") + 10)
            default: return []
            }
        }
        // Dashes are where a clientId has them, or there are none.
        let isDashed = digits.utf8.count != prefix.utf8.count
        func matches(_ client: ClientID) -> Bool {
            if isDashed { return client.description.hasPrefix(prefix) }
            return Self.begins(client.bytes, nibbles)
                || (entries[client].map { Self.begins($0.conversation.bytes, nibbles) } ?? false)
        }
        guard nibbles.count >= 4 else { return entries.keys.filter(matches).sorted() }
        let head = nibbles[..<4].reduce(UInt16(0)) { $0 << 4 | UInt16($1) }
        return (buckets[head] ?? []).filter(matches).sorted()
    }

    private static func begins(_ bytes: [UInt8], _ nibbles: [UInt8]) -> Bool {
        guard nibbles.count <= 2 * bytes.count else { return false }
        for (index, nibble) in nibbles.enumerated() {
            let byte = bytes[index / 2]
            if (index % 2 == 0 ? byte >> 4 : byte & 0x0f) != nibble { return false }
        }
        return true
    }
}
