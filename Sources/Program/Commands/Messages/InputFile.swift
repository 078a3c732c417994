import Control
import Glibc

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
