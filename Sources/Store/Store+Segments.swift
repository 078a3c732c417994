import Cryptography
import Glibc

/// Indexes segments and their records lazily, at the first use of an inbox.
extension Store {
    /// Indexes the newest messages of a row: reads its sidecars and the tail of each segment.
    func index(_ row: Row) throws(StoreError) {
        commits.absorb()
        row.isAsleep = false
        readAgain(row)
        guard !row.isProbed else { return }
        if isLocked { throw .locked }
        try scan(row)
        probeSegments(of: row)
    }

    func probeSegments(of row: Row) {
        for segment in row.orderedSegments where !segment.isProbed && !row.refusedSegments.contains(segment.file.number)
        { readTail(segment) }
        row.isProbed = true
        eraseLeftBehind(row)
    }

    /// Reads a row's sidecars. A segment with a missing, foreign or altered sidecar is overwritten and removed.
    func scan(_ row: Row) throws(StoreError) {
        if case .resting = row.contents { wake(row) }
        guard !row.isOpen else { return }
        try settle(row)
        // Includes segments that exist only in the journal.
        let unwritten = commits.backlog.lazy.map(\.place).filter {
            $0.kind == .segment && $0.directory == row.names.directory.name
        }.map(\.fileName)
        let directory: FileDescriptor?
        do throws(SystemError) { directory = try directories.open(row.directory) } catch {
            guard error.code == ENOENT else { throw StoreError(error, path: row.directory) }
            directory = nil
        }
        defer { if let directory { disk.close(directory) } }
        var names: [String] = []
        if let directory { names = try onDisk(row.directory) { () throws(SystemError) in try disk.list(directory) } }
        let present = Set(names).union(unwritten)
        names += present.subtracting(names).sorted()
        row.contents = .open
        for name in names {
            let stem = String(name.prefix { $0 != "." })
            if name.hasSuffix(".seg") {
                findSegment(name, stem, row, directory)
            } else if name.hasSuffix(".expiry"), present.contains(stem + ".seg") {
                continue
            } else if name != row.logName, let directory {
                // A sidecar without a segment, or a log whose rewrite was interrupted.
                try? disk.remove(name, in: directory, isDirectory: false)
            }
        }
    }

    /// - Parameter directory: `nil` when it does not exist and the segment is only in the journal.
    func findSegment(_ name: String, _ stem: String, _ row: Row, _ directory: FileDescriptor?) {
        let path = inboxPath("\(row.directory)/\(name)")
        let segmentID = Hex.decode(stem).flatMap { $0.count == 16 ? $0 : nil }
        let unwritten = segmentID.flatMap { Bytes16($0) }.flatMap { id in
            commits.backlog(of: FilePlace(kind: .segment, directory: row.names.directory.name, file: id))?.sidecar
        }
        var bytes = unwritten ?? []
        do throws(SystemError) {
            if unwritten == nil, let directory {
                let file = try disk.open(stem + ".expiry", in: directory, [])
                defer { disk.close(file) }
                bytes = try disk.read(file, at: 0, count: ExpirySidecar.byteCount + 1)
            }
        } catch {
            if error.code != ENOENT && error.code != ELOOP {
                // The disk failed, perhaps temporarily: do not serve the segment, and do not remove it.
                report("\(path): its sidecar cannot be read")
                row.refused(sidecar: stem)
                return noteRefused(row)
            }
        }
        row.noteRead(sidecar: stem)
        if ExpirySidecar.magic.isLater(bytes) {
            report("\(StoreError.newerFormat(path: path)): its messages are not served")
            return row.lackSegment()
        }
        guard let segmentID,
            let sidecar = ExpirySidecar(
                bytes, segmentID: segmentID, inboxTag: row.names.tag, key: row.names.sidecarKey.bytes)
        else {
            dispose(
                stem, in: directory, reporting: "\(path): its sidecar is missing or damaged, so it counts as expired")
            return
        }
        guard let column = grid.columnOfTag[sidecar.columnTag], column.header.tier == sidecar.tier,
            column.header.bucket == sidecar.bucket, column.header.notAfter == sidecar.notAfter
        else {
            // Normal when the bucket has ended and only the unlink was missed.
            let isDue = sidecar.notAfter <= latestHide
            if !isDue, !pages.columns.isComplete { return row.lackSegment() }
            if !isDue { report("\(path): its key page is gone, so it has expired") }
            guard !pages.columns.isComplete || pages.hasDoomed else {
                // No key opens the segment any more: remove it unread.
                return directories.discard(segment: stem, of: row.directory)
            }
            dispose(stem, in: directory)
            return
        }
        enter(makeSegment(row: row, column: column, sidecar: sidecar))
    }

