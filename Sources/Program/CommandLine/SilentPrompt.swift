import CLinux
import Control
import Glibc

/// A terminal prompt without echo. It restores the terminal however the program ends or stops meanwhile.
enum SilentPrompt {
    private static let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP]

    /// Write end of the self-pipe for signals. It does not change during a prompt.
    nonisolated(unsafe) private static var told: Int32 = -1

    /// - Parameter descriptor: the terminal.
    /// - Returns: number of answer bytes in `buffer`, line end included.
    static func ask(_ question: String, on descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer)
        throws(ControlError) -> Int
    {
        var ends: [Int32] = [-1, -1]
        guard process_pipe(&ends) == 0 else { throw ControlError(.failed, "cannot make a pipe") }
        defer { for end in ends { close(end) } }
        told = ends[1]
        var shown = termios()
        tcgetattr(descriptor, &shown)
        var silent = shown
        silent.c_lflag &= ~tcflag_t(ECHO)
        silent.c_lflag |= tcflag_t(ECHONL)
        while true {
            let before = handle()
            tcsetattr(descriptor, TCSAFLUSH, &silent)
            _ = DescriptorOutput.write(question.utf8, to: descriptor)
            let signal = wait(for: descriptor, orSignal: ends[0])
            let count = signal == nil ? answer(descriptor, into: buffer) : 0
            let failure = errno
            tcsetattr(descriptor, TCSAFLUSH, &shown)
            for (number, action) in before { withUnsafePointer(to: action) { _ = sigaction(number, $0, nil) } }
            if let signal {
                _ = DescriptorOutput.write("\n".utf8, to: descriptor)
                guard signal != SIGINT else { throw ControlError(.failed, "interrupted") }
                obey(signal)
            } else if count >= 0 {
                return count
            } else {
                throw ControlError(
                    .failed, "cannot read from the terminal: \(String(cString: strerror(failure)).lowercased())")
            }
        }
    }

    static func isIgnored(_ number: Int32) -> Bool {
        var action = sigaction()
        sigaction(number, nil, &action)
        // The kernel's value of `SIG_IGN` (signal.h).
        return unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == 1
    }

    private static func handle() -> [(Int32, sigaction)] {
        var handling = sigaction()
        handling.__sigaction_handler.sa_handler = { number in
            let before = errno
            var byte = UInt8(truncatingIfNeeded: number)
            _ = write(SilentPrompt.told, &byte, 1)
            errno = before
        }
        return signals.filter { !isIgnored($0) }.map { number in
            var before = sigaction()
            sigaction(number, &handling, &before)
            return (number, before)
        }
    }

    /// - Returns: a received signal; `nil` when there is input.
    private static func wait(for descriptor: Int32, orSignal pipe: Int32) -> Int32? {
        var polled = [
            pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0),
            pollfd(fd: pipe, events: Int16(POLLIN), revents: 0),
        ]
        while poll(&polled, 2, -1) < 0, errno == EINTR {}
        var byte: UInt8 = 0
        return polled[1].revents != 0 && read(pipe, &byte, 1) == 1 ? Int32(byte) : nil
    }

    private static func answer(_ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer) -> Int {
        while true {
            let count = read(descriptor, buffer.baseAddress, buffer.count)
            if count >= 0 || errno != EINTR { return count }
        }
    }

    /// Applies the signal's default action.
    private static func obey(_ number: Int32) {
        // This may be a pool thread, which blocks signals.
        var only = sigset_t()
        sigemptyset(&only)
        sigaddset(&only, number)
        pthread_sigmask(SIG_UNBLOCK, &only, nil)
        raise(number)
    }
}
