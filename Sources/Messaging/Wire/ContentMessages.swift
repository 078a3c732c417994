import Cryptography

/// Contents: the most frequent frames, and the last part of stored messages.
package enum ContentsCodec {
    /// Most bytes of a frame (Frames.md), without its tag and a length of at most three bytes.
    private static let fieldsByteCount = 65_535 - 4

    /// The fewest frames, in order, within the limits of a link.
    package static func frames(of contents: [AgedContent]) -> [[UInt8]] {
        var result: [[UInt8]] = []
        var rest = contents[...]
        while !rest.isEmpty {
            var writer = ProtoWriter(capacity: min(byteCount(of: rest), fieldsByteCount + 4))
            var count = 0
            writer.put(8) { writer in
                let start = writer.bytes.count
                for aged in rest.prefix(Limits.contentsCount) {
                    let end = writer.bytes.count
                    writer.put(1, aged)
                    if count > 0, writer.bytes.count - start > fieldsByteCount {
                        writer.bytes.removeSubrange(end...)
                        break
                    }
                    count += 1
                }
            }
            result.append(writer.bytes)
            rest = rest.dropFirst(count)
        }
        return result
    }

    /// About the bytes of a frame of contents.
    static func byteCount(of contents: ArraySlice<AgedContent>) -> Int {
        contents.reduce(8) { $0 + $1.content.payload.count + $1.content.fallback.utf8.count + 128 }
    }
}

extension AgedContent: ProtoMessage {
    func write(to writer: inout ProtoWriter) { content.write(age: age, to: &writer) }

    init(_ fields: ProtoFields) throws(WireError) {
        guard fields.slice(9).count <= Limits.payloadByteCount else { throw .tooLong("content.payload") }
        let type = ContentType(try fields.text(1, "content.type", atMost: Limits.contentTypeByteCount))
        guard type.isChat else { throw .malformed("contents.type") }
        self.init(try Content(fields, type), age: max(0, fields.int64(6)))
    }
}

extension ContentType {
    /// It has no other frame. An unknown type is a chat content: it is kept, and shown by its fallback.
    fileprivate var isChat: Bool {
        self == .text || family != .receipt && family != .systemMessage && !Self.control.contains(self)
    }

    private static let control: Set<ContentType> = [
        .lifetimeProposal, .lifetimeAccept, .lifetimeReject, .lifetimeWithdraw, .lifetimeAgreement, .lifetimeEnded,
        .joinRequest, .welcome, .joinError, .joinCancelled, .deletionReceipt, .invitation, .memberLeft, .groupUpdated,
        .profile,
    ]
}

extension Content {
    /// - Parameter age: 0 in the store.
    func write(age: Milliseconds, to writer: inout ProtoWriter) {
        writer.put(1, type.description)
        writer.put(2, id)
        writer.put(3, sentAt)
        writer.put(4, lifetime.rawValue)
        writer.put(5, agreement)
        writer.put(6, age)
        writer.put(7, fallback)
        writer.put(8, shouldPush)
        guard payload.isEmpty else { return writer.put(9, payload) }
        switch body {
        case .opaque: break
        case .reply(let reply): writer.put(9, reply)
        case .reaction(let reaction): writer.put(9, reaction)
        case .attachment(let attachment): writer.put(9, attachment)
        }
    }

    /// - Parameter type: as it was checked: the store has contents that use other frames on links.
    fileprivate init(_ fields: ProtoFields, _ type: ContentType) throws(WireError) {
        let (payload, body) = try Self.decode(type, fields.bytes(9))
        self.init(
            type: type, id: try fields.id(2, "content.id"), sentAt: fields.time(3),
            // An unknown lifetime counts as ephemeral: the content stays in memory.
            lifetime: Lifetime(rawValue: try fields.text(4, "content.lifetime")) ?? .ephemeral,
            agreement: try fields.optionalID(5, "content.agreement"),
            fallback: try fields.text(7, "content.fallback", atMost: Limits.fallbackByteCount),
            shouldPush: fields.flag(8), payload: payload, body: body)
    }

    /// The last part of a stored message.
    init(stored bytes: [UInt8], from start: Int) throws(WireError) {
        let fields = try ProtoFields(bytes, from: start)
        try self.init(fields, ContentType(fields.text(1, "content.type")))
    }

