import Cryptography
import Messaging
import Store

/// Chunks of files, stored beside their messages, and reactions by target message.
extension MessageArchive {
    /// - Returns: false for a duplicate; the first chunk is kept.
    func keep(_ chunk: AttachmentChunk, _ keeping: NodeAction.Keeping, expiresAt: Timestamp?) throws(StoreError) -> Bool
    {
        switch keeping {
        case .disk(let lifetime):
            guard let tier = lifetime.tier, let expiresAt else { return false }
            let id = try chunkID(chunk.message, chunk.index)
            if try store.contains(row, id: id) { return false }
            try store.append(
                row, id: id, tier: tier, expiresAt: expiresAt.milliseconds, payload: StoredCodec.encode(chunk),
                isHidden: true)
        case .memory, .untilUnlocked:
            let before = heldChunks[chunk.message, default: [:]].updateValue(chunk, forKey: chunk.index)
            memory.chunkByteCount += Int64(chunk.bytes.count - (before?.bytes.count ?? 0))
        }
        return true
    }

    func hasChunk(_ index: Int, of message: Messaging.MessageID) -> Bool {
        if heldChunks[message]?[index] != nil { return true }
        guard !store.isLocked, let id = try? chunkID(message, index) else { return false }
        return (try? store.contains(row, id: id)) ?? false
    }

    /// `nil` if absent or expired.
    func chunk(_ index: Int, of message: Messaging.MessageID, now: Timestamp) throws(StoreError) -> AttachmentChunk? {
        if let chunk = heldChunks[message]?[index] { return chunk }
        guard !store.isLocked, let bytes = try store.read(row, id: try chunkID(message, index), now: now.milliseconds)
        else { return nil }
        return try? StoredCodec.decodeChunk(bytes, message: message, index: index)
    }

    func forgetChunks(_ message: Messaging.MessageID) throws(StoreError) {
        forgetHeldChunks(message)
        guard !store.isLocked else { return }
        guard let bytes = try store.read(row, id: message.value, now: 0),
            let (known, _) = try? StoredCodec.decodeMessage(bytes), let attachment = known.content.attachment
        else { return }
        try forgetChunks(message, count: attachment.chunkCount)
    }

    /// - Parameter count: the maximum number of chunks; the message need not exist.
    func forgetChunks(_ message: Messaging.MessageID, count: Int) throws(StoreError) {
        for index in 0..<count {
            let id = try chunkID(message, index)
            if try store.contains(row, id: id) { try store.erase(row, id: id) }
        }
    }

    /// Chunks expire with their message.
    func rescheduleChunks(_ message: Messaging.MessageID, count: Int, tier: Tier, expiresAt: Timestamp)
        throws(StoreError)
    {
        for index in 0..<count {
            let id = try chunkID(message, index)
            guard try store.contains(row, id: id) else { continue }
            try store.reschedule(row, id: id, tier: tier, expiresAt: expiresAt.milliseconds)
        }
    }

    func forgetHeldChunks(_ message: Messaging.MessageID) {
        guard let gone = heldChunks.removeValue(forKey: message) else { return }
        memory.chunkByteCount -= gone.values.reduce(0) { $0 + Int64($1.bytes.count) }
    }

    /// The index of the mark of a message that was read: no file has so many chunks.
    private static let readMark = Int(UInt32.max)
    /// A copy from a mailbox may seem younger than it is, by the width of a slice at most.
    private static let readMarkSlack: Milliseconds = 12 * .hour

    /// Whether reading has shortened a member's message, and a copy may still come; also if the message has expired.
    func wasRead(_ message: Messaging.MessageID) -> Bool { hasChunk(Self.readMark, of: message) }

    /// Secret, or a peer could choose a message id that collides with a chunk's.
    private func chunkID(_ message: Messaging.MessageID, _ index: Int) throws(StoreError) -> Bytes16 {
        let prefix = try chunkPrefix(message)
        return Bytes16(prefix.first, prefix.second | UInt64(UInt32(clamping: index)))
    }

    /// The id of a message's chunk 0.
    private func chunkPrefix(_ message: Messaging.MessageID) throws(StoreError) -> Bytes16 {
        if let known = chunkPrefixes[message] { return known }
        let prefix = Self.chunkPrefix(message, try store.secret(row, label: Self.chunkLabel))
        if chunkPrefixes.count >= 64 { chunkPrefixes = [:] }
        chunkPrefixes[message] = prefix
        return prefix
    }

