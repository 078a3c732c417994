import Crypto
import FoundationEssentials

/// Hand-written codec of `Contents` frames (`mayfly.proto`). It reads only the shape that it writes; the generated code
/// reads all others and reports their errors.
package enum ContentsCodec {
    /// Most bytes of a frame (Frames.md).
    private static let frameByteCount = 65_535
    /// The frame's tag and a length of at most three bytes precede the fields of `Contents`.
    private static let fieldsByteCount = frameByteCount - 4
    private static let frameTag: UInt8 = 8 << 3 | 2
    private static let contentTag: UInt8 = 1 << 3 | 2

    // MARK: Writing

    /// All contents in one frame, which may exceed the limits of a link.
    static func encode(_ contents: [AgedContent]) -> [UInt8] {
        var fields: [UInt8] = []
        for aged in contents {
            let payload = payload(of: aged.content)
            append(aged, payload: payload, byteCount: byteCount(of: aged, payload: payload), to: &fields)
        }
        return frame(fields)
    }

    /// The fewest frames, in order, within the limits of a link.
    package static func frames(of contents: [AgedContent]) -> [[UInt8]] {
        var result: [[UInt8]] = []
        var fields: [UInt8] = []
        var count = 0
        for aged in contents {
            let payload = payload(of: aged.content)
            let byteCount = byteCount(of: aged, payload: payload)
            let size = Plain.fieldByteCount(byteCount)
            if count > 0, count == Limits.contentsCount || fields.count + size > fieldsByteCount {
                result.append(frame(fields))
                fields.removeAll(keepingCapacity: true)
                count = 0
            }
            append(aged, payload: payload, byteCount: byteCount, to: &fields)
            count += 1
        }
        if count > 0 { result.append(frame(fields)) }
        return result
    }

    private static func payload(of content: Content) -> [UInt8] {
        content.payload.isEmpty ? ContentCodec.payload(of: content.body) : content.payload
    }

    private static func frame(_ fields: [UInt8]) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(fields.count + 4)
        bytes.append(frameTag)
        bytes.append(varint: UInt64(fields.count))
        bytes += fields
        return bytes
    }

    /// Without tag and length.
    private static func byteCount(of aged: AgedContent, payload: [UInt8]) -> Int {
        let content = aged.content
        var count = Plain.fieldByteCount(MessageID.byteCount)
        if content.agreement != nil { count += Plain.fieldByteCount(AgreementID.byteCount) }
        count += unlessEmpty(content.type.description.utf8.count) + unlessEmpty(content.lifetime.rawValue.utf8.count)
        count += unlessEmpty(content.fallback.utf8.count) + unlessEmpty(payload.count)
        count += unlessZero(content.sentAt.milliseconds) + unlessZero(aged.age)
        return count + (content.shouldPush ? 2 : 0)
    }

    private static func unlessEmpty(_ byteCount: Int) -> Int { byteCount == 0 ? 0 : Plain.fieldByteCount(byteCount) }

    private static func unlessZero(_ number: Int64) -> Int {
        number == 0 ? 0 : 1 + Plain.varintByteCount(UInt64(bitPattern: number))
    }

    private static func append(_ aged: AgedContent, payload: [UInt8], byteCount: Int, to fields: inout [UInt8]) {
        let content = aged.content
        fields.append(contentTag)
        fields.append(varint: UInt64(byteCount))
        append(content, age: aged.age, payload: payload, to: &fields)
    }

    private static func append(_ content: Content, age: Milliseconds, payload: [UInt8], to fields: inout [UInt8]) {
        fields.append(1, content.type.description.utf8)
        fields.append(2, content.id.value)
        fields.append(3, content.sentAt.milliseconds)
        fields.append(4, content.lifetime.rawValue.utf8)
        if let agreement = content.agreement { fields.append(5, agreement.value) }
        fields.append(6, age)
        fields.append(7, content.fallback.utf8)
        if content.shouldPush { fields += [8 << 3, 1] }
        fields.append(9, payload)
    }

    /// Contents in the store have no age.
    static func append(stored content: Content, to bytes: inout [UInt8]) {
        append(content, age: 0, payload: payload(of: content), to: &bytes)
    }

    // MARK: Reading

    /// `nil` for a frame of any other shape, which may still be valid.
    package static func decodePlain(_ bytes: [UInt8]) throws(WireError) -> [AgedContent]? {
        guard bytes.first == frameTag else { return nil }
        var reader = PlainReader(bytes, 1..<bytes.count)
        guard let fields = reader.range(), reader.isAtEnd, !fields.isEmpty else { return nil }
        var ranges: [Range<Int>] = []
        reader = PlainReader(bytes, fields)
        while !reader.isAtEnd {
            guard reader.byte() == contentTag, let range = reader.range() else { return nil }
            ranges.append(range)
        }
        guard ranges.count <= Limits.contentsCount else { throw .tooLong("contents") }
        var contents: [AgedContent] = []
        contents.reserveCapacity(ranges.count)
        for range in ranges {
            guard let aged = try content(bytes, range) else { return nil }
            contents.append(aged)
        }
        return contents
    }

    /// - Parameter isStored: our own disk may have contents that use other frames on links.
    private static func content(_ bytes: [UInt8], _ range: Range<Int>, isStored: Bool = false) throws(WireError)
        -> AgedContent?
    {
        var reader = PlainReader(bytes, range)
        var (type, lifetime, fallback) = ("", "", "")
        var (sentAt, age): (Int64, Int64) = (0, 0)
        var id: MessageID?
        var agreement: AgreementID?
        var payload = 0..<0
        var shouldPush = false
        // Field numbers must ascend without duplicates.
        var last: UInt8 = 0
        while !reader.isAtEnd {
            guard let tag = reader.byte(), tag >> 3 > last else { return nil }
            last = tag >> 3
            switch tag {
            case 1 << 3 | 2:
                guard let text = reader.text() else { return nil }
                type = text
            case 2 << 3 | 2:
                guard let range = reader.range(), let value = MessageID(bytes[range]) else { return nil }
                id = value
            case 3 << 3:
                guard let value = reader.varint() else { return nil }
                sentAt = Int64(bitPattern: value)
            case 4 << 3 | 2:
                guard let text = reader.text() else { return nil }
                lifetime = text
            case 5 << 3 | 2:
                guard let range = reader.range(), let value = AgreementID(bytes[range]) else { return nil }
                agreement = value
            case 6 << 3:
                guard let value = reader.varint() else { return nil }
                age = Int64(bitPattern: value)
            case 7 << 3 | 2:
                guard let text = reader.text() else { return nil }
                fallback = text
            case 8 << 3:
                guard let value = reader.varint() else { return nil }
                shouldPush = value != 0
            case 9 << 3 | 2:
                guard let range = reader.range() else { return nil }
                payload = range
            default: return nil
            }
        }
        guard let id else { return nil }
        let checked = isStored ? ContentType(type) : try check(type, payloadByteCount: payload.count)
        let (kept, body) = try ContentCodec.decode(checked, Array(bytes[payload]))
        let content = Content(
            type: checked, id: id, sentAt: Timestamp(milliseconds: sentAt),
            // An unknown lifetime counts as ephemeral: the content stays in memory.
            lifetime: Lifetime(rawValue: lifetime) ?? .ephemeral, agreement: agreement,
            fallback: try boundedText(fallback, Limits.fallbackByteCount, "content.fallback") ?? "",
            shouldPush: shouldPush, payload: kept, body: body)
        return AgedContent(content, age: max(0, age))
    }

    /// A stored content, which is the last part of its record.
    static func stored(_ bytes: [UInt8], from start: Int) throws(WireError) -> Content {
        guard let aged = try content(bytes, start..<bytes.count, isStored: true) else { throw .malformed("content") }
        return aged.content
    }

    /// Any shape; `nil` for an empty list.
    static func decode(_ proto: ProtoContents) throws(WireError) -> [AgedContent]? {
        guard proto.contents.count <= Limits.contentsCount else { throw .tooLong("contents") }
        var contents: [AgedContent] = []
        for one in proto.contents {
            _ = try check(one.type, payloadByteCount: one.payload.count)
            contents.append(AgedContent(try Content(one), age: max(0, one.age)))
        }
        return contents.isEmpty ? nil : contents
    }

    /// Rejects types that have other frames. An unknown type is a chat content: it is kept, and shown by its fallback.
    private static func check(_ type: String, payloadByteCount: Int) throws(WireError) -> ContentType {
        guard payloadByteCount <= Limits.payloadByteCount else { throw .tooLong("content.payload") }
        guard type.utf8.count <= Limits.contentTypeByteCount else { throw .tooLong("content.type") }
        let type = ContentType(type)
        if type == .text { return type }
        switch type.family {
        case .receipt, .systemMessage: throw .malformed("contents.type")
        default: break
        }
        switch type {
        case .lifetimeProposal, .lifetimeAccept, .lifetimeReject, .lifetimeWithdraw, .lifetimeAgreement, .lifetimeEnded,
            .joinRequest, .welcome, .joinError, .joinCancelled, .deletionReceipt, .invitation, .memberLeft,
            .groupUpdated, .profile:
            throw .malformed("contents.type")
        default: return type
        }
    }
}
