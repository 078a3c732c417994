import Crypto
import Glibc

/// Reads records of segments from their end, no further than needed.
///
/// All versions of a message share one order, and every record stores the highest earlier order of its segment. So once
/// each segment is read down to an order, all records with that order or a higher one are known.
final class SegmentReader {
    /// Bytes of the first read: the last messages.
    private static let probeByteCount = 2 << 10
    /// Bytes of the second read: about a hundred messages.
    private static let firstByteCount = 32 << 10
    /// Most bytes of one read.
    private static let pieceByteCount = 1 << 20

    private let services: StoreServices
    private let deadlines: DeadlineQueue
    private let segments: SegmentTable
    private let refused: RefusedRows
    private let olderVersions: OlderVersions

    init(
        _ services: StoreServices, deadlines: DeadlineQueue, segments: SegmentTable, refused: RefusedRows,
        olderVersions: OlderVersions
    ) {
        self.services = services
        self.deadlines = deadlines
        self.segments = segments
        self.refused = refused
        self.olderVersions = olderVersions
    }

    func probe(_ segment: Segment) {
        guard !segment.isProbed else { return }
        // The file's tail is only in the journal.
        if services.commits.backlog(of: segment.file.place) != nil { return index(segment) }
        let size: Int64
        do throws(StoreError) {
            let descriptor = try services.openFiles.descriptor(of: segment.file)
            size = try onDisk(segment.file.path) { () throws(SystemError) in
                try services.disk.status(descriptor).byteCount
            }
        } catch { return index(segment) }
        guard size > 0, size <= Int64(RecordFile.maximumByteCount) else { return index(segment) }
        segment.file.rest(at: size)
        segment.loadedFrom = size
        var byteCount = Self.probeByteCount
        // Erased records have no bounds.
        while segment.loadedFrom > 0, !segment.records.indices.contains(where: { segment.records[$0].state != .erased })
        {
            guard readPiece(of: segment, byteCount) else { return index(segment) }
            byteCount = min(2 * byteCount, Self.pieceByteCount)
        }
        segment.isProbed = true
        segment.isRefused = false
        segment.row.noteRead(segment: segment.file.number)
        segment.row.expect(segment.bounds)
        segment.settleEarliest()
        deadlines.announce(segment)
    }

    /// Reads the whole records in the `byteCount` bytes before the known ones, at least one.
    /// - Returns: false when the disk refuses or the bytes are malformed.
    private func readPiece(of segment: Segment, _ byteCount: Int) -> Bool {
        let file = segment.file
        var byteCount = Int64(byteCount)
        while true {
            let from = max(0, segment.loadedFrom - byteCount)
            let count = Int(segment.loadedFrom - from)
            guard let descriptor = try? services.openFiles.descriptor(of: file),
                let bytes = try? services.disk.read(descriptor, at: from, count: count), bytes.count == count,
                let piece = file.frames.walkBack(bytes, offset: from, next: segment.records.first?.number)
            else { return false }
            if piece.records.isEmpty {
                byteCount *= 4
                continue
            }
            if segment.records.count == 0, let last = piece.records.first {
                file.rest(at: file.end, nextNumber: last.number + 1)
            }
            enter(piece.records.reversed(), in: segment, from: piece.start)
            return true
        }
    }

    private func enter(
        _ records: [(number: UInt32, span: RecordFile.Span, found: FoundRecord)], in segment: Segment, from start: Int64
    ) {
        var older: [MessageRecord] = []
        var first: MessageRecord.Bounds?
        var last: MessageRecord.Bounds?
        for (number, span, found) in records {
            guard case .opened(var plaintext) = found else {
                // Keep the number, so that the numbers before it can be checked for gaps.
                older.append(MessageRecord(erased: number, span))
                continue
            }
            defer { wipe(&plaintext) }
            guard let record = MessageRecord(plaintext, number: number, span: span),
                let bounds = MessageRecord.bounds(plaintext)
            else {
                older.append(MessageRecord(erased: number, span))
                continue
            }
            older.append(record)
            first = first ?? bounds
            last = bounds
            last?.add(order: record.order, expiresAt: record.expiresAt, kind: record.kind)
        }
        if let last, segment.bounds == MessageRecord.Bounds() { segment.bounds = last }
        if let first { segment.prefix = first }
        segment.loadedFrom = start
        segment.records.prepend(older)
        for position in segment.records.indices.prefix(older.count) { enterFound(position, in: segment) }
    }

