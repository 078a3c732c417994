import CLinux
import Glibc
import Synchronization

/// A blocking UPnP client with a helper process for each question (``UPnPHelper``); use it from one thread at a time.
/// The helper's process group is killed after its end, on timeout and on cancellation.
final class UPnPClient: Sendable {
    private struct Found {
        let gateway: IPAddress
        let local: IPAddress
        /// Of the service: the URL and the type, as libminiupnpc needs them.
        let location: [String]
    }

    /// The node's own program, started with ``UPnPHelper/command``.
    private static let program = "/proc/self/exe"
    /// Timeout of a question: 1 s of search and some answers of at most 5 s each, the library's limit.
    private static let milliseconds: Int64 = 20_000
    private static let lineByteCount = 8_192

    /// The last location of the service.
    private let found = Mutex<Found?>(nil)

    func map(_ place: MappingPlace, suggesting port: UInt16, _ isGivenUp: () -> Bool) -> PortMappingStateMachine.Outcome
    { ask("map", place, tcp: port, udp: nil, isGivenUp) }

    func remove(_ mapping: Mapping) { _ = ask("remove", mapping.place, tcp: mapping.tcp, udp: mapping.udp) { false } }

    private func ask(_ verb: String, _ place: MappingPlace, tcp: UInt16, udp: UInt16?, _ isGivenUp: () -> Bool)
        -> PortMappingStateMachine.Outcome
    {
        let known = found.withLock { $0 }.flatMap {
            $0.gateway == place.gateway && $0.local == place.local ? $0.location : nil
        }
        let question = [
            verb, place.gateway.text, place.local.text, "\(place.port)", "\(place.hasDatagrams)", "\(tcp)",
            "\(udp ?? tcp)",
        ]
        guard let line = Self.run(question + (known ?? []), isGivenUp) else {
            found.withLock { $0 = nil }
            return .failed(.silent)
        }
        let words = line.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
        let location = Array(words.prefix(2))
        let isFound = location.count == 2 && location[0] != ""
        found.withLock { $0 = isFound ? Found(gateway: place.gateway, local: place.local, location: location) : nil }
        return PortMappingStateMachine.Outcome(words: Array(words.dropFirst(2)))
    }

    /// - Returns: the helper's output; `nil` without output, or if the helper failed.
    private static func run(_ question: [String], _ isGivenUp: () -> Bool) -> String? {
        var output: [Int32] = [-1, -1]
        guard process_pipe(&output) == 0 else { return nil }
        defer { close(output[0]) }
        // A descendant of the helper may keep the other end open.
        _ = fcntl(output[0], F_SETFL, O_NONBLOCK)
        let child: ChildProcess
        do throws(ChildProcess.StartFailure) {
            defer { close(output[1]) }
            child = try ChildProcess(
                program, arguments: ["mayfly", UPnPHelper.command] + question, environment: [:], output: output[1])
        } catch { return nil }
        var left = milliseconds
        // Short turns, so that a cancellation is noticed.
        while left > 0, !isGivenUp(), !child.hasEnded(within: 50) { left -= 50 }
        child.signal(SIGKILL)
        guard child.reap() == .exited(0) else { return nil }
        var answer = [UInt8](repeating: 0, count: lineByteCount)
        let count = read(output[0], &answer, answer.count)
        return count > 0 ? String(decoding: answer[..<count], as: UTF8.self) : nil
    }
}

/// The process in which libminiupnpc parses a gateway's answers: one question as arguments, one answer as a line to
/// standard output. It has no keys, no home and no other descriptors, limited memory and time, and ends with the node.
package enum UPnPHelper {
    package static let command = "gateway-helper"
    /// Heap and stacks in bytes, which bounds an endless answer.
    private static let memory: rlim_t = 64 << 20
    /// CPU time in seconds.
    private static let processor: rlim_t = 5

    /// - Parameter words: verb, gateway, our address, our port, whether UDP is mapped, the outer ports of TCP and UDP
    ///   (suggested, or of the mapping), and the last location of the service, if known.
    package static func run(_ words: [String]) {
        process_end_with_parent()
        limit(RLIMIT_DATA, memory)
        limit(RLIMIT_CPU, processor)
        limit(RLIMIT_FSIZE, 0)
        guard words.count >= 7, let gateway = IPAddress(text: words[1]), let local = IPAddress(text: words[2]),
            let port = UInt16(words[3]), let tcp = UInt16(words[5]), let udp = UInt16(words[6])
        else { return }
        let place = MappingPlace(
            gateway: gateway, interface: 0, local: local, port: port, hasDatagrams: words[4] == "true")
        var service = UPnPService(location: words.dropFirst(7))
        let outcome: PortMappingStateMachine.Outcome
        switch words[0] {
        case "map": outcome = service.map(place, suggesting: tcp)
        case "remove": outcome = service.remove(place, tcp: tcp, udp: udp)
        default: return
        }
        let line = Array((service.location + outcome.words).joined(separator: "\t").utf8)
        _ = write(STDOUT_FILENO, line, line.count)
    }

    private static func limit(_ resource: __rlimit_resource, _ value: rlim_t) {
        var limit = rlimit(rlim_cur: value, rlim_max: value)
        setrlimit(__rlimit_resource_t(resource.rawValue), &limit)
    }
}

extension PortMappingStateMachine.Outcome {
    fileprivate var words: [String] {
        switch self {
        case .granted(let grant):
            ["granted", grant.outer.text, "\(grant.tcp)", "\(grant.udp ?? 0)", "\(grant.lifetime)"]
        case .failed(.unsupported): ["unsupported"]
        case .failed(.silent): ["silent"]
        case .failed(.malformed), .failed(.notGlobal): ["malformed"]
        case .failed(.permanentOnly): ["permanentOnly"]
        case .failed(.refused(let code)): ["refused", "\(code)"]
        }
    }

    /// Any other words give `malformed`.
    fileprivate init(words: [String]) {
        let address = words.count > 1 ? IPAddress(text: words[1]) : nil
        let numbers = words.dropFirst().map { Int($0) ?? -1 }
        switch (words.first, words.count) {
        case ("unsupported", 1): self = .failed(.unsupported)
        case ("silent", 1): self = .failed(.silent)
        case ("permanentOnly", 1): self = .failed(.permanentOnly)
        case ("refused", 2): self = .failed(.refused(numbers[0]))
        case ("granted", 5):
            guard let address, let tcp = UInt16(exactly: numbers[1]), let udp = UInt16(exactly: numbers[2]),
                let lifetime = UInt32(exactly: numbers[3])
            else { fallthrough }
            self = .granted(MappingGrant(outer: address, tcp: tcp, udp: udp == 0 ? nil : udp, lifetime: lifetime))
        default: self = .failed(.malformed)
        }
    }
}

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
