import CLinux
import Glibc

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
        switch start(standardInput: ends[0]) {
        case .failure(let reason): return .notStarted(reason.text)
        case .success(let pid): return wait(pid, stopped: stopped)
        }
    }

    private struct Reason: Error { let text: String }

    private func start(standardInput: Int32) -> Result<pid_t, Reason> {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, standardInput, STDIN_FILENO)
        // What it prints could hold texts: none of it reaches our log.
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0)
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0)
        spawn_close_from(&actions, STDERR_FILENO + 1)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        var all = sigset_t()
        sigfillset(&all)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setsigdefault(&attributes, &all)
        posix_spawnattr_setpgroup(&attributes, 0)
        posix_spawnattr_setflags(
            &attributes,
            Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP)
        )
        var variables = environment
        for name in ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ"] where getenv(name) != nil {
            variables[name] = String(cString: getenv(name))
        }
        var words: [UnsafeMutablePointer<CChar>?] = command.map { strdup($0) } + [nil]
        var pairs: [UnsafeMutablePointer<CChar>?] = variables.keys.sorted().map {
            strdup("\($0)=\(variables[$0] ?? "")")
        }
        pairs.append(nil)
        defer { for word in words + pairs { free(word) } }
        var pid: pid_t = 0
        let code = posix_spawn(&pid, command[0], &actions, &attributes, &words, &pairs)
        guard code == 0 else {
            return .failure(Reason(text: "\(command[0]): \(String(cString: strerror(code)).lowercased())"))
        }
        return .success(pid)
    }

    /// Waits for exactly this child. Its number is its own until we reap it, so a signal cannot hit another process.
    private func wait(_ pid: pid_t, stopped: Int32) -> End {
        let descriptor = process_descriptor(pid)
        defer { if descriptor >= 0 { close(descriptor) } }
        var isLate = false
        if !hasEnded(pid, descriptor, stopped: stopped, within: Self.timeout) {
            isLate = true
            kill(-pid, SIGTERM)
            if !hasEnded(pid, descriptor, stopped: -1, within: Self.grace) { kill(-pid, SIGKILL) }
        }
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0, errno == EINTR {}
        if isLate { return .timedOut }
        return status & 0x7F == 0 ? .exited(status >> 8 & 0xFF) : .killed(signal: status & 0x7F)
    }

    /// - Parameter descriptor: of the process; -1 where the kernel has none: then we look every 50 ms.
    private func hasEnded(_ pid: pid_t, _ descriptor: Int32, stopped: Int32, within milliseconds: Int64) -> Bool {
        let end = ContinuousClock.now + .milliseconds(milliseconds)
        while true {
            if descriptor < 0, isZombie(pid) { return true }
            let left = Int64((max(.zero, end - ContinuousClock.now) / .milliseconds(1)).rounded(.up))
            var polled = [
                pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0),
                pollfd(fd: stopped, events: Int16(POLLIN), revents: 0),
            ]
            let count = poll(&polled, 2, Int32(clamping: descriptor < 0 ? min(left, 50) : left))
            if count > 0, polled[0].revents != 0 { return true }
            if count > 0 || left == 0 || (count < 0 && errno != EINTR) { return false }
        }
    }

    /// Has ended, and waits for us.
    private func isZombie(_ pid: pid_t) -> Bool {
        var information = siginfo_t()
        information.si_signo = 0
        return waitid(P_PID, id_t(pid), &information, WEXITED | WNOHANG | WNOWAIT) == 0 && information.si_signo != 0
    }
}
