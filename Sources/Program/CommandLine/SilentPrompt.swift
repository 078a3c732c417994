import CLinux
import Control
import Glibc

/// A question on a terminal whose answer is not shown. Whatever ends or stops the program meanwhile leaves the terminal
/// as it was.
enum SilentPrompt {
    private static let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP]

    /// Where the handler tells which signal has come. Set while a question is open, and not changed then.
    nonisolated(unsafe) private static var told: Int32 = -1

    /// - Parameter descriptor: the terminal.
    /// - Returns: how many bytes of an answer are in `buffer`, its line end included.
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
                // After a stop the question is asked again.
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
        // `SIG_IGN` as the kernel has it (signal.h).
        return unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == 1
    }

    /// - Returns: what was done before with each signal.
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

    /// - Returns: the signal that has come; `nil` when there is something to read.
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

    /// Does what the signal does to a program that does not handle it.
    private static func obey(_ number: Int32) {
        // This may be a thread of a pool, which blocks signals.
        var only = sigset_t()
        sigemptyset(&only)
        sigaddset(&only, number)
        pthread_sigmask(SIG_UNBLOCK, &only, nil)
        raise(number)
    }
}
