import Glibc

/// A number by which the kernel (or the simulated disk of the tests) knows an open file.
package typealias FileDescriptor = Int32

/// A system call that failed: which one, and its `errno`.
package struct SystemError: Error, Equatable {
    package let operation: String
    package let code: Int32

    package init(_ operation: String, _ code: Int32) {
        self.operation = operation
        self.code = code
    }

    var isForWantOfSpace: Bool { code == ENOSPC || code == EDQUOT }
}

/// How a file is opened. `O_CLOEXEC` and `O_NOFOLLOW` always hold.
package struct FileAccess: OptionSet, Sendable {
    package let rawValue: Int
    package init(rawValue: Int) { self.rawValue = rawValue }

    /// `O_RDWR` instead of `O_RDONLY`.
    package static let write = FileAccess(rawValue: 1)
    /// `O_CREAT|O_EXCL`, mode 0600 whatever the umask.
    package static let create = FileAccess(rawValue: 2)
    /// `O_CREAT`, mode 0600: an existing file is opened.
    package static let createIfMissing = FileAccess(rawValue: 4)
    /// `O_DIRECTORY`.
    package static let directory = FileAccess(rawValue: 8)
    /// `O_DIRECT`: offsets and lengths are multiples of 4,096 bytes.
    package static let direct = FileAccess(rawValue: 16)
    /// `O_DSYNC`: a write that returns is durable.
    package static let durable = FileAccess(rawValue: 32)
}

/// What `fstat` says, as far as the store cares.
package struct FileStatus: Equatable, Sendable {
    package enum Kind: Sendable { case file, directory, symlink, other }
    package var kind: Kind
    /// Permission bits and the sticky bit, as in `st_mode & 0o7777`.
    package var mode: UInt32
    package var owner: UInt32
    /// Size in bytes.
    package var byteCount: Int64

    package init(kind: Kind, mode: UInt32, owner: UInt32, byteCount: Int64) {
        self.kind = kind
        self.mode = mode
        self.owner = owner
        self.byteCount = byteCount
    }
}

/// The one door to the disk. ``PosixFileSystem`` is the real one; the tests have a disk that crashes, tears writes,
/// forgets what was not synchronised and fails on command.
///
/// `write` and `synchronize` are also called from the commit thread, each on a descriptor nobody closes meanwhile.
package protocol FileSystem: Sendable {
    /// The user this process acts as.
    var user: UInt32 { get }

    /// Opens `name` relative to an open directory, or an absolute or working-directory path without one.
    func open(_ name: String, in directory: FileDescriptor?, _ access: FileAccess) throws(SystemError) -> FileDescriptor
    func close(_ file: FileDescriptor)
    /// Up to `count` bytes from `offset`; fewer only at the end of the file.
    func read(_ file: FileDescriptor, at offset: Int64, count: Int) throws(SystemError) -> [UInt8]
    /// All of `bytes` at `offset`, or an error after which any part of them may have been written.
    func write(_ file: FileDescriptor, at offset: Int64, _ bytes: [UInt8]) throws(SystemError)
    /// The same without an array.
    func write(_ file: FileDescriptor, at offset: Int64, _ bytes: UnsafeRawBufferPointer) throws(SystemError)
    /// `fdatasync`, or `fsync` for directories and new files.
    func synchronize(_ file: FileDescriptor, dataOnly: Bool) throws(SystemError)
    /// `syncfs`: all that was written to the file system in which this is. What an fsync was refused for is not among it.
    func synchronizeAll(_ file: FileDescriptor) throws(SystemError)
    /// A directory of mode 0700 whatever the umask.
    func makeDirectory(_ name: String, in directory: FileDescriptor?) throws(SystemError)
    func remove(_ name: String, in directory: FileDescriptor, isDirectory: Bool) throws(SystemError)
    func rename(_ name: String, to newName: String, in directory: FileDescriptor) throws(SystemError)
    /// Names in byte order, without `.` and `..`.
    func list(_ directory: FileDescriptor) throws(SystemError) -> [String]
    func status(_ file: FileDescriptor) throws(SystemError) -> FileStatus
    /// Of the path itself: a symbolic link is not followed.
    func status(path: String) throws(SystemError) -> FileStatus
    /// The path without symbolic links.
    func canonicalPath(_ path: String) throws(SystemError) -> String
    /// `flock(LOCK_EX|LOCK_NB)`: false when someone else has it. Released by `close`.
    func tryLock(_ file: FileDescriptor) throws(SystemError) -> Bool
    /// What overwriting in place is worth here.
    /// - Parameter smallFile: an open file of a few bytes, which shows whether the file system keeps data in inodes.
    func erasurePromise(home: FileDescriptor, smallFile: FileDescriptor) -> ErasurePromise
}

extension FileSystem {
    package func write(_ file: FileDescriptor, at offset: Int64, _ bytes: UnsafeRawBufferPointer) throws(SystemError) {
        try write(file, at: offset, Array(bytes))
    }
}

/// Runs a file-system call and says in a ``StoreError`` which path it was about.
func onDisk<Result: ~Copyable>(_ path: String, _ body: () throws(SystemError) -> Result) throws(StoreError) -> Result {
    do throws(SystemError) { return try body() } catch { throw StoreError(error, path: path) }
}
