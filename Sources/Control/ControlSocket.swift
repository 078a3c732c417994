import Glibc

/// The Unix socket of a node, `HOME/control.sock`, mode 0600: only the same user and root connect.
package struct ControlSocket: Hashable, Sendable {
    package let home: String

    package init(home: String) { self.home = home }

    package var path: String { "\(home)/\(Self.fileName)" }

    package static let fileName = "control.sock"

    /// For the server's channel.
    static var peerCredentialsOption: Int32 { SO_PEERCRED }

    static func peer(of socket: borrowing Descriptor) -> PeerCredentials? {
        var credentials = PeerCredentials(process: 0, user: 0, group: 0)
        var byteCount = socklen_t(MemoryLayout<PeerCredentials>.size)
        guard getsockopt(socket.number, SOL_SOCKET, peerCredentialsOption, &credentials, &byteCount) == 0 else {
            return nil
        }
        return credentials
    }

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

    private func openHome() throws(ControlError) -> Descriptor {
        let number = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard number >= 0 else {
            switch errno {
            case ENOENT, ENOTDIR: throw listed(after: path).contains("\n") ? .homeMoved(home) : .noHome(home)
            case EACCES:
                throw ControlError(
                    .failed, "no permission for \(home)",
                    hint: "run this as the user who runs the node, who may enter every directory above it")
            default: throw .system("cannot open the home directory \(home)")
            }
        }
        return Descriptor(number: number)
    }

    /// - Throws: `noNode` when the directory is missing, or has no file of a home.
    package func checkHome() throws(ControlError) {
        _ = try openHome()
        let names = ["config.json", "keystore", Self.fileName]
        guard names.contains(where: { access("\(home)/\($0)", F_OK) == 0 || errno != ENOENT }) else {
            throw .noHome(home)
        }
    }

    /// The kernel's table of sockets (unix(7)) has each one's path, with @ for a name in memory, until its node ends.
    private func listed(after start: String) -> [Substring] {
        guard let table = fopen("/proc/net/unix", "re") else { return [] }
        defer { fclose(table) }
        var found: [Substring] = []
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 512) { line in
            while let text = fgets(line.baseAddress, Int32(line.count), table) {
                let fields = String(cString: text).split(separator: " ", maxSplits: 7)
                if fields.count == 8, fields[7].hasPrefix(start) { found.append(fields[7].dropFirst(start.count)) }
            }
        }
        return found
    }

    /// - Returns: `nil` without a status of the directory.
    private func prefix(of directory: borrowing Descriptor) -> String? {
        var status = stat()
        return fstat(directory.number, &status) == 0 ? "mayfly-\(status.st_dev)-\(status.st_ino)-" : nil
    }

    /// Calls bind(2) or connect(2) with the address of the socket. A path too long for `sun_path` becomes
    /// `/proc/self/fd/N/control.sock`, with the directory's descriptor.
    /// - Parameter name: in the abstract namespace (unix(7)), which needs no disk; `nil` for the file. Another user may
    ///   have taken 0: the node takes another one then.
    private func call(
        _ call: (Int32, UnsafePointer<sockaddr>, socklen_t) -> Int32, _ socket: borrowing Descriptor,
        in directory: borrowing Descriptor, as name: UInt64? = nil
    ) -> Int32 {
        var text = path + "\0"
        if let name {
            guard let prefix = prefix(of: directory) else { return -1 }
            text = "\0\(prefix)\(name)"
        } else if path.utf8.count > ControlLimits.socketPathByteCount {
            text = "/proc/self/fd/\(directory.number)/\(Self.fileName)\0"
        }
        let (number, byteCount) = (socket.number, socklen_t(MemoryLayout<sa_family_t>.size + text.utf8.count))
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: text.utf8) }
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { call(number, $0, byteCount) }
        }
    }

    /// Connects a non-blocking socket to the node.
    /// - Parameter deadline: `nil` waits for ever.
    /// - Throws: `noNode` when the home or the socket is missing, or no process listens; `timedOut` when the accept
    ///   queue stays full.
    func connect(until deadline: ContinuousClock.Instant?) throws(ControlError) -> Descriptor {
        let directory = try openHome()
        var names: [UInt64?] = [nil]
        while true {
            var full: [UInt64?] = []
            for name in names {
                let socket = try Self.makeSocket(flags: Int32(SOCK_NONBLOCK.rawValue))
                guard call(Glibc.connect, socket, in: directory, as: name) != 0 else {
                    if name == nil || isOwner(Self.peer(of: socket), of: directory) { return socket }
                    continue
                }
                switch errno {
                // The accept queue is full, and no event reports a free place (connect(2), unix(7)).
                case EAGAIN, EINTR: full.append(name)
                case ENOENT, ECONNREFUSED, ENOTDIR: break
                // A name may be another user's.
                case _ where name != nil: break
                case EACCES, EPERM:
                    throw ControlError(
                        .failed, "no permission for \(path)", hint: "run this as the user who runs the node")
                default: throw .system("cannot connect to \(path)")
                }
            }
            if !full.isEmpty {
                if let deadline, deadline <= .now {
                    throw ControlError(.timedOut, "the node in \(home) takes no more clients", hint: "see its log")
                }
                usleep(Self.retryMicroseconds)
                names = full
            } else if names == [nil] {
                // Other users may take as many names as they have descriptors, and each is a number of 64 bits.
                let numbers = prefix(of: directory).map { listed(after: "@" + $0) } ?? []
                names = [0] + numbers.compactMap { UInt64($0.dropLast()) }
            } else {
                try checkHome()
                throw .noNode(home: home)
            }
        }
    }

    /// Any user may take a name, but only the owner of the home is its node.
    private func isOwner(_ peer: PeerCredentials?, of directory: borrowing Descriptor) -> Bool {
        var status = stat()
        return fstat(directory.number, &status) == 0 && peer?.user == status.st_uid
    }

    private static let retryMicroseconds: UInt32 = 10_000

    /// Binds and listens. Replaces the leftover socket of a dead node, not that of a live one.
    ///
    /// A lock on the directory, held while probing and binding, excludes a second node that starts at the same time.
    /// - Throws: `failed`, "home in use", when a node answers.
    func listen() throws(ControlError) -> Int32 {
        let directory = try openHome()
        guard flock(directory.number, LOCK_EX | LOCK_NB) == 0 else { throw .homeInUse(home) }
        let socket = try Self.makeSocket()
        // Linux gives the file the mode of the unbound socket, so the file never has a wider mode.
        guard fchmod(socket.number, 0o600) == 0 else { throw .system("cannot restrict the control socket") }
        var bound = try removeLeftover(in: directory) ? call(Glibc.bind, socket, in: directory) : -1
        // The node must serve on a full disk, because exploding and expiry destroy data there. ENOENT: no /proc.
        if bound != 0, [ENOSPC, EDQUOT, ENOENT].contains(errno) {
            guard (try? connect(until: .now)) == nil else { throw .homeInUse(home) }
            for number in [0, UInt64.random(in: 1 ... .max)] where bound != 0 {
                bound = call(Glibc.bind, socket, in: directory, as: number)
            }
        }
        guard bound == 0 else { throw errno == EADDRINUSE ? .homeInUse(home) : cannotMakeSocket }
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
        default: .system("cannot make \(path)")
        }
    }

    /// - Returns: false when unlink(2) failed, with `errno`.
    private func removeLeftover(in directory: borrowing Descriptor) throws(ControlError) -> Bool {
        var status = stat()
        guard fstatat(directory.number, Self.fileName, &status, AT_SYMLINK_NOFOLLOW) == 0 else {
            guard errno == ENOENT else { throw .system("cannot look at \(path)") }
            return true
        }
        guard status.st_mode & S_IFMT == S_IFSOCK else {
            throw ControlError(.failed, "\(path) is not a socket", hint: "move it away")
        }
        let probe = try Self.makeSocket()
        if call(Glibc.connect, probe, in: directory) == 0 || errno == EAGAIN { throw .homeInUse(home) }
        guard errno == ECONNREFUSED else { throw .system("cannot probe \(path)") }
        return unlinkat(directory.number, Self.fileName, 0) == 0
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
