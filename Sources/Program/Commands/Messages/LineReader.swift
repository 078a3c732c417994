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
    /// Where the first line begins that was not taken.
    private var start = 0
    /// The number of the last line that was taken: the first is 1.
    private(set) var number = 0
    /// Standard input has ended.
    private(set) var hasEnded = false

    /// Reads what is there, and waits when there is nothing.
    mutating func read() throws(ControlError) {
        let new = try InputFile.read(STDIN_FILENO, of: "-", atMost: 65_536, until: nil)
        hasEnded = new.isEmpty
        bytes.removeFirst(start)
        start = 0
        bytes += new
        // Bounds the memory for a line without an end: this much of it, with a CR, still shows that it is too long.
        let last = bytes.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? 0
        bytes.removeLast(max(0, bytes.count - last - Limits.textByteCount - 2))
    }

    /// Takes the next line.
    /// - Returns: `nil` when no whole line is there.
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

    /// The bytes without one LF or CRLF at their end.
    static func withoutLineEnd(_ bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        guard bytes.last == UInt8(ascii: "\n") else { return bytes }
        let line = bytes.dropLast()
        return line.last == UInt8(ascii: "\r") ? line.dropLast() : line
    }

    /// - Throws: `usage`, with the line and the byte of it, counted from 1, at which the bytes are no UTF-8.
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
