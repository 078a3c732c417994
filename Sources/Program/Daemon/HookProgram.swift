import CLinux
import Glibc
import Transport

/// One run of a hook program, without a shell, in its own process group. It inherits nothing but its input and
/// variables.
struct HookProgram {
    enum End: Hashable, Sendable {
        case exited(Int32)
        case killed(signal: Int32)
        /// It exceeded its timeout and was killed.
        case timedOut
        case notStarted(String)
    }

    /// Timeout before SIGTERM, and grace period before SIGKILL, in milliseconds.
    static let timeout: Int64 = 30_000
    static let grace: Int64 = 5_000

    let command: [String]
    /// Event variables; a few that programs need are added.
    let environment: [String: String]
    let input: String

    /// Why a program must not be started: missing, not executable, or writable by others. `nil` when it is fine.
    static func problem(_ path: String) -> String? {
        var status = stat()
        guard stat(path, &status) == 0 else { return "\(path): \(String(cString: strerror(errno)).lowercased())" }
        guard status.st_mode & S_IFMT == S_IFREG else { return "\(path) is not a file" }
        guard status.st_mode & 0o022 == 0 else {
            return "others can change \(path) (mode \(String(status.st_mode & 0o777, radix: 8)))"
        }
        guard status.st_uid == 0 || status.st_uid == geteuid() else { return "\(path) belongs to another user" }
        guard access(path, X_OK) == 0 else { return "\(path) is not executable" }
        return nil
    }

    /// Runs the program to its end. Blocking, for a hook thread.
    /// - Parameter stopped: becomes readable when the node stops, which ends the program.
    func run(stopped: Int32) -> End {
        if let problem = Self.problem(command[0]) { return .notStarted(problem) }
        var ends: [Int32] = [-1, -1]
        guard process_pipe(&ends) == 0 else { return .notStarted("pipe: \(String(cString: strerror(errno)))") }
        // Fits into the pipe's buffer, so the write does not wait for the program.
        let bytes = Array(input.utf8)
        _ = write(ends[1], bytes, bytes.count)
        close(ends[1])
        defer { close(ends[0]) }
        var variables = environment
        for name in ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ"] where getenv(name) != nil {
            variables[name] = String(cString: getenv(name))
        }
        do throws(ChildProcess.StartFailure) {
            // The output could contain texts, so it does not reach the log.
            return wait(
                try ChildProcess(command[0], arguments: command, environment: variables, input: ends[0]),
                stopped: stopped)
        } catch { return .notStarted(error.text) }
    }

    private func wait(_ child: consuming ChildProcess, stopped: Int32) -> End {
        var isLate = false
        if !child.hasEnded(within: Self.timeout, unless: stopped) {
            isLate = true
            child.signal(SIGTERM)
            if !child.hasEnded(within: Self.grace) { child.signal(SIGKILL) }
        }
        let end = child.reap()
        if isLate { return .timedOut }
        return switch end {
        case .exited(let code): .exited(code)
        case .killed(let signal): .killed(signal: signal)
        }
    }
}
