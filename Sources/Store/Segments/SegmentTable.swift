import Crypto

final class SegmentTable {
    private let services: StoreServices
    private let grid: Grid
    private let deadlines: DeadlineQueue

    init(_ services: StoreServices, grid: Grid, deadlines: DeadlineQueue) {
        self.services = services
        self.grid = grid
        self.deadlines = deadlines
    }

    func make(row: Row, column: Column, sidecar: ExpirySidecar, isNew: Bool = false) -> Segment {
        let file = RecordFile(
            number: services.takeFileNumber(),
            place: FilePlace(
                kind: .segment, directory: row.names.directory.name,
                file: sidecar.segmentID.withUnsafeBytes { Bytes16(copying: $0) }), associatedData: sidecar.encoded,
            key: Segment.key(row: row, column: column, segmentID: sidecar.segmentID), header: isNew ? [] : nil)
        return Segment(file: file, sidecar: sidecar, column: column, row: row)
    }

    func enter(_ segment: Segment) {
        grid.insert(segment)
        if !segment.isProbed { segment.row.isProbed = false }
        deadlines.announce(segment)
    }

    func enter(_ record: MessageRecord, in segment: Segment) {
        segment.records.append(record)
        let position = segment.records.indices.upperBound - 1
        segment.row.insert(segment, position)
        segment.noteExpiry(of: position)
        deadlines.announce(segment)
    }

    // MARK: - Appending

    func segment(for row: Row, _ tier: Tier, expiresAt: Int64) throws(StoreError) -> Segment {
        if let last = row.lastAppended, last.sidecar.tier == tier, last.acceptsAppends,
            tier.bucket(expiresAt: expiresAt) == last.sidecar.bucket, !services.isReadOnly
        {
            return last
        }
        return try segment(for: row, in: grid.column(tier, expiresAt: expiresAt))
    }

    /// Makes a segment if none takes appends. The first checkpoint with its data creates the file.
    func segment(for row: Row, in column: Column) throws(StoreError) -> Segment {
        if services.isReadOnly { throw .readOnly(path: services.home.path) }
        var usable = row.appending[column.slot].flatMap { $0.acceptsAppends ? $0 : nil }
        usable = usable ?? row.orderedSegments.first { $0.column === column && $0.acceptsAppends }
        if let usable {
            row.appending[column.slot] = usable
            row.lastAppended = usable
            return usable
        }
        let sidecar = ExpirySidecar(
            segmentID: randomBytes(16), header: column.header, columnTag: column.tag, inboxTag: row.names.tag,
            key: row.names.sidecarKey.bytes)
        let segment = make(row: row, column: column, sidecar: sidecar, isNew: true)
        segment.isProbed = true
        segment.earliest = .max
        enter(segment)
        row.appending[column.slot] = segment
        row.lastAppended = segment
        return segment
    }

    // MARK: - Removing

    /// Zeroes a record with the next commit.
    func overwrite(_ segment: Segment, _ position: Int, _ kind: RecordFile.Erasure.Kind = .first) {
        let record = segment.records[position]
        guard record.state != .erased else { return }
        segment.records[position].state = .erased
        segment.file.erase(record.span, kind)
        services.commits.note(segment.file)
    }

    /// Drops a segment and its keys. The file stays for later removal.
    func bury(_ segment: Segment) {
        guard !segment.isDead else { return }
        segment.isDead = true
        services.discard(segment.file)
        let number = segment.file.number
        if !segment.row.isGone {
            segment.row.removeStatuses(of: segment)
            for record in segment.records.all where record.kind != .status {
                guard let place = segment.row.index[record.id], Int(place.file) == number else { continue }
                segment.row.removeFromIndex(record.id)
            }
        }
        grid.remove(segment)
        segment.row.segments[number] = nil
        segment.row.noteRead(segment: number)
        deadlines.forgetWithholding(segment)
        if segment.row.appending[segment.column.slot] === segment { segment.row.appending[segment.column.slot] = nil }
        if segment.row.lastAppended === segment { segment.row.lastAppended = nil }
    }

    /// Frees the memory of a resting row's segment. The file stays.
    func release(_ segment: Segment) {
        grid.remove(segment)
        segment.isDead = true
        services.discard(segment.file)
    }
}
