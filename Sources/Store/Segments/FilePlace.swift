import Crypto

/// Where a record file lies: 16 bytes name its directory in `inboxes`, 16 the file.
struct FilePlace: Hashable, Sendable {
    enum Kind: UInt8, Sendable {
        case segment = 1
        case log = 2
    }

    let kind: Kind
    let directory: Bytes16
    /// Of a segment its id, of a log the name that its row gives it.
    let file: Bytes16

    var directoryName: String { Hex.encode(directory.bytes) }
    var fileName: String { Hex.encode(file.bytes) + (kind == .segment ? ".seg" : ".log") }
    var sidecarName: String { Hex.encode(file.bytes) + ".expiry" }
    var path: String { directoryName + "/" + fileName }
}

/// Bytes for a place in a record file.
struct FilePiece: Sendable {
    let offset: Int64
    let buffer: RecordBuffer
}

/// The directory of an inbox's files in `inboxes`.
final class InboxDirectory {
    let name: Bytes16
    /// The directory is there, and its entry is durable.
    var isDurable = false

    init(_ name: Bytes16) { self.name = name }
}
