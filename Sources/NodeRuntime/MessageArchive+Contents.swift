import Messaging
import Primitives
import Store
import Wire

/// Chunks of files beside their messages, and reactions by the message that they are at.
extension MessageArchive {
    // MARK: Chunks

    mutating func keep(
        _ chunk: AttachmentChunk,
        _ keeping: NodeAction.Keeping,
        expiresAt: Timestamp?,
        client: ClientID,
        row: RowID
    ) throws(StoreError) {
        switch keeping {
        case .disk(let lifetime):
            guard let tier = lifetime.tier, let expiresAt else { return }
            let id = try chunkID(chunk.message, chunk.index, client, row)
            // It came twice: the first one is as good.
            if try store.contains(row, id: id) { return }
            try store.append(
                row,
                id: id,
                tier: tier,
                expiresAt: expiresAt.milliseconds,
                payload: StoredCodec.encode(chunk),
                isHidden: true
            )
        case .memory, .untilUnlocked:
            let before = heldChunks[client, default: [:]][chunk.message, default: [:]].updateValue(
                chunk,
                forKey: chunk.index
            )
            heldChunkByteCount += Int64(chunk.bytes.count - (before?.bytes.count ?? 0))
        }
    }

    mutating func hasChunk(_ index: Int, of message: Messaging.MessageID, client: ClientID, row: RowID?) -> Bool {
        if heldChunks[client]?[message]?[index] != nil { return true }
        guard let row, !store.isLocked, let id = try? chunkID(message, index, client, row) else { return false }
        return (try? store.contains(row, id: id)) ?? false
    }

    /// `nil` when it is not, or no longer, here.
    mutating func chunk(
        _ index: Int,
        of message: Messaging.MessageID,
        client: ClientID,
        row: RowID?,
        now: Timestamp
    ) throws(StoreError) -> AttachmentChunk? {
        if let chunk = heldChunks[client]?[message]?[index] { return chunk }
        guard let row, !store.isLocked,
            let bytes = try store.read(
                row,
                id: try chunkID(message, index, client, row),
                now: now.milliseconds
            )
        else { return nil }
        return try? StoredCodec.decodeChunk(bytes, message: message, index: index)
    }

    /// Overwrites every chunk of a file.
    mutating func forgetChunks(_ message: Messaging.MessageID, client: ClientID, row: RowID?) throws(StoreError) {
        forgetHeldChunks(message, client)
        guard let row, !store.isLocked else { return }
        guard let bytes = try store.read(row, id: message.bytes, now: 0),
            let (known, _) = try? StoredCodec.decodeMessage(bytes), let attachment = known.content.attachment
        else { return }
        try forgetChunks(message, count: attachment.chunkCount, client: client, row: row)
    }

    /// - Parameter count: how many there may be; the message need not be here.
    mutating func forgetChunks(
        _ message: Messaging.MessageID,
        count: Int,
        client: ClientID,
        row: RowID
    ) throws(StoreError) {
        for index in 0..<count {
            let id = try chunkID(message, index, client, row)
            if try store.contains(row, id: id) { try store.erase(row, id: id) }
        }
    }

    /// The chunks of a file go with its message.
    mutating func rescheduleChunks(
        _ message: Messaging.MessageID,
        count: Int,
        tier: Tier,
        expiresAt: Timestamp,
        client: ClientID,
        row: RowID
    ) throws(StoreError) {
        for index in 0..<count {
            let id = try chunkID(message, index, client, row)
            guard try store.contains(row, id: id) else { continue }
            try store.reschedule(row, id: id, tier: tier, expiresAt: expiresAt.milliseconds)
        }
    }

    mutating func forgetHeldChunks(_ message: Messaging.MessageID, _ client: ClientID) {
        guard let gone = heldChunks[client]?.removeValue(forKey: message) else { return }
        heldChunkByteCount -= gone.values.reduce(0) { $0 + Int64($1.bytes.count) }
        if heldChunks[client]?.isEmpty ?? false { heldChunks[client] = nil }
    }

    private static let prefixByteCount = 12

