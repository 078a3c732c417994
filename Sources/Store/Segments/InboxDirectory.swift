import Crypto

/// The directory of an inbox's files in `inboxes`.
final class InboxDirectory {
    let name: Bytes16
    /// The directory is there, and its entry is durable.
    var isDurable = false

    init(_ name: Bytes16) { self.name = name }
}
