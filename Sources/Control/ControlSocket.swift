import Glibc

/// The Unix socket of a node, `HOME/control.sock`, mode 0600: only the same user and root connect.
package struct ControlSocket: Hashable, Sendable {
    package let home: String

    package init(home: String) { self.home = home }

    package var path: String { "\(home)/\(Self.fileName)" }

    package static let fileName = "control.sock"

    /// For the server's channel.
    static var peerCredentialsOption: Int32 { SO_PEERCRED }

    /// The kernel's credentials of the peer process (`SO_PEERCRED`, unix(7)), in the layout of `struct ucred`.
    package struct PeerCredentials: Hashable, Sendable {
        package let process: Int32
        package let user: UInt32
        package let group: UInt32

        /// Only the node's user and root may send commands.
        package func mayCommand(nodeOf user: UInt32) -> Bool { self.user == user || self.user == 0 }
    }

    /// A file descriptor, closed on deinit unless released.
    struct Descriptor: ~Copyable {
        let number: Int32

        deinit { close(number) }

        consuming func release() -> Int32 {
            let number = number
            discard self
            return number
        }
    }

    /// - Parameter flags: in addition to `SOCK_CLOEXEC`, such as `SOCK_NONBLOCK`.
    static func makeSocket(flags: Int32 = 0) throws(ControlError) -> Descriptor {
        let number = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | flags, 0)
        guard number >= 0 else { throw .system("cannot create a socket") }
        return Descriptor(number: number)
    }

    func openHome() throws(ControlError) -> Descriptor {
        let number = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard number >= 0 else {
            guard errno == ENOENT else { throw .system("cannot open the home directory \(home)") }
            throw ControlError(.failed, "there is no home directory \(home)", hint: "create it with `mayfly init`")
        }
        return Descriptor(number: number)
    }

    /// Calls `body` with the socket's address. A path too long for `sun_path` becomes `/proc/self/fd/N/control.sock`,
    /// with the directory's descriptor.
    func withAddress(in directory: borrowing Descriptor, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32)
        throws(ControlError) -> Int32
    {
        var path = path
        if path.utf8.count > ControlLimits.socketPathByteCount {
            guard access("/proc/self/fd", X_OK) == 0 else {
                throw ControlError(
                    .failed,
                    "the path \(path) is longer than \(ControlLimits.socketPathByteCount) bytes and /proc is not there",
                    hint: "use a shorter --home")
            }
            path = "/proc/self/fd/\(directory.number)/\(Self.fileName)"
        }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { rebound in
                body(rebound, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
    }

    /// Connects a non-blocking socket to the node.
    /// - Parameter deadline: `nil` waits for ever.
    /// - Throws: `noNode` when the home or the socket is missing, or no process listens; `timedOut` when the accept
    ///   queue stays full.
    func connect(until deadline: ContinuousClock.Instant?) throws(ControlError) -> Descriptor {
        guard access(home, F_OK) == 0 else {
            switch errno {
            case ENOENT, ENOTDIR: throw .noHome(home)
            case EACCES:
                throw ControlError(
                    .failed, "no permission for \(home)",
                    hint: "run this as the user who runs the node, who may enter every directory above it")
            default: throw .system("cannot look at \(home)")
            }
        }
        let directory = try openHome()
        let socket = try Self.makeSocket(flags: Int32(SOCK_NONBLOCK.rawValue))
        while true {
            let outcome = try withAddress(in: directory) { address, byteCount in
                Glibc.connect(socket.number, address, byteCount)
            }
            if outcome == 0 { return socket }
            switch errno {
            case EINTR: continue
            // The accept queue is full, and no event reports a free place (connect(2), unix(7)).
            case EAGAIN:
                if let deadline, deadline <= .now {
                    throw ControlError(.timedOut, "the node in \(home) takes no more clients", hint: "see its log")
                }
                usleep(Self.retryMicroseconds)
            case ENOENT, ECONNREFUSED, ENOTDIR: throw .noNode(home: home)
            case EACCES, EPERM:
                throw ControlError(.failed, "no permission for \(path)", hint: "run this as the user who runs the node")
            default: throw .system("cannot connect to \(path)")
            }
        }
    }

    private static let retryMicroseconds: UInt32 = 10_000

    /// Binds and listens. Replaces the leftover socket of a dead node, not that of a live one.
    ///
    /// A lock on the directory, held while probing and binding, excludes a second node that starts at the same time.
    /// - Throws: `failed`, "home in use", when a node answers.
    func listen() throws(ControlError) -> Int32 {
        let directory = try openHome()
        guard flock(directory.number, LOCK_EX | LOCK_NB) == 0 else { throw .homeInUse(home) }
        try removeLeftover(in: directory)
        let socket = try Self.makeSocket()
        // Linux gives the file the mode of the unbound socket, so the file never has a wider mode.
        guard fchmod(socket.number, 0o600) == 0 else { throw .system("cannot restrict the control socket") }
        let bound = try withAddress(in: directory) { address, byteCount in bind(socket.number, address, byteCount) }
        guard bound == 0 else { throw cannotMakeSocket }
        guard Glibc.listen(socket.number, ControlLimits.listenBacklog) == 0 else {
            throw .system("cannot listen on \(path)")
        }
        return socket.release()
    }

    /// The error of bind(2) or unlink(2), from `errno`.
    private var cannotMakeSocket: ControlError {
        switch errno {
        case EROFS:
            ControlError(
                .failed, "the home \(home) is on a read-only file system",
                hint: "mount it writable; `mayfly reap` and `mayfly doctor` work meanwhile")
        case EACCES, EPERM:
            ControlError(
                .failed, "no permission to write to the home \(home)",
                hint: "run this as the user who owns it; see `mayfly doctor`")
        case ENOSPC, EDQUOT:
            ControlError(.failed, "the disk of the home \(home) is full", hint: "free some space, then `mayfly run`")
        default: .system("cannot make \(path)")
        }
    }

    private func removeLeftover(in directory: borrowing Descriptor) throws(ControlError) {
        var status = stat()
        guard fstatat(directory.number, Self.fileName, &status, AT_SYMLINK_NOFOLLOW) == 0 else {
            guard errno == ENOENT else { throw .system("cannot look at \(path)") }
            return
        }
        guard status.st_mode & S_IFMT == S_IFSOCK else {
            throw ControlError(.failed, "\(path) is not a socket", hint: "move it away")
        }
        let probe = try Self.makeSocket()
        let answered = try withAddress(in: directory) { address, byteCount in
            Glibc.connect(probe.number, address, byteCount)
        }
        if answered == 0 || errno == EAGAIN { throw .homeInUse(home) }
        guard errno == ECONNREFUSED else { throw .system("cannot probe \(path)") }
        guard unlinkat(directory.number, Self.fileName, 0) == 0 else { throw cannotMakeSocket }
    }

    /// Identifies the socket file, so that a closing node removes only its own.
    var fileIdentity: FileIdentity? {
        var status = stat()
        guard lstat(path, &status) == 0 else { return nil }
        return FileIdentity(device: UInt64(status.st_dev), inode: UInt64(status.st_ino))
    }

    struct FileIdentity: Hashable, Sendable {
        let device: UInt64
        let inode: UInt64
    }

    /// Removes the socket if it is still `identity`.
    func remove(_ identity: FileIdentity) {
        guard fileIdentity == identity else { return }
        // Best effort: the next start replaces a leftover.
        _ = unlink(path)
    }
}

extension ControlError {
    static func system(_ what: String, _ code: Int32 = errno) -> ControlError {
        let reason = String(cString: strerror(code))
        return ControlError(.failed, "\(what): \(reason.lowercased())", code: -32603)
    }

    static func homeInUse(_ home: String) -> ControlError {
        ControlError(.failed, "home in use: a node is running in \(home)", hint: "stop it with `mayfly stop`")
    }
}
