import ArgumentParser
import Control
import Glibc
import Messaging
import NodeRuntime
import Store
import Transport

struct DoctorCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor", abstract: "Check the home, the configuration and the node for problems.",
        discussion: """
            Checks the home and the directories above it: keystore, clock mark, configuration, peers and hooks. Also \
            checks ports, swap, core dumps and limits, and queries the node. Works with and without a running node. \
            The exit code is 1 if a check fails; a warning is not a failure.

            Example:
              mayfly doctor --json | jq 'select(.state != "ok")'
            """)

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let home = try global.resolvedHome()
        let (nodeChecks, running) = askNode()
        let checks = (LocalChecks(home: home, running: running).all + nodeChecks).map { check in
            var check = check
            check.hint = check.hint.map { naming(home: global.home, in: $0) }
            return check
        }
        let code = checks.contains { $0.state == .failed } ? FailureKind.failed.exitCode : 0
        for check in checks { if terminal.json { terminal.result(JSONValue(of: check), exitCode: code) } }
        if !terminal.json {
            terminal.table(
                ["CHECK", "STATE", "FOUND"],
                checks.map { check in
                    let hint = check.hint.map { "; \($0)" } ?? ""
                    return [check.name, check.state.rawValue, check.message + hint]
                }, exitCode: code)
        }
        if code != 0 { throw ExitCode(code) }
    }

    private func askNode() -> ([HealthCheck], NodeStatus?) {
        do {
            let value = try connect().call(NodeMethods.status, Nothing(), timeout: .seconds(5))
            let status = try understand(value, as: NodeStatus.self)
            var checks = [HealthCheck.ok("node", "version \(status.version) is running")]
            if status.version != ProgramVersion.text {
                checks.append(
                    .warning(
                        "version", "the node is \(status.version), this command is \(ProgramVersion.text)",
                        "restart the node"))
            }
            if status.locked {
                checks.append(.warning("storage", "the storage is locked", "open it with `mayfly unlock`"))
            }
            if let hooks = status.hooks, hooks.failed + hooks.dropped > 0 {
                checks.append(
                    .warning(
                        "hooks", "\(hooks.failed) failed, \(hooks.dropped) dropped since the start",
                        "see the node's log"))
            }
            return (checks + (status.checks ?? []), status)
        } catch let error as ControlError {
            let state: CheckState = error.kind == .noNode ? .warning : .failed
            return ([HealthCheck(name: "node", state: state, message: error.message, hint: error.hint)], nil)
        } catch { return ([HealthCheck.failed("node", "the node cannot be queried")], nil) }
    }
}

struct LocalChecks {
    let home: String
    let running: NodeStatus?

    var all: [HealthCheck] {
        let place = directory
        return [place] + (place.state == .failed ? [] : inside) + [socket, swap] + process
    }

