import NIOCore

/// Received but undelivered bytes of a link, and the size of its next read.
struct InboundBytes {
    private let limits: TransportLimits
    private var bytes = ByteBuffer()
    /// The last read brought at least ``TransportLimits/quietByteCount`` bytes.
    private var isBusy = false
    /// The read size last set on the channel.
    private var readByteCount: Int

    init(_ opening: [UInt8] = [], limits: TransportLimits) {
        self.limits = limits
        bytes = ByteBuffer(bytes: opening)
        readByteCount = limits.quietByteCount
    }

    var count: Int { bytes.readableBytes }

    mutating func append(_ read: ByteBuffer) {
        isBusy = read.readableBytes >= limits.quietByteCount
        if count == 0 { bytes = read } else { bytes.writeImmutableBuffer(read) }
    }

    /// Takes `byteCount` bytes; `nil` if fewer are there.
    mutating func take(_ byteCount: Int) -> ByteBufferView? {
        guard let piece = bytes.viewBytes(at: bytes.readerIndex, length: byteCount) else { return nil }
        bytes.moveReaderIndex(forwardBy: byteCount)
        return piece
    }

    /// Frees the memory of taken bytes. Not after each piece, because the rest may be long.
    mutating func compact() { if count == 0 { clear() } else if bytes.readerIndex > count { bytes.discardReadBytes() } }

    mutating func clear() { bytes = ByteBuffer() }

    /// A read takes the rest of a long frame; otherwise ``TransportLimits/turnByteCount`` on a busy link and
    /// ``TransportLimits/quietByteCount`` on a quiet one.
    /// - Parameter expected: the size of the next piece.
    /// - Returns: the size of the next read, if it changes.
    mutating func nextRead(expected: Int) -> Int? {
        let share = isBusy ? limits.turnByteCount : limits.quietByteCount
        let byteCount = max(share, expected - count)
        guard byteCount != readByteCount else { return nil }
        readByteCount = byteCount
        return byteCount
    }
}

/// Outgoing bytes of a link: sealed but not written, and written but not accepted by the kernel.
struct OutboundBytes {
    private let limits: TransportLimits
    private var unflushed = ByteBuffer()
    private var inFlight = 0
    private(set) var isWritable = true

    init(limits: TransportLimits) { self.limits = limits }

    var count: Int { unflushed.readableBytes + inFlight }
    var isOverfull: Bool { count > limits.outboundByteCount }
    var stopsReading: Bool { count > limits.outboundReadStop }
    var wantsFlush: Bool { unflushed.readableBytes >= limits.flushByteCount }

    mutating func append(byteCount: Int, _ write: (UnsafeMutableRawBufferPointer) -> Void) {
        unflushed.writeWithUnsafeMutableBytes(minimumWritableBytes: byteCount) { room in
            write(UnsafeMutableRawBufferPointer(rebasing: room[..<byteCount]))
            return byteCount
        }
        if count > limits.outboundHighWater { isWritable = false }
    }

    mutating func take() -> ByteBuffer? {
        guard unflushed.readableBytes > 0 else { return nil }
        let bytes = exchange(&unflushed, with: ByteBuffer())
        inFlight += bytes.readableBytes
        return bytes
    }

    /// - Returns: whether the link became writable.
    mutating func written(_ byteCount: Int) -> Bool {
        inFlight -= byteCount
        guard !isWritable, count <= limits.outboundLowWater else { return false }
        isWritable = true
        return true
    }
}

/// The first bytes of a connection, in the clear: a protocol byte and, mostly, a routing token (Links.md, "Preamble").
struct Preamble: Hashable, Sendable {
    enum Kind: UInt8, Hashable, Sendable {
        /// `M`: a link over TCP.
        case link = 0x4d
        /// `k`: a knock, a sealed message without a handshake (Links.md, "Knocks").
        case knock = 0x6b
        /// `c`: the exchange of a spoken code. The token is its greeting.
        case code = 0x63
    }

    static let byteCount = 1 + RoutingToken.byteCount
    let kind: Kind
    let token: RoutingToken

    var bytes: [UInt8] { [kind.rawValue] + token.bytes }

    /// The handshake prologue: magic ‖ version ‖ transport kind ‖ token. Altering any of them makes act 1 fail.
    static func prologue(_ token: RoutingToken) -> [UInt8] {
        Array("mayfly".utf8) + [1, Kind.link.rawValue] + token.bytes
    }
}

extension Preamble {
    /// `nil` for another length or an unknown protocol byte.
    init?(_ bytes: [UInt8]) {
        guard bytes.count == Self.byteCount, let kind = Kind(rawValue: bytes[0]),
            let token = RoutingToken(bytes.dropFirst())
        else { return nil }
        self.init(kind: kind, token: token)
    }
}
