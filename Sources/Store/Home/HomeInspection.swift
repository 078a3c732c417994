import Crypto
import Glibc

/// A view of a home without its lock and keys, for `mayfly doctor`.
package struct HomeInspection: Sendable {
    package let keystoreCopyCount: Int
    package let protection: Protection
    /// The latest time ever saved, in milliseconds since the epoch. `nil`: neither copy can be read.
    package let clockMark: Int64?
    package let erasurePromise: ErasurePromise
    private let keystore: Keystore

    /// Checks owner, modes and the directories above, and changes nothing.
    /// - Throws: the errors with which ``Store/open(home:fileSystem:now:argon2Floor:committingOn:)`` refuses the
    ///   directory.
    package init(home path: String, fileSystem disk: any FileSystem = PosixFileSystem()) throws(StoreError) {
        let home = try HomeDirectory(path, disk: disk)
        defer { home.close() }
        keystore = try Keystore(in: home)
        try home.checkFiles()
        for name in [SlotFile.rowsName, SlotFile.columnsName, SlotFile.tombstonesName] {
            disk.close(try home.open(name, []))
        }
        if keystore.protection == .keyFile { disk.close(try home.open(KeyFile.name, [])) }
        keystoreCopyCount = keystore.readableCopyCount
        protection = keystore.protection
        let file = try home.open(ClockMark.name, [])
        defer { disk.close(file) }
        erasurePromise = disk.erasurePromise(home: home.descriptor, smallFile: file)
        clockMark = ClockMark.read(file, disk)
    }

    /// - Throws: ``StoreError/wrongPassphrase``, ``StoreError/weakKeystore(iterations:memoryByteCount:)``,
    ///   ``StoreError/outOfMemory(byteCount:)``.
    package func check(passphrase: borrowing SecretBytes?) throws(StoreError) {
        _ = try keystore.open(passphrase: passphrase, keyFile: nil, floor: .standard)
    }
}

extension HomeDirectory {
    /// Refuses a home with files that others may use, or pages of a later format. Writes nothing. An unreadable file is
    /// left to its own reader to report.
    func checkFiles() throws(StoreError) {
        let files: [(name: String, magic: Magic?)] = [
            ("lock", nil), (ClockMark.name, nil), (KeyFile.name, nil), (SlotFile.rowsName, nil),
            (SlotFile.columnsName, ColumnHeader.magic), (SlotFile.tombstonesName, TombstonePage.magic),
            (Journal.name, JournalBlock.magic),
        ]
        for (name, magic) in files {
            let file: FileDescriptor
            do throws(StoreError) { file = try open(name, []) } catch {
                guard error.kind != .permission else { throw error }
                continue
            }
            defer { disk.close(file) }
            if let magic { try refuseLater(magic, file, name) }
        }
    }

    private func refuseLater(_ magic: Magic, _ file: FileDescriptor, _ name: String) throws(StoreError) {
        let run: Int64 = 1 << 20
        let count = min((try? disk.status(file))?.byteCount ?? 0, Journal.maximumByteCount)
        for start in stride(from: 0, to: count, by: Int(run)) {
            guard let bytes = try? disk.read(file, at: start, count: Int(min(run, count - start))) else { continue }
            for page in stride(from: 0, to: bytes.count, by: SlotFile.pageByteCount)
            where bytes[page] == magic.bytes[0] && magic.isLater(bytes[page...]) {
                throw .newerFormat(path: path(name))
            }
        }
    }
}

/// A test write: whether a disk that refused a write accepts new data again.
extension HomeDirectory {
    private static let probeName = "probe"
    private static let probeByteCount = 65_536

    /// Makes a few pages durable in a temporary, already unlinked file.
    /// - Parameter byteCount: size of the next write.
    func probe(for byteCount: Int) throws(StoreError) {
        try onDisk(path) { () throws(SystemError) in
            // Left, empty, by a process that ended in between.
            try? disk.remove(Self.probeName, in: descriptor, isDirectory: false)
            let file = try disk.open(Self.probeName, in: descriptor, [.write, .create])
            defer { disk.close(file) }
            try disk.remove(Self.probeName, in: descriptor, isDirectory: false)
            let pages = [UInt8](repeating: 0, count: Self.probeByteCount)
            // A record takes space in two files: the journal and its segment.
            for offset in stride(from: 0, through: 2 * max(0, byteCount), by: pages.count) {
                try disk.write(file, at: Int64(offset), pages)
            }
            try disk.synchronize(file, dataOnly: false)
        }
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