    /// Best effort: overwrites and removes a segment that counts as expired. Its keys are missing or must not be used.
    private func dispose(_ stem: String, in directory: FileDescriptor?, reporting: String? = nil) {
        guard let directory, !isReadOnly else { return }
        let name = stem + ".seg"
        if let file = try? disk.open(name, in: directory, .write) {
            let count = (try? disk.status(file).byteCount) ?? 0
            if count > 0, let reporting { report(reporting) }
            var offset: Int64 = 0
            while offset < count {
                let length = Int(min(count - offset, 1 << 20))
                guard (try? disk.write(file, at: offset, [UInt8](repeating: 0, count: length))) != nil else { break }
                offset += Int64(length)
            }
            if count > 0 { try? disk.synchronize(file, dataOnly: true) }
            disk.close(file)
        } else if let reporting {
            report(reporting)
        }
        try? disk.remove(name, in: directory, isDirectory: false)
        try? disk.remove(stem + ".expiry", in: directory, isDirectory: false)
    }

    // MARK: - Messages

    func find(_ id: Bytes16, in row: Row) throws(StoreError) -> Row.Place? {
        try index(row)
        while true {
            if let record = row.index[id].flatMap({ row.record(at: $0) }) {
                read(row, downTo: record.order)
                return row.index[id]
            }
            guard readMore(of: row) else { return nil }
        }
    }

    func indexAll(_ row: Row) throws(StoreError) {
        try index(row)
        while readMore(of: row) {}
        eraseLeftBehind(row)
    }

    // MARK: - Segments

