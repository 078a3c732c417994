import Glibc

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
