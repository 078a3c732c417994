import CLinux
import Chat
import Control
import Glibc

/// The terminal of the process: its settings, its size, its signals. Whatever ends or stops the chat leaves the terminal as
/// it was, with nothing of the chat on it.
final class TerminalScreen {
    private static let signals = [SIGWINCH, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCONT, SIGTSTP]
    /// Where the handler tells which signal has come.
    nonisolated(unsafe) private static var told: Int32 = -1

    private let ends: [Int32]
    private var before = termios()
    private var isOpen = false

    /// Readable when a signal has come.
    var signalDescriptor: Int32 { ends[0] }

    init() throws(ControlError) {
        var ends: [Int32] = [-1, -1]
        guard process_pipe(&ends) == 0 else { throw ControlError(.failed, "cannot make a pipe") }
        self.ends = ends
        for end in ends { _ = fcntl(end, F_SETFL, O_NONBLOCK) }
        Self.told = ends[1]
    }

    deinit {
        close()
        Self.told = -1
        for end in ends { Glibc.close(end) }
    }

    /// Takes the terminal: no echo, no lines, no signals of the keyboard; another screen.
    func open() throws(ControlError) {
        guard tcgetattr(STDIN_FILENO, &before) == 0 else {
            throw ControlError(.failed, "standard input is no terminal", hint: "use `mayfly chat --plain`")
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
        isOpen = true
        begin()
    }

    private func begin() {
        var raw = before
        cfmakeraw(&raw)
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw)
        write(Renderer.begin)
    }

    /// Gives the terminal back.
    func close() {
        guard isOpen else { return }
        isOpen = false
        write(Renderer.end)
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &before)
    }

    /// Stops the process, as Ctrl-Z does; goes on when it is continued.
    func suspend() {
        guard isOpen else { return }
        write(Renderer.end)
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &before)
        raise(SIGSTOP)
        begin()
    }

    /// Columns and rows; 80 and 24 when the terminal does not say.
    var size: Picture.Size {
        var size = winsize()
        guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else {
            return Picture.Size(columns: 80, rows: 24)
        }
        return Picture.Size(columns: Int(size.ws_col), rows: Int(size.ws_row))
    }

    /// The signals that have come.
    func takeSignals() -> [Int32] {
        var bytes = [UInt8](repeating: 0, count: 64)
        let count = read(ends[0], &bytes, bytes.count)
        return count > 0 ? bytes[..<count].map(Int32.init) : []
    }

    /// - Returns: false when nobody sees it any more.
    @discardableResult
    func write(_ text: String) -> Bool {
        text.isEmpty || DescriptorOutput.write(text.utf8, to: STDOUT_FILENO) == nil
    }
}
