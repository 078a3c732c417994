import Adversary
import Control
import Glibc

/// Sends many requests at once, at low cost, because it shares the processors with the measured nodes.
struct Pipeline {
    private let window: Int
    private let sockets: [RawConnection]

    /// - Parameter window: A node serves at most 64 requests of one connection.
    init(home: String, connections: Int = 4, window: Int = 64) throws {
        self.window = window
        let path = ControlSocket(home: home).path
        sockets = try (0..<connections).map { _ in try RawConnection(control: path) }
    }

    /// Sends `count` requests, cycling through the lines of `requests`, and waits for all answers. Returns answers per
    /// second.
    func run(_ requests: [[UInt8]], count: Int) throws -> Double {
        var unsent = count
        var unanswered = count
        var next = 0
        var lines = sockets.map { _ in [UInt8]() }
        func send(_ most: Int, on socket: RawConnection) throws {
            var bytes: [UInt8] = []
            for _ in 0..<min(most, unsent) {
                bytes += requests[next]
                next = (next + 1) % requests.count
                unsent -= 1
            }
            guard socket.write(bytes) else { throw Failure.system("send") }
        }
        let start = ContinuousClock.now
        for socket in sockets { try send(window, on: socket) }
        while unanswered > 0 {
            var polled = sockets.map { pollfd(fd: $0.descriptor, events: Int16(POLLIN), revents: 0) }
            guard poll(&polled, nfds_t(polled.count), 30_000) > 0 else {
                throw Failure("a node did not answer in 30 s")
            }
            for index in sockets.indices where polled[index].revents != 0 {
                let answered = try Self.read(&lines[index], from: sockets[index])
                unanswered -= answered
                try send(answered, on: sockets[index])
            }
        }
        return Double(count) / ((ContinuousClock.now - start) / .seconds(1))
    }

    /// Reads available answers and checks that they are results. Returns their number.
    private static func read(_ pending: inout [UInt8], from socket: RawConnection) throws -> Int {
        let before = pending.count
        var count = 0
        pending += [UInt8](unsafeUninitializedCapacity: 262_144) { buffer, initialized in
            count = recv(socket.descriptor, buffer.baseAddress, buffer.count, 0)
            initialized = max(0, count)
        }
        guard count > 0 else { throw Failure("a node closed its control socket") }
        var answered = 0
        var whole = 0
        try pending.withUnsafeBytes { bytes in
            guard let base = bytes.baseAddress else { return }
            var start = before
            while let newline = memchr(base + start, 0x0a, bytes.count - start) {
                answered += 1
                start = base.distance(to: newline) + 1
                try check(UnsafeRawBufferPointer(rebasing: bytes[whole..<start]))
                whole = start
                if start == bytes.count { break }
            }
        }
        pending.removeFirst(whole)
        return answered
    }

    /// Successful answers have equal length, so only others are parsed.
    private static func check(_ line: UnsafeRawBufferPointer) throws {
        guard line.count != checkedByteCount else { return }
        let text = String(decoding: line, as: UTF8.self)
        guard !text.contains("\"error\"") else { throw Failure("a node refused: \(text.prefix(2_000))") }
        checkedByteCount = line.count
    }

    /// Length of a successful answer. The program has one thread.
    private nonisolated(unsafe) static var checkedByteCount = 0
}
