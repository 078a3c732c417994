import Glibc
import Messaging

/// How much more of what peers send may be stored: a member with whom a lifetime is agreed must not fill the disk, nor
/// the memory that the index of its messages takes.
package struct StorageRoom {
    private let home: String
    private var counts: [ClientID: Int] = [:]
    private var hasDiskSpace = true
    /// Bytes on the disk above the floor when it was asked, less what files took since.
    private var spareByteCount: UInt64 = 0

    package init(home: String) {
        self.home = home
        look()
    }

    /// Asks the file system; at every tick, and after every 256 messages.
    package mutating func look() {
        var status = statvfs()
        guard statvfs(home, &status) == 0 else { return }
        let block = UInt64(status.f_frsize)
        let floor = min(Limits.freeByteCount, UInt64(status.f_blocks) * block / 20)
        let available = UInt64(status.f_bavail) * block
        hasDiskSpace = available >= floor
        spareByteCount = available >= floor ? available - floor : 0
    }

    /// Whether a file, or a part of one, may be stored.
    package func isFor(byteCount: Int64) -> Bool { byteCount >= 0 && UInt64(byteCount) <= spareByteCount }

    /// Part of a file has been stored.
    package mutating func took(byteCount: Int) {
        spareByteCount -= min(spareByteCount, UInt64(max(0, byteCount)))
    }

    package func isFor(_ client: ClientID) -> Bool { hasDiskSpace && counts[client, default: 0] < Limits.storedCount }

    /// - Parameter present: how many messages the inbox has when it is counted for the first time.
    package mutating func stored(_ client: ClientID, present: () -> Int) {
        let count = counts[client] ?? present()
        counts[client] = count + 1
        if count % 256 == 0 { look() }
    }

    package mutating func expired(_ client: ClientID) {
        if let count = counts[client] { counts[client] = max(0, count - 1) }
    }

    package mutating func forget(_ client: ClientID) { counts[client] = nil }
}
