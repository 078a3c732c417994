import Crypto
import Glibc

/// Why what is read of a home may be in the kernel's cache only, to be lost with the next power cut; the worst is greatest.
enum Doubt: Int, Comparable {
    /// A process was killed before its barriers, or a full disk has taken a part of a write.
    case unsynchronised
    /// The disk has refused a barrier: the kernel takes such pages for clean and does not write them again, whatever fsync
    /// says next time (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
    case refused

    static func < (left: Doubt, right: Doubt) -> Bool { left.rawValue < right.rawValue }
}

/// How a run has gone so far, in the lock file after the process number. Without an fsync: a mark that a power cut takes
/// along is not needed any more. What the kernel calls its boot id would tell, but in some containers it is not the kernel's.
enum RunMark: String {
    /// All that it has written is durable.
    case ended = "ended   "
    case running = "running "
    case refused = "refused "

    static let offset: Int64 = 16
    private static let byteCount = 8

    func write(to file: FileDescriptor, on disk: any FileSystem) {
        // A full disk does not matter: there is room in the file's block.
        try? disk.write(file, at: Self.offset, Array(rawValue.utf8))
    }

    static func doubt(of file: FileDescriptor, on disk: any FileSystem) -> Doubt? {
        let bytes = (try? disk.read(file, at: offset, count: byteCount)) ?? []
        switch RunMark(rawValue: String(decoding: bytes, as: UTF8.self)) {
        case .ended: return nil
        case .running, nil: return .unsynchronised
        case .refused: return .refused
        }
    }
}

/// Directories of inboxes whose files may be in the kernel's cache only.
final class UnsettledDirectories {
    private var doubts: [String: Doubt] = [:]
    var isEmpty: Bool { doubts.isEmpty }

    subscript(_ directory: String) -> Doubt? {
        get { doubts[directory] }
        set { doubts[directory] = newValue }
    }
}

extension FileSystem {
    /// Writes what is read of a file in the place where it is. What cannot be read is not in the cache.
    func rewrite(_ file: FileDescriptor, byteCount: Int64) throws(SystemError) {
        let run: Int64 = 1 << 20
        let sector: Int64 = 4_096
        for start in stride(from: 0, to: byteCount, by: Int(run)) {
            let end = min(start + run, byteCount)
            if let bytes = try? read(file, at: start, count: Int(end - start)) {
                try write(file, at: start, bytes)
                continue
            }
            for offset in stride(from: start, to: end, by: Int(sector)) {
                guard let bytes = try? read(file, at: offset, count: Int(min(sector, end - offset))) else { continue }
                try write(file, at: offset, bytes)
            }
        }
    }
}
