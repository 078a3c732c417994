import Crypto

package struct ReapReport: Sendable {
    package struct Expired: Equatable, Sendable {
        package let row: RowID
        package let id: Bytes16
    }

    /// Messages no longer served since this reap, in order of expiry. Hidden records are not included.
    package internal(set) var expired: [Expired] = []
    /// Records handed to the reap's commit for overwriting.
    package internal(set) var recordsOverwritten = 0
    package internal(set) var columnsDestroyed = 0
    /// Inboxes whose fuse was due. Empty while the store is locked: then only the count is known.
    package internal(set) var rows: [RowID] = []
    package internal(set) var rowsDestroyed = 0
    package internal(set) var tombstonesDestroyed = 0
    /// Failed destructions, which the next reap retries. Until then due data still exists.
    package internal(set) var failures: [StoreError] = []
}
