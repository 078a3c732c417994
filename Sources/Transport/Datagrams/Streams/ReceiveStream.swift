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
        let available = contiguous - read
        let prefix = UInt64(SendStream.prefixByteCount)
        guard available >= prefix else { return try nothing() }
        var length: UInt64 = 0
        for index in 0..<SendStream.prefixByteCount { length = length << 8 | UInt64(buffer[start + index]) }
        guard length <= UInt64(limits.messageByteCount) else { throw .tooLong }
        guard available >= prefix + length else { return try nothing() }
        let from = start + SendStream.prefixByteCount
        let message = Array(buffer[from..<from + Int(length)])
        start = from + Int(length)
        read += prefix + length
        compact()
        return message
    }

    /// Whether ``next()`` returns a message or throws.
    var hasMessage: Bool {
        let available = contiguous - read
        guard available >= UInt64(SendStream.prefixByteCount) else { return false }
        var length: UInt64 = 0
        for index in 0..<SendStream.prefixByteCount { length = length << 8 | UInt64(buffer[start + index]) }
        return length > UInt64(limits.messageByteCount) || available >= UInt64(SendStream.prefixByteCount) + length
    }

    /// The stream has ended within a message.
    var isCutShort: Bool { end == contiguous && read != contiguous && !hasMessage }

    private func nothing() throws(Malformed) -> [UInt8]? {
        if let end, contiguous == end, read != end { throw .badEnd }
        return nil
    }

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
