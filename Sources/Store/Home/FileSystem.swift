import Glibc
import Synchronization

package typealias FileDescriptor = Int32

package struct SystemError: Error, Equatable {
    package let operation: String
    package let code: Int32

    package init(_ operation: String, _ code: Int32) {
        self.operation = operation
        self.code = code
    }

    var isForWantOfSpace: Bool { code == ENOSPC || code == EDQUOT }
}

/// Flags for opening a file. `O_CLOEXEC` and `O_NOFOLLOW` are always set.
package struct FileAccess: OptionSet, Sendable {
    package let rawValue: Int
    package init(rawValue: Int) { self.rawValue = rawValue }

    /// `O_RDWR` instead of `O_RDONLY`.
    package static let write = FileAccess(rawValue: 1)
    /// `O_CREAT|O_EXCL`, mode 0600 whatever the umask.
    package static let create = FileAccess(rawValue: 2)
    /// `O_CREAT`, mode 0600: an existing file is opened.
    package static let createIfMissing = FileAccess(rawValue: 4)
    package static let directory = FileAccess(rawValue: 8)
    /// `O_DIRECT`: offsets and lengths are multiples of 4,096 bytes.
    package static let direct = FileAccess(rawValue: 16)
    /// `O_DSYNC`: a write that returns is durable.
    package static let durable = FileAccess(rawValue: 32)
}

package struct FileStatus: Equatable, Sendable {
    package enum Kind: Sendable { case file, directory, symlink, other }
    package var kind: Kind
    /// Permission bits and the sticky bit, as in `st_mode & 0o7777`.
    package var mode: UInt32
    package var owner: UInt32
    package var byteCount: Int64

    package init(kind: Kind, mode: UInt32, owner: UInt32, byteCount: Int64) {
        (self.kind, self.mode, self.owner, self.byteCount) = (kind, mode, owner, byteCount)
    }
}

/// The only interface to the disk. The tests use one that crashes, tears writes, forgets unsynchronised data and fails
/// on command.
///
/// The commit thread, too, calls `write` and `synchronize`, each on a descriptor that no other thread closes meanwhile.
package protocol FileSystem: Sendable {
    /// Effective user id of this process.
    var user: UInt32 { get }

    /// Opens `name` relative to `directory`, or a path if there is none.
    func open(_ name: String, in directory: FileDescriptor?, _ access: FileAccess) throws(SystemError) -> FileDescriptor
    func close(_ file: FileDescriptor)
    /// Up to `count` bytes from `offset`; fewer only at the end of the file.
    func read(_ file: FileDescriptor, at offset: Int64, count: Int) throws(SystemError) -> [UInt8]
    /// Writes all of `bytes`. After an error, any part of them may have been written.
    func write(_ file: FileDescriptor, at offset: Int64, _ bytes: [UInt8]) throws(SystemError)
    func write(_ file: FileDescriptor, at offset: Int64, _ bytes: UnsafeRawBufferPointer) throws(SystemError)
    /// `fdatasync`, or `fsync` for directories and new files.
    func synchronize(_ file: FileDescriptor, dataOnly: Bool) throws(SystemError)
    /// `syncfs`: writes back the whole file system. It does not write pages again whose fsync was refused.
    func synchronizeAll(_ file: FileDescriptor) throws(SystemError)
    /// A directory of mode 0700 whatever the umask.
    func makeDirectory(_ name: String, in directory: FileDescriptor?) throws(SystemError)
    func remove(_ name: String, in directory: FileDescriptor, isDirectory: Bool) throws(SystemError)
    func rename(_ name: String, to newName: String, in directory: FileDescriptor) throws(SystemError)
    /// Names in byte order, without `.` and `..`.
    func list(_ directory: FileDescriptor) throws(SystemError) -> [String]
    func status(_ file: FileDescriptor) throws(SystemError) -> FileStatus
    /// Does not follow a symbolic link at the path itself.
    func status(path: String) throws(SystemError) -> FileStatus
    func canonicalPath(_ path: String) throws(SystemError) -> String
    /// `flock(LOCK_EX|LOCK_NB)`: false when another process holds the lock. `close` releases it.
    func tryLock(_ file: FileDescriptor) throws(SystemError) -> Bool
    /// How reliably overwriting in place destroys data here.
    /// - Parameter smallFile: an open file of a few bytes, which shows whether the file system keeps data in inodes.
    func erasurePromise(home: FileDescriptor, smallFile: FileDescriptor) -> ErasurePromise
}

extension FileSystem {
    package func write(_ file: FileDescriptor, at offset: Int64, _ bytes: UnsafeRawBufferPointer) throws(SystemError) {
        try write(file, at: offset, Array(bytes))
    }
}

/// Runs a file-system call and turns its error into a ``StoreError`` with the path.
func onDisk<Result: ~Copyable>(_ path: String, _ body: () throws(SystemError) -> Result) throws(StoreError) -> Result {
    do throws(SystemError) { return try body() } catch { throw StoreError(error, path: path) }
}

/// A disk that remembers failed writes: after one, data that is read may be only in the kernel's cache.
final class WatchedDisk: FileSystem {
    private let disk: any FileSystem
    private struct State {
        var doubt: Doubt?
        var onRefusal: (@Sendable (any FileSystem) -> Void)?
    }
    private let state = Mutex(State())

    init(_ disk: any FileSystem) { self.disk = disk }

    var doubt: Doubt? { state.withLock { $0.doubt } }

