import Crypto

/// What a reap did.
package struct ReapReport: Sendable {
    package struct Expired: Equatable, Sendable {
        package let row: RowID
        package let id: Bytes16
    }

    /// Messages that are no longer served since this reap, in the order of their moments. Hidden records are not named.
    package internal(set) var expired: [Expired] = []
    /// Records whose overwriting this reap has handed to a commit (which it starts).
    package internal(set) var recordsOverwritten = 0
    /// Bucket pages destroyed and read back.
    package internal(set) var columnsDestroyed = 0
    /// Inboxes whose fuse was due; empty while the store is locked, when only the count is known.
    package internal(set) var rows: [RowID] = []
    package internal(set) var rowsDestroyed = 0
    package internal(set) var tombstonesDestroyed = 0
    /// What could not be destroyed and will be tried again. While there is one, something that is due still exists.
    package internal(set) var failures: [StoreError] = []
}