    private func enterFound(_ position: Int, in segment: Segment) {
        let record = segment.records[position]
        guard record.state != .erased else { return }
        if record.kind != .status, segment.row.erasedMeanwhile.contains(record.id) {
            // The message was erased while the segment was unreadable.
            segments.overwrite(segment, position)
            olderVersions.areWaiting = true
            return
        }
        segment.row.insert(segment, position)
        segment.noteExpiry(of: position)
    }

    // MARK: - As far as is needed

    /// Reads every segment down to an order: all versions with that order or a higher one are known then.
    func read(_ row: Row, downTo order: UInt64) {
        for segment in row.orderedSegments where segment.isProbed && !segment.isRefused {
            var byteCount = Self.firstByteCount
            while segment.loadedFrom > 0, segment.prefix.ceiling > order {
                guard readPiece(of: segment, byteCount) else {
                    index(segment)
                    break
                }
                byteCount = min(2 * byteCount, Self.pieceByteCount)
            }
        }
        olderVersions.eraseLeftBehind(row)
    }

    /// Reads a piece of each segment that is not wholly known; false when there is none.
    func readMore(of row: Row) -> Bool {
        var hasMore = false
        for segment in row.orderedSegments where segment.isProbed && segment.loadedFrom > 0 && !segment.isRefused {
            let before = segment.loadedFrom
            if !readPiece(of: segment, Self.pieceByteCount) { index(segment) }
            if segment.loadedFrom < before { hasMore = true }
        }
        return hasMore
    }

    /// Reads a piece of a segment that may have due records, and returns its size in bytes.
    func readDue(of segment: Segment) -> Int {
        guard segment.isProbed else {
            probe(segment)
            return Self.probeByteCount
        }
        let before = segment.loadedFrom
        if !readPiece(of: segment, Self.pieceByteCount) { index(segment) }
        segment.settleEarliest()
        return Int(clamping: before - segment.loadedFrom)
    }

    // MARK: - After damage

    /// Reads the unknown part of a segment from its beginning. Records that do not open are reported once and skipped.
    func index(_ segment: Segment) {
        guard !segment.isIndexed else { return }
        let row = segment.row
        defer {
            segment.settleEarliest()
            deadlines.announce(segment)
        }
        let path = services.inboxPath(segment.file.path)
        let isPrefix = segment.records.count > 0
        let task = isPrefix ? nil : services.commits.backlog(of: segment.file.place)
        var bytes: [UInt8]
        do throws(StoreError) {
            do throws(StoreError) {
                bytes = try read(segment.file, path, upTo: isPrefix ? segment.loadedFrom : nil)
            } catch .io(_, _, ENOENT) where task?.sidecar != nil { bytes = [] }
            if let task { bytes = task.applied(to: bytes) }
        } catch {
            services.report("\(path): \(error)")
            guard case .io(_, _, let code) = error, [ENOENT, ELOOP, EFBIG].contains(code) else {
                // The disk failed, perhaps temporarily.
                segment.isRefused = true
                row.refused(segment: segment.file.number)
                return refused.note(row)
            }
            segment.isProbed = true
            segment.loadedFrom = 0
            segment.file.isClosed = true
            row.noteRead(segment: segment.file.number)
            return row.lackSegment()
        }
        row.noteRead(segment: segment.file.number)
        segment.isRefused = false
        var found: [(number: UInt32, span: RecordFile.Span, found: FoundRecord)] = []
        let result: RecordFrames.Loaded
        if isPrefix {
            result = segment.file.frames.scan(bytes, from: 0) { found.append(($0, $1, $2)) }.0
        } else {
            segment.loadedFrom = Int64(bytes.count)
            result = segment.file.load(bytes, from: 0) { found.append(($0, $1, $2)) }
            if let task {
                segment.file.restore(bytes, from: task.offset, isPlaced: task.isPlaced)
                services.commits.restored(segment.file)
            }
        }
        enter(found, in: segment, from: 0)
        segment.isProbed = true
        row.expect(segment.bounds)
        if !result.isSound { services.report("\(path) is damaged; what can be opened is served") }
        if !result.isWhole {
            services.report("\(path): its end makes no record: a write that was interrupted, or damage")
        }
        if !result.isSound || !result.isWhole { segment.file.isClosed = true }
    }

    private func read(_ file: RecordFile, _ path: String, upTo limit: Int64?) throws(StoreError) -> [UInt8] {
        let descriptor = try services.openFiles.descriptor(of: file)
        return try onDisk(path) { () throws(SystemError) in
            var count = limit ?? 0
            if limit == nil { count = try services.disk.status(descriptor).byteCount }
            guard count <= Int64(RecordFile.maximumByteCount) else { throw SystemError("read", EFBIG) }
            return try services.disk.read(descriptor, at: 0, count: Int(count))
        }
    }
}