    /// Rejects a malformed payload of a version that we write. A malformed one of a later minor version is kept, and
    /// shown by its fallback.
    /// - Returns: the payload, empty if the body contains all of it.
    private static func decode(_ type: ContentType, _ payload: [UInt8]) throws(WireError) -> ([UInt8], ContentBody) {
        let isOurs = type == type.family
        do throws(WireError) {
            guard let body = try body(type.family, payload) else { return (payload, .opaque) }
            return (isOurs ? [] : payload, body)
        } catch {
            if isOurs { throw error }
            return (payload, .opaque)
        }
    }

    private static func body(_ family: ContentType, _ payload: [UInt8]) throws(WireError) -> ContentBody? {
        switch family {
        case .text:
            guard payload.count <= Limits.textByteCount else { throw .tooLong("text") }
            let isASCII = payload.allSatisfy { $0 < 0x80 }
            guard !payload.isEmpty, isASCII || String(validating: payload, as: UTF8.self) != nil else {
                throw .malformed("text")
            }
            return nil
        case .reply: return try Reply(serialized: payload).map { .reply($0) }
        case .reaction: return try Reaction(serialized: payload).map { .reaction($0) }
        case .attachment: return try Attachment(serialized: payload).map { .attachment($0) }
        default: return nil
        }
    }
}

extension Reply: ProtoTabled {
    static let table = ProtoTable(
        { (replyTo, text: String?) throws(WireError) in Reply(replyTo: replyTo, text: try text.known("reply.text")) },
        { ($0.replyTo, $0.text) }, .id(1), .optionalText(2, atMost: Limits.textByteCount))
}

extension Reaction: ProtoTabled {
    static let table = ProtoTable(
        { (message, emoji: String, isRemoved) throws(WireError) in
            guard isEmoji(emoji) else { throw .malformed("reaction.emoji") }
            return Reaction(message: message, emoji: emoji, isRemoved: isRemoved)
        }, { ($0.message, $0.emoji, $0.isRemoved) }, .id(1), .text(2), .flag(3))
}

extension Attachment: ProtoTabled {
    static let table = ProtoTable(
        { (name, mediaType, byteCount: Int64, chunk: Int, hash, text, replyTo) throws(WireError) in
            guard chunk == Limits.chunkByteCount else { throw .malformed("attachment.chunk_size") }
            guard (0...byteCountLimit).contains(byteCount) else { throw .malformed("attachment.byte_count") }
            return Attachment(
                name: name, mediaType: mediaType, byteCount: byteCount, hash: hash, text: text, replyTo: replyTo)
        }, { ($0.name, $0.mediaType, $0.byteCount, Limits.chunkByteCount, $0.hash, $0.text, $0.replyTo) },
        .text(1, atMost: Limits.fileNameByteCount), .text(2, atMost: Limits.mediaTypeByteCount), .number(3), .count(4),
        .bytes(5, count: SHA256.byteCount), .text(6, atMost: Limits.textByteCount), .optionalID(7))
}

extension Receipt: ProtoTabled {
    static let table = ProtoTable<Receipt>(
        { (kind, messages: [MessageID]) in
            Kind(rawValue: kind).flatMap { messages.isEmpty ? nil : Receipt($0, messages) }
        }, { ($0.kind.rawValue, $0.messages) }, .number(1), .eachID(2, atMost: Limits.receiptCount))
}

extension Acknowledgement: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(4, joined: stored)
        writer.put(5, joined: held)
        writer.put(6, joined: expired)
    }

    init(_ fields: ProtoFields) throws(WireError) {
        let limit = Limits.acknowledgementCount
        let byteCount = fields.slice(4).count + fields.slice(5).count + fields.slice(6).count
        guard byteCount <= limit * MessageID.byteCount else { throw .tooLong("acknowledgement") }
        self.init(
            stored: try fields.ids(4, "acknowledgement.stored", atMost: limit),
            held: try fields.ids(5, "acknowledgement.held", atMost: limit),
            expired: try fields.ids(6, "acknowledgement.expired", atMost: limit))
    }
}

extension AttachmentChunk: ProtoMessage {
    func write(to writer: inout ProtoWriter) {
        writer.put(1, message)
        writer.put(2, index)
        writer.put(3, isDeflated)
        writer.put(4, bytes)
    }

    init(_ fields: ProtoFields) throws(WireError) {
        self.init(
            message: try fields.id(1, "attachment_chunk.message"), index: Int(fields.uint32(2)),
            isDeflated: fields.flag(3),
            bytes: try fields.bytes(4, "attachment_chunk.bytes", atMost: Limits.chunkByteCount))
    }
}
