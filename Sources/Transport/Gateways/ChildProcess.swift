import CLinux
import Glibc

/// A child process, started without a shell, in a process group of its own, and with only the given descriptors. It
/// stays a zombie until ``reap()``, so that a signal cannot hit another process.
package struct ChildProcess: ~Copyable {
    package struct StartFailure: Error { package let text: String }

    private let pid: pid_t
    /// A pidfd, readable once the process has ended. -1 if the kernel has none: then we poll every 50 ms.
    private let descriptor: Int32

    /// The arguments include the program's name. Standard input and output are none if they are `nil`; standard error
    /// goes nowhere.
    package init(
        _ path: String, arguments: [String], environment: [String: String], input: Int32? = nil, output: Int32? = nil
    ) throws(StartFailure) {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        if let input {
            posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO)
        } else {
            posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        }
        if let output {
            posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO)
        } else {
            posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0)
        }
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
            &attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP))
        var words: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
        var pairs: [UnsafeMutablePointer<CChar>?] = environment.keys.sorted().map {
            strdup("\($0)=\(environment[$0] ?? "")")
        }
        pairs.append(nil)
        defer { for word in words + pairs { free(word) } }
        var pid: pid_t = 0
        let code = posix_spawn(&pid, path, &actions, &attributes, &words, &pairs)
        guard code == 0 else { throw StartFailure(text: "\(path): \(String(cString: strerror(code)).lowercased())") }
        self.pid = pid
        descriptor = process_descriptor(pid)
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Signals the process group, and the process in case it has left the group.
    package func signal(_ number: Int32) {
        kill(-pid, number)
        kill(pid, number)
    }

    /// Waits until the process has ended, or for the given time.
    /// - Parameter other: a descriptor that also ends the wait when readable; -1 for none.
    /// - Returns: whether the process has ended.
    package func hasEnded(within milliseconds: Int64, unless other: Int32 = -1) -> Bool {
        let end = ContinuousClock.now + .milliseconds(milliseconds)
        while true {
            if descriptor < 0, isZombie { return true }
            let left = Int64((max(.zero, end - ContinuousClock.now) / .milliseconds(1)).rounded(.up))
            var polled = [
                pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0),
                pollfd(fd: other, events: Int16(POLLIN), revents: 0),
            ]
            let count = poll(&polled, 2, Int32(clamping: descriptor < 0 ? min(left, 50) : left))
            if count > 0, polled[0].revents != 0 { return true }
            if count > 0 || left == 0 || (count < 0 && errno != EINTR) { return false }
        }
    }

    private var isZombie: Bool {
        var information = siginfo_t()
        information.si_signo = 0
        return waitid(P_PID, id_t(pid), &information, WEXITED | WNOHANG | WNOWAIT) == 0 && information.si_signo != 0
    }

    package enum End: Hashable, Sendable {
        case exited(Int32)
        case killed(signal: Int32)
    }

    /// Waits for the end without a time limit.
    package consuming func reap() -> End {
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0, errno == EINTR {}
        return status & 0x7F == 0 ? .exited(status >> 8 & 0xFF) : .killed(signal: status & 0x7F)
    }
}
