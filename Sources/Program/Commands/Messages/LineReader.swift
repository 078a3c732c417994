import Control
import Glibc
import Messaging

/// Standard input as lines. A line ends with LF or CRLF; the last line may end with the input.
struct LineReader {
    enum Line {
        case text(String)
        /// Not UTF-8, or too long for a message.
        case refused(ControlError)
    }

    private var bytes: [UInt8] = []
    /// Start of the first unread line.
    private var start = 0
    /// Number of the last line read, from 1.
    private(set) var number = 0
    private(set) var hasEnded = false

    /// Reads the available bytes; waits when there are none.
    mutating func read() throws(ControlError) {
        let new = try InputFile.read(STDIN_FILENO, of: "-", atMost: 65_536, until: nil)
        hasEnded = new.isEmpty
        bytes.removeFirst(start)
        start = 0
        bytes += new
        // Bounds the memory for an endless line. The kept bytes, with a CR, still exceed the limit.
        let last = bytes.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? 0
        bytes.removeLast(max(0, bytes.count - last - Limits.textByteCount - 2))
    }

    mutating func next() -> Line? {
        let rest = bytes[start...]
        guard let newline = rest.firstIndex(of: UInt8(ascii: "\n")) else {
            guard hasEnded, !rest.isEmpty else { return nil }
            start = bytes.count
            number += 1
            return line(rest)
        }
        start = newline + 1
        number += 1
        return line(Self.withoutLineEnd(rest[...newline]))
    }

    private func line(_ bytes: ArraySlice<UInt8>) -> Line {
        guard bytes.count <= Limits.textByteCount else {
            let limit = Limits.textByteCount
            return .refused(
                ControlError(
                    .usage, "line \(number): longer than \(limit) bytes", hint: "send it in parts, or as a file"))
        }
        do throws(ControlError) { return .text(try Self.text(bytes, firstLine: number)) } catch {
            return .refused(error)
        }
    }

    static func withoutLineEnd(_ bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        guard bytes.last == UInt8(ascii: "\n") else { return bytes }
        let line = bytes.dropLast()
        return line.last == UInt8(ascii: "\r") ? line.dropLast() : line
    }

    /// - Throws: `usage`, with line and byte of the invalid UTF-8, both counted from 1.
    static func text(_ bytes: ArraySlice<UInt8>, firstLine: Int = 1) throws(ControlError) -> String {
        do { return String(copying: try UTF8Span(validating: bytes.span)) } catch {
            let before = bytes.prefix(error.byteOffsets.lowerBound)
            let line = before.count { $0 == UInt8(ascii: "\n") }
            let byte = before.reversed().prefix { $0 != UInt8(ascii: "\n") }.count + 1
            throw ControlError(
                .usage, "line \(firstLine + line), byte \(byte): not UTF-8 text",
                hint: "encode it first, for example with base64")
        }
    }
}
