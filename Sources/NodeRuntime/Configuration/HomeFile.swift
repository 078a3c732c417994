import CLinux
import FoundationEssentials
import Glibc

/// A file of the home that people may edit is missing, malformed or unreadable.
package struct HomeFileError: Error, Hashable, Sendable, CustomStringConvertible {
    /// `busy`: another process is changing the file.
    package enum Kind: Hashable, Sendable { case missing, malformed, symbolicLink, busy, system }
    package var kind: Kind
    package var path: String
    package var line: Int?
    package var reason: String

    package var description: String { line.map { "\(path), line \($0): \(reason)" } ?? "\(path): \(reason)" }
}

/// Small JSON files in the home: read whole, replaced whole (write, fsync, rename, fsync the directory).
enum HomeFile {
    private static let byteCountLimit = 1 << 20

    /// File metadata of stat(2): detects an edit without reading the file.
    struct Stamp: Hashable, Sendable {
        private var device: UInt = 0
        private var inode: UInt = 0
        private var size = 0
        /// Modification and status change, in nanoseconds since 1970.
        private var times: [Int] = []

        var isThere: Bool { inode != 0 }

        /// Whether the file changed less than 3 s before `time`: a later edit may then have the same stamp, since file
        /// systems count in milliseconds to seconds.
        /// - Parameter time: in milliseconds since 1970.
        func isRecent(at time: Int64) -> Bool {
            guard let changed = times.max() else { return false }
            return Int64(changed / 1_000_000) > time - 3_000
        }

        /// - Returns: an empty stamp for an absent or inaccessible file.
        init(_ path: String) {
            var status = stat()
            guard lstat(path, &status) == 0 else { return }
            device = UInt(status.st_dev)
            inode = UInt(status.st_ino)
            size = Int(status.st_size)
            times = [status.st_mtim, status.st_ctim].map { $0.tv_sec &* 1_000_000_000 &+ $0.tv_nsec }
        }
    }

    static func decode<Value: Decodable>(_ type: Value.Type, _ bytes: [UInt8], path: String) throws(HomeFileError)
        -> Value
    {
        do { return try JSONDecoder().decode(type, from: Data(bytes)) } catch let error as DecodingError {
            throw HomeFileError(malformed: error, path: path, bytes: bytes)
        } catch { throw HomeFileError(kind: .malformed, path: path, reason: "not JSON") }
    }

    /// - Parameter isShared: commands may change the file too.
    static func save(_ value: some Encodable, _ name: String, home: String, isShared: Bool = true) throws(HomeFileError)
    {
        let path = "\(home)/\(name)"
        let lock = isShared ? try lock(path) : nil
        defer { if let lock { close(lock) } }
        let temporary = path + ".new"
        try write(encode(value), to: temporary)
        guard rename(temporary, path) == 0 else {
            let error = HomeFileError(systemCall: "replace", path: path)
            unlink(temporary)
            throw error
        }
        try synchronizeDirectory(home)
    }

