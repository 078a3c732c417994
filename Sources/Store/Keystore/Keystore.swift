import Cryptography
import Glibc

package enum Protection: UInt8, Sendable {
    /// A 0600 file `key` in the home: any user who can read the home can decrypt all of it.
    case keyFile = 1
    /// Argon2id of a passphrase.
    case passphrase = 2
}

/// Parameters of Argon2id (RFC 9106) with one lane.
package struct Argon2Parameters: Hashable, Sendable {
    package var iterations: UInt64
    package var memoryByteCount: UInt64

    package init(iterations: UInt64, memoryByteCount: UInt64) {
        self.iterations = iterations
        self.memoryByteCount = memoryByteCount
    }

    /// Three passes over 256 MiB: half a second to a second.
    package static let standard = Argon2Parameters(iterations: 3, memoryByteCount: 256 << 20)
    /// Parameters above this are an attack that only exhausts our memory.
    static let ceiling = Argon2Parameters(iterations: 64, memoryByteCount: 4 << 30)
}

/// The file `keystore`: two copies of the wrapped root, 4 KiB apart. Either copy is enough; the higher generation is
/// tried first.
///
/// The copies differ only while a change of the protection is unfinished or when one is damaged. The unlock then
/// overwrites the other copy with the one that opened.
struct Keystore: Sendable {
    static let name = "keystore"
    static let temporaryName = "keystore.new"

    /// Readable copies, the newest first; never empty.
    let copies: [KeystoreCopy]
    /// A later version of the program wrote one of the copies.
    private let hasNewerCopy: Bool

    /// A home counts as protected by a key file if any copy is.
    var protection: Protection { copies.contains { $0.protection == .keyFile } ? .keyFile : .passphrase }