    private static let chunkLabel = "attachment chunks"

    private static func chunkPrefix(_ message: Messaging.MessageID, _ secret: borrowing SecretBytes) -> Bytes16 {
        BLAKE2b.authenticate(key: secret, message.bytes, byteCount: 16).withUnsafeBytes {
            chunkPrefix(Bytes16(copying: $0))
        }
    }

    private static func chunkPrefix(_ chunk: Bytes16) -> Bytes16 { Bytes16(chunk.first, chunk.second & ~0xffff_ffff) }

    func noteReaction(_ message: Message) {
        guard case .reaction(let reaction) = message.content.body else { return }
        reactions.insert(message.content.id, at: reaction.message, expiresAt: message.expiresAt)
    }

    /// A stored reaction is smaller than this, whatever its deliveries; a larger hidden record is a chunk.
    private static let reactionByteCount = 8_192

    private struct FoundReaction {
        var id: Messaging.MessageID
        var target: Messaging.MessageID
        var expiresAt: Timestamp?
        var arrivedAt: Timestamp
    }

    /// Scans the newest hidden records of a loaded inbox.
    /// - Parameter place: a lower bound of our waiting records' positions.
    /// - Returns: our undelivered reactions.
    func restoreHidden(from place: UInt64, now: Timestamp) throws(StoreError) -> [Message] {
        reactionsFrom = .max
        let (undelivered, orphans) = try readHidden(from: place, now: now)
        if !orphans.isEmpty { try forgetOrphans(orphans, from: place) }
        return undelivered
    }

    /// Indexes the reactions from this position on: all reactions to messages from there on.
    func knowReactions(from place: UInt64, now: Timestamp) throws(StoreError) {
        guard place < reactionsFrom, !store.isLocked else { return }
        // A reader who pages back doubles the indexed range each time, so that all pages together cost two scans.
        let next = try store.nextPlace(row)
        _ = try readHidden(from: place - min(place, next - min(next, place)), now: now)
    }

    /// - Returns: our undelivered reactions, and the id prefixes of chunks without a known message.
    private func readHidden(from place: UInt64, now: Timestamp) throws(StoreError) -> (
        undelivered: [Message], orphans: Set<Bytes16>
    ) {
        guard try store.hasHidden(row) else {
            reactionsFrom = 0
            reactions = KnownReactions()
            for entry in held { noteReaction(entry.message) }
            return ([], [])
        }
        var found: [FoundReaction] = []
        var undelivered: [(message: Message, arrivedAt: Timestamp)] = []
        var orphans: Set<Bytes16> = []
        try store.visitHidden(row, from: place) { id, byteCount throws(StoreError) in
            // The mark of a message that was read.
            if byteCount == 0 { return true }
            let prefix = Self.chunkPrefix(id)
            guard byteCount <= Self.reactionByteCount, !orphans.contains(prefix) else {
                orphans.insert(prefix)
                return true
            }
            guard let bytes = try store.read(row, id: id, now: now.milliseconds) else { return true }
            guard let (message, arrivedAt) = try? StoredCodec.decodeMessage(bytes) else {
                orphans.insert(prefix)
                return true
            }
            if message.sender == nil {
                let current = try current(message)
                if current.state.isWaiting { undelivered.append((current, arrivedAt)) }
            }
            guard case .reaction(let reaction) = message.content.body else { return true }
            found.append(
                FoundReaction(
                    id: message.content.id, target: reaction.message, expiresAt: message.expiresAt, arrivedAt: arrivedAt
                ))
            // The index holds no more than the limit.
            if found.count >= 2 * KnownReactions.limit {
                found = Self.inOrder(found)
                found.removeFirst(found.count - KnownReactions.limit)
            }
            return true
        }
        var known = KnownReactions()
        for one in Self.inOrder(found) { known.insert(one.id, at: one.target, expiresAt: one.expiresAt) }
        reactions = known
        reactionsFrom = place
        // Reactions in memory came later, or are also on the disk.
        for entry in held { noteReaction(entry.message) }
        let inOrder = undelivered.sorted {
            ($0.arrivedAt, $0.message.content.id) < ($1.arrivedAt, $1.message.content.id)
        }
        return (inOrder.map(\.message), orphans)
    }