    static func encode(_ value: some Encodable) -> [UInt8] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        guard let data = try? encoder.encode(value) else { preconditionFailure("a value of our own does not encode") }
        return Array(data) + [0x0a]
    }

    /// Replaces a file durably, unless it was edited since it was read; an edited file is kept.
    /// - Parameters:
    ///   - old: the bytes that were read; `nil` if the file was absent.
    ///   - editFound: called before a detected edit is put back, for tests.
    /// - Returns: whether the file was replaced.
    static func replace(
        _ name: String, with bytes: [UInt8], over old: [UInt8]?, home: String, editFound: () -> Void = {}
    ) throws(HomeFileError) -> Bool {
        let path = "\(home)/\(name)"
        let temporary = path + ".new"
        guard bytes.count <= byteCountLimit else {
            throw HomeFileError(kind: .malformed, path: path, reason: "would be larger than \(byteCountLimit) bytes")
        }
        let lock = try lock(path)
        defer { close(lock) }
        // After a crash the temporary file may hold an edit that was not put back.
        if access(temporary, F_OK) == 0, rename(temporary, path + ".lost") != 0 {
            throw HomeFileError(systemCall: "rename", path: temporary)
        }
        try write(bytes, to: temporary)
        let isReplaced: Bool
        do throws(TakeFailure) { isReplaced = try take(temporary, bytes, as: path, over: old, editFound) } catch {
            switch error {
            case .failed(let error):
                unlink(temporary)
                throw error
            case .editLeft(let error): throw error
            }
        }
        unlink(temporary)
        try synchronizeDirectory(home)
        return isReplaced
    }

    private static let lockAttempts = 20

    /// Commands and the node share the temporary file. The wait is at most 0.2 s, since a stopped command must not hang
    /// the node. The lock file stays: its removal would let two processes hold two of them.
    private static func lock(_ path: String) throws(HomeFileError) -> Int32 {
        let lock = open(path + ".lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard lock >= 0 else { throw HomeFileError(systemCall: "open", path: path + ".lock") }
        for attempt in 1...lockAttempts {
            if flock(lock, LOCK_EX | LOCK_NB) == 0 { return lock }
            guard errno == EWOULDBLOCK || errno == EINTR else {
                let error = HomeFileError(systemCall: "flock", path: path + ".lock")
                close(lock)
                throw error
            }
            if attempt < lockAttempts { usleep(10_000) }
        }
        close(lock)
        throw HomeFileError(kind: .busy, path: path, reason: "another process is changing it")
    }

    private enum TakeFailure: Error {
        case failed(HomeFileError)
        case editLeft(HomeFileError)
    }

    /// Exchanges the two files and then compares the old one with `old`, so no edit is missed. A second exchange puts
    /// an edit back. If that exchange takes out a newer edit, a further one puts the newer edit back.
    private static func take(
        _ temporary: String, _ bytes: [UInt8], as path: String, over old: [UInt8]?, _ editFound: () -> Void
    ) throws(TakeFailure) -> Bool {
        func failure(_ call: String) -> HomeFileError { HomeFileError(systemCall: call, path: path) }
        guard let old else {
            if file_rename_new(temporary, path) == 0 { return true }
            if errno == EEXIST { return false }
            guard errno == EINVAL || errno == ENOSYS else { throw .failed(failure("rename")) }
            guard access(path, F_OK) != 0, rename(temporary, path) == 0 else { return false }
            return true
        }
        guard file_exchange(temporary, path) == 0 else {
            if errno == ENOENT { return false }
            // The file system cannot exchange names.
            guard errno == EINVAL || errno == ENOSYS else { throw .failed(failure("replace")) }
            guard (try? read(path)) == old else { return false }
            guard rename(temporary, path) == 0 else { throw .failed(failure("replace")) }
            return true
        }
        do throws(HomeFileError) {
            // `nil` when the file is too large or not regular. The node writes neither.
            var edit = try read(temporary, unless: .malformed)
            if edit == old { return true }
            var ours: [UInt8]? = bytes
            editFound()
            while true {
                guard file_exchange(temporary, path) == 0 else {
                    // The editor has removed the file.
                    if errno == ENOENT { return false }
                    throw failure("rename")
                }
                let taken = try read(temporary, unless: .malformed)
                if taken == ours { return false }
                (ours, edit) = (edit, taken)
            }
        } catch {
            // Either file may be the edit, so both stay.
            throw .editLeft(HomeFileError(kind: .system, path: path, reason: "\(error.reason); see also \(temporary)"))
        }
    }

    /// The names of an object whose coding keys are its properties.
    static func names(of object: some Codable) -> [String] { Mirror(reflecting: object).children.compactMap(\.label) }

    /// Refuses unknown names, which are typing errors: a mistyped `blocked` would block no peer, and the next change of
    /// the file would drop it.
    /// - Parameter known: the names in each object, by its path, with `*` for the index in a list.
    static func checkNames(_ bytes: [UInt8], path: String, known: [String: [String]]) throws(HomeFileError) {
        let index: JSONIndex
        // JSONDecoder takes some texts that are no JSON.
        do throws(JSONIndex.Failure) { index = try JSONIndex(bytes) } catch {
            throw HomeFileError(kind: .malformed, path: path, line: error.line, reason: "not JSON: \(error.words)")
        }
        guard let (stranger, names) = index.stranger(known) else { return }
        let settings = names.sorted().joined(separator: ", ")
        throw HomeFileError(
            malformed: "there is no such setting; the settings are \(settings)", at: stranger, bytes, path: path)
    }

    static func read(_ path: String) throws(HomeFileError) -> [UInt8] {
        // Nonblocking: opening a named pipe would block the node until a writer appears.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard descriptor >= 0 else { throw HomeFileError(systemCall: "open", path: path) }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw HomeFileError(systemCall: "stat", path: path) }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw HomeFileError(kind: .malformed, path: path, reason: "expected a regular file")
        }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = Glibc.read(descriptor, &chunk, chunk.count)
            if count < 0 { throw HomeFileError(systemCall: "read", path: path) }
            if count == 0 { return bytes }
            bytes += chunk[..<count]
            if bytes.count > byteCountLimit {
                throw HomeFileError(kind: .malformed, path: path, reason: "larger than \(byteCountLimit) bytes")
            }
        }
    }

    /// The bytes of a file; `nil` when reading fails with an error of this kind.
    static func read(_ path: String, unless kind: HomeFileError.Kind) throws(HomeFileError) -> [UInt8]? {
        do throws(HomeFileError) { return try read(path) } catch {
            guard error.kind == kind else { throw error }
            return nil
        }
    }

    /// Removes a file durably. An absent file is no error.
    static func remove(_ name: String, home: String) throws(HomeFileError) {
        let path = "\(home)/\(name)"
        guard unlink(path) == 0 else {
            if errno == ENOENT { return }
            throw HomeFileError(systemCall: "unlink", path: path)
        }
        try synchronizeDirectory(home)
    }

    private static func synchronizeDirectory(_ home: String) throws(HomeFileError) {
        let directory = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard directory >= 0 else { throw HomeFileError(systemCall: "open", path: home) }
        defer { close(directory) }
        guard fsync(directory) == 0 else { throw HomeFileError(systemCall: "fsync", path: home) }
    }

    /// Durable on return. On failure the file is removed.
    private static func write(_ bytes: [UInt8], to path: String) throws(HomeFileError) {
        let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw HomeFileError(systemCall: "open", path: path) }
        do throws(HomeFileError) {
            var rest = bytes[...]
            while !rest.isEmpty {
                let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
                if count < 0, errno == EINTR { continue }
                // A write of 0 bytes without an error would loop forever.
                if count == 0 { errno = EIO }
                guard count > 0 else { throw HomeFileError(systemCall: "write", path: path) }
                rest = rest.dropFirst(count)
            }
            guard fsync(descriptor) == 0 else { throw HomeFileError(systemCall: "fsync", path: path) }
        } catch {
            close(descriptor)
            unlink(path)
            throw error
        }
        guard close(descriptor) == 0 else {
            let error = HomeFileError(systemCall: "close", path: path)
            unlink(path)
            throw error
        }
    }
}