    /// Core dumps and open files, with the limits of the running node.
    private var process: [HealthCheck] {
        guard let pid = running?.pid, let table = try? InputFile.read("/proc/\(pid)/limits", byteLimit: 65_536) else {
            var files = rlimit()
            guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files) == 0 else { return [] }
            return [Self.descriptors(UInt64(files.rlim_max))]
        }
        let lines = String(decoding: table, as: UTF8.self).split(separator: "\n")
        func soft(_ name: String) -> String? {
            lines.first { $0.hasPrefix(name) }?.dropFirst(name.count).split(separator: " ").first.map(String.init)
        }
        var checks: [HealthCheck] = []
        if let size = soft("Max core file size") {
            checks.append(
                size == "0"
                    ? HealthCheck.ok("core", "the node leaves no core dump")
                    : HealthCheck.failed(
                        "core", "the node may leave a core dump with keys in it",
                        "restart it, under `ulimit -c 0` or LimitCORE=0"))
        }
        if let count = soft("Max open files") { checks.append(Self.descriptors(UInt64(count) ?? .max)) }
        return checks
    }

    /// A link, an awake inbox and a client each take one descriptor; see ``Limits`` for their maximum numbers.
    private static func descriptors(_ limit: UInt64) -> HealthCheck {
        let needed: UInt64 = 1_024
        guard limit >= needed else {
            return .warning(
                "descriptors", "at most \(limit) open files, fewer than \(needed)",
                "raise it: `ulimit -n`, or LimitNOFILE= of the service")
        }
        return .ok("descriptors", "at most \(limit) open files")
    }

    private var directory: HealthCheck {
        var status = stat()
        guard lstat(home, &status) == 0 else {
            let isMissing = errno == ENOENT || errno == ENOTDIR
            return .failed(
                "home",
                isMissing
                    ? "\(home) does not exist"
                    : "\(home) cannot be examined: \(String(cString: strerror(errno)).lowercased())",
                isMissing ? "create it with `mayfly init`" : "run this as the user who runs the node")
        }
        guard status.st_mode & S_IFMT == S_IFDIR else { return .failed("home", "\(home) is not a directory") }
        guard status.st_uid == geteuid() else {
            return .failed("home", "\(home) belongs to another user", "run this as that user")
        }
        let mode = status.st_mode & 0o777
        guard mode & 0o077 == 0 else {
            return .failed(
                "home", "other users have access to \(home) (mode \(String(mode, radix: 8)))",
                "chmod 700 \(quoted(home))")
        }
        if access(home, W_OK) != 0 {
            let isReadOnly = errno == EROFS
            return .failed(
                "home", isReadOnly ? "\(home) is on a read-only file system" : "\(home) cannot be written to",
                isReadOnly ? "make it writable (mount -o remount,rw)" : "chmod 700 \(quoted(home))")
        }
        return .ok("home", "\(home), mode \(String(mode, radix: 8))")
    }

    private var socket: HealthCheck {
        let path = ControlSocket(home: home).path
        var status = stat()
        guard lstat(path, &status) == 0 else {
            return .ok("socket", "no control socket\(running == nil ? ", so no node is running" : " on the disk")")
        }
        let mode = status.st_mode & 0o777
        guard status.st_mode & S_IFMT == S_IFSOCK, mode & 0o077 == 0 else {
            return .failed(
                "socket", "\(path) is not a socket that only you can use (mode \(String(mode, radix: 8)))",
                "stop the node, remove it, start the node")
        }
        return .ok("socket", "\(path), mode \(String(mode, radix: 8))")
    }

    private var swap: HealthCheck {
        guard let table = try? InputFile.read("/proc/swaps", byteLimit: 65_536) else {
            return .warning("swap", "it cannot be determined whether swap is on")
        }
        let areas = String(decoding: table, as: UTF8.self).split(separator: "\n").dropFirst().compactMap {
            $0.split(separator: " ").first.map(String.init)
        }
        // Compressed memory and encrypted volumes leave nothing readable on a disk.
        let plain = areas.filter { !$0.hasPrefix("/dev/zram") && !$0.hasPrefix("/dev/dm-") }
        guard plain.isEmpty else {
            return .warning(
                "swap", "swap on \(plain.joined(separator: ", ")) may keep pieces of messages",
                "encrypt it, or turn it off with swapoff")
        }
        return .ok("swap", areas.isEmpty ? "none" : "in memory or on a mapped device")
    }

    private var inside: [HealthCheck] {
        var checks = store
        do throws(HomeFileError) {
            let configuration = try NodeConfiguration.load(home: home)
            try configuration.checkHooks(events: HookRunner.events, home: home)
            checks.append(.ok("config", "\(NodeConfiguration.fileName) can be read"))
            checks += hooks(configuration.hooks ?? []) + listen(configuration) + advertise(configuration)
        } catch { checks.append(Self.check("config", error)) }
        do throws(HomeFileError) {
            let count = try PeersFile.load(home: home).peers.count
            checks.append(.ok("peers", "\(PeersFile.fileName) names \(count)"))
        } catch { checks.append(Self.check("peers", error)) }
        return checks + [disk]
    }

    private static func check(_ name: String, _ error: HomeFileError) -> HealthCheck {
        HealthCheck.failed(
            name, "\(error)", error.kind == .symbolicLink ? "replace it by a regular file" : "correct the file")
    }

    private var store: [HealthCheck] {
        let seen: HomeInspection
        do throws(StoreError) { seen = try HomeInspection(home: home) } catch {
            return [HealthCheck.failed("store", "\(error)", error.advice)]
        }
        let protection = seen.protection == .keyFile ? "a key file" : "a passphrase"
        var checks = [
            seen.keystoreCopyCount == 2
                ? HealthCheck.ok("keystore", "both copies can be read; protected by \(protection)")
                : HealthCheck.warning(
                    "keystore", "one of its two copies cannot be read",
                    "check the disk; make new conversations in a new home while this one still opens")
        ]
        checks.append(Self.clock(mark: seen.clockMark, now: wallClock().milliseconds))
        // A running node reports this itself.
        if running == nil {
            checks.append(
                HealthCheck(
                    name: "erasure", state: seen.erasurePromise.erasure == .bestEffort ? .warning : .ok,
                    message: "\(seen.erasurePromise.erasure.rawValue): \(seen.erasurePromise.reason)",
                    hint: seen.erasurePromise.erasure == .bestEffort
                        ? "for more, keep the home on ext4 or xfs, and encrypt swap or turn it off" : nil))
        }
        return checks
    }

    /// Both parameters are in milliseconds since 1970.
    static func clock(mark: Int64?, now: Int64) -> HealthCheck {
        guard let mark else {
            return .warning(
                "clock", "the home's saved clock time cannot be read",
                "check the disk; the node trusts the system clock")
        }
        guard mark - now <= 2 * Milliseconds.minute else {
            let seen = shown(Timestamp(milliseconds: mark), now: Timestamp(milliseconds: now))
            return .failed(
                "clock", "the system clock is behind the latest time that this home has seen, \(seen)",
                "if the system clock is wrong, correct it (timedatectl). If it was ahead at an earlier start, "
                    + "this cannot be undone. Until that time the home's clock advances only while the node runs, "
                    + "and messages live longer. A new home (`mayfly init`) is not affected")
        }
        guard mark == 0 || now - mark <= 366 * Milliseconds.day else {
            return .warning(
                "clock", "by the system clock, the home was last used more than a year ago",
                "check the clock before you start the node: "
                    + "expired data and conversations that are due to explode are destroyed at once")
        }
        return .ok("clock", "not behind the latest time that this home has seen")
    }

    private var disk: HealthCheck {
        var status = statvfs()
        guard statvfs(home, &status) == 0 else { return .warning("space", "the free disk space cannot be determined") }
        let unit = UInt64(status.f_frsize)
        let free = UInt64(status.f_bavail) &* unit
        let needed = min(Limits.freeByteCount, UInt64(status.f_blocks) &* unit / 20)
        guard free >= needed else {
            return .failed(
                "space", "\(sizeText(Int64(clamping: free))) free, less than \(sizeText(Int64(clamping: needed)))",
                "free some space: until then messages from others are not stored")
        }
        return .ok("space", "\(sizeText(Int64(clamping: free))) free")
    }

    private func hooks(_ hooks: [NodeConfiguration.Hook]) -> [HealthCheck] {
        hooks.enumerated().map { index, hook in
            if let problem = HookProgram.problem(hook.command[0]) {
                return .failed(
                    "hook", "hooks[\(index)]: \(problem)",
                    "the hook is not started; name an executable file that only you or root can change")
            }
            return .ok("hook", "hooks[\(index)]: \(hook.command[0])")
        }
    }

    private func listen(_ configuration: NodeConfiguration) -> [HealthCheck] {
        if let running {
            let words = running.listen.isEmpty ? "nowhere" : running.listen.joined(separator: " ")
            let state: CheckState = running.listen.isEmpty ? .warning : .ok
            return [HealthCheck(name: "listen", state: state, message: "listens on \(words)")]
        }
        let failures = configuration.listen.map { Self.bindFailure($0) }
        let addresses = ReachableAddresses(configuration, Sockets().interfaces() ?? [])
        let isFound = configuration.discover.map { $0 != "off" } ?? false
        return zip(configuration.listen, failures).map { endpoint, failure in
            guard let failure else { return .ok("listen", "\(endpoint) is free") }
            if failure.isFamilyMissing, failures.contains(where: { $0 == nil }) {
                return .ok(
                    "listen", "\(endpoint): the kernel does not have this address family; the node runs without it")
            }
            return .failed(
                "listen", "\(endpoint): \(failure.reason)",
                "choose another in \(NodeConfiguration.fileName) or with `mayfly run --listen`")
        }
            + (addresses.told + addresses.untold.map(\.endpoint)).prefix(1).map { _ in
                NetworkView.addressesCheck(addresses, isFound: isFound)
            }
    }

    private struct BindFailure: Hashable {
        let reason: String
        /// The kernel lacks the address family of this wildcard.
        var isFamilyMissing = false

        init(_ code: Int32, _ endpoint: Messaging.Endpoint) {
            reason = String(cString: strerror(code)).lowercased()
            isFamilyMissing = [EAFNOSUPPORT, EADDRNOTAVAIL].contains(code) && endpoint.wildcardIsIPv4 != nil
        }

        init(reason: String) { self.reason = reason }
    }

    private static func bindFailure(_ endpoint: Messaging.Endpoint) -> BindFailure? {
        var hints = addrinfo()
        hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        var found: UnsafeMutablePointer<addrinfo>?
        guard getaddrinfo(endpoint.host, String(endpoint.port), &hints, &found) == 0, let found else {
            return BindFailure(reason: "not an IP address")
        }
        defer { freeaddrinfo(found) }
        let descriptor = Glibc.socket(
            found.pointee.ai_family, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return BindFailure(errno, endpoint) }
        defer { close(descriptor) }
        var yes: Int32 = 1
        if found.pointee.ai_family == AF_INET6 {
            setsockopt(descriptor, Int32(IPPROTO_IPV6), IPV6_V6ONLY, &yes, socklen_t(MemoryLayout<Int32>.size))
        }
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
        guard bind(descriptor, found.pointee.ai_addr, found.pointee.ai_addrlen) == 0, Glibc.listen(descriptor, 1) == 0
        else { return BindFailure(errno, endpoint) }
        return nil
    }

    private func advertise(_ configuration: NodeConfiguration) -> [HealthCheck] {
        let isExplicit = !configuration.advertised.isEmpty
        // A running node may have other endpoints from its command line.
        let listening = running.map { $0.listen.compactMap { Endpoint($0) } } ?? configuration.listen
        let told = isExplicit ? configuration.advertised : listening
        func warning(_ message: String, _ hint: String) -> [HealthCheck] {
            [HealthCheck.warning("advertise", message, hint)]
        }
        let hint = "name the outer address as `advertise` in \(NodeConfiguration.fileName)"
        if isExplicit, let wrong = told.first(where: { $0.host == "0.0.0.0" || $0.host == "::" || $0.port == 0 }) {
            return warning("\(wrong) is not an address that others can dial", hint)
        }
        if told.allSatisfy({ $0.host.hasPrefix("127.") || $0.host == "::1" || $0.host == "localhost" }) {
            return warning("only this machine can reach the node", hint)
        }
        let isMoving = configuration.listen.allSatisfy { $0.port == 0 }
        if !isExplicit, isMoving, listening.map(\.host) == configuration.listen.map(\.host) {
            return warning("the port changes at each start, so others lose this node", "choose a fixed port")
        }
        // The `addresses` check covers the listening endpoints.
        guard isExplicit else { return [] }
        let words = told.map { "\($0)" }.joined(separator: " ")
        return [HealthCheck.ok("advertise", "others are told \(words)")]
    }
}
