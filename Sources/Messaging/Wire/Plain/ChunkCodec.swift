import Crypto

/// Hand-written codec of `AttachmentChunk` frames (`mayfly.proto`). It reads only the shape that it writes; the
/// generated code reads all others.
enum ChunkCodec {
    /// Field 21 of the frame: its tag takes two bytes.
    private static let frameTag: [UInt8] = [21 << 3 & 0x7f | 2 | 0x80, 21 >> 4]

    static func encode(_ chunk: AttachmentChunk) -> [UInt8] {
        var byteCount = Plain.fieldByteCount(MessageID.byteCount) + (chunk.isDeflated ? 2 : 0)
        if chunk.index != 0 { byteCount += 1 + Plain.varintByteCount(UInt64(chunk.index)) }
        if !chunk.bytes.isEmpty { byteCount += Plain.fieldByteCount(chunk.bytes.count) }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(frameTag.count + Plain.fieldByteCount(byteCount))
        bytes += frameTag
        bytes.append(varint: UInt64(byteCount))
        bytes.append(1, chunk.message.value)
        bytes.append(2, Int64(chunk.index))
        if chunk.isDeflated { bytes += [3 << 3, 1] }
        bytes.append(4, chunk.bytes)
        return bytes
    }

    /// `nil` for any other frame, and any other shape.
    static func decodePlain(_ bytes: [UInt8]) throws(WireError) -> AttachmentChunk? {
        guard bytes.starts(with: frameTag) else { return nil }
        var reader = PlainReader(bytes, frameTag.count..<bytes.count)
        guard let fields = reader.range(), reader.isAtEnd else { return nil }
        reader = PlainReader(bytes, fields)
        var message: MessageID?
        var (index, isDeflated, content) = (UInt64(0), false, 0..<0)
        var last: UInt8 = 0
        while !reader.isAtEnd {
            guard let tag = reader.byte(), tag > last else { return nil }
            last = tag
            switch tag {
            case 1 << 3 | 2:
                guard let range = reader.range(), let id = MessageID(bytes[range]) else { return nil }
                message = id
            case 2 << 3:
                guard let value = reader.varint(), value <= UInt32.max else { return nil }
                index = value
            case 3 << 3:
                guard let value = reader.varint() else { return nil }
                isDeflated = value != 0
            case 4 << 3 | 2:
                guard let range = reader.range() else { return nil }
                content = range
            default: return nil
            }
        }
        guard let message else { return nil }
        guard content.count <= Limits.chunkByteCount else { throw .tooLong("attachment_chunk.bytes") }
        return AttachmentChunk(
            message: message, index: Int(index), isDeflated: isDeflated, bytes: Array(bytes[content]))
    }
}