    /// Writes `key` if needed, then both copies. The rename to `keystore` turns the directory into a home.
    static func create(
        in home: HomeDirectory, protection: Protection, passphrase: borrowing SecretBytes?, parameters: Argon2Parameters
    ) throws(StoreError) {
        let disk = home.disk
        let root = SecretBytes(randomByteCount: 32)
        let salt = randomBytes(Argon2id.saltByteCount)
        let wrapping: SecretBytes
        switch protection {
        case .keyFile:
            let key = KeyFile(in: home)
            try key.write(in: home)
            wrapping = key.wrappingKey(salt: salt)
        case .passphrase: wrapping = try KeystoreCopy.wrappingKey(from: passphrase, salt: salt, parameters)
        }
        let copy = KeystoreCopy(
            sealing: root, by: wrapping, generation: 1, protection: protection, parameters: parameters, salt: salt)
        let page = copy.page
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

    /// - Throws: ``StoreError/keysDamaged(path:)`` when no copy can be read.
    init(in home: HomeDirectory) throws(StoreError) {
        let file: FileDescriptor
        do throws(StoreError) { file = try home.open(Self.name, []) } catch .damaged {
            throw .notAHome(path: home.path)
        }
        defer { home.disk.close(file) }
        var copies: [KeystoreCopy] = []
        var failure: SystemError?
        var hasNewerCopy = false
        for index in 0..<2 {
            do throws(SystemError) {
                let page = try home.disk.read(
                    file, at: Int64(index * SlotFile.pageByteCount), count: SlotFile.pageByteCount)
                if let copy = KeystoreCopy(page: page, index: index) { copies.append(copy) }
                if KeystoreCopy.magic.isLater(page) { hasNewerCopy = true }
            } catch { failure = error }
        }
        guard !copies.isEmpty else {
            if let failure { throw StoreError(failure, path: home.path(Self.name)) }
            throw hasNewerCopy ? .newerFormat(path: home.path(Self.name)) : .keysDamaged(path: home.path(Self.name))
        }
        self.copies = copies.sorted { $0.generation > $1.generation }
        self.hasNewerCopy = hasNewerCopy
    }

    /// The key file, if a copy is sealed by it.
    /// - Parameter isNeeded: no other secret can open the home. Otherwise an unreadable key file is ignored.
    func keyFile(in home: HomeDirectory, isNeeded: Bool) throws(StoreError) -> KeyFile? {
        guard protection == .keyFile else { return nil }
        do throws(StoreError) { return try KeyFile(reading: home) } catch {
            if isNeeded || copies.allSatisfy({ $0.protection == .keyFile }) { throw error }
            return nil
        }
    }

    /// Opens the root with the given secrets. Skips copies that need another kind of secret.
    /// - Parameter floor: weaker stored parameters are refused.
    func open(passphrase: borrowing SecretBytes?, keyFile: KeyFile?, floor: Argon2Parameters) throws(StoreError)
        -> OpenedRoot
    {
        let isGiven = isGiven(passphrase)
        var tried: Set<[UInt8]> = []
        for copy in copies where tried.insert(copy.bytes).inserted {
            switch copy.protection {
            case .keyFile:
                guard let keyFile, let root = copy.open(keyFile.wrappingKey(salt: copy.salt)) else { continue }
                return OpenedRoot(root: root, copy: copy)
            case .passphrase:
                guard isGiven, try copy.isAcceptable(floor: floor) else { continue }
                let wrapping = try KeystoreCopy.wrappingKey(from: passphrase, salt: copy.salt, copy.parameters)
                guard let root = copy.open(wrapping) else { continue }
                return OpenedRoot(root: root, copy: copy)
            }
        }
        let wantsPassphrase = copies.contains { $0.protection == .passphrase }
        if let keyFile, !wantsPassphrase { throw .keysDamaged(path: keyFile.path) }
        throw isGiven ? .wrongPassphrase : .passphraseNeeded
    }

    /// Both copies are readable and equal.
    var isSettled: Bool { copies.count == 2 && copies[0].bytes == copies[1].bytes }

    /// Overwrites both copies in place, each durable and read back before the next. So at every moment the disk has a
    /// copy that opens by the old secret or by the new one.
    /// - Parameters:
    ///   - opened: a copy of this keystore that has just been opened.
    ///   - new: the new copy, or `opened` to repair a keystore that is not settled.
    /// - Throws: afterwards the disk may have either copy or both.
    func write(_ new: KeystoreCopy, over opened: KeystoreCopy, in home: HomeDirectory) throws(StoreError) {
        guard !hasNewerCopy else { throw .newerFormat(path: home.path(Self.name)) }
        let file = try SlotFile(Self.name, in: home)
        guard file.pageCount >= 2 else { throw .damaged(what: file.path) }
        // The copy may be only in the kernel's cache, left by an interrupted run.
        try file.replace(opened.index, opened.page)
        try file.replace(1 - opened.index, new.page)
        if new.bytes != opened.bytes { try file.replace(opened.index, new.page) }
    }

    /// Writes both pages again: see ``Doubt/refused``.
    static func rewrite(in home: HomeDirectory) throws(StoreError) { try SlotFile(name, in: home).rewrite() }
}

func isGiven(_ secret: borrowing SecretBytes?) -> Bool { secret != nil }

struct OpenedRoot: ~Copyable {
    let root: SecretBytes
    let copy: KeystoreCopy
}

/// Argon2id takes a second and 256 MiB. It needs only the keystore, so it can run on any thread.
package struct PassphraseStretching: Sendable {
    let keystore: Keystore
    let floor: Argon2Parameters

    /// - Throws: ``StoreError/wrongPassphrase``, ``StoreError/weakKeystore(iterations:memoryByteCount:)``.
    package func keys(from passphrase: borrowing SecretBytes) throws(StoreError) -> StretchedKeys {
        let opened = try keystore.open(passphrase: passphrase.clone(), keyFile: nil, floor: floor)
        return StretchedKeys(keys: GridKeys(root: opened.root), copy: opened.copy)
    }
}

/// The keys of a home, for ``Store/unlock(with:)``. The last reference wipes them.
package struct StretchedKeys: Sendable {
    let keys: GridKeys
    let copy: KeystoreCopy
}

/// The slow part of a change of the protection: opens the root with the old secret and seals it with the new one. It
/// uses only the keystore, so it can run on any thread.
package struct Rewrapping: Sendable {
    let keystore: Keystore
    let floor: Argon2Parameters
    let keyFile: KeyFile?
    /// Used only for a change to a key file.
    let newKeyFile: KeyFile

    /// - Parameters:
    ///   - old: ignored for a home with a key file.
    ///   - new: `nil` for a key file.
    /// - Throws: ``StoreError/wrongPassphrase``, ``StoreError/passphraseNeeded``,
    ///   ``StoreError/weakKeystore(iterations:memoryByteCount:)``, ``StoreError/outOfMemory(byteCount:)``.
    package func sealed(from old: borrowing SecretBytes?, to new: borrowing SecretBytes?) throws(StoreError)
        -> RewrappedRoot
    {
        let opened = try keystore.open(passphrase: old, keyFile: keyFile, floor: floor)
        let stored = opened.copy.parameters
        let parameters = Argon2Parameters(
            iterations: max(floor.iterations, stored.iterations),
            memoryByteCount: max(floor.memoryByteCount, stored.memoryByteCount))
        let salt = randomBytes(Argon2id.saltByteCount)
        let protection: Protection
        let wrapping: SecretBytes
        switch new {
        case .none:
            protection = .keyFile
            wrapping = newKeyFile.wrappingKey(salt: salt)
        case .some:
            protection = .passphrase
            wrapping = try KeystoreCopy.wrappingKey(from: new, salt: salt, parameters)
        }
        let copy = KeystoreCopy(
            sealing: opened.root, by: wrapping, generation: (keystore.copies.map(\.generation).max() ?? 0) &+ 1,
            protection: protection, parameters: parameters, salt: salt)
        return RewrappedRoot(opened: opened.copy, copy: copy, keyFile: protection == .keyFile ? newKeyFile : nil)
    }
}

/// The root under its new protection, for ``Store/protect(by:)``.
package struct RewrappedRoot: Sendable {
    let opened: KeystoreCopy
    let copy: KeystoreCopy
    let keyFile: KeyFile?
}

extension Store {
    /// Protects the home with another passphrase or with a key file, locked or not. Durable on return: the old secret
    /// no longer opens the home.
    /// - Parameters:
    ///   - old: ignored in key-file mode.
    ///   - new: `nil` for a key file.
    /// - Throws: the errors of ``rewrapping()``, ``Rewrapping/sealed(from:to:)`` and ``protect(by:)``.
    package func changeProtection(from old: borrowing SecretBytes?, to new: borrowing SecretBytes?) throws(StoreError) {
        try protect(by: try rewrapping().sealed(from: old, to: new))
    }

