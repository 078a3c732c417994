import Cryptography
import Glibc

/// One of the two copies in the keystore.
///
///     magic (8) ‖ generation (8) ‖ protection (1) ‖ zeros (7) ‖ t (8) ‖ m in bytes (8) ‖ salt (16)  = header, the AAD
///     ‖ sealed root (72) ‖ check (16)
///
/// The check is unkeyed: it tells damage from a wrong passphrase.
struct KeystoreCopy: Hashable, Sendable {
    static let magic = Magic("MFKEYS1")
    private static let headerByteCount = 56
    private static let checkByteCount = 16
    private static let byteCount = headerByteCount + 72 + checkByteCount

    let index: Int
    let generation: UInt64
    let protection: Protection
    let parameters: Argon2Parameters
    let salt: [UInt8]
    let bytes: [UInt8]

    var page: [UInt8] { bytes + randomBytes(SlotFile.pageByteCount - bytes.count) }

    init(
        sealing root: borrowing SecretBytes, by wrapping: borrowing SecretBytes, generation: UInt64,
        protection: Protection, parameters: Argon2Parameters, salt: [UInt8]
    ) {
        var header = Self.magic.bytes + generation.littleEndianBytes + [protection.rawValue]
        header += [UInt8](repeating: 0, count: 7)
        header += parameters.iterations.littleEndianBytes + parameters.memoryByteCount.littleEndianBytes + salt
        var plaintext = root.withBytes { Array($0) }
        defer { wipe(&plaintext) }
        let sealed = XChaChaPoly.seal(
            plaintext, key: wrapping, nonce: randomBytes(XChaChaPoly.nonceByteCount), authenticating: header)
        index = 0
        (self.generation, self.protection, self.parameters, self.salt) = (generation, protection, parameters, salt)
        bytes = header + sealed + Self.check(header + sealed)
    }

    /// `nil` unless the check holds.
    init?(page: [UInt8], index: Int) {
        let covered = Self.byteCount - Self.checkByteCount
        guard page.count >= Self.byteCount, Self.magic.begins(page),
            Array(page[covered..<Self.byteCount]) == Self.check(Array(page[..<covered])),
            let generation = page.integer(UInt64.self, at: 8), let protection = Protection(rawValue: page[16]),
            let iterations = page.integer(UInt64.self, at: 24), let memory = page.integer(UInt64.self, at: 32)
        else { return nil }
        (self.index, self.generation, self.protection) = (index, generation, protection)
        parameters = Argon2Parameters(iterations: iterations, memoryByteCount: memory)
        salt = Array(page[40..<Self.headerByteCount])
        bytes = Array(page[..<Self.byteCount])
    }

    /// The root, or `nil` if the key is wrong.
    func open(_ wrapping: borrowing SecretBytes) -> SecretBytes? {
        guard
            var opened = try? XChaChaPoly.open(
                bytes[Self.headerByteCount..<(Self.byteCount - Self.checkByteCount)], key: wrapping,
                authenticating: Array(bytes[..<Self.headerByteCount]))
        else { return nil }
        defer { wipe(&opened) }
        return opened.count == 32 ? SecretBytes(copying: opened) : nil
    }

    /// - Returns: `false` when the parameters exceed the ceiling, which only an attacker writes to exhaust our memory.
    /// - Throws: ``StoreError/weakKeystore(iterations:memoryByteCount:)``.
    func isAcceptable(floor: Argon2Parameters) throws(StoreError) -> Bool {
        guard parameters.iterations >= floor.iterations, parameters.memoryByteCount >= floor.memoryByteCount else {
            throw .weakKeystore(iterations: parameters.iterations, memoryByteCount: parameters.memoryByteCount)
        }
        return parameters.iterations <= Argon2Parameters.ceiling.iterations
            && parameters.memoryByteCount <= Argon2Parameters.ceiling.memoryByteCount
    }

    static func wrappingKey(from passphrase: borrowing SecretBytes?, salt: [UInt8], _ parameters: Argon2Parameters)
        throws(StoreError) -> SecretBytes
    {
        switch passphrase {
        case .none: throw .passphraseNeeded
        case .some(let passphrase):
            guard let memory = Int(exactly: parameters.memoryByteCount) else { throw .wrongPassphrase }
            do throws(Argon2id.Failure) {
                return try Argon2id.derive(
                    passphrase: passphrase, salt: salt, iterations: parameters.iterations, memoryByteCount: memory)
            } catch { throw .outOfMemory(byteCount: memory) }
        }
    }

    private static func check(_ bytes: [UInt8]) -> [UInt8] {
        BLAKE2b.hash(Array("mayfly keystore".utf8), bytes, byteCount: checkByteCount)
    }
}

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
        var copy = bytes.withBytes { Array($0) }
        defer { wipe(&copy) }
        try home.create(Self.name, copy)
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
            // The noise is no longer than the file: a full disk takes no more, and the file may be empty.
            let noise = randomBytes(min(length, SlotFile.pageByteCount))
            try disk.write(file, at: 0, noise)
            try disk.synchronize(file, dataOnly: false)
            guard try disk.read(file, at: 0, count: noise.count) == noise else { throw SystemError("read back", EIO) }
            try disk.remove(name, in: home.descriptor, isDirectory: false)
            try disk.synchronize(home.descriptor, dataOnly: false)
        }
    }
}
