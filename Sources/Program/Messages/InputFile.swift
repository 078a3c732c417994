import Control
import Glibc
import Messaging

enum InputFile {
    /// - Throws: `failed` when the file cannot be read, `usage` when it is longer than `byteLimit`, `timedOut`.
    /// - Parameters:
    ///   - cure: hint for a file that is too long.
    ///   - deadline: for the writer of a pipe; `nil` waits for ever.
    static func read(
        _ path: String, byteLimit: Int, cure: String? = nil, until deadline: ContinuousClock.Instant? = nil
    ) throws(ControlError) -> [UInt8] {
        let descriptor = try open(path)
        defer { if path != "-" { close(descriptor) } }
        var bytes: [UInt8] = []
        while true {
            let chunk = try read(descriptor, of: path, atMost: 65_536, until: deadline)
            if chunk.isEmpty { return bytes }
            bytes += chunk
            guard bytes.count <= byteLimit else {
                throw ControlError(.usage, "\(name(path)) is longer than \(byteLimit) bytes", hint: cure)
            }
        }
    }

    /// Opens a file, or a pipe without waiting for its writer.
    static func open(_ path: String) throws(ControlError) -> Int32 {
        let descriptor = path == "-" ? STDIN_FILENO : Glibc.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        guard descriptor >= 0 else { throw failure(path, errno) }
        return descriptor
    }

    /// The available bytes; none at the end.
    static func read(_ descriptor: Int32, of path: String, atMost limit: Int, until deadline: ContinuousClock.Instant?)
        throws(ControlError) -> [UInt8]
    {
        while true {
            var polled = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            let time = deadline.map { ControlClient.pollTime(left: $0 - .now) } ?? -1
            let isReady = poll(&polled, 1, time)
            if isReady < 0, errno != EINTR { throw failure(path, errno) }
            guard isReady > 0 else {
                if let deadline, deadline <= .now {
                    throw ControlError(
                        .timedOut, "\(name(path)) did not end in time; nothing was sent",
                        hint: "give a longer --timeout, or none")
                }
                continue
            }
            var code: Int32 = 0
            let bytes = [UInt8](unsafeUninitializedCapacity: limit) { buffer, count in
                let result = Glibc.read(descriptor, buffer.baseAddress, buffer.count)
                if result < 0 { code = errno }
                count = max(0, result)
            }
            switch code {
            case 0: return bytes
            case EINTR, EAGAIN: continue
            default: throw failure(path, code)
            }
        }
    }

    private static func name(_ path: String) -> String { path == "-" ? "standard input" : path }

    static func failure(_ path: String, _ code: Int32) -> ControlError {
        ControlError(.failed, "cannot read \(name(path)): \(String(cString: strerror(code)).lowercased())")
    }
}

/// Standard input as lines. A line ends with LF or CRLF; the last line may end with the input.
struct LineReader {
    enum Line {
        case text(String)
        /// Not UTF-8, or too long for a message.
        case refused(ControlError)
    }

    private var bytes: [UInt8] = []
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
