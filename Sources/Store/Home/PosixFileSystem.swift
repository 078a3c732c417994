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
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: count, alignment: Self.alignment)
        defer { buffer.deallocate() }
        var total = 0
        while total < count {
            let got = try retrying("read") {
                pread(file, buffer.baseAddress.map { $0 + total }, count - total, off_t(offset) + off_t(total))
            }
            if got == 0 { break }
            total += got
        }
        return Array(buffer[..<total])
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
            let result = bytes.withUnsafeBytes { buffer -> Result<Void, SystemError> in
                do throws(SystemError) { return .success(try write(file, at: offset, buffer)) } catch {
                    return .failure(error)
                }
            }
            try result.get()
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
