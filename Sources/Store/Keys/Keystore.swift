import Crypto
import Glibc

/// How the root key is protected on disk.
package enum Protection: UInt8, Sendable {
    /// A 0600 file `key` in the home: whoever can read the home can read everything in it.
    case keyFile = 1
    /// Argon2id of a passphrase.
    case passphrase = 2
}

/// What the passphrase is stretched with (RFC 9106; one lane).
package struct Argon2Parameters: Equatable, Sendable {
    package var iterations: UInt64
    /// Bytes of memory.
    package var memoryByteCount: UInt64

    package init(iterations: UInt64, memoryByteCount: UInt64) {
        self.iterations = iterations
        self.memoryByteCount = memoryByteCount
    }

    /// 256 MiB, three passes: half a second to a second.
    package static let standard = Argon2Parameters(iterations: 3, memoryByteCount: 256 << 20)
    /// Above this a changed keystore only wants our memory.
    static let ceiling = Argon2Parameters(iterations: 64, memoryByteCount: 4 << 30)
}

/// The file `keystore`: two copies of the wrapped root, 4 KiB apart. Any one of them is enough; the higher generation is
/// tried first.
///
///     magic (8) ‖ generation (8) ‖ protection (1) ‖ zeros (7) ‖ t (8) ‖ m in bytes (8) ‖ salt (16)     = header, the AAD
///     ‖ sealed root (72) ‖ check (16)
///
/// The check is unkeyed: it tells damage from a wrong passphrase.
struct Keystore: Sendable {
    static let name = "keystore"
    static let keyFileName = "key"
    private static let temporaryName = "keystore.new"
    private static let magic = Array("MFKEYS1\0".utf8)
    private static let headerByteCount = 56
    private static let byteCount = headerByteCount + 72 + 16

    struct Copy: Sendable {
        let generation: UInt64
        let protection: Protection
        let parameters: Argon2Parameters
        let salt: [UInt8]
        let header: [UInt8]
        let sealedRoot: [UInt8]
    }

    /// Readable copies, the newest first; never empty.
    let copies: [Copy]
    var protection: Protection { copies[0].protection }
    /// How many of the two copies can be read.
    var readableCopyCount: Int { copies.count }

    // MARK: - Creating

    /// Writes `key` if wanted, then both copies; the rename to `keystore` is what makes the directory a home.
    static func create(
        in home: HomeDirectory,
        protection: Protection,
        passphrase: borrowing SecretBytes?,
        parameters: Argon2Parameters
    ) throws(StoreError) {
        let disk = home.disk
        let root = SecretBytes(randomByteCount: 32)
        let salt = randomBytes(Argon2id.saltByteCount)
        let wrapping =
            protection == .keyFile
            ? try createKeyFile(in: home, salt: salt) : try wrappingKey(from: passphrase, salt: salt, parameters)
        var header = magic + UInt64(1).littleEndianBytes + [protection.rawValue]
        header += [UInt8](repeating: 0, count: 7)
        header += parameters.iterations.littleEndianBytes + parameters.memoryByteCount.littleEndianBytes + salt
        let sealed = root.withBytes { root in
            XChaChaPoly.seal(
                Array(root),
                key: wrapping,
                nonce: randomBytes(XChaChaPoly.nonceByteCount),
                authenticating: header
            )
        }
        let copy = header + sealed + check(header + sealed)
        let page = copy + randomBytes(SlotFile.pageByteCount - copy.count)
        try onDisk(home.path(name)) { () throws(SystemError) in
            let file = try disk.open(temporaryName, in: home.descriptor, [.write, .create])
            defer { disk.close(file) }
            try disk.write(file, at: 0, page + page)
            try disk.synchronize(file, dataOnly: false)
            try disk.synchronize(home.descriptor, dataOnly: false)
            try disk.rename(temporaryName, to: name, in: home.descriptor)
            try disk.synchronize(home.descriptor, dataOnly: false)
        }
    }

    private static func createKeyFile(in home: HomeDirectory, salt: [UInt8]) throws(StoreError) -> SecretBytes {
        let disk = home.disk
        let key = SecretBytes(randomByteCount: 32)
        var bytes = key.withBytes { Array($0) }
        defer { wipe(&bytes) }
        try onDisk(home.path(keyFileName)) { () throws(SystemError) in
            let file = try disk.open(keyFileName, in: home.descriptor, [.write, .create])
            defer { disk.close(file) }
            try disk.write(file, at: 0, bytes)
            try disk.synchronize(file, dataOnly: false)
        }
        return wrappingKey(fromKeyFile: key, salt: salt)
    }

    // MARK: - Opening

