/// Messages on their way in: the bytes of the peer's stream, put in order within the window.
///
/// The bytes are kept as they came until the owner reads them, so that a window of them is all that a peer can make us
/// hold.
struct ReceiveStream {
    enum Malformed: Error {
        /// Bytes beyond the credit we gave.
        case beyondWindow
        /// A second end of the stream, or bytes behind it.
        case badEnd
        /// A message of more than ``DatagramLimits/messageByteCount``.
        case tooLong
    }

    private let limits: DatagramLimits
    /// Bytes that the peer may send and our owner has not read.
    private(set) var window: UInt64
    /// The owner knows the peer: the window may be as large as it takes.
    private var isWelcome = false
    /// The window's bytes from `base` on; what has not come is zero.
    private var buffer: [UInt8] = []
    /// Where in `buffer` the first unread byte is.
    private var start = 0
    /// Bytes of the stream that have been read.
    private(set) var read: UInt64 = 0
    /// All before it has come.
    private(set) var contiguous: UInt64 = 0
    /// What has come beyond.
    private var ahead = OffsetRanges()
    private var end: UInt64?
    /// The credit last told, and when.
    private(set) var told: UInt64
    private var toldAt: Microseconds?

    init(limits: DatagramLimits) {
        self.limits = limits
        window = UInt64(limits.initialReceiveWindow)
        told = window
    }

    /// The peer may send more than a stranger.
    mutating func welcome() {
        isWelcome = true
        window = max(window, UInt64(limits.receiveWindow))
    }

    /// The peer has finished and all of it has been read.
    var isEnded: Bool { end == read }
    /// Bytes held.
    var byteCount: Int { buffer.count - start }

    /// Whether the owner has read so much that the peer should know.
    var owesCredit: Bool { end == nil && read + window >= told + window / 4 }

    /// The credit is about to be told. A welcome peer that has sent, and an owner that has read, a quarter of the window within a
    /// round trip are given twice as much, for the window has to hold what is on its way, and what waits for what was lost.
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

    /// Takes in bytes that have come.
    /// - Returns: false if they make more gaps than we keep account of: then the packet has to be as if it never came.
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

    /// Whether ``next()`` has something to say.
    var hasMessage: Bool {
        let available = contiguous - read
        guard available >= UInt64(SendStream.prefixByteCount) else { return false }
        var length: UInt64 = 0
        for index in 0..<SendStream.prefixByteCount { length = length << 8 | UInt64(buffer[start + index]) }
        return length > UInt64(limits.messageByteCount) || available >= UInt64(SendStream.prefixByteCount) + length
    }

    /// The stream has ended, and what is left of it is no message.
    var isCutShort: Bool { end == contiguous && read != contiguous && !hasMessage }

    private func nothing() throws(Malformed) -> [UInt8]? {
        if let end, contiguous == end, read != end { throw .badEnd }
        return nil
    }

    /// Gives back what has been read, seldom enough that it costs little.
    private mutating func compact() {
        if start == buffer.count {
            // A link that rests holds nothing.
            if buffer.capacity > 128 << 10 { buffer = [] } else { buffer.removeAll(keepingCapacity: true) }
            start = 0
        } else if start > 64 << 10, start > buffer.count / 2 {
            buffer.removeFirst(start)
            start = 0
        }
    }
}
