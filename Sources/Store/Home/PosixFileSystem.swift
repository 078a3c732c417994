import CLinux
import Glibc

package struct PosixFileSystem: FileSystem {
    package init() {}

    package var user: UInt32 { geteuid() }

    package func open(_ name: String, in directory: FileDescriptor?, _ access: FileAccess) throws(SystemError)
        -> FileDescriptor
    {
        var flags = O_CLOEXEC | O_NOFOLLOW | O_NOCTTY
        flags |= access.contains(.write) ? O_RDWR : O_RDONLY
        if access.contains(.create) { flags |= O_CREAT | O_EXCL }
        if access.contains(.createIfMissing) { flags |= O_CREAT }
        if access.contains(.directory) { flags |= O_DIRECTORY }
        if access.contains(.direct) { flags |= Self.direct }
        if access.contains(.durable) { flags |= O_DSYNC }
        let file = try retrying("open") { openat(directory ?? AT_FDCWD, name, flags, 0o600) }
        if access.contains(.create) {
            // The umask may have cleared bits.
            do throws(SystemError) { _ = try retrying("fchmod") { fchmod(file, 0o600) } } catch {
                close(file)
                throw error
            }
        }
        return file
    }

    package func close(_ file: FileDescriptor) {
        // An error here has no remedy; data that must be durable was synchronised before.
        _ = Glibc.close(file)
    }

    package func read(_ file: FileDescriptor, at offset: Int64, count: Int) throws(SystemError) -> [UInt8] {
        guard count > 0 else { return [] }
        // O_DIRECT needs aligned memory, and a direct file is only read in whole pages.
        if count.isMultiple(of: Self.alignment) {
            let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: count, alignment: Self.alignment)
            defer { buffer.deallocate() }
            return Array(buffer[..<(try read(file, at: offset, into: buffer))])
        }
        var failure: SystemError?
        let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, total in
            do throws(SystemError) {
                total = try read(file, at: offset, into: UnsafeMutableRawBufferPointer(buffer))
            } catch { failure = error }
        }
        if let failure { throw failure }
        return bytes
    }

    /// - Returns: how many bytes there are, up to the end of the file.
    private func read(_ file: FileDescriptor, at offset: Int64, into buffer: UnsafeMutableRawBufferPointer)
        throws(SystemError) -> Int
    {
        var total = 0
        while total < buffer.count {
            let got = try retrying("read") {
                pread(file, buffer.baseAddress.map { $0 + total }, buffer.count - total, off_t(offset) + off_t(total))
            }
            if got == 0 { break }
            total += got
        }
        return total
    }

    package func write(_ file: FileDescriptor, at offset: Int64, _ bytes: [UInt8]) throws(SystemError) {
        guard !bytes.isEmpty else { return }
        // O_DIRECT needs aligned memory, and a direct file is only written in whole pages.
        if bytes.count.isMultiple(of: Self.alignment) {
            let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: Self.alignment)
            defer { buffer.deallocate() }
            buffer.copyBytes(from: bytes)
            try write(file, at: offset, UnsafeRawBufferPointer(buffer))
        } else {
            try bytes.withUnsafeBufferPointer { bytes throws(SystemError) in
                try write(file, at: offset, UnsafeRawBufferPointer(bytes))
            }
        }
    }

    package func write(_ file: FileDescriptor, at offset: Int64, _ buffer: UnsafeRawBufferPointer) throws(SystemError) {
        var total = 0
        while total < buffer.count {
            let put = try retrying("write", on: file) {
                pwrite(file, buffer.baseAddress.map { $0 + total }, buffer.count - total, off_t(offset) + off_t(total))
            }
            guard put > 0 else { throw SystemError("write", EIO) }
            total += put
        }
    }

    package func synchronize(_ file: FileDescriptor, dataOnly: Bool) throws(SystemError) {
        _ = try retrying("fsync", on: file) { dataOnly ? fdatasync(file) : fsync(file) }
    }

    package func synchronizeAll(_ file: FileDescriptor) throws(SystemError) {
        _ = try retrying("syncfs", on: file) { file_system_synchronize(file) }
    }

    package func makeDirectory(_ name: String, in directory: FileDescriptor?) throws(SystemError) {
        _ = try retrying("mkdir") { mkdirat(directory ?? AT_FDCWD, name, 0o700) }
        let made = try open(name, in: directory, .directory)
        defer { close(made) }
        _ = try retrying("fchmod") { fchmod(made, 0o700) }
    }

    package func remove(_ name: String, in directory: FileDescriptor, isDirectory: Bool) throws(SystemError) {
        _ = try retrying("unlink") { unlinkat(directory, name, isDirectory ? AT_REMOVEDIR : 0) }
    }

    package func rename(_ name: String, to newName: String, in directory: FileDescriptor) throws(SystemError) {
        _ = try retrying("rename") { renameat(directory, name, directory, newName) }
    }

    package func list(_ directory: FileDescriptor) throws(SystemError) -> [String] {
        // `fdopendir` takes ownership of its descriptor, so it gets a new one.
        let own = try open(".", in: directory, .directory)
        guard let stream = fdopendir(own) else {
            let code = errno
            close(own)
            throw SystemError("opendir", code)
        }
        defer { closedir(stream) }
        var names: [String] = []
        while true {
            errno = 0
            guard let entry = readdir(stream) else { break }
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { raw in
                String(decoding: raw.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != "." && name != ".." { names.append(name) }
        }
        if errno != 0 { throw SystemError("readdir", errno) }
        return names.sorted()
    }

    package func status(_ file: FileDescriptor) throws(SystemError) -> FileStatus {
        var result = stat()
        _ = try retrying("stat") { fstat(file, &result) }
        return FileStatus(result)
    }

    package func status(path: String) throws(SystemError) -> FileStatus {
        var result = stat()
        _ = try retrying("stat") { lstat(path, &result) }
        return FileStatus(result)
    }

    package func canonicalPath(_ path: String) throws(SystemError) -> String {
        guard let resolved = realpath(path, nil) else { throw SystemError("realpath", errno) }
        defer { free(resolved) }
        return String(cString: resolved)
    }

    package func tryLock(_ file: FileDescriptor) throws(SystemError) -> Bool {
        do throws(SystemError) {
            _ = try retrying("flock") { flock(file, LOCK_EX | LOCK_NB) }
            return true
        } catch {
            if error.code == EWOULDBLOCK { return false }
            throw error
        }
    }

    private static let alignment = 4_096

    /// `O_DIRECT` is missing in Glibc's module map (asm-generic/fcntl.h; arm has its own value).
    private static let direct: Int32 = {
        #if arch(arm64) || arch(arm)
            return 0o200000
        #else
            return 0o40000
        #endif
    }()

    /// - Parameter file: of a call that writes. A file system that a failure makes read-only, such as ext4, answers the
    ///   first calls with EIO.
    private func retrying<Number: SignedInteger>(
        _ operation: String, on file: FileDescriptor? = nil, _ call: () -> Number
    ) throws(SystemError) -> Number {
        while true {
            let result = call()
            if result >= 0 { return result }
            let code = errno
            guard code != EINTR else { continue }
            var status = statvfs()
            if code == EIO, let file, fstatvfs(file, &status) == 0, status.f_flag & UInt(ST_RDONLY) != 0 {
                throw SystemError(operation, EROFS)
            }
            throw SystemError(operation, code)
        }
    }
}

extension FileStatus {
    init(_ status: stat) {
        let kind: Kind =
            switch status.st_mode & S_IFMT {
            case S_IFREG: .file
            case S_IFDIR: .directory
            case S_IFLNK: .symlink
            default: .other
            }
        self.init(kind: kind, mode: status.st_mode & 0o7777, owner: status.st_uid, byteCount: Int64(status.st_size))
    }
}

/// How reliably overwriting a page destroys it, on the file system that holds the home.
package enum Erasure: String, Sendable {
    /// The file system overwrites the same blocks. SSD wear-levelling may still keep an old block.
    case inPlace = "in-place"
    /// Old blocks may survive: copy-on-write, a data journal, a network, unencrypted swap.
    case bestEffort = "best-effort"
    /// The data never reaches a disk.
    case ram
}

package struct ErasurePromise: Equatable, Sendable {
    package let erasure: Erasure
    package let reason: String

    package init(_ erasure: Erasure, _ reason: String) {
        self.erasure = erasure
        self.reason = reason
    }

    /// Decides from the kernel's data. A pure function, so tests cover every case.
    /// - Parameters:
    ///   - fileSystem: the type in `/proc/self/mountinfo`, such as `ext4`.
    ///   - options: the comma-separated super-block options of the mount, or an empty string.
    ///   - hasInlineData: a small file lies in its inode, and so in the metadata journal.
    ///   - plainSwap: an active swap device not known to be encrypted or in RAM.
    package static func decide(fileSystem: String, options: String, hasInlineData: Bool, plainSwap: String?)
        -> ErasurePromise
    {
        let isJournaled = options.split(separator: ",").contains("data=journal")
        switch fileSystem {
        case "tmpfs", "ramfs":
            if let plainSwap { return ErasurePromise(.bestEffort, "RAM that may be swapped to \(plainSwap)") }
            return ErasurePromise(.ram, "the home is in RAM")
        case "ext4", "ext3", "ext2":
            if isJournaled { return ErasurePromise(.bestEffort, "\(fileSystem) with data=journal") }
            if hasInlineData { return ErasurePromise(.bestEffort, "\(fileSystem) with inline_data") }
        case "xfs": break
        case "btrfs", "zfs", "bcachefs": return ErasurePromise(.bestEffort, "\(fileSystem) copies on write")
        case "overlay": return ErasurePromise(.bestEffort, "overlayfs copies up")
        case "nfs", "nfs4", "cifs", "9p": return ErasurePromise(.bestEffort, "\(fileSystem): the server decides")
        case "f2fs": return ErasurePromise(.bestEffort, "f2fs writes a log")
        case "": return ErasurePromise(.bestEffort, "the type of the file system is unknown")
        default: return ErasurePromise(.bestEffort, "it is unknown whether \(fileSystem) overwrites in place")
        }
        if let plainSwap { return ErasurePromise(.bestEffort, "swap on \(plainSwap) is not known to be encrypted") }
        return ErasurePromise(.inPlace, "\(fileSystem) overwrites in place")
    }

    /// Type and super-block options of a mount, from `/proc/self/mountinfo` (proc(5)).
    package static func mount(_ identifier: String, in mountInfo: String) -> (fileSystem: String, options: String) {
        for line in mountInfo.split(separator: "\n") {
            let fields = line.split(separator: " ")
            guard fields.first.map(String.init) == identifier, let dash = fields.firstIndex(of: "-"),
                dash + 3 < fields.count
            else { continue }
            return (String(fields[dash + 1]), String(fields[dash + 3]))
        }
        return ("", "")
    }
}

extension PosixFileSystem {
    package func erasurePromise(home: FileDescriptor, smallFile: FileDescriptor) -> ErasurePromise {
        let lines = text("/proc/self/fdinfo/\(home)").split(separator: "\n")
        let identifier = lines.first { $0.hasPrefix("mnt_id:") }?.split(whereSeparator: \.isWhitespace).last ?? ""
        let mount = ErasurePromise.mount(String(identifier), in: text("/proc/self/mountinfo"))
        var flags: Int = 0
        // FS_IOC_GETFLAGS and EXT4_INLINE_DATA_FL (linux/fs.h, ext4.h).
        let inline = ioctl(smallFile, 0x8008_6601, &flags) == 0 && flags & 0x1000_0000 != 0
        return ErasurePromise.decide(
            fileSystem: mount.fileSystem, options: mount.options, hasInlineData: inline, plainSwap: plainSwap())
    }

    /// The first active swap that is neither compressed RAM nor a dm-crypt device.
    private func plainSwap() -> String? {
        for line in text("/proc/swaps").split(separator: "\n").dropFirst() {
            guard let path = line.split(separator: " ").first.map(String.init) else { continue }
            let device = path.split(separator: "/").last.map(String.init) ?? path
            if device.hasPrefix("zram") { continue }
            if device.hasPrefix("dm-"), text("/sys/block/\(device)/dm/uuid").hasPrefix("CRYPT-") { continue }
            return path
        }
        return nil
    }

    /// Reads a file of /proc or /sys, whose size is not known beforehand.
    private func text(_ path: String) -> String {
        guard let file = try? open(path, in: nil, []) else { return "" }
        defer { close(file) }
        let bytes = (try? read(file, at: 0, count: 1 << 20)) ?? []
        return String(decoding: bytes, as: UTF8.self)
    }
}
