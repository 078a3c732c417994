import Crypto

/// Hand-written codec of `Acknowledgement` frames (`mayfly.proto`). It reads only the shape that it writes; the
/// generated code reads all others.
enum AcknowledgementCodec {
    private static let frameTag: UInt8 = 3 << 3 | 2
    private static let lists: [(number: UInt8, field: String)] = [
        (4, "acknowledgement.stored"), (5, "acknowledgement.held"), (6, "acknowledgement.expired"),
    ]

    static func encode(_ said: Acknowledgement) -> [UInt8] {
        let counts = [said.stored.count, said.held.count, said.expired.count]
        let byteCount = counts.reduce(0) { $0 + ($1 == 0 ? 0 : Plain.fieldByteCount($1 * MessageID.byteCount)) }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(Plain.fieldByteCount(byteCount))
        bytes.append(frameTag)
        bytes.append(varint: UInt64(byteCount))
        append(said.stored, lists[0].number, to: &bytes)
        append(said.held, lists[1].number, to: &bytes)
        append(said.expired, lists[2].number, to: &bytes)
        return bytes
    }

    private static func append(_ ids: [MessageID], _ number: UInt8, to bytes: inout [UInt8]) {
        guard !ids.isEmpty else { return }
        bytes.append(number << 3 | 2)
        bytes.append(varint: UInt64(ids.count * MessageID.byteCount))
        for id in ids { id.value.append(to: &bytes) }
    }

    /// `nil` for any other frame, and any other shape.
    static func decodePlain(_ bytes: [UInt8]) throws(WireError) -> Acknowledgement? {
        guard bytes.first == frameTag else { return nil }
        var reader = PlainReader(bytes, 1..<bytes.count)
        guard let fields = reader.range(), reader.isAtEnd else { return nil }
        guard fields.count <= (Limits.acknowledgementCount + lists.count) * MessageID.byteCount else {
            throw .tooLong("acknowledgement")
        }
        reader = PlainReader(bytes, fields)
        var said = Acknowledgement()
        var last: UInt8 = 0
        while !reader.isAtEnd {
            guard let tag = reader.byte(), tag > last, let range = reader.range() else { return nil }
            last = tag
            switch tag {
            case lists[0].number << 3 | 2: said.stored = try identifiers(bytes, range, lists[0].field)
            case lists[1].number << 3 | 2: said.held = try identifiers(bytes, range, lists[1].field)
            case lists[2].number << 3 | 2: said.expired = try identifiers(bytes, range, lists[2].field)
            default: return nil
            }
        }
        guard said.count <= Limits.acknowledgementCount else { throw .tooLong("acknowledgement") }
        return said
    }

    private static func identifiers(_ bytes: [UInt8], _ range: Range<Int>, _ field: String) throws(WireError)
        -> [MessageID]
    {
        guard range.count % MessageID.byteCount == 0 else { throw .malformed(field) }
        return bytes.withUnsafeBytes { bytes in
            stride(from: range.lowerBound, to: range.upperBound, by: MessageID.byteCount).map { start in
                MessageID(
                    Bytes16(copying: UnsafeRawBufferPointer(rebasing: bytes[start..<start + MessageID.byteCount])))
            }
        }
    }
}
