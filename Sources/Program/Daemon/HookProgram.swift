import CLinux
import Glibc
import Transport

/// One start of a hook's program: without a shell, in a process group of its own, with nothing of ours but what it is
/// told.
struct HookProgram {
    /// How it has ended.
    enum End: Hashable, Sendable {
        case exited(Int32)
        case killed(signal: Int32)
        /// It took longer than its time and was ended.
        case timedOut
        case notStarted(String)
    }

    /// How long a program may run before SIGTERM, and after that before SIGKILL, in milliseconds.
    static let timeout: Int64 = 30_000
    static let grace: Int64 = 5_000

    let command: [String]
    /// The variables that say what has happened; a few that programs need are added.
    let environment: [String: String]
    /// What it reads from standard input.
    let input: String

    /// Why a program would not be started: it is not there, is not executable, or others could change it. `nil` when
    /// nothing is wrong.
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

    /// Runs it to its end. Blocks: for a thread of the hooks.
    /// - Parameter stopped: becomes readable when the node stops; the program is ended then.
    func run(stopped: Int32) -> End {
        if let problem = Self.problem(command[0]) { return .notStarted(problem) }
        var ends: [Int32] = [-1, -1]
        guard process_pipe(&ends) == 0 else { return .notStarted("pipe: \(String(cString: strerror(errno)))") }
        // Short enough for the pipe's buffer, so nobody waits for a program that does not read.
        let bytes = Array(input.utf8)
        _ = write(ends[1], bytes, bytes.count)
        close(ends[1])
        defer { close(ends[0]) }
        var variables = environment
        for name in ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ"] where getenv(name) != nil {
            variables[name] = String(cString: getenv(name))
        }
        do throws(ChildProcess.StartFailure) {
            // What it prints could hold texts: none of it reaches our log.
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
