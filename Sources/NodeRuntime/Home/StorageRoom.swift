import Glibc
import Messaging

/// The room on a file system, in bytes.
package struct DiskSpace: Sendable {
    package var total: UInt64
    /// For users without privileges.
    package var available: UInt64

    package init(total: UInt64, available: UInt64) {
        self.total = total
        self.available = available
    }

    /// What the kernel says; `nil` when it cannot be asked.
    package init?(of path: String) {
        var status = statvfs()
        guard statvfs(path, &status) == 0 else { return nil }
        let block = UInt64(status.f_frsize)
        self.init(total: UInt64(status.f_blocks) * block, available: UInt64(status.f_bavail) * block)
    }
}

/// How much more of what peers send may be stored: a member with whom a lifetime is agreed must not fill the disk, nor
/// the memory that the index of its messages takes.
package struct StorageRoom {
    private let home: String
    private var limits: NodeConfiguration.Storage
    private let space: @Sendable (_ home: String) -> DiskSpace?
    private var storedCount = 0
    private var hasDiskSpace = true
    /// Bytes on the disk above the floor when it was asked, less what files took since.
    private var spareByteCount: UInt64 = 0

    package init(
        home: String, limits: NodeConfiguration.Storage,
        space: @escaping @Sendable (_ home: String) -> DiskSpace? = { DiskSpace(of: $0) }
    ) {
        self.home = home
        self.limits = limits
        self.space = space
        look()
    }

    /// Other limits from now on.
    mutating func limit(to limits: NodeConfiguration.Storage) {
        self.limits = limits
        look()
    }

    /// Asks the file system; with ticks, once a second at most, and after every 256 messages.
    package mutating func look() {
        guard let space = space(home) else { return }
        let floor = min(UInt64(limits.freeByteCount.value), space.total / 20)
        hasDiskSpace = space.available >= floor
        spareByteCount = space.available >= floor ? space.available - floor : 0
    }

    /// Whether a file, or a part of one, may be stored besides what the inbox has.
    package func isFor(file byteCount: Int64, besides stored: Int64) -> Bool {
        byteCount >= 0 && UInt64(byteCount) <= spareByteCount && stored <= limits.inboxByteCount.value
            && byteCount <= limits.inboxByteCount.value - stored
    }

    /// Part of a file has been stored.
    package mutating func took(byteCount: Int) { spareByteCount -= min(spareByteCount, UInt64(max(0, byteCount))) }

    /// - Parameters:
    ///   - byteCount: what the inbox has stored.
    ///   - recordCount: in how many records; each counts as ``Limits/storedRecordByteCount`` at least, for its place in
    ///     the index.
    package func isFor(byteCount: Int64, recordCount: Int) -> Bool {
        let indexed = Int64(clamping: recordCount).multipliedReportingOverflow(by: Limits.storedRecordByteCount)
        return hasDiskSpace && !indexed.overflow && max(byteCount, indexed.partialValue) < limits.inboxByteCount.value
    }

    package mutating func stored(count: Int) {
        storedCount += count
        guard storedCount >= 256 else { return }
        storedCount = 0
        look()
    }
}