    /// - Throws: ``StoreError/keysDamaged(path:)`` when no copy can be read.
    init(in home: HomeDirectory) throws(StoreError) {
        let file: FileDescriptor
        do throws(StoreError) {
            file = try home.open(Self.name, [])
        } catch .damaged {
            throw .notAHome(path: home.path)
        }
        defer { home.disk.close(file) }
        var copies: [Copy] = []
        var failure: SystemError?
        var isNewer = false
        for index in 0..<2 {
            do throws(SystemError) {
                let page = try home.disk.read(
                    file,
                    at: Int64(index * SlotFile.pageByteCount),
                    count: SlotFile.pageByteCount
                )
                if let copy = Self.parse(page) { copies.append(copy) }
                if Self.isNewer(page) { isNewer = true }
            } catch {
                failure = error
            }
        }
        guard !copies.isEmpty else {
            if let failure { throw StoreError(failure, path: home.path(Self.name)) }
            throw isNewer ? .newerFormat(path: home.path(Self.name)) : .keysDamaged(path: home.path(Self.name))
        }
        self.copies = copies.sorted { $0.generation > $1.generation }
    }

    /// The same magic with a higher digit: the format's version, on which that of the whole home hangs.
    private static func isNewer(_ page: [UInt8]) -> Bool {
        let version = magic.count - 2
        return page.prefix(version).elementsEqual(magic[..<version]) && page.count > version
            && page[version] > magic[version] && page[version] <= UInt8(ascii: "9")
    }

    private static func parse(_ page: [UInt8]) -> Copy? {
        guard page.count >= byteCount, page.starts(with: magic),
            Array(page[(byteCount - 16)..<byteCount]) == check(Array(page[..<(byteCount - 16)])),
            let generation = page.integer(UInt64.self, at: 8), let protection = Protection(rawValue: page[16]),
            let iterations = page.integer(UInt64.self, at: 24), let memory = page.integer(UInt64.self, at: 32)
        else { return nil }
        return Copy(
            generation: generation,
            protection: protection,
            parameters: Argon2Parameters(iterations: iterations, memoryByteCount: memory),
            salt: Array(page[40..<56]),
            header: Array(page[..<headerByteCount]),
            sealedRoot: Array(page[headerByteCount..<(byteCount - 16)])
        )
    }

    /// The keys under the root. The root itself does not outlive the call.
    /// - Parameters:
    ///   - floor: stored parameters below it are refused.
    ///   - home: where a key file is; `nil` passes over what is under one.
    func unwrap(
        passphrase: borrowing SecretBytes?,
        floor: Argon2Parameters,
        home: HomeDirectory?
    ) throws(StoreError) -> GridKeys {
        for copy in copies {
            let wrapping: SecretBytes
            switch copy.protection {
            case .keyFile:
                guard let home else { continue }
                wrapping = Self.wrappingKey(fromKeyFile: try Self.readKeyFile(home), salt: copy.salt)
            case .passphrase:
                let stored = copy.parameters
                guard stored.iterations >= floor.iterations, stored.memoryByteCount >= floor.memoryByteCount else {
                    throw .weakKeystore(iterations: stored.iterations, memoryByteCount: stored.memoryByteCount)
                }
                guard stored.iterations <= Argon2Parameters.ceiling.iterations,
                    stored.memoryByteCount <= Argon2Parameters.ceiling.memoryByteCount
                else { continue }
                wrapping = try Self.wrappingKey(from: passphrase, salt: copy.salt, stored)
            }
            guard
                var opened = try? XChaChaPoly.open(copy.sealedRoot, key: wrapping, authenticating: copy.header),
                opened.count == 32
            else { continue }
            let root = SecretBytes(copying: opened)
            wipe(&opened)
            return GridKeys(root: root)
        }
        guard let home, protection == .keyFile else { throw .wrongPassphrase }
        throw .keysDamaged(path: home.path(Self.keyFileName))
    }

    private static func readKeyFile(_ home: HomeDirectory) throws(StoreError) -> SecretBytes {
        let file = try home.open(keyFileName, [])
        defer { home.disk.close(file) }
        var bytes = try onDisk(home.path(keyFileName)) { () throws(SystemError) in
            try home.disk.read(file, at: 0, count: 33)
        }
        defer { wipe(&bytes) }
        guard bytes.count == 32 else { throw .keysDamaged(path: home.path(keyFileName)) }
        return SecretBytes(copying: bytes)
    }

    private static func wrappingKey(fromKeyFile key: borrowing SecretBytes, salt: [UInt8]) -> SecretBytes {
        BLAKE2b.derive(key: key, Array("mayfly key file".utf8), salt)
    }

    private static func wrappingKey(
        from passphrase: borrowing SecretBytes?,
        salt: [UInt8],
        _ parameters: Argon2Parameters
    ) throws(StoreError) -> SecretBytes {
        switch passphrase {
        case .none: throw .passphraseNeeded
        case .some(let passphrase):
            guard let memory = Int(exactly: parameters.memoryByteCount) else { throw .wrongPassphrase }
            do throws(Argon2id.Failure) {
                return try Argon2id.derive(
                    passphrase: passphrase,
                    salt: salt,
                    iterations: parameters.iterations,
                    memoryByteCount: memory
                )
            } catch {
                throw .outOfMemory(byteCount: memory)
            }
        }
    }

    private static func check(_ bytes: [UInt8]) -> [UInt8] {
        BLAKE2b.hash(Array("mayfly keystore".utf8), bytes, byteCount: 16)
    }
}
