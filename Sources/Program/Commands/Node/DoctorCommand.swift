import ArgumentParser
import Control
import Glibc

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
            let value = try connect().call(Methods.status, Nothing(), timeout: .seconds(5))
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
        let inside = place.state == .failed ? [] : HomeChecks(home: home, running: running).all
        return [place] + inside + [socket, swap] + process
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
        guard lstat(path, &status) == 0 else { return .ok("socket", "no control socket, so no node is running") }
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
}
