import Crypto
import Glibc

/// Why data that was read may be only in the kernel's cache, to be lost with a power cut. The worst is the greatest.
enum Doubt: Int, Comparable {
    /// A process was killed before its barriers, or a full disk took only part of a write.
    case unsynchronised
    /// The disk refused a barrier. The kernel then marks those pages clean and never writes them again, whatever later
    /// fsyncs return (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
    case refused

    static func < (left: Doubt, right: Doubt) -> Bool { left.rawValue < right.rawValue }
}

/// The state of a run, in the lock file after the process number. The next run learns from it how this one ended. The
/// mark is written without fsync: a power cut that loses the mark also empties the cache, so nothing is left in doubt.
/// The kernel's boot id would not do: in some containers it is not the kernel's.
enum RunMark: String {
    /// Everything written is durable.
    case ended = "ended   "
    case running = "running "
    case refused = "refused "

    static let offset: Int64 = 16
    private static let byteCount = 8

    func write(to file: FileDescriptor, on disk: any FileSystem) {
        // A full disk does not matter: the file's block has room.
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

/// Directories of inboxes whose files may be only in the kernel's cache.
final class UnsettledDirectories {
    private var doubts: [String: Doubt] = [:]
    var isEmpty: Bool { doubts.isEmpty }

    subscript(_ directory: String) -> Doubt? {
        get { doubts[directory] }
        set { doubts[directory] = newValue }
    }
}

extension FileSystem {
    /// Writes the file's contents back in place. Sectors that cannot be read are skipped: they are not in the cache.
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