    func makeSegment(row: Row, column: Column, sidecar: ExpirySidecar, isNew: Bool = false) -> Segment {
        let file = RecordFile(
            number: takeFileNumber(),
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

    func segment(for row: Row, _ tier: Tier, expiresAt: Int64) throws(StoreError) -> Segment {
        if let last = row.lastAppended, last.sidecar.tier == tier, last.acceptsAppends,
            tier.bucket(expiresAt: expiresAt) == last.sidecar.bucket, !isReadOnly
        {
            return last
        }
        return try segment(for: row, in: column(tier, expiresAt: expiresAt))
    }

    /// Makes a segment if none takes appends. The first checkpoint with its data creates the file.
    func segment(for row: Row, in column: Column) throws(StoreError) -> Segment {
        if isReadOnly { throw .readOnly(path: home.path) }
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
        let segment = makeSegment(row: row, column: column, sidecar: sidecar, isNew: true)
        segment.isProbed = true
        segment.earliest = .max
        enter(segment)
        row.appending[column.slot] = segment
        row.lastAppended = segment
        return segment
    }

    /// Zeroes a record with the next commit.
    func overwrite(_ segment: Segment, _ position: Int, _ kind: RecordFile.Erasure.Kind = .first) {
        let record = segment.records[position]
        guard record.state != .erased else { return }
        segment.records[position].state = .erased
        segment.file.erase(record.span, kind)
        commits.note(segment.file)
    }

    /// Drops a segment and its keys. The file stays for later removal.
    func drop(_ segment: Segment) {
        guard !segment.isDead else { return }
        segment.isDead = true
        discard(segment.file)
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
        discard(segment.file)
    }

    // MARK: - Reading from the end

    // All versions of a message share one order, and every record stores the highest earlier order of its segment. So
    // once each segment is read down to an order, all records with that order or a higher one are known.

    /// Bytes of the first read: the last messages.
    private static let probeByteCount = 2 << 10
    /// Bytes of the second read: about a hundred messages.
    private static let firstByteCount = 32 << 10
    /// Most bytes of one read.
    private static let pieceByteCount = 1 << 20

    func readTail(_ segment: Segment) {
        guard !segment.isProbed else { return }
        // The file's tail is only in the journal.
        if commits.backlog(of: segment.file.place) != nil { return readWhole(segment) }
        let size: Int64
        do throws(StoreError) {
            let descriptor = try openFiles.descriptor(of: segment.file)
            size = try onDisk(segment.file.path) { () throws(SystemError) in try disk.status(descriptor).byteCount }
        } catch { return readWhole(segment) }
        guard size > 0, size <= Int64(RecordFile.maximumByteCount) else { return readWhole(segment) }
        segment.file.rest(at: size)
        segment.loadedFrom = size
        var byteCount = Self.probeByteCount
        // Erased records have no bounds.
        while segment.loadedFrom > 0, !segment.records.indices.contains(where: { segment.records[$0].state != .erased })
        {
            guard readPiece(of: segment, byteCount) else { return readWhole(segment) }
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
            guard let descriptor = try? openFiles.descriptor(of: file),
                let bytes = try? disk.read(descriptor, at: from, count: count), bytes.count == count,
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
            overwrite(segment, position)
            hasLeftBehind = true
            return
        }
        segment.row.insert(segment, position)
        segment.noteExpiry(of: position)
    }

    /// Reads every segment down to an order: all versions with that order or a higher one are known then.
    func read(_ row: Row, downTo order: UInt64) {
        for segment in row.orderedSegments where segment.isProbed && !segment.isRefused {
            var byteCount = Self.firstByteCount
            while segment.loadedFrom > 0, segment.prefix.ceiling > order {
                guard readPiece(of: segment, byteCount) else {
                    readWhole(segment)
                    break
                }
                byteCount = min(2 * byteCount, Self.pieceByteCount)
            }
        }
        eraseLeftBehind(row)
    }

    /// Reads a piece of each segment that is not wholly known; false when there is none.
    func readMore(of row: Row) -> Bool {
        var hasMore = false
        for segment in row.orderedSegments where segment.isProbed && segment.loadedFrom > 0 && !segment.isRefused {
            let before = segment.loadedFrom
            if !readPiece(of: segment, Self.pieceByteCount) { readWhole(segment) }
            if segment.loadedFrom < before { hasMore = true }
        }
        return hasMore
    }

    /// Reads a piece of a segment that may have due records, and returns its size in bytes.
    func readDue(of segment: Segment) -> Int {
        guard segment.isProbed else {
            readTail(segment)
            return Self.probeByteCount
        }
        let before = segment.loadedFrom
        if !readPiece(of: segment, Self.pieceByteCount) { readWhole(segment) }
        segment.settleEarliest()
        return Int(clamping: before - segment.loadedFrom)
    }

    /// Reads the unknown part of a segment from its beginning. Records that do not open are reported once and skipped.
    func readWhole(_ segment: Segment) {
        guard !segment.isIndexed else { return }
        let row = segment.row
        defer {
            segment.settleEarliest()
            deadlines.announce(segment)
        }
        let path = inboxPath(segment.file.path)
        let isPrefix = segment.records.count > 0
        let task = isPrefix ? nil : commits.backlog(of: segment.file.place)
        var bytes: [UInt8]
        do throws(StoreError) {
            do throws(StoreError) {
                bytes = try readBytes(segment.file, path, upTo: isPrefix ? segment.loadedFrom : nil)
            } catch .io(_, _, ENOENT) where task?.sidecar != nil { bytes = [] }
            if let task { bytes = task.applied(to: bytes) }
        } catch {
            report("\(path): \(error)")
            guard case .io(_, _, let code) = error, [ENOENT, ELOOP, EFBIG].contains(code) else {
                // The disk failed, perhaps temporarily.
                segment.isRefused = true
                row.refused(segment: segment.file.number)
                return noteRefused(row)
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
                commits.restored(segment.file)
            }
        }
        enter(found, in: segment, from: 0)
        segment.isProbed = true
        row.expect(segment.bounds)
        if !result.isSound { report("\(path) is damaged; what can be opened is served") }
        if !result.isWhole { report("\(path): its end makes no record: a write that was interrupted, or damage") }
        if !result.isSound || !result.isWhole { segment.file.isClosed = true }
    }

    private func readBytes(_ file: RecordFile, _ path: String, upTo limit: Int64?) throws(StoreError) -> [UInt8] {
        let descriptor = try openFiles.descriptor(of: file)
        return try onDisk(path) { () throws(SystemError) in
            var count = limit ?? 0
            if limit == nil { count = try disk.status(descriptor).byteCount }
            guard count <= Int64(RecordFile.maximumByteCount) else { throw SystemError("read", EFBIG) }
            return try disk.read(descriptor, at: 0, count: Int(count))
        }
    }

    // MARK: - Older versions

    /// Overwrites every superseded version with another expiry, once the live one is durable.
    func eraseOlder(_ id: Bytes16, in holders: [Segment]) {
        guard let row = holders.first?.row, let live = row.index[id].flatMap({ row.record(at: $0) }) else { return }
        for holder in holders {
            for position in holder.records.indices {
                let record = holder.records[position]
                guard record.isVersion(of: id), record.state == .superseded, record.expiresAt != live.expiresAt else {
                    continue
                }
                holder.records[position].state = .moving
                holder.file.erase(record.span, .moved)
                commits.note(holder.file)
            }
        }
    }

    /// Completes interrupted moves: makes the newer version durable and overwrites the older one.
    func eraseLeftBehind(_ row: Row) {
        guard !row.halfMoved.isEmpty, !isReadOnly else { return }
        for id in row.halfMoved.sorted(by: { $0.bytes.lexicographicallyPrecedes($1.bytes) }) {
            guard let place = row.index[id], let segment = row.segments[Int(place.file)] else { continue }
            segment.file.needsSynchronizing = true
            commits.note(segment.file)
            eraseOlder(id, in: row.orderedSegments)
        }
        row.halfMoved = []
        hasLeftBehind = true
    }
}
