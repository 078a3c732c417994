import Cryptography
import HeapModule

/// The records of one inbox that share an expiry bucket.
final class Segment {
    /// A fuller segment takes no appends.
    static let fullByteCount: Int64 = 16 << 20

    let file: RecordFile
    let sidecar: ExpirySidecar
    let column: Column
    unowned let row: Row
    var records = RecordList()
    var bounds = MessageRecord.Bounds()
    /// The tail was read, so the last record's bounds are known.
    var isProbed = false
    /// `records` has the records from this offset on.
    var loadedFrom: Int64 = 0
    /// Bounds of the records before `loadedFrom`.
    var prefix = MessageRecord.Bounds()
    var isRefused = false
    var isIndexed: Bool { isProbed && loadedFrom == 0 }
    var isDead = false
    /// No record still to be reaped expires before this moment. Exact once the records are known.
    var earliest: Int64
    /// The moment for which the deadline queue has the segment.
    var announced = Int64.max
    /// Expiries of the records, the earliest first. Built when the first one is due; until then `earliest` is enough.
    private var queue: Heap<Expiry>?
    /// Expired and hidden, but not to be destroyed yet.
    private var withheld: [Expiry] = []
    init(file: RecordFile, sidecar: ExpirySidecar, column: Column, row: Row) {
        (self.file, self.sidecar, self.column, self.row) = (file, sidecar, column, row)
        earliest = column.start + 1
        file.owner = self
    }

    var acceptsAppends: Bool { !isDead && !file.isClosed && isProbed && file.end < Self.fullByteCount }

    /// A record's expiry in eight bytes: milliseconds from the start of the bucket, and its position.
    private struct Expiry: Comparable {
        private let bits: UInt64
        init(_ offset: UInt32, _ position: Int) {
            bits = UInt64(offset) << 32 | UInt64(UInt32(truncatingIfNeeded: position))
        }
        var offset: Int64 { Int64(bits >> 32) }
        var position: Int { Int(bits & 0xFFFF_FFFF) }
        static func < (left: Expiry, right: Expiry) -> Bool { left.bits < right.bits }
    }

    /// The earliest of the expiries in the record, the sidecar and the column page.
    func expiry(of position: Int) -> Int64 {
        min(records[position].expiresAt, sidecar.notAfter, column.header.notAfter)
    }

    private func item(_ position: Int) -> Expiry {
        Expiry(UInt32(clamping: expiry(of: position) - column.start), position)
    }

    func noteExpiry(of position: Int) {
        earliest = min(earliest, expiry(of: position))
        queue?.insert(item(position))
    }

    /// Recomputes `earliest` from the records read.
    func settleEarliest() {
        earliest =
            records.indices.lazy.filter { self.records[$0].state != .erased }.map { self.expiry(of: $0) }.min() ?? .max
        earliest = min(earliest, prefixEarliest)
    }

    /// No unread record expires before this moment.
    private var prefixEarliest: Int64 {
        loadedFrom == 0 || isRefused ? .max : min(prefix.floor, sidecar.notAfter, column.header.notAfter)
    }

    /// Unread records may expire at or before `moment`.
    func hasUnreadDue(_ moment: Int64) -> Bool { !isProbed || prefixEarliest <= moment }

    func takeDue(_ moment: Int64) -> Int? {
        guard earliest <= moment else { return nil }
        var heap = queue.take() ?? Heap(records.indices.filter { records[$0].state != .erased }.map { item($0) })
        var found: Int?
        if let next = heap.min, column.start + next.offset <= moment {
            heap.removeMin()
            found = next.position
        }
        earliest = min(heap.min.map { column.start + $0.offset } ?? .max, prefixEarliest)
        queue = heap
        return found
    }

    func withhold(_ position: Int) { withheld.append(item(position)) }
    var withholds: Bool { !withheld.isEmpty }

    func reconsider() {
        for item in withheld {
            queue?.insert(item)
            earliest = min(earliest, column.start + item.offset)
        }
        withheld = []
    }

    static func key(row: Row, column: Column, segmentID: [UInt8]) -> SharedSecret {
        let both = row.secret.joined(with: column.secret)
        return SharedSecret(BLAKE2b.derive(key: both, Array("mayfly segment".utf8), segmentID))
    }
}

