import Cryptography
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
    var isInFlight: Bool { base < unsent }
    var unsentByteCount: Int { Int(end - unsent) }
    var isAcknowledged: Bool { finish == .acknowledged && base == end }
    var isFinished: Bool { finish != .open }

    var hasWork: Bool { !lost.isEmpty || (unsent < end && unsent < credit) || (finish == .waiting && unsent == end) }

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
        var index = chunks.partitioningIndex { $0.end > position }
        while position < stop {
            let chunk = chunks[index]
            let from = Int(position - chunk.offset)
            let count = min(Int(stop - position), chunk.bytes.count - from)
            packet += chunk.bytes[from..<from + count]
            position += UInt64(count)
            index += 1
        }
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

/// Reassembles the peer's stream into messages.
///
/// Bytes stay in one buffer until the owner reads them, so a peer can make us hold at most the window.
struct ReceiveStream {
    enum Malformed: Error {
        /// Bytes beyond our credit.
        case beyondWindow
        /// A second end of the stream, or bytes behind it.
        case badEnd
        /// A message of more than ``DatagramLimits/messageByteCount``.
        case tooLong
    }

    private let limits: DatagramLimits
    /// Unread bytes that the peer may have sent.
    private(set) var window: UInt64
    /// The peer is trusted, so the window may grow.
    private var isWelcome = false
    /// The window's bytes; missing ones are zero.
    private var buffer: [UInt8] = []
    /// Index of the first unread byte in `buffer`.
    private var start = 0
    /// Stream bytes read by the owner.
    private(set) var read: UInt64 = 0
    /// All bytes before this offset have arrived.
    private(set) var contiguous: UInt64 = 0
    /// Ranges that arrived beyond it.
    private var ahead = OffsetRanges()
    private var end: UInt64?
    /// The last advertised credit, and when it was sent.
    private(set) var told: UInt64
    private var toldAt: Microseconds?

    init(limits: DatagramLimits) {
        self.limits = limits
        window = UInt64(limits.initialReceiveWindow)
        told = window
    }

    /// Trusts the peer: it may send more at once than a stranger.
    mutating func welcome() {
        isWelcome = true
        window = max(window, UInt64(limits.receiveWindow))
    }

    /// The peer's stream has ended and is wholly read.
    var isEnded: Bool { end == read }
    var byteCount: Int { buffer.count - start }

    /// A quarter of the window was read since the last credit.
    var owesCredit: Bool { end == nil && read + window >= told + window / 4 }

    /// Advertises new credit. Auto-tunes the window of a trusted peer: a quarter of it used within one RTT doubles it,
    /// because it must cover the bandwidth-delay product and retransmissions.
    mutating func writeCredit(_ roundTrip: RoundTripTime, at now: Microseconds) -> UInt64 {
        if owesCredit {
            if isWelcome, let toldAt, now - toldAt < roundTrip.smoothed {
                window = min(2 * window, UInt64(limits.largestReceiveWindow))
            }
            toldAt = now
        }
        told = max(told, read + window)
        return told
    }

    /// Stores received bytes. False if they make too many gaps: the packet must then count as lost.
    mutating func receive(_ bytes: ArraySlice<UInt8>, at offset: UInt64, isLast: Bool) throws(Malformed) -> Bool {
        let stop = offset + UInt64(bytes.count)
        guard stop <= told else { throw .beyondWindow }
        if let end { guard stop <= end, !isLast || stop == end else { throw .badEnd } }
        if isLast {
            let largest = max(contiguous, ahead.last?.upperBound ?? 0)
            guard stop >= largest else { throw .badEnd }
        }
        if offset > contiguous, ahead.count >= limits.receivedRanges { return false }
        if isLast { end = stop }
        guard stop > contiguous else { return true }
        let from = max(offset, contiguous)
        let new = bytes.dropFirst(Int(from - offset))
        let position = start + Int(from - read)
        if position == buffer.count {
            buffer += new
        } else {
            if position + new.count > buffer.count {
                buffer += [UInt8](repeating: 0, count: position + new.count - buffer.count)
            }
            buffer.withUnsafeMutableBytes { $0[position..<position + new.count].copyBytes(from: new) }
        }
        if from == contiguous, ahead.isEmpty {
            contiguous = stop
        } else {
            ahead.insert(from..<stop)
            if let first = ahead.first, first.lowerBound <= contiguous {
                contiguous = first.upperBound
                ahead.removeAll(below: contiguous)
            }
        }
        return true
    }

