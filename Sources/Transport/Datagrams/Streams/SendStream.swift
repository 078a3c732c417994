import DequeModule

/// The part of the stream in one packet.
struct StreamPiece: Hashable, Sendable {
    var offset: UInt64
    var length: Int
    var isLast: Bool

    var range: Range<UInt64> { offset..<offset + UInt64(length) }
}

/// Outgoing messages as one stream of bytes, each message after its length (4 bytes, big-endian). Bytes are kept until
/// they are acknowledged.
struct SendStream {
    static let prefixByteCount = 4

    private enum End { case open, waiting, inFlight, acknowledged }

    private struct Chunk {
        var offset: UInt64
        var bytes: [UInt8]
        var end: UInt64 { offset + UInt64(bytes.count) }
    }
    private static let chunkByteCount = 64 << 10

    private var chunks: Deque<Chunk> = []
    /// All bytes before this offset are acknowledged.
    private(set) var base: UInt64 = 0
    /// The first byte that was never sent.
    private var unsent: UInt64 = 0
    private var end: UInt64 = 0
    private var finish = End.open
    /// End of the peer's window.
    private(set) var credit: UInt64
    private var acknowledged = OffsetRanges()
    private var lost = OffsetRanges()

    /// - Parameter credit: the peer's initial window; both sides have the same limits.
    init(credit: UInt64) { self.credit = credit }

    /// Unacknowledged bytes, sent or not.
    var byteCount: Int { Int(end - base) }
    /// Sent bytes are unacknowledged.
    var isInFlight: Bool { base < unsent }
    var unsentByteCount: Int { Int(end - unsent) }
    /// Everything is acknowledged, including the end.
    var isAcknowledged: Bool { finish == .acknowledged && base == end }
    var isFinished: Bool { finish != .open }

    var hasWork: Bool { !lost.isEmpty || (unsent < end && unsent < credit) || (finish == .waiting && unsent == end) }

    /// Data waits for the peer's credit.
    var awaitsCredit: Bool { lost.isEmpty && unsent < end && unsent >= credit }

    mutating func write(_ message: [UInt8]) {
        precondition(finish == .open && message.count <= Int(UInt32.max), "the owner has checked this")
        let count = Self.prefixByteCount + message.count
        if chunks.isEmpty || chunks[chunks.count - 1].bytes.count + count > Self.chunkByteCount {
            chunks.append(Chunk(offset: end, bytes: []))
        }
        chunks[chunks.count - 1].bytes.appendBigEndian(UInt32(message.count))
        chunks[chunks.count - 1].bytes += message
        end += UInt64(count)
    }

    mutating func close() { if finish == .open { finish = .waiting } }

    /// Extends the credit, which never shrinks.
    mutating func allow(_ offset: UInt64) { credit = max(credit, offset) }

    /// A piece that fits in `space` bytes including its header: lost data first, then new data.
    mutating func next(_ space: Int) -> StreamPiece? {
        if let range = lost.first {
            let room = space - DatagramFrame.dataHeaderByteCount(offset: range.lowerBound, length: space)
            guard room > 0 else { return nil }
            let length = min(room, Int(range.upperBound - range.lowerBound))
            let piece = piece(range.lowerBound, length)
            lost.remove(piece.range)
            return piece
        }
        let room = space - DatagramFrame.dataHeaderByteCount(offset: unsent, length: space)
        let allowed = min(end, credit)
        guard room > 0, unsent < allowed || (finish == .waiting && unsent == end) else { return nil }
        let length = unsent < allowed ? min(room, Int(allowed - unsent)) : 0
        let piece = piece(unsent, length)
        unsent += UInt64(length)
        return piece
    }

    private mutating func piece(_ offset: UInt64, _ length: Int) -> StreamPiece {
        let isLast = (finish == .waiting || finish == .inFlight) && offset + UInt64(length) == end
        if isLast { finish = .inFlight }
        return StreamPiece(offset: offset, length: length, isLast: isLast)
    }

    func append(_ piece: StreamPiece, to packet: inout [UInt8]) {
        DatagramFrame.appendDataHeader(offset: piece.offset, length: piece.length, isLast: piece.isLast, to: &packet)
        var position = piece.offset
        let stop = piece.range.upperBound
        var index = chunkIndex(position)
        while position < stop {
            let chunk = chunks[index]
            let from = Int(position - chunk.offset)
            let count = min(Int(stop - position), chunk.bytes.count - from)
            packet += chunk.bytes[from..<from + count]
            position += UInt64(count)
            index += 1
        }
    }

    private func chunkIndex(_ offset: UInt64) -> Int {
        var low = 0
        var high = chunks.count
        while low < high {
            let middle = (low + high) / 2
            if chunks[middle].end <= offset { low = middle + 1 } else { high = middle }
        }
        return low
    }

    mutating func acknowledge(_ piece: StreamPiece) {
        if piece.isLast { finish = .acknowledged }
        guard piece.length > 0, piece.range.upperBound > base else { return }
        lost.remove(piece.range)
        acknowledged.insert(max(base, piece.offset)..<piece.range.upperBound)
        guard let first = acknowledged.first, first.lowerBound <= base else { return }
        base = first.upperBound
        acknowledged.removeAll(below: base)
        while let chunk = chunks.first, chunk.end <= base, chunks.count > 1 || base == end { chunks.removeFirst() }
    }

    /// Marks the piece for retransmission, except for its acknowledged parts.
    mutating func lose(_ piece: StreamPiece) {
        if piece.isLast, finish == .inFlight { finish = .waiting }
        guard piece.length > 0, piece.range.upperBound > base else { return }
        for range in acknowledged.missing(in: max(base, piece.offset)..<piece.range.upperBound) { lost.insert(range) }
    }
}
