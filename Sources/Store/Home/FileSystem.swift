import Glibc

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
        self.kind = kind
        self.mode = mode
        self.owner = owner
        self.byteCount = byteCount
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