extension HomeFileError {
    fileprivate init(systemCall: String, path: String) {
        let code = errno
        self.init(
            kind: code == ENOENT ? .missing : code == ELOOP ? .symbolicLink : .system, path: path, line: nil,
            reason: code == ELOOP
                ? "a symbolic link stands in its place" : "\(systemCall): \(String(cString: strerror(code)))")
    }

    fileprivate init(malformed error: DecodingError, path: String, bytes: [UInt8]) {
        let context: DecodingError.Context
        var reason: String
        switch error {
        case .keyNotFound(let key, let found):
            context = found
            reason = "`\(key.stringValue)` is missing"
        case .typeMismatch(let type, let found), .valueNotFound(let type, let found):
            context = found
            reason = "expected \(Self.words(for: type))"
        case .dataCorrupted(let found):
            context = found
            reason = found.debugDescription
            if found.codingPath.isEmpty {
                do throws(JSONIndex.Failure) { _ = try JSONIndex(bytes) } catch {
                    self.init(kind: .malformed, path: path, line: error.line, reason: "not JSON: \(error.words)")
                    return
                }
            }
        @unknown default:
            self.init(kind: .malformed, path: path, line: nil, reason: "\(error)")
            return
        }
        self.init(malformed: reason, at: context.codingPath.map { FilePathKey($0) }, bytes, path: path)
    }

    /// - Parameter place: of the wrong value.
    init(malformed reason: String, at place: [FilePathKey], _ bytes: [UInt8], path: String) {
        let location = place.map { $0.intValue.map { "[\($0)]" } ?? ".\($0.stringValue)" }.joined()
        let line = try? JSONIndex(bytes).line(of: place)
        let prefix = location.isEmpty ? "" : "`\(location.drop { $0 == "." })`: "
        self.init(kind: .malformed, path: path, line: line, reason: prefix + reason)
    }

    private static func words(for type: Any.Type) -> String {
        if type == String.self { return "a string" }
        if type == Bool.self { return "true or false" }
        if type == Int.self || type == Int64.self || type == Double.self { return "a number" }
        return "\(type)".hasPrefix("Array") ? "a list" : "an object"
    }
}
