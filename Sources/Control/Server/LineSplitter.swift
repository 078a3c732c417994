import NIOCore

/// Cuts a byte stream into lines, bounded.
///
/// Pure: it is given bytes and asked for lines.
struct LineSplitter {
    /// The stream carried a line longer than the limit. Nothing after it can be trusted to start a line.
    struct LineTooLong: Error, Hashable {}

    private let byteLimit: Int
    private var buffer = ByteBuffer()
    /// Bytes of ``buffer`` known to hold no newline, so that a slow long line is not searched again and again.
    private var searchedByteCount = 0

    init(byteLimit: Int) { self.byteLimit = byteLimit }

    /// Whether part of a line has arrived.
    var holdsBytes: Bool { buffer.readableBytes > 0 }

    /// Takes the bytes out of `bytes` and overwrites them there: a channel keeps its receive buffer for the next read, and
    /// a connection may be idle for days after a request that carried a text.
    mutating func append(_ bytes: inout ByteBuffer) {
        buffer.writeImmutableBuffer(bytes)
        bytes.wipeReadableBytes()
    }

    /// The next whole line without its newline (LF or CR LF); `nil` when more bytes are needed. Empty lines are skipped.
    mutating func nextLine() throws(LineTooLong) -> ByteBuffer? {
        while true {
            let view = buffer.readableBytesView.dropFirst(searchedByteCount)
            guard let newline = view.firstIndex(of: UInt8(ascii: "\n")) else {
                searchedByteCount = buffer.readableBytes
                guard searchedByteCount <= byteLimit else { throw LineTooLong() }
                forgetTakenLines()
                return nil
            }
            let byteCount = newline - buffer.readerIndex
            searchedByteCount = 0
            guard byteCount <= byteLimit, let line = buffer.readSlice(length: byteCount) else { throw LineTooLong() }
            buffer.moveReaderIndex(forwardBy: 1)
            if let line = Self.withoutReturn(line) { return line }
        }
    }

    /// The next bytes as they are, for a body; `nil` when more are needed. Only between two lines.
    mutating func takeBytes(_ count: Int) -> ByteBuffer? {
        searchedByteCount = 0
        guard buffer.readableBytes >= count else {
            // The body grows in one place.
            buffer.reserveCapacity(minimumWritableBytes: count - buffer.readableBytes)
            return nil
        }
        if buffer.readableBytes == count {
            defer { buffer = ByteBuffer() }
            return buffer
        }
        guard let bytes = buffer.readSlice(length: count) else { return nil }
        let taken = ByteBuffer(bytes: bytes.readableBytesView)
        forgetTakenLines()
        return taken
    }

    /// Lets go of the storage that still holds the lines that were taken; freed, it is overwritten.
    private mutating func forgetTakenLines() {
        guard buffer.readerIndex > 0 else { return }
        buffer = ByteBuffer(bytes: buffer.readableBytesView)
    }

    /// What has come after the last newline, as a line: for the end of a stream, which need not end with one. Only when
    /// ``nextLine()`` has no more, which also bounds it.
    mutating func takeRest() -> ByteBuffer? {
        defer { searchedByteCount = 0 }
        return buffer.readSlice(length: buffer.readableBytes).flatMap(Self.withoutReturn)
    }

    /// - Returns: `nil` for an empty line.
    private static func withoutReturn(_ line: ByteBuffer) -> ByteBuffer? {
        var line = line
        if line.readableBytesView.last == UInt8(ascii: "\r") { line.moveWriterIndex(to: line.writerIndex - 1) }
        return line.readableBytes > 0 ? line : nil
    }
}

extension ByteBuffer {
    /// Overwrites the readable bytes where they are, and takes them as read. Unlike a write this reaches storage that is
    /// shared with a channel's pool of receive buffers; no other reader of it may be left.
    mutating func wipeReadableBytes() {
        withUnsafeReadableBytes { bytes in
            guard let base = bytes.baseAddress else { return }
            UnsafeMutableRawPointer(mutating: base).initializeMemory(as: UInt8.self, repeating: 0, count: bytes.count)
        }
        moveReaderIndex(forwardBy: readableBytes)
    }
}