    private static func inOrder(_ found: [FoundReaction]) -> [FoundReaction] {
        found.sorted { ($0.arrivedAt, $0.id) < ($1.arrivedAt, $1.id) }
    }

    /// Destroys chunks of uploads that were incomplete when the node ended.
    /// - Parameters:
    ///   - prefixes: id prefixes of chunks that may have a message.
    ///   - place: a lower bound of the chunks' positions.
    private func forgetOrphans(_ prefixes: Set<Bytes16>, from place: UInt64) throws(StoreError) {
        var prefixes = prefixes
        let secret = try store.secret(row, label: Self.chunkLabel)
        // The message of our file follows its chunks. A member's message precedes its chunks, maybe by far.
        for first in place > 0 ? [place, 0] : [0] where !prefixes.isEmpty {
            try store.visit(row, from: first, now: 0) { _, stored in
                if let (message, _) = try? StoredCodec.decodeMessage(stored.payload), message.content.attachment != nil
                {
                    prefixes.remove(Self.chunkPrefix(message.content.id, secret))
                }
                return !prefixes.isEmpty
            }
        }
        var gone: [Bytes16] = []
        try store.visitHidden(row, from: place) { id, _ in
            if prefixes.contains(Self.chunkPrefix(id)) { gone.append(id) }
            return true
        }
        for id in gone { try store.erase(row, id: id) }
    }

    func reactionCount(at message: Messaging.MessageID, now: Timestamp) -> Int {
        knowReactions(at: message, now: now)
        return reactions[message].count
    }

    /// After a read failure the next call tries again.
    private func knowReactions(at message: Messaging.MessageID, now: Timestamp) {
        guard reactionsFrom > 0, !store.isLocked else { return }
        let place = heldIndex[message].flatMap { held[$0].place } ?? (try? store.locate(row, message.value))?.order
        if let place { try? knowReactions(from: place, now: now) }
    }

    /// The reactions to a message, in order of arrival.
    func reactions(to message: Messaging.MessageID, clock: NodeClock.Reading) -> [(sender: PublicKey?, emoji: String)] {
        knowReactions(at: message, now: clock.hide)
        var result: [(sender: PublicKey?, emoji: String)] = []
        for id in reactions[message] {
            guard let one = read(id, now: clock.hide)?.message, case .reaction(let reaction) = one.content.body else {
                // An expired reaction is not looked up again.
                if !store.isLocked, !clock.isInDoubt { reactions.remove(id) }
                continue
            }
            let sender = one.sender
            result.removeAll { $0.sender == sender && $0.emoji == reaction.emoji }
            if !reaction.isRemoved { result.append((sender, reaction.emoji)) }
        }
        return result
    }
}

extension MessageArchive {
    /// The message was read: it now expires at `expiresAt`, whether or not it is read again.
    func reschedule(_ id: Messaging.MessageID, expiresAt: Timestamp, now: Timestamp) throws(StoreError) {
        if rescheduleHeld(id, expiresAt: expiresAt, now: now) { return }
        outgoing.remove(id)
        learned.forgetPlace(of: id)
        guard !store.isLocked, let bytes = try store.read(row, id: id.value, now: now.milliseconds),
            let (stored, arrivedAt) = try? StoredCodec.decodeMessage(bytes),
            let tier = Lifetime.holding(expiresAt - now).tier
        else { return }
        var message = try current(stored)
        // A copy of a member's message, in a mailbox or after a lost acknowledgement, may come until its former expiry.
        if message.sender != nil, message.state == .received, let former = message.expiresAt, former > expiresAt,
            !wasRead(id)
        {
            let end = min(former + Self.readMarkSlack, now + 30 * .day)
            try store.append(
                row, id: chunkID(id, Self.readMark), tier: Lifetime.holding(end - now).tier ?? tier,
                expiresAt: end.milliseconds, payload: [], isHidden: true)
        }
        // Its status records end with its former bucket.
        if message.state == .sent { message.state = stored.state }
        message.expiresAt = expiresAt
        message.onReading = nil
        try store.reschedule(
            row, id: id.value, tier: tier, expiresAt: expiresAt.milliseconds,
            payload: StoredCodec.encode(message, arrivedAt: arrivedAt))
        guard let attachment = message.content.attachment else { return }
        try rescheduleChunks(id, count: attachment.chunkCount, tier: tier, expiresAt: expiresAt)
    }
}