    /// Forgets earlier failures.
    /// - Parameter action: called once, on the failing thread, at the first refused barrier from now on.
    func watch(_ action: @escaping @Sendable (any FileSystem) -> Void) {
        state.withLock { $0 = State(onRefusal: action) }
    }

    private func note(_ doubt: Doubt) {
        let action = state.withLock { state in
            state.doubt = max(state.doubt ?? doubt, doubt)
            return doubt == .refused ? state.onRefusal.take() : nil
        }
        action?(disk)
    }

    var user: UInt32 { disk.user }

    func open(_ name: String, in directory: FileDescriptor?, _ access: FileAccess) throws(SystemError) -> FileDescriptor
    { try disk.open(name, in: directory, access) }

    func close(_ file: FileDescriptor) { disk.close(file) }

    func read(_ file: FileDescriptor, at offset: Int64, count: Int) throws(SystemError) -> [UInt8] {
        try disk.read(file, at: offset, count: count)
    }

    func write(_ file: FileDescriptor, at offset: Int64, _ bytes: [UInt8]) throws(SystemError) {
        do throws(SystemError) { try disk.write(file, at: offset, bytes) } catch {
            note(error.isForWantOfSpace ? .unsynchronised : .refused)
            throw error
        }
    }

    func write(_ file: FileDescriptor, at offset: Int64, _ bytes: UnsafeRawBufferPointer) throws(SystemError) {
        do throws(SystemError) { try disk.write(file, at: offset, bytes) } catch {
            note(error.isForWantOfSpace ? .unsynchronised : .refused)
            throw error
        }
    }

    func synchronize(_ file: FileDescriptor, dataOnly: Bool) throws(SystemError) {
        do throws(SystemError) { try disk.synchronize(file, dataOnly: dataOnly) } catch {
            note(.refused)
            throw error
        }
    }

    func synchronizeAll(_ file: FileDescriptor) throws(SystemError) { try disk.synchronizeAll(file) }

    func makeDirectory(_ name: String, in directory: FileDescriptor?) throws(SystemError) {
        try disk.makeDirectory(name, in: directory)
    }

    func remove(_ name: String, in directory: FileDescriptor, isDirectory: Bool) throws(SystemError) {
        try disk.remove(name, in: directory, isDirectory: isDirectory)
    }

    func rename(_ name: String, to newName: String, in directory: FileDescriptor) throws(SystemError) {
        try disk.rename(name, to: newName, in: directory)
    }

    func list(_ directory: FileDescriptor) throws(SystemError) -> [String] { try disk.list(directory) }
    func status(_ file: FileDescriptor) throws(SystemError) -> FileStatus { try disk.status(file) }
    func status(path: String) throws(SystemError) -> FileStatus { try disk.status(path: path) }
    func canonicalPath(_ path: String) throws(SystemError) -> String { try disk.canonicalPath(path) }
    func tryLock(_ file: FileDescriptor) throws(SystemError) -> Bool { try disk.tryLock(file) }

    func erasurePromise(home: FileDescriptor, smallFile: FileDescriptor) -> ErasurePromise {
        disk.erasurePromise(home: home, smallFile: smallFile)
    }
}

/// Why data that was read may be only in the kernel's cache, to be lost with a power cut. The worst is the greatest.
enum Doubt: Int, Comparable {
    /// A process was killed before its barriers, or a full disk took only part of a write.
    case unsynchronised
    /// The disk refused a barrier. The kernel then marks those pages clean and never writes them again, whatever later
    /// fsyncs return (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
    case refused

    static func < (left: Doubt, right: Doubt) -> Bool { left.rawValue < right.rawValue }
}

/// The state of a run, in the lock file after the process number. The next run learns from it how this one ended. The
/// mark is written without fsync: a power cut that loses the mark also empties the cache, so nothing is left in doubt.
/// The kernel's boot id would not do: in some containers it is not the kernel's.
enum RunMark: String {
    /// Everything written is durable.
    case ended = "ended   "
    case running = "running "
    case refused = "refused "

    static let offset: Int64 = 16
    private static let byteCount = 8

    func write(to file: FileDescriptor, on disk: any FileSystem) {
        // A full disk does not matter: the file's block has room.
        try? disk.write(file, at: Self.offset, Array(rawValue.utf8))
    }

    static func doubt(of file: FileDescriptor, on disk: any FileSystem) -> Doubt? {
        let bytes = (try? disk.read(file, at: offset, count: byteCount)) ?? []
        switch RunMark(rawValue: String(decoding: bytes, as: UTF8.self)) {
        case .ended: return nil
        case .running, nil: return .unsynchronised
        case .refused: return .refused
        }
    }
}

/// Directories of inboxes whose files may be only in the kernel's cache.
final class UnsettledDirectories { var doubts: [String: Doubt] = [:] }

extension FileSystem {
    /// Writes the file's contents back in place. Sectors that cannot be read are skipped: they are not in the cache.
    func rewrite(_ file: FileDescriptor, byteCount: Int64) throws(SystemError) {
        let run: Int64 = 1 << 20
        let sector: Int64 = 4_096
        for start in stride(from: 0, to: byteCount, by: Int(run)) {
            let end = min(start + run, byteCount)
            if let bytes = try? read(file, at: start, count: Int(end - start)) {
                try write(file, at: start, bytes)
                continue
            }
            for offset in stride(from: start, to: end, by: Int(sector)) {
                guard let bytes = try? read(file, at: offset, count: Int(min(sector, end - offset))) else { continue }
                try write(file, at: offset, bytes)
            }
        }
    }
}
