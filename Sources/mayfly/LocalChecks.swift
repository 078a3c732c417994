import Control
import Glibc

/// What `doctor` can see without the node.
struct LocalChecks {
    let home: String

    var all: [HealthCheck] { [directory, socket, swap] }

    private var directory: HealthCheck {
        var status = stat()
        guard lstat(home, &status) == 0 else {
            return HealthCheck(
                name: "home",
                state: .failed,
                message: "\(home) does not exist",
                hint: "create it with `mayfly init`"
            )
        }
        guard status.st_mode & S_IFMT == S_IFDIR else {
            return HealthCheck(name: "home", state: .failed, message: "\(home) is not a directory")
        }
        guard status.st_uid == geteuid() else {
            return HealthCheck(
                name: "home",
                state: .failed,
                message: "\(home) belongs to another user",
                hint: "run this as that user"
            )
        }
        let mode = status.st_mode & 0o777
        guard mode & 0o077 == 0 else {
            return HealthCheck(
                name: "home",
                state: .failed,
                message: "others can look into \(home) (mode \(String(mode, radix: 8)))",
                hint: "chmod 700 \(home)"
            )
        }
        return HealthCheck(name: "home", state: .ok, message: "\(home), mode \(String(mode, radix: 8))")
    }

    private var socket: HealthCheck {
        let path = ControlSocket(home: home).path
        var status = stat()
        guard lstat(path, &status) == 0 else {
            return HealthCheck(name: "socket", state: .ok, message: "no control socket, so no node is running")
        }
        let mode = status.st_mode & 0o777
        guard status.st_mode & S_IFMT == S_IFSOCK, mode & 0o077 == 0 else {
            return HealthCheck(
                name: "socket",
                state: .failed,
                message: "\(path) is not a socket for you alone (mode \(String(mode, radix: 8)))",
                hint: "stop the node, remove it, start the node"
            )
        }
        return HealthCheck(name: "socket", state: .ok, message: "\(path), mode \(String(mode, radix: 8))")
    }

    private var swap: HealthCheck {
        guard let table = try? InputFile.read("/proc/swaps", byteLimit: 65_536) else {
            return HealthCheck(name: "swap", state: .warning, message: "cannot tell whether there is swap")
        }
        let areas = String(decoding: table, as: UTF8.self).split(separator: "\n").dropFirst()
            .compactMap { $0.split(separator: " ").first.map(String.init) }
        // Compressed memory and encrypted volumes keep nothing readable on a disk.
        let plain = areas.filter { !$0.hasPrefix("/dev/zram") && !$0.hasPrefix("/dev/dm-") }
        guard plain.isEmpty else {
            return HealthCheck(
                name: "swap",
                state: .warning,
                message: "swap on \(plain.joined(separator: ", ")) may keep pieces of messages",
                hint: "encrypt it, or turn it off with swapoff"
            )
        }
        return HealthCheck(
            name: "swap",
            state: .ok,
            message: areas.isEmpty ? "none" : "in memory or on a mapped device"
        )
    }
}