extension Segment: RecordFileOwner {
    var isGone: Bool { isDead || row.isGone }
    var directory: InboxDirectory { row.names.directory }
    var sidecarBytes: [UInt8]? { sidecar.encoded }
    var fileID: [UInt8]? { nil }

    /// Doubtful records are not served. They are zeroed in memory, and the next commit takes the zeros.
    func commitFailed(in range: Range<Int64>) {
        row.hasFailures = true
        for position in records.indices {
            let record = records[position]
            guard range.contains(Int64(record.offset)), record.state != .failed else { continue }
            file.zero(record.span)
            if record.state == .erased { continue }
            records[position].state = .failed
            row.withdraw(self, position)
        }
    }

    func committed() {}

    func moveEnded(_ span: RecordFile.Span, isErased: Bool) {
        guard let position = records.indices.first(where: { Int64(records[$0].offset) == span.offset }),
            records[position].state == .moving
        else { return }
        records[position].state = isErased ? .erased : .superseded
    }
}

/// Snapshots of an inbox's state, sealed under the row: the last valid one counts. The log has no expiry and dies with
/// the row.
///
///     magic (8) ‖ file id (16) ‖ records
final class StateLog {
    static let headerByteCount = 24
    /// A log is replaced when it exceeds this size and four times the state's.
    private static let replacementByteCount: Int64 = 256 << 10
    static let magic = Magic("MFLOG1")

    struct State {
        let number: UInt32
        let span: RecordFile.Span
    }

    let file: RecordFile
    let id: [UInt8]
    unowned let row: Row
    /// Some bytes exist but no record opens: damage, not a log that was never written.
    var holdsUnreadableBytes = false
    /// The newest committed snapshot and those after it.
    private var states: [State] = []
    /// The replaced log, until this one has a durable state.
    private(set) var previous: StateLog?
    private var isAbandoned = false

    init(row: Row, fileID: [UInt8], number: Int, replacing previous: StateLog? = nil, isNew: Bool) {
        self.row = row
        self.previous = previous
        id = fileID
        let key = SharedSecret(BLAKE2b.derive(key: row.secret.bytes, Array("mayfly row log".utf8), fileID))
        file = RecordFile(
            number: number, place: FilePlace(kind: .log, directory: row.names.directory.name, file: row.names.log),
            associatedData: Array("mayfly state".utf8) + fileID, key: key,
            header: isNew ? Self.magic.bytes + fileID : nil)
        file.owner = self
    }

    /// The file id, or `nil` for another kind of file.
    static func fileID(_ bytes: [UInt8]) -> [UInt8]? {
        guard bytes.count >= headerByteCount, magic.begins(bytes) else { return nil }
        return Array(bytes[8..<24])
    }

    var latest: State? { states.last }

    func append(_ state: [UInt8], nonces: inout NoncePool) {
        let number = file.nextNumber
        states.append(State(number: number, span: file.append(state, nonces: &nonces)))
    }

    func found(_ state: State) { states = [state] }

    func needsReplacement(for state: [UInt8]) -> Bool {
        file.end > Self.replacementByteCount && file.end > 4 * Int64(state.count)
    }

    /// Takes the replaced log once it is no longer needed.
    func takePrevious() -> StateLog? {
        guard let last = states.first, last.span.offset < file.durable else { return nil }
        defer { previous = nil }
        previous?.isAbandoned = true
        return previous
    }
}

extension StateLog: RecordFileOwner {
    var isGone: Bool { isAbandoned || row.isGone }
    var directory: InboxDirectory { row.names.directory }
    var sidecarBytes: [UInt8]? { nil }
    var fileID: [UInt8]? { id }

    func commitFailed(in range: Range<Int64>) {
        for state in states where range.contains(state.span.offset) { file.zero(state.span) }
        states.removeAll { range.contains($0.span.offset) }
        guard states.isEmpty, row.log === self else { return }
        // This log has no state: continue with the previous log, or with the file on the disk.
        isAbandoned = true
        row.logIsLoaded = previous != nil
        row.log = previous
    }

    func committed() {
        if let last = states.lastIndex(where: { $0.span.offset < file.durable }) { states.removeFirst(last) }
    }

    func moveEnded(_ span: RecordFile.Span, isErased: Bool) {}
}
