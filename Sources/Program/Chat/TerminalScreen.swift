import Control
import Glibc

/// Controls the terminal: settings, size and signals. It restores settings and screen however the chat ends or stops.
final class TerminalScreen {
    private static let signals = [SIGWINCH, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCONT, SIGTSTP]
    /// Write end of the self-pipe for signals.
    nonisolated(unsafe) private static var told: Int32 = -1

    private static let ending = [SIGINT, SIGTERM, SIGHUP, SIGQUIT]
    /// Fatal signals of a program error: the handler restores the terminal before the process ends.
    private static let crashes = [SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV]
    /// Original settings, for the crash handler.
    nonisolated(unsafe) private static var saved = termios()
    /// Output descriptor of the crash handler; non-blocking.
    nonisolated(unsafe) private static var last: Int32 = STDOUT_FILENO
    private static let endBytes = Array(Renderer.end.utf8)

    private let ends: [Int32]
    /// Non-blocking output to the terminal, opened anew: standard output's open file description is shared with other
    /// processes.
    private let output: Int32
    private var before = termios()
    private var isOpen = false
    private var arrived: [Int32] = []

    /// Readable when a signal has arrived.
    var signalDescriptor: Int32 { ends[0] }

    init() throws(ControlError) {
        ends = try pipeEnds()
        for end in ends { _ = fcntl(end, F_SETFL, O_NONBLOCK) }
        output = ttyname(STDOUT_FILENO).map { Glibc.open($0, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC) } ?? -1
        Self.told = ends[1]
    }

    deinit {
        close()
        Self.told = -1
        for end in ends + (output < 0 ? [] : [output]) { Glibc.close(end) }
    }

    /// Takes over the terminal: raw mode and the alternate screen.
    func open() throws(ControlError) {
        guard tcgetattr(STDIN_FILENO, &before) == 0 else {
            throw ControlError(.failed, "standard input is not a terminal", hint: "use `mayfly chat --plain`")
        }
        var handling = sigaction()
        handling.__sigaction_handler.sa_handler = { number in
            let code = errno
            var byte = UInt8(truncatingIfNeeded: number)
            _ = Glibc.write(TerminalScreen.told, &byte, 1)
            errno = code
        }
        for number in Self.signals { sigaction(number, &handling, nil) }
        signal(SIGPIPE, SIG_IGN)
        Self.saved = before
        _ = Self.endBytes.count
        if output >= 0 { Self.last = output }
        var crashing = sigaction()
        // These functions are async-signal-safe (signal-safety(7)): tcsetattr(3), write(2), raise(3), sigaction(2).
        crashing.__sigaction_handler.sa_handler = { number in
            tcsetattr(STDIN_FILENO, TCSANOW, &TerminalScreen.saved)
            TerminalScreen.endBytes.withUnsafeBytes { _ = Glibc.write(TerminalScreen.last, $0.baseAddress, $0.count) }
            var usual = sigaction()
            sigaction(number, &usual, nil)
            raise(number)
        }
        for number in Self.crashes { sigaction(number, &crashing, nil) }
        isOpen = true
        begin()
    }

    private func begin() {
        var raw = before
        cfmakeraw(&raw)
        take(&raw)
        write(Renderer.begin)
    }

    func close() {
        guard isOpen else { return }
        isOpen = false
        write(Renderer.end)
        take(&before)
    }

    /// Does not wait for output to drain, because an unread terminal never drains.
    private func take(_ settings: inout termios) {
        tcsetattr(STDIN_FILENO, TCSANOW, &settings)
        tcflush(STDIN_FILENO, TCIFLUSH)
    }

    /// Stops the process like Ctrl-Z; returns when it is continued.
    func suspend() {
        guard isOpen else { return }
        write(Renderer.end)
        take(&before)
        raise(SIGSTOP)
        begin()
    }

    var size: Picture.Size { Terminal.size(of: STDOUT_FILENO) }

    func takeSignals() -> [Int32] {
        readSignals()
        defer { arrived = [] }
        return arrived
    }

    private func readSignals() {
        var bytes = [UInt8](repeating: 0, count: 64)
        let count = read(ends[0], &bytes, bytes.count)
        if count > 0 { arrived += bytes[..<count].map(Int32.init) }
    }

    /// - Returns: false on a write error, or when a terminating signal arrived while the terminal took no output.
    @discardableResult func write(_ text: String) -> Bool {
        guard output >= 0 else { return text.isEmpty || DescriptorOutput.write(text.utf8, to: STDOUT_FILENO) == nil }
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(output, $0.baseAddress, $0.count) }
            if count >= 0 {
                rest = rest.dropFirst(count)
                continue
            }
            guard errno == EAGAIN || errno == EINTR else { return false }
            var polled = [
                pollfd(fd: output, events: Int16(POLLOUT), revents: 0),
                pollfd(fd: ends[0], events: Int16(POLLIN), revents: 0),
            ]
            // After the end, the last output waits only briefly.
            let ready = poll(&polled, nfds_t(polled.count), isOpen ? -1 : Self.lastWords)
            if polled[1].revents != 0 { readSignals() }
            if ready == 0 || arrived.contains(where: Self.ending.contains) { return false }
        }
        return true
    }

    /// Milliseconds.
    private static let lastWords: Int32 = 200
}
