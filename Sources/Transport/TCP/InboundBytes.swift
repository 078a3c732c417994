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