    /// The next whole message, if there is one.
    /// - Throws: ``Malformed/tooLong``, ``Malformed/badEnd`` if the stream ends within a message.
    mutating func next() throws(Malformed) -> [UInt8]? {
        guard let length, hasMessage else {
            if isCutShort { throw .badEnd }
            return nil
        }
        guard length <= limits.messageByteCount else { throw .tooLong }
        let from = start + SendStream.prefixByteCount
        let message = Array(buffer[from..<from + length])
        start = from + length
        read += UInt64(SendStream.prefixByteCount + length)
        compact()
        return message
    }

    /// Of the next message, once it has arrived.
    private var length: Int? {
        guard contiguous - read >= UInt64(SendStream.prefixByteCount) else { return nil }
        return (0..<SendStream.prefixByteCount).reduce(0) { $0 << 8 | Int(buffer[start + $1]) }
    }

    /// Whether ``next()`` returns a message or throws.
    var hasMessage: Bool {
        guard let length else { return false }
        return length > limits.messageByteCount || contiguous - read >= UInt64(SendStream.prefixByteCount + length)
    }

    /// The stream has ended within a message.
    var isCutShort: Bool { end == contiguous && read != contiguous && !hasMessage }

    private mutating func compact() {
        if start == buffer.count {
            // An idle link holds no buffer.
            if buffer.capacity > 128 << 10 { buffer = [] } else { buffer.removeAll(keepingCapacity: true) }
            start = 0
        } else if start > 64 << 10, start > buffer.count / 2 {
            buffer.removeFirst(start)
            start = 0
        }
    }
}

/// Ascending ranges of numbers that neither touch nor overlap. The caller bounds their count.
struct OffsetRanges: Hashable, Sendable {
    private(set) var ranges: [Range<UInt64>] = []

    init() {}

    var isEmpty: Bool { ranges.isEmpty }
    var count: Int { ranges.count }
    var first: Range<UInt64>? { ranges.first }
    var last: Range<UInt64>? { ranges.last }

    private func firstIndex(endingFrom offset: UInt64) -> Int { ranges.partitioningIndex { $0.upperBound >= offset } }

    func contains(_ offset: UInt64) -> Bool {
        let index = firstIndex(endingFrom: offset)
        // A range that ends at the offset does not contain it, but the next one may.
        return ranges[index...].prefix(2).contains { $0.contains(offset) }
    }

    mutating func insert(_ range: Range<UInt64>) {
        guard !range.isEmpty else { return }
        if let last = ranges.last {
            if range.lowerBound > last.upperBound { return ranges.append(range) }
            if range.lowerBound >= last.lowerBound {
                if range.upperBound > last.upperBound { ranges[ranges.count - 1] = last.lowerBound..<range.upperBound }
                return
            }
        }
        let start = firstIndex(endingFrom: range.lowerBound)
        var end = start
        var merged = range
        while end < ranges.count, ranges[end].lowerBound <= range.upperBound {
            merged = min(merged.lowerBound, ranges[end].lowerBound)..<max(merged.upperBound, ranges[end].upperBound)
            end += 1
        }
        ranges.replaceSubrange(start..<end, with: CollectionOfOne(merged))
    }

    mutating func remove(_ range: Range<UInt64>) {
        guard !range.isEmpty, !ranges.isEmpty else { return }
        let start = firstIndex(endingFrom: range.lowerBound)
        var end = start
        var rest: [Range<UInt64>] = []
        while end < ranges.count, ranges[end].lowerBound < range.upperBound {
            let old = ranges[end]
            if old.lowerBound < range.lowerBound { rest.append(old.lowerBound..<min(old.upperBound, range.lowerBound)) }
            if old.upperBound > range.upperBound { rest.append(max(old.lowerBound, range.upperBound)..<old.upperBound) }
            end += 1
        }
        guard end > start else { return }
        ranges.replaceSubrange(start..<end, with: rest)
    }

    mutating func removeAll(below offset: UInt64) { remove(0..<offset) }

    mutating func removeFirst() -> Range<UInt64>? { ranges.isEmpty ? nil : ranges.removeFirst() }

    func missing(in range: Range<UInt64>) -> [Range<UInt64>] {
        var result: [Range<UInt64>] = []
        var position = range.lowerBound
        for known in ranges[firstIndex(endingFrom: range.lowerBound)...] {
            guard known.lowerBound < range.upperBound else { break }
            if known.lowerBound > position { result.append(position..<known.lowerBound) }
            position = max(position, known.upperBound)
        }
        if position < range.upperBound { result.append(position..<range.upperBound) }
        return result
    }
}
