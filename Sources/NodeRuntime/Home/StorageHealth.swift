import Glibc
import Messaging
import Store

/// Recent disk errors, and the room left for content of peers. On the node's loop alone.
final class StorageHealth {
    static let probePause: Milliseconds = 5 * .second

    /// The error of the newest refused change. Callers set it to `nil` before a change.
    var refusal: StoreError?
    /// The latest disk failure, for `status`.
    private(set) var trouble: (error: StoreError, at: Timestamp)?
    private var probedAt: Timestamp?
    var room: StorageRoom

    init(room: StorageRoom) { self.room = room }

    func failed(_ error: StoreError, at now: Timestamp) {
        refusal = error
        trouble = (error, now)
    }

    /// ``failed(_:at:)`` for a change that no user requested.
    func note(_ error: StoreError, at now: Timestamp) { trouble = (error, now) }

    /// Probes a full or read-only disk: only a new write shows whether it has recovered.
    func probe(_ store: Store, after pause: Milliseconds, now: Timestamp) {
        guard let trouble, now - max(probedAt ?? trouble.at, trouble.at) >= pause else { return }
        switch trouble.error.kind {
        case .full, .readOnly: break
        // A single failure may not recur: shown for a minute.
        case .passphrase, .locked, .busy, .missing, .exists, .permission, .damaged, .resources, .misuse, .io:
            if now - trouble.at >= .minute { self.trouble = nil }
            return
        }
        probedAt = now
        do throws(StoreError) {
            try store.probe()
            self.trouble = nil
            room.look()
        } catch { self.trouble = (error, now) }
    }
}

package struct DiskSpace: Sendable {
    package var total: UInt64
    /// For users without privileges.
    package var available: UInt64

    package init(total: UInt64, available: UInt64) {
        self.total = total
        self.available = available
    }

    package init?(of path: String) {
        var status = statvfs()
        guard statvfs(path, &status) == 0 else { return nil }
        let block = UInt64(status.f_frsize)
        self.init(total: UInt64(status.f_blocks) * block, available: UInt64(status.f_bavail) * block)
    }
}

/// Limits stored content of peers: a member must not fill the disk, nor the memory that the message index takes.
package struct StorageRoom {
    private let home: String
    private var limits: NodeConfiguration.Storage
    private let space: @Sendable (_ home: String) -> DiskSpace?
    private var storedCount = 0
    private var hasDiskSpace = true
    /// Free bytes above the floor at the last query, less the files stored since.
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

    mutating func limit(to limits: NodeConfiguration.Storage) {
        self.limits = limits
        look()
    }

    /// Queries the file system: on ticks, at most once a second, and after every 256 messages.
    package mutating func look() {
        guard let space = space(home) else { return }
        let floor = min(UInt64(clamping: limits.freeByteCount), space.total / 20)
        hasDiskSpace = space.available >= floor
        spareByteCount = space.available >= floor ? space.available - floor : 0
    }

    /// Whether a file, or part of one, fits beside the inbox's stored bytes.
    package func isFor(file byteCount: Int64, besides stored: Int64) -> Bool {
        byteCount >= 0 && UInt64(byteCount) <= spareByteCount && stored <= limits.inboxByteCount
            && byteCount <= limits.inboxByteCount - stored
    }

    package mutating func took(byteCount: Int) { spareByteCount -= min(spareByteCount, UInt64(max(0, byteCount))) }

    /// - Parameters:
    ///   - byteCount: the inbox's stored bytes.
    ///   - recordCount: the inbox's records; each counts at least ``Limits/storedRecordByteCount``, for the index.
    package func isFor(byteCount: Int64, recordCount: Int) -> Bool {
        let indexed = Int64(clamping: recordCount).multipliedReportingOverflow(by: Limits.storedRecordByteCount)
        return hasDiskSpace && !indexed.overflow && max(byteCount, indexed.partialValue) < limits.inboxByteCount
    }

    package mutating func stored(count: Int) {
        storedCount += count
        guard storedCount >= 256 else { return }
        storedCount = 0
        look()
    }
}
