import Glibc

/// The home directory, checked: ours, closed to others, no symbolic link in place of a file, and nobody else's while we
/// hold its lock.
final class HomeDirectory {
    let disk: WatchedDisk
    let path: String
    let descriptor: FileDescriptor
    private(set) var isReadOnly = false
    private var lock: FileDescriptor?
    /// What has to be settled before anything that is read here is built on.
    private(set) var doubt: Doubt?

    /// Opens and checks a home and the directories above it; takes no lock yet.
    init(_ path: String, disk: any FileSystem) throws(StoreError) {
        let path = Self.trimmed(path)
        let disk = WatchedDisk(disk)
        self.disk = disk
        self.path = path
        try Self.checkParents(of: path, disk: disk)
        do throws(SystemError) { descriptor = try disk.open(path, in: nil, .directory) } catch {
            switch error.code {
            case ELOOP: throw .symlink(path: path)
            case ENOTDIR:
                if let status = try? disk.status(path: path), status.kind == .symlink { throw .symlink(path: path) }
                throw .notAHome(path: path)
            case ENOENT: throw .notAHome(path: path)
            default: throw StoreError(error, path: path)
            }
        }
        // From here on everything is initialised, so that a throw runs `deinit`, which closes.
        let status = try onDisk(path) { () throws(SystemError) in try disk.status(descriptor) }
        try Self.checkOwner(status, path, disk)
        guard status.mode & 0o077 == 0 else { throw .unsafeMode(path: path, mode: status.mode, expected: 0o700) }
    }

    deinit { close() }

    private var isOpen = true

    func close() {
        guard isOpen else { return }
        isOpen = false
        if let lock { disk.close(lock) }
        disk.close(descriptor)
    }

    func path(_ name: String) -> String { path + "/" + name }

    /// Somebody has removed or moved the home although we hold its lock.
    var isGone: Bool {
        do throws(SystemError) { _ = try disk.status(path: path("lock")) } catch { return error.code == ENOENT }
        return false
    }

    /// A file of the home must be a file, ours, and closed to others.
    @discardableResult func check(_ file: FileDescriptor, _ name: String) throws(StoreError) -> FileStatus {
        let status = try onDisk(path(name)) { () throws(SystemError) in try disk.status(file) }
        guard status.kind == .file else { throw .damaged(what: path(name)) }
        try Self.checkOwner(status, path(name), disk)
        guard status.mode & 0o077 == 0 else { throw .unsafeMode(path: path(name), mode: status.mode, expected: 0o600) }
        return status
    }

    /// Opens a file of the home, or says that this is no home.
    func open(_ name: String, _ access: FileAccess) throws(StoreError) -> FileDescriptor {
        let file: FileDescriptor
        do throws(SystemError) { file = try disk.open(name, in: descriptor, access) } catch {
            switch error.code {
            case ELOOP: throw .symlink(path: path(name))
            case ENOENT: throw .missing(path: path(name))
            default: throw StoreError(error, path: path(name))
            }
        }
        do throws(StoreError) { try check(file, name) } catch {
            disk.close(file)
            throw error
        }
        return file
    }

    /// Takes the lock for as long as this object lives, and writes our process number into it.
    /// - Returns: a descriptor of a small file, for ``FileSystem/erasurePromise(home:smallFile:)``.
    @discardableResult func takeLock() throws(StoreError) -> FileDescriptor {
        let name = "lock"
        let file: FileDescriptor
        do throws(StoreError) { file = try open(name, [.write, .createIfMissing]) } catch .readOnly {
            isReadOnly = true
            file = try open(name, [])
        }
        do throws(StoreError) {
            let isOurs = try onDisk(path(name)) { () throws(SystemError) in try disk.tryLock(file) }
            guard isOurs else {
                let text = (try? disk.read(file, at: 0, count: 16)) ?? []
                let digits = text.prefix { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
                throw .homeInUse(pid: Int32(String(decoding: digits, as: UTF8.self)))
            }
            if !isReadOnly {
                var text = Array("\(getpid())\n".utf8)
                text += [UInt8](repeating: UInt8(ascii: " "), count: max(0, Int(RunMark.offset) - text.count))
                // For people and error messages only, so a full disk does not matter.
                try? disk.write(file, at: 0, text)
                doubt = RunMark.doubt(of: file, on: disk)
                if doubt != .refused { RunMark.running.write(to: file, on: disk) }
                watch(file)
            }
        } catch {
            disk.close(file)
            throw error
        }
        lock = file
        return file
    }

    /// At the first refusal from here on, whoever opens the home next is told.
    private func watch(_ file: FileDescriptor) { disk.watch { RunMark.refused.write(to: file, on: $0) } }

    /// All that an earlier run has left is durable.
    func settle() {
        guard let lock, !isReadOnly else { return }
        doubt = nil
        guard disk.doubt != .refused else { return }
        RunMark.running.write(to: lock, on: disk)
        watch(lock)
    }

    /// Just before ``close()``, when all is written: says what is in doubt.
    func end() {
        guard let lock, !isReadOnly else { return }
        switch [doubt, disk.doubt].compactMap({ $0 }).max() {
        case nil: RunMark.ended.write(to: lock, on: disk)
        case .unsynchronised: break
        case .refused: RunMark.refused.write(to: lock, on: disk)
        }
    }

    func synchronize() throws(StoreError) {
        try onDisk(path) { () throws(SystemError) in try disk.synchronize(descriptor, dataOnly: false) }
    }

    // MARK: - Paths

    static func trimmed(_ path: String) -> String {
        var path = path
        while path.utf8.count > 1, path.hasSuffix("/") { path.removeLast() }
        return path
    }

    static func parent(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    /// Whoever can rename a directory above the home can replace it: each must belong to us or to root and be writable
    /// by nobody else, unless it is sticky.
    static func checkParents(of path: String, disk: any FileSystem) throws(StoreError) {
        var directory: String
        do throws(SystemError) { directory = try disk.canonicalPath(parent(of: path)) } catch {
            if error.code == ENOENT || error.code == ENOTDIR { throw .notAHome(path: path) }
            throw StoreError(error, path: parent(of: path))
        }
        while true {
            let current = directory
            let status = try onDisk(current) { () throws(SystemError) in try disk.status(path: current) }
            guard status.owner == 0 || status.owner == disk.user else {
                throw .foreignOwner(path: current, owner: status.owner)
            }
            guard status.mode & 0o022 == 0 || status.mode & 0o1000 != 0 else {
                throw .unsafeMode(path: current, mode: status.mode, expected: status.mode & ~0o022)
            }
            if directory == "/" { return }
            directory = parent(of: directory)
        }
    }

    private static func checkOwner(_ status: FileStatus, _ path: String, _ disk: any FileSystem) throws(StoreError) {
        guard status.owner == disk.user else { throw .foreignOwner(path: path, owner: status.owner) }
    }
}
