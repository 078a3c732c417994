import HeapModule
import Primitives

/// An expiry bucket that is open: its page, and the secret the page mixes into.
final class Column {
    let slot: Int
    let header: ColumnHeader
    let secret: SharedSecret
    /// Names the page in sidecars: a bucket may have had another page before.
    let tag: [UInt8]
    /// Those that are in memory, by number of their file.
    var segments: [Int: Segment] = [:]

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
    /// Of the sealed bytes; a file has at most 128 MiB.
    let offset: UInt32
    /// Known by its identifier only: not listed, not counted, not reported when it expires.
    let isHidden: Bool
    var state: State
    /// Whether a reap has told the node.
    var isReported = false

    var span: RecordFile.Span { RecordFile.Span(offset: Int64(offset), length: Int(length)) }

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

    /// `nil` for a plaintext that is not one of ours: too short, or with a time that no record has.
    init?(_ plaintext: [UInt8], number: UInt32, span: RecordFile.Span) {
        guard plaintext.count >= Self.headerByteCount, let expiresAt = plaintext.integer(Int64.self, at: 0),
            let order = plaintext.integer(UInt64.self, at: 8), let kind = plaintext.integer(UInt32.self, at: 16),
            let id = MessageID(plaintext[20..<36]), let length = UInt32(exactly: span.length),
            let offset = UInt32(exactly: span.offset),
            order < UInt64.max, Tier.times.contains(expiresAt)
        else { return nil }
        self.init(
            id: id,
            expiresAt: expiresAt,
            order: order,
            version: kind & ~Self.hiddenBit,
            number: number,
            length: length,
            offset: offset,
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
        offset: UInt32,
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
    /// No record that is still to be reaped expires before this moment; exact once the records are known.
    var earliest: Int64
    /// The moment for which the store's queue has the segment.
    var announced = Int64.max
    /// Expiries of the records, the next one first: made when the first of them is due, because until then the earliest
    /// is enough.
    private var queue: Heap<Expiry>?
    /// Expired, hidden, and not yet to be destroyed.
    private var withheld: [Expiry] = []
    /// Versions that a moved message leaves behind: the commit that erases them, and the file that must be durable first.
    var moved: [(sequence: UInt64?, position: Int, newFile: Int)] = []

    init(file: RecordFile, sidecar: ExpirySidecar, column: Column, row: Row) {
        self.file = file
        self.sidecar = sidecar
        self.column = column
        self.row = row
        earliest = column.start + 1
    }

    var acceptsAppends: Bool { !isDead && !file.isClosed && isIndexed && file.end < Self.fullByteCount }

    // MARK: - Expiries

    /// A record's moment in eight bytes: milliseconds from the start of the bucket, and its position.
    private struct Expiry: Comparable {
        private let bits: UInt64
        init(_ offset: UInt32, _ position: Int) {
            bits = UInt64(offset) << 32 | UInt64(UInt32(truncatingIfNeeded: position))
        }
        var offset: Int64 { Int64(bits >> 32) }
        var position: Int { Int(bits & 0xFFFF_FFFF) }
        static func < (left: Expiry, right: Expiry) -> Bool { left.bits < right.bits }
    }

    /// The earliest of what the record, the sidecar and the column page say.
    func expiry(of position: Int) -> Int64 {
        min(records[position].expiresAt, sidecar.notAfter, column.header.notAfter)
    }

    private func item(_ position: Int) -> Expiry {
        Expiry(UInt32(clamping: expiry(of: position) - column.start), position)
    }

    /// Notes the expiry of a record that has been added.
    func noteExpiry(of position: Int) {
        earliest = min(earliest, expiry(of: position))
        queue?.insert(item(position))
    }

    /// The records have been read: what the earliest is, is known now.
    func settleEarliest() {
        earliest =
            records.indices.lazy.filter { self.records[$0].state != .erased }.map { self.expiry(of: $0) }.min()
            ?? .max
    }

    /// Takes the next record that expires at or before `moment`.
    func takeDue(_ moment: Int64) -> Int? {
        guard earliest <= moment else { return nil }
        var heap = queue.take() ?? Heap(records.indices.filter { records[$0].state != .erased }.map { item($0) })
        var found: Int?
        if let next = heap.min, column.start + next.offset <= moment {
            heap.removeMin()
            found = next.position
        }
        earliest = heap.min.map { column.start + $0.offset } ?? .max
        queue = heap
        return found
    }

    /// The record is due and nobody has allowed to destroy it yet.
    func withhold(_ position: Int) { withheld.append(item(position)) }
    var withholds: Bool { !withheld.isEmpty }

    /// What was withheld is due once more.
    func reconsider() {
        for item in withheld {
            queue?.insert(item)
            earliest = min(earliest, column.start + item.offset)
        }
        withheld = []
    }

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