    /// Not to be guessed by a peer, whose message could take its place otherwise.
    private mutating func chunkID(
        _ message: Messaging.MessageID,
        _ index: Int,
        _ client: ClientID,
        _ row: RowID
    ) throws(StoreError) -> [UInt8] {
        let prefix = try chunkPrefix(message, client, row)
        return prefix + withUnsafeBytes(of: UInt32(clamping: index).littleEndian) { Array($0) }
    }

    private mutating func chunkPrefix(
        _ message: Messaging.MessageID,
        _ client: ClientID,
        _ row: RowID
    ) throws(StoreError) -> [UInt8] {
        if let known = chunkPrefixes[client]?[message] { return known }
        let secret = try store.secret(row, label: "attachment chunks")
        let prefix = Array(
            BLAKE2b.authenticate(key: secret, message.bytes, byteCount: 16).prefix(Self.prefixByteCount)
        )
        if chunkPrefixes[client, default: [:]].count >= 64 { chunkPrefixes[client] = [:] }
        chunkPrefixes[client, default: [:]][message] = prefix
        return prefix
    }

    // MARK: Reactions

    /// Reactions that are shown at one message.
    private static let reactionCount = 256

    mutating func noteReaction(_ content: Content, _ client: ClientID) {
        guard case .reaction(let reaction) = content.body else { return }
        reactions[client, default: [:]][reaction.message, default: []].append(content.id)
        // Beyond that the oldest are not shown any more.
        if reactions[client]![reaction.message]!.count > Self.reactionCount {
            reactions[client]![reaction.message]!.removeFirst()
        }
    }

    /// Looks through what is hidden in an inbox that has been loaded.
    /// - Parameter messages: all that are listed.
    /// - Returns: reactions of ours that were not delivered.
    mutating func restoreHidden(
        client: ClientID,
        row: RowID,
        messages: [Message],
        now: Timestamp
    ) throws(StoreError) -> [Message] {
        reactions[client] = nil
        for entry in held[client] ?? [] { noteReaction(entry.message.content, client) }
        let hidden = try store.hiddenIDs(row)
        guard !hidden.isEmpty else { return [] }
        var prefixes: Set<[UInt8]> = []
        for message in messages where message.content.attachment != nil {
            prefixes.insert(try chunkPrefix(message.content.id, client, row))
        }
        var found: [(message: Message, arrivedAt: Timestamp)] = []
        for id in hidden where !prefixes.contains(Array(id.prefix(Self.prefixByteCount))) {
            guard let bytes = try store.read(row, id: id, now: now.milliseconds) else { continue }
            if let stored = try? StoredCodec.decodeMessage(bytes) {
                found.append((stored.0, stored.arrivedAt))
            } else {
                // A chunk of a file that its user had not handed over completely when the node ended.
                try store.erase(row, id: id)
            }
        }
        found.sort { ($0.arrivedAt, $0.message.content.id) < ($1.arrivedAt, $1.message.content.id) }
        for (message, _) in found { noteReaction(message.content, client) }
        return found.map(\.message).filter { $0.sender == nil && ($0.state == .queued || $0.state == .sent) }
    }

    /// Who stands by which sign at a message, in the order in which they were put there.
    mutating func reactions(
        to message: Messaging.MessageID,
        client: ClientID,
        row: RowID?,
        now: Timestamp
    ) -> [(sender: PublicKey?, emoji: String)] {
        guard let ids = reactions[client]?[message] else { return [] }
        var result: [(sender: PublicKey?, emoji: String)] = []
        var left: [Messaging.MessageID] = []
        for id in ids {
            guard let one = read(id, client: client, row: row, now: now)?.message,
                case .reaction(let reaction) = one.content.body
            else { continue }
            left.append(id)
            let sender = one.sender
            result.removeAll { $0.sender == sender && $0.emoji == reaction.emoji }
            if !reaction.isRemoved { result.append((sender, reaction.emoji)) }
        }
        // What has expired is not looked for again.
        if !store.isLocked { reactions[client]?[message] = left.isEmpty ? nil : left }
        return result
    }
}
