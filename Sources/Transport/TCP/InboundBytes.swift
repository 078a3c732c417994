import NIOCore

/// Bytes that a link has read and not handed over, and the size of its next read.
struct InboundBytes {
    private let limits: TransportLimits
    private var bytes = ByteBuffer()
    /// The last read brought at least ``TransportLimits/quietByteCount`` bytes.
    private var isBusy = false
    /// The size of reads that the channel was last given.
    private var readByteCount: Int

    /// - Parameter opening: what was read before.
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

    /// Takes so many bytes; `nil` if they are not all here.
    mutating func take(_ byteCount: Int) -> ByteBufferView? {
        guard let piece = bytes.viewBytes(at: bytes.readerIndex, length: byteCount) else { return nil }
        bytes.moveReaderIndex(forwardBy: byteCount)
        return piece
    }

    /// Releases the memory of what was taken. Not for each piece: what is left may be long.
    mutating func compact() { if count == 0 { clear() } else if bytes.readerIndex > count { bytes.discardReadBytes() } }

    mutating func clear() { bytes = ByteBuffer() }

    /// A read takes the rest of a long frame; otherwise ``TransportLimits/turnByteCount`` on a busy link and
    /// ``TransportLimits/quietByteCount`` on a quiet one.
    /// - Parameter expected: the size of the piece that comes next.
    /// - Returns: the size of the next read, if it is not that of the last.
    mutating func nextRead(expected: Int) -> Int? {
        let share = isBusy ? limits.turnByteCount : limits.quietByteCount
        let byteCount = max(share, expected - count)
        guard byteCount != readByteCount else { return nil }
        readByteCount = byteCount
        return byteCount
    }
}
