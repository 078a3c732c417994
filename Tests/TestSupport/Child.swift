import CLinux
import Glibc

/// A child process.
package final class Child {
    package struct Failure: Error, CustomStringConvertible {
        package let description: String

        init(_ description: String) { self.description = description }

        static func system(_ what: String) -> Failure { Failure("\(what): \(String(cString: strerror(errno)))") }
    }

    package let pid: pid_t
    private let output: Int32
    /// Output behind the last line that was read.
    private var rest: [UInt8] = []

    /// - Parameter arguments: the program first.
    package init(_ arguments: [String]) throws {
        var pipe: [Int32] = [-1, -1]
        guard Glibc.pipe(&pipe) == 0 else { throw Failure.system("pipe") }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO)
        spawn_close_from(&actions, STDERR_FILENO + 1)
        var strings = arguments.map { strdup($0) } + [nil]
        defer { for string in strings { free(string) } }
        var pid = pid_t()
        let outcome = posix_spawn(&pid, arguments[0], &actions, nil, &strings, environ)
        close(pipe[1])
        guard outcome == 0 else {
            close(pipe[0])
            throw Failure("cannot start \(arguments[0]): \(String(cString: strerror(outcome)))")
        }
        self.pid = pid
        output = pipe[0]
    }

    /// The next of its output; empty at the end.
    package func read() throws -> [UInt8] {
        guard rest.isEmpty else {
            defer { rest = [] }
            return rest
        }
        var count = 0
        let bytes = [UInt8](unsafeUninitializedCapacity: 65_536) { buffer, initialized in
            count = Glibc.read(output, buffer.baseAddress, buffer.count)
            initialized = max(0, count)
        }
        guard count >= 0 else { throw Failure.system("read") }
        return bytes
    }

    /// The next line, without its terminator.
    package func readLine() throws -> [UInt8] {
        var line: [UInt8] = []
        while true {
            let more = try read()
            guard !more.isEmpty else { throw Failure("process \(pid) ended without a word") }
            if let end = more.firstIndex(of: UInt8(ascii: "\n")) {
                rest = Array(more[(end + 1)...])
                line += more[..<end]
                return line
            }
            line += more
        }
    }

    /// - Returns: the exit code, negative for a signal.
    package func wait() -> Int32 {
        var status: Int32 = 0
        guard waitpid(pid, &status, 0) == pid else { return -1 }
        return status & 0x7f == 0 ? status >> 8 & 0xff : -(status & 0x7f)
    }

    deinit { close(output) }

    /// Runs a program to its end.
    /// - Returns: its output.
    package static func run(_ arguments: [String]) throws -> [UInt8] {
        let child = try Child(arguments)
        var output: [UInt8] = []
        while case let more = try child.read(), !more.isEmpty { output += more }
        let code = child.wait()
        guard code == 0 else {
            throw Failure(
                "\(arguments.joined(separator: " ")): exit code \(code): \(String(decoding: output, as: UTF8.self))")
        }
        return output
    }

    /// The first line of /proc/PID/`file` that begins with `prefix`.
    package func line(_ file: String, _ prefix: String) -> String? {
        guard let file = fopen("/proc/\(pid)/\(file)", "r") else { return nil }
        defer { fclose(file) }
        var line: UnsafeMutablePointer<CChar>?
        var capacity = 0
        defer { free(line) }
        while getline(&line, &capacity, file) > 0, let text = line.map({ String(cString: $0) }) {
            if text.hasPrefix(prefix) { return text }
        }
        return nil
    }

    /// A value of /proc/PID/status, in MiB.
    package func memory(_ name: String) -> Double? {
        let digits = line("status", "\(name):")?.drop { !$0.isNumber }.prefix { $0.isNumber }
        return digits.flatMap { Double($0) }.map { $0 / 1_024 }
    }
}
