import Crypto

/// The location of a record file: 16 bytes for its directory in `inboxes`, 16 for the file.
struct FilePlace: Hashable, Sendable {
    enum Kind: UInt8, Sendable {
        case segment = 1
        case log = 2
    }

    let kind: Kind
    let directory: Bytes16
    /// A segment's id, or a log's name derived from the row.
    let file: Bytes16

    var directoryName: String { Hex.encode(directory.bytes) }
    var fileName: String { Hex.encode(file.bytes) + (kind == .segment ? ".seg" : ".log") }
    var sidecarName: String { Hex.encode(file.bytes) + ".expiry" }
    var path: String { directoryName + "/" + fileName }
}

struct FilePiece: Sendable {
    let offset: Int64
    let buffer: RecordBuffer
}

final class InboxDirectory {
    let name: Bytes16
    /// The directory exists and its entry is durable.
    var isDurable = false

    init(_ name: Bytes16) { self.name = name }
}
