import Crypto
import Glibc

/// The file `key`: 32 random bytes that open the root without a passphrase. The last reference wipes them.
final class KeyFile: Sendable {
    static let name = "key"
    private static let byteCount = 32

    let path: String
    private let bytes: SecretBytes

    init(in home: HomeDirectory) {
        path = home.path(Self.name)
        bytes = SecretBytes(randomByteCount: Self.byteCount)
    }

    init(reading home: HomeDirectory) throws(StoreError) {
        let path = home.path(Self.name)
        let file = try home.open(Self.name, [])
        defer { home.disk.close(file) }
        var read = try onDisk(path) { () throws(SystemError) in
            try home.disk.read(file, at: 0, count: Self.byteCount + 1)
        }
        defer { wipe(&read) }
        guard read.count == Self.byteCount else { throw .keysDamaged(path: path) }
        self.path = path
        bytes = SecretBytes(copying: read)
    }

    func wrappingKey(salt: [UInt8]) -> SecretBytes { BLAKE2b.derive(key: bytes, Array("mayfly key file".utf8), salt) }

    /// Durable on return, except for the name: the caller synchronises the directory.
    func write(in home: HomeDirectory) throws(StoreError) {
        let disk = home.disk
        var copy = bytes.withBytes { Array($0) }
        defer { wipe(&copy) }
        try onDisk(path) { () throws(SystemError) in
            let file = try disk.open(Self.name, in: home.descriptor, [.write, .create])
            defer { disk.close(file) }
            try disk.write(file, at: 0, copy)
            try disk.synchronize(file, dataOnly: false)
        }
    }

    /// Overwrites the file in place, reads it back, and removes it durably. A missing file is not an error.
    static func destroy(in home: HomeDirectory) throws(StoreError) {
        let disk = home.disk
        let path = home.path(name)
        let file: FileDescriptor
        do throws(StoreError) { file = try home.open(name, .write) } catch .missing { return }
        try onDisk(path) { () throws(SystemError) in
            defer { disk.close(file) }
            let length = Int(clamping: try disk.status(file).byteCount)
            let noise = randomBytes(min(max(length, byteCount), SlotFile.pageByteCount))
            try disk.write(file, at: 0, noise)
            try disk.synchronize(file, dataOnly: false)
            guard try disk.read(file, at: 0, count: noise.count) == noise else { throw SystemError("read back", EIO) }
            try disk.remove(name, in: home.descriptor, isDirectory: false)
            try disk.synchronize(home.descriptor, dataOnly: false)
        }
    }
}