    /// The slow part of ``changeProtection(from:to:)``, for any thread.
    /// - Throws: ``StoreError/readOnly(path:)``, and when the key file cannot be read.
    package func rewrapping() throws(StoreError) -> Rewrapping {
        if isReadOnly || isClosed { throw .readOnly(path: home.path) }
        try refreshKeystore()
        return Rewrapping(
            keystore: keystore, floor: argon2Floor, keyFile: try keystore.keyFile(in: home, isNeeded: false),
            newKeyFile: KeyFile(in: home))
    }

    /// The rest of ``changeProtection(from:to:)``.
    /// - Parameter root: from this store's ``rewrapping()``.
    /// - Throws: ``StoreError/wrongPassphrase`` when the passphrase was changed meanwhile,
    ///   ``StoreError/invalidArgument(_:)`` for a new key file in place of an old one. After a disk error either secret
    ///   may open the home, or both. The next one that opens it becomes the only one.
    package func protect(by root: RewrappedRoot) throws(StoreError) {
        let home = home
        if isReadOnly || isClosed { throw .readOnly(path: home.path) }
        try refreshKeystore()
        guard keystore.copies.contains(root.opened) else { throw .wrongPassphrase }
        if let keyFile = root.keyFile {
            guard protection == .passphrase else { throw .invalidArgument("protection: there is a key file") }
            // Left by an interrupted change; no copy is sealed by it.
            try KeyFile.destroy(in: home)
            try keyFile.write(in: home)
            try home.synchronize()
        }
        try writeKeystore(root.copy, over: root.opened)
        if root.keyFile == nil { try KeyFile.destroy(in: home) }
    }

    private func writeKeystore(_ copy: KeystoreCopy, over opened: KeystoreCopy) throws(StoreError) {
        isKeystoreStale = true
        defer { try? refreshKeystore() }
        try keystore.write(copy, over: opened, in: home)
    }

    func refreshKeystore() throws(StoreError) {
        guard isKeystoreStale else { return }
        keystore = try Keystore(in: home)
        isKeystoreStale = false
    }

    /// Completes an interrupted change or repairs a copy: keeps only the copy that opened, and a key file it needs.
    func settleKeystore(by opened: KeystoreCopy) {
        guard !isReadOnly else { return }
        do throws(StoreError) {
            if !keystore.isSettled { try writeKeystore(opened, over: opened) }
            if opened.protection == .passphrase { try KeyFile.destroy(in: home) }
        } catch { report("an unfinished change of the passphrase: \(error)") }
    }
}
