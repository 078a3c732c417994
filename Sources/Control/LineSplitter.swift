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

    init(byteLimit: Int) {
        self.byteLimit = byteLimit
    }

    /// Whether part of a line has arrived.
    var holdsBytes: Bool { buffer.readableBytes > 0 }

    mutating func append(_ bytes: inout ByteBuffer) {
        if buffer.readableBytes == 0 {
            buffer = bytes
            searchedByteCount = 0
        } else {
            buffer.writeBuffer(&bytes)
        }
    }

    /// The next whole line without its newline (LF or CR LF); `nil` when more bytes are needed. Empty lines are skipped.
    mutating func nextLine() throws(LineTooLong) -> ByteBuffer? {
        while true {
            let view = buffer.readableBytesView.dropFirst(searchedByteCount)
            guard let newline = view.firstIndex(of: UInt8(ascii: "\n")) else {
                searchedByteCount = buffer.readableBytes
                guard searchedByteCount <= byteLimit else { throw LineTooLong() }
                buffer.discardReadBytes()
                return nil
            }
            let byteCount = newline - buffer.readerIndex
            searchedByteCount = 0
            guard byteCount <= byteLimit, let line = buffer.readSlice(length: byteCount) else { throw LineTooLong() }
            buffer.moveReaderIndex(forwardBy: 1)
            if let line = Self.withoutReturn(line) { return line }
        }
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
