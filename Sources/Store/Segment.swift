import Primitives

/// An expiry bucket that is open: its page, and the secret the page mixes into.
final class Column {
    let slot: Int
    let header: ColumnHeader
    let secret: SharedSecret
    /// Names the page in sidecars: a bucket may have had another page before.
    let tag: [UInt8]
    var segments: [Segment] = []
    /// Whether the exact expiry of every record under it is known.
    var isIndexed = false

    init(slot: Int, header: ColumnHeader, secret: SharedSecret) {
        self.slot = slot
        self.header = header
        self.secret = secret
        tag = BLAKE2b.authenticate(key: secret.bytes, Array("mayfly column tag".utf8), byteCount: 16)
    }

    /// No record of the column expires at or before this moment, in milliseconds.
    var start: Int64 { header.notAfter - header.tier.bucketWidth }
}

/// A version of a message in a segment.
struct MessageRecord {
    enum State: UInt8 {
        case live
        /// A later version was stored.
        case superseded
        /// Its commit failed: it may or may not be on the disk, and is not served.
        case failed
        case erased
    }

    let id: MessageID
    /// Milliseconds since the epoch; at it the message is gone.
    let expiresAt: Int64
    /// Place of the message among all of its row.
    let order: UInt64
    let version: UInt32
    let number: UInt32
    let length: UInt32
    let offset: Int64
    /// Known by its identifier only: not listed, not counted, not reported when it expires.
    let isHidden: Bool
    var state: State
    /// Whether a reap has told the node.
    var isReported = false

    var span: RecordFile.Span { RecordFile.Span(offset: offset, length: Int(length)) }

    static let headerByteCount = 36

    /// Set in the stored version of a hidden record.
    private static let hiddenBit: UInt32 = 1 << 31
    /// Versions end here.
    static let maximumVersion = hiddenBit - 1

    static func encode(
        id: MessageID,
        expiresAt: Int64,
        order: UInt64,
        version: UInt32,
        isHidden: Bool,
        payload: [UInt8]
    ) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(headerByteCount + payload.count)
        bytes += expiresAt.littleEndianBytes
        bytes += order.littleEndianBytes
        bytes += (isHidden ? version | hiddenBit : version).littleEndianBytes
        bytes += id.bytes
        bytes += payload
        return bytes
    }

    /// `nil` for a plaintext too short to be one of ours.
    init?(_ plaintext: [UInt8], number: UInt32, span: RecordFile.Span) {
        guard plaintext.count >= Self.headerByteCount, let expiresAt = plaintext.integer(Int64.self, at: 0),
            let order = plaintext.integer(UInt64.self, at: 8), let kind = plaintext.integer(UInt32.self, at: 16),
            let id = MessageID(plaintext[20..<36]), let length = UInt32(exactly: span.length),
            order < UInt64.max
        else { return nil }
        self.init(
            id: id,
            expiresAt: expiresAt,
            order: order,
            version: kind & ~Self.hiddenBit,
            number: number,
            length: length,
            offset: span.offset,
            isHidden: kind & Self.hiddenBit != 0,
            state: .live
        )
    }

    init(
        id: MessageID,
        expiresAt: Int64,
        order: UInt64,
        version: UInt32,
        number: UInt32,
        length: UInt32,
        offset: Int64,
        isHidden: Bool,
        state: State
    ) {
        self.id = id
        self.expiresAt = expiresAt
        self.order = order
        self.version = version
        self.number = number
        self.length = length
        self.offset = offset
        self.isHidden = isHidden
        self.state = state
    }
}

/// The records of one inbox that share an expiry bucket.
final class Segment {
    /// A fuller segment is closed and another one begun.
    static let fullByteCount: Int64 = 16 << 20

    let file: RecordFile
    let sidecar: ExpirySidecar
    let column: Column
    unowned let row: Row
    var records: [MessageRecord] = []
    /// How many records completed commits cover.
    var durableCount = 0
    /// (commit, records it covers), for commits under way.
    var covered: [(sequence: UInt64, count: Int)] = []
    var isIndexed = false
    var isDead = false

    init(file: RecordFile, sidecar: ExpirySidecar, column: Column, row: Row) {
        self.file = file
        self.sidecar = sidecar
        self.column = column
        self.row = row
    }

    var acceptsAppends: Bool { !isDead && !file.isClosed && isIndexed && file.end < Self.fullByteCount }

    /// Segment key = KDF(S_i ‖ E_b, segment id): gone with either.
    static func key(row: Row, column: Column, segmentID: [UInt8]) -> SharedSecret {
        let both = SecretBytes(byteCount: 64) { output in
            row.secret.bytes.withBytes { output.copyMemory(from: $0) }
            column.secret.bytes.withBytes { half in
                UnsafeMutableRawBufferPointer(rebasing: output[32...]).copyMemory(from: half)
            }
        }
        return SharedSecret(BLAKE2b.derive(key: both, Array("mayfly segment".utf8), segmentID))
    }
}
