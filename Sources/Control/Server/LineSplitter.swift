import NIOCore

/// Splits a byte stream into lines of bounded length. It does no I/O.
struct LineSplitter {
    /// The stream carried a line longer than the limit. The rest has no known line boundary.
    struct LineTooLong: Error, Hashable {}

    private let byteLimit: Int
    private var buffer = ByteBuffer()
    /// Bytes of ``buffer`` known to hold no newline, so that a slow long line is searched once.
    private var searchedByteCount = 0

    init(byteLimit: Int) { self.byteLimit = byteLimit }

    var holdsBytes: Bool { buffer.readableBytes > 0 }

    /// Moves the bytes out and zeroes the source. NIO reuses the receive buffer, which could otherwise hold a message
    /// text for days on an idle connection.
    mutating func append(_ bytes: inout ByteBuffer) {
        buffer.writeImmutableBuffer(bytes)
        bytes.wipeReadableBytes()
    }

    mutating func append(_ bytes: [UInt8]) { buffer.writeBytes(bytes) }

    /// The next whole line without its newline (LF or CR LF); `nil` when it is incomplete. Empty lines are skipped.
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

    /// The next bytes, for a body; `nil` when it is incomplete. Call it only between two lines.
    mutating func takeBytes(_ count: Int) -> ByteBuffer? {
        searchedByteCount = 0
        guard buffer.readableBytes >= count else {
            // One reservation, so that the body does not move as it grows.
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

    /// Frees the storage with the lines already taken; freed memory is overwritten.
    private mutating func forgetTakenLines() {
        guard buffer.readerIndex > 0 else { return }
        buffer = ByteBuffer(bytes: buffer.readableBytesView)
    }

    /// The bytes after the last newline, for a stream that ended without one. Call it only when ``nextLine()`` returned
    /// `nil`, which also bounds the length.
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
    /// Overwrites the readable bytes in place and consumes them. Unlike a write this reaches storage shared with a
    /// channel's receive buffers, so no other reader of it may remain.
    mutating func wipeReadableBytes() {
        withUnsafeReadableBytes { bytes in
            guard let base = bytes.baseAddress else { return }
            UnsafeMutableRawPointer(mutating: base).initializeMemory(as: UInt8.self, repeating: 0, count: bytes.count)
        }
        moveReaderIndex(forwardBy: readableBytes)
    }
}
