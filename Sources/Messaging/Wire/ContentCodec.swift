import Crypto
import FoundationEssentials

/// Payloads of chat contents: bytes ↔ ``ContentBody``.
enum ContentCodec {
    /// Empty for an opaque body.
    static func payload(of body: ContentBody) -> [UInt8] {
        switch body {
        case .opaque: return []
        case .reply(let reply):
            var proto = ProtoReply()
            proto.replyTo = Data(reply.replyTo.bytes)
            proto.text = reply.text
            return serialized(proto)
        case .reaction(let reaction):
            var proto = ProtoReaction()
            proto.message = Data(reaction.message.bytes)
            proto.emoji = reaction.emoji
            proto.removed = reaction.isRemoved
            return serialized(proto)
        case .attachment(let attachment):
            var proto = ProtoAttachment()
            proto.name = attachment.name
            proto.mediaType = attachment.mediaType
            proto.byteCount = attachment.byteCount
            proto.chunkSize = UInt32(Limits.chunkByteCount)
            proto.hash = Data(attachment.hash)
            proto.text = attachment.text
            proto.replyTo = Data(attachment.replyTo?.bytes ?? [])
            return serialized(proto)
        }
    }

    /// Rejects a malformed payload of a version that we write. A malformed one of a later minor version is kept, and
    /// shown by its fallback.
    /// - Returns: the payload, empty if the body contains all of it.
    static func decode(_ type: ContentType, _ payload: [UInt8]) throws(WireError) -> ([UInt8], ContentBody) {
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
        case .reply:
            let proto = try parse(ProtoReply.self, payload)
            guard let text = try boundedText(proto.text, Limits.textByteCount, "reply.text") else {
                throw .malformed("reply.text")
            }
            return .reply(Reply(replyTo: try identifier(proto.replyTo, "reply.reply_to"), text: text))
        case .reaction:
            let proto = try parse(ProtoReaction.self, payload)
            guard Reaction.isEmoji(proto.emoji) else { throw .malformed("reaction.emoji") }
            return .reaction(
                Reaction(
                    message: try identifier(proto.message, "reaction.message"), emoji: proto.emoji,
                    isRemoved: proto.removed))
        case .attachment: return .attachment(try Attachment(try parse(ProtoAttachment.self, payload)))
        default: return nil
        }
    }
}

extension Attachment {
    fileprivate init(_ proto: ProtoAttachment) throws(WireError) {
        guard proto.chunkSize == UInt32(Limits.chunkByteCount) else { throw .malformed("attachment.chunk_size") }
        guard (0...Self.byteCountLimit).contains(proto.byteCount) else { throw .malformed("attachment.byte_count") }
        guard proto.hash.count == SHA256.byteCount else { throw .malformed("attachment.hash") }
        self.init(
            name: try boundedText(proto.name, Limits.fileNameByteCount, "attachment.name") ?? "",
            mediaType: try boundedText(proto.mediaType, Limits.mediaTypeByteCount, "attachment.media_type") ?? "",
            byteCount: proto.byteCount, hash: Array(proto.hash),
            text: try boundedText(proto.text, Limits.textByteCount, "attachment.text") ?? "",
            replyTo: proto.replyTo.isEmpty ? nil : try identifier(proto.replyTo, "attachment.reply_to"))
    }
}

extension Acknowledgement {
    init(_ proto: ProtoAcknowledgement) throws(WireError) {
        let byteCount = proto.stored.count + proto.held.count + proto.expired.count
        guard byteCount <= Limits.acknowledgementCount * MessageID.byteCount else { throw .tooLong("acknowledgement") }
        self.init(
            stored: try identifiers(proto.stored, "acknowledgement.stored"),
            held: try identifiers(proto.held, "acknowledgement.held"),
            expired: try identifiers(proto.expired, "acknowledgement.expired"))
    }
}

extension ProtoReceipt {
    init(_ receipt: Receipt) {
        kind = receipt.kind.rawValue
        messages = receipt.messages.map { Data($0.bytes) }
    }
}

extension Receipt {
    /// `nil` for a kind of a later version.
    init?(_ proto: ProtoReceipt) throws(WireError) {
        guard proto.messages.count <= Limits.receiptCount else { throw .tooLong("receipt.messages") }
        var messages: [MessageID] = []
        for id in proto.messages { messages.append(try identifier(id, "receipt.messages")) }
        guard let kind = Kind(rawValue: proto.kind), !messages.isEmpty else { return nil }
        self.init(kind, messages)
    }
}

extension AttachmentChunk {
    init(_ proto: ProtoAttachmentChunk) throws(WireError) {
        guard proto.bytes.count <= Limits.chunkByteCount else { throw .tooLong("attachment_chunk.bytes") }
        self.init(
            message: try identifier(proto.message, "attachment_chunk.message"), index: Int(proto.index),
            isDeflated: proto.deflated, bytes: Array(proto.bytes))
    }
}
