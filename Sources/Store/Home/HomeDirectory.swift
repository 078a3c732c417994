import Cryptography
import Glibc

/// The home directory after its checks: owned by us, closed to others, no file replaced by a symbolic link. While we
/// hold its lock no other process opens the home.
final class HomeDirectory {
    let disk: WatchedDisk
    let path: String
    let descriptor: FileDescriptor
    private(set) var isReadOnly = false
    private var lock: FileDescriptor?
    /// If not `nil`, recovery must first make the files of the earlier run durable.
    private(set) var doubt: Doubt?

    /// Opens and checks a home and the directories above it. Does not take the lock.
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
        // All properties are initialised from here on, so a throw runs `deinit`, which closes the descriptor.
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

    /// The home was removed or moved although we hold its lock.
    var isGone: Bool {
        do throws(SystemError) { _ = try disk.status(path: path("lock")) } catch { return error.code == ENOENT }
        return false
    }

    @discardableResult func check(_ file: FileDescriptor, _ name: String) throws(StoreError) -> FileStatus {
        let status = try onDisk(path(name)) { () throws(SystemError) in try disk.status(file) }
        guard status.kind == .file else { throw .damaged(what: path(name)) }
        try Self.checkOwner(status, path(name), disk)
        guard status.mode & 0o077 == 0 else { throw .unsafeMode(path: path(name), mode: status.mode, expected: 0o600) }
        return status
    }

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

    /// Takes the lock until this object is closed, and writes our process number into it.
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
                // The number only informs users, so a full disk does not matter.
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

    /// Marks the lock file at the first refused barrier from now on, for the next process that opens the home.
    private func watch(_ file: FileDescriptor) { disk.watch { RunMark.refused.write(to: file, on: $0) } }

    /// Everything the earlier run left is durable.
    func settle() {
        guard let lock, !isReadOnly else { return }
        doubt = nil
        guard disk.doubt != .refused else { return }
        RunMark.running.write(to: lock, on: disk)
        watch(lock)
    }

    /// Writes the final run mark, just before ``close()``, when all data is written.
    func end() {
        guard let lock, !isReadOnly else { return }
        switch [doubt, disk.doubt].compactMap({ $0 }).max() {
        case nil: RunMark.ended.write(to: lock, on: disk)
        case .unsynchronised: break
        case .refused: RunMark.refused.write(to: lock, on: disk)
        }
    }

    /// Creates a file. Durable on return, except for its name.
    func create(_ name: String, _ bytes: [UInt8]) throws(StoreError) {
        try onDisk(path(name)) { () throws(SystemError) in
            let file = try disk.open(name, in: descriptor, [.write, .create])
            defer { disk.close(file) }
            try disk.write(file, at: 0, bytes)
            try disk.synchronize(file, dataOnly: false)
        }
    }

    func synchronize() throws(StoreError) {
        try onDisk(path) { () throws(SystemError) in try disk.synchronize(descriptor, dataOnly: false) }
    }

    static func trimmed(_ path: String) -> String {
        var path = path
        while path.utf8.count > 1, path.hasSuffix("/") { path.removeLast() }
        return path
    }

    static func parent(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    /// A user who can rename a directory above the home can replace the home. So each of them must belong to us or
    /// root, and only its owner may write to it unless it is sticky.
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

/// Clock high-water mark: two copies of value and check, each in its own sector, written in turn (Store.md, "clock").
final class ClockMark {
    static let name = "clock"
    private static let spacing: Int64 = 512

    private let file: FileDescriptor
    private let disk: any FileSystem
    private let path: String
    private(set) var value: Int64 = 0
    private var next: Int64 = 0
    /// The value was read from the kernel's cache after an interrupted run; it may not be on the disk.
    var isInDoubt = false
    /// Neither copy can be read, or one holds a time outside `Tier.times`.
    private(set) var isDamaged = false
    private var isOpen = true

    static func create(in home: HomeDirectory) throws(StoreError) {
        var bytes = encode(0)
        bytes += [UInt8](repeating: 0, count: Int(spacing) - bytes.count)
        try home.create(name, bytes + encode(0))
    }

    init(in home: HomeDirectory) throws(StoreError) {
        disk = home.disk
        path = home.path(Self.name)
        file = try home.open(Self.name, home.isReadOnly ? [] : .write)
        var found: [(value: Int64, copy: Int64)] = []
        for copy in [Int64(0), 1] {
            let bytes = try onDisk(path) { () throws(SystemError) in
                try disk.read(file, at: copy * Self.spacing, count: 16)
            }
            guard let value = Self.decode(bytes) else { continue }
            if Tier.times.contains(value) { found.append((value, copy)) } else { isDamaged = true }
        }
        guard let best = found.max(by: { $0.value < $1.value }) else {
            isDamaged = true
            return
        }
        value = best.value
        next = 1 - best.copy
    }

    deinit { close() }

    func close() {
        if isOpen { disk.close(file) }
        isOpen = false
    }

    /// Writes the value again, to the older copy: see ``Doubt/refused``.
    func rewrite() throws(StoreError) { if value > 0 { try save(value) } }

    func save(_ value: Int64) throws(StoreError) {
        let offset = next * Self.spacing
        try onDisk(path) { () throws(SystemError) in
            try disk.write(file, at: offset, Self.encode(value))
            try disk.synchronize(file, dataOnly: true)
        }
        self.value = value
        isInDoubt = false
        next = 1 - next
    }

    /// Reads the clock mark of a file that another process may be writing. `nil`: neither copy can be read.
    static func read(_ file: FileDescriptor, _ disk: any FileSystem) -> Int64? {
        let values = [Int64(0), 1].compactMap { copy -> Int64? in
            (try? disk.read(file, at: copy * spacing, count: 16)).flatMap(decode)
        }
        return values.filter(Tier.times.contains).max()
    }

    /// The check has no key, so anyone who can write the file can set any time.
    private static func decode(_ bytes: [UInt8]) -> Int64? {
        bytes.integer(Int64.self, at: 0).flatMap { bytes == encode($0) ? $0 : nil }
    }

    private static func encode(_ value: Int64) -> [UInt8] {
        let bytes = value.littleEndianBytes
        return bytes + BLAKE2b.hash(Array("mayfly clock".utf8), bytes, byteCount: 16)[..<8]
    }
}
