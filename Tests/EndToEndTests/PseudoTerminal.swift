import Foundation
import Glibc

final class PseudoTerminal {
    private let master: Descriptor
    private let slave: Descriptor
    /// Output since the last `expect`.
    private var shown = ""
    private(set) var text = ""

    /// - Parameter size: columns and rows; `nil` for a terminal that does not report it.
    init(size: (columns: UInt16, rows: UInt16)? = nil) throws {
        // Not openpty(3): other tests start children, which must not inherit it. ioctl_tty(2): TIOCSPTLCK, TIOCGPTN.
        master = try Descriptor("/dev/ptmx", O_RDWR | O_NOCTTY)
        var locked: Int32 = 0
        var number: Int32 = 0
        guard ioctl(master.number, 0x4004_5431, &locked) == 0, ioctl(master.number, 0x8004_5430, &number) == 0 else {
            throw HarnessError("no pseudo terminal: \(errno)")
        }
        slave = try Descriptor("/dev/pts/\(number)", O_RDWR | O_NOCTTY)
        guard let size else { return }
        var window = winsize(ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0)
        guard ioctl(master.number, UInt(TIOCSWINSZ), &window) == 0 else { throw HarnessError("no size: \(errno)") }
    }

    func child(_ arguments: [String]) throws -> Child {
        try Child(arguments, input: slave, output: slave, errors: slave)
    }

    var shows: Bool {
        var settings = termios()
        tcgetattr(slave.number, &settings)
        return settings.c_lflag & tcflag_t(ECHO) != 0
    }

    func type(_ text: String) throws {
        let bytes = Array(text.utf8)
        guard write(master.number, bytes, bytes.count) == bytes.count else { throw HarnessError("write: \(errno)") }
    }

    func expect(_ words: String) throws {
        try eventually("the words `\(words)`", seconds: 60) {
            if let range = shown.range(of: words) {
                shown = String(shown[range.upperBound...])
                return true
            }
            var polled = pollfd(fd: master.number, events: Int16(POLLIN), revents: 0)
            guard poll(&polled, 1, 100) > 0 else { return false }
            var bytes = [UInt8](repeating: 0, count: 4_096)
            let new = String(decoding: bytes[..<max(0, read(master.number, &bytes, bytes.count))], as: UTF8.self)
            shown += new
            text += new
            return false
        }
    }
}
