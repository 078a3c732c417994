import Crypto
import Glibc
import HeapModule

/// Finding segments on the disk and their records: lazily, at the first use of an inbox.
extension Store {
    /// Makes the newest messages of a row known: reads its sidecars, and of each segment the end.
    func index(_ row: Row) throws(StoreError) {
        commits.absorb()
        row.isAsleep = false
        readAgain(row)
        guard !row.isProbed else { return }
        if isLocked { throw .locked }
        try scan(row)
        probeSegments(of: row)
    }

    private func probeSegments(of row: Row) {
        for segment in row.orderedSegments
        where !segment.isProbed && !row.refusedSegments.contains(segment.file.number) { probe(segment) }
        row.isProbed = true
        eraseLeftBehind(row)
    }

    /// Tries again what the disk has refused to read of a row, unless it was asked a moment ago.
    private func readAgain(_ row: Row) {
        guard row.isOpen, let refusal = row.refusal, refusal.end(at: latestHide) <= latestHide else { return }
        row.refusal?.goOn(at: latestHide)
        let isInUse = row.isProbed
        if !row.refusedSidecars.isEmpty, let directory = try? directories.open(row.directory) {
            defer { disk.close(directory) }
            for stem in row.refusedSidecars.sorted() { find(stem + ".seg", stem, row, directory) }
        }
        for number in row.refusedSegments.sorted() {
            guard let segment = row.segments[number] else { continue }
            if segment.isProbed { index(segment) } else { probe(segment) }
        }
        if isInUse { probeSegments(of: row) }
        guard !row.isRefused else { return }
        row.refusal = nil
        row.erasedMeanwhile = []
        refusedRows.removeAll { $0 === row }
    }

    /// What is due in them is destroyed at its time, or as soon as the disk reads it; and what has ended is removed.
    func readRefusedRows() {
        let due = refusedRows.filter { $0.refusal.map { $0.end(at: latestHide) <= latestHide } ?? false }
        for row in due.prefix(Self.scanLimit) { readAgain(row) }
    }

    func noteRefusal(_ row: Row) {
        guard row.refusal == nil else { return }
        row.refusal = Row.Refusal(at: latestHide)
        refusedRows.append(row)
    }

    /// Reads the sidecars of a row. What has none, a foreign one or a changed one counts as expired: it is overwritten
    /// and removed.
    func scan(_ row: Row) throws(StoreError) {
        if case .resting = row.contents { open(row) }
        guard !row.isOpen else { return }
        try settle(row)
        let directory: FileDescriptor
        do throws(SystemError) {
            directory = try directories.open(row.directory)
        } catch {
            if error.code == ENOENT {
                row.contents = .open
                return
            }
            throw StoreError(error, path: row.directory)
        }
        defer { disk.close(directory) }
        let names = try onDisk(row.directory) { () throws(SystemError) in try disk.list(directory) }
        row.contents = .open
        let present = Set(names)
        for name in names {
            let stem = String(name.prefix { $0 != "." })
            if name.hasSuffix(".seg") {
                find(name, stem, row, directory)
            } else if name.hasSuffix(".expiry"), present.contains(stem + ".seg") {
                continue
            } else if name != row.logName {
                // A sidecar whose segment is gone, or a log that was being rewritten.
                try? disk.remove(name, in: directory, isDirectory: false)
            }
        }
    }

    private func find(_ name: String, _ stem: String, _ row: Row, _ directory: FileDescriptor) {
        let path = "\(home.path(Self.inboxesName))/\(row.directory)/\(name)"
        var bytes: [UInt8] = []
        do throws(SystemError) {
            let file = try disk.open(stem + ".expiry", in: directory, [])
            defer { disk.close(file) }
            bytes = try disk.read(file, at: 0, count: ExpirySidecar.byteCount + 1)
        } catch {
            if error.code != ENOENT && error.code != ELOOP {
                // The disk's fault and perhaps a passing one: not served, not removed.
                report("\(path): its sidecar cannot be read")
                row.refused(sidecar: stem)
                return noteRefusal(row)
            }
        }
        row.noteRead(sidecar: stem)
        guard let segmentID = Hex.decode(stem), segmentID.count == 16,
            let sidecar = ExpirySidecar(
                bytes,
                segmentID: segmentID,
                inboxTag: row.names.tag,
                key: row.names.sidecarKey.bytes
            )
        else {
            dispose(stem, in: directory, reporting: "\(path): no valid sidecar, so it counts as expired")
            return
        }
        guard let column = columnOfTag[sidecar.columnTag], column.header.tier == sidecar.tier,
            column.header.bucket == sidecar.bucket, column.header.notAfter == sidecar.notAfter
        else {
            // Normal when the bucket has ended and only the unlinking was missed.
            let isDue = sidecar.notAfter <= latestHide
            if !isDue, !columnsAreComplete { return row.lackSegment() }
            dispose(stem, in: directory, reporting: isDue ? nil : "\(path): its key page is gone, so it has expired")
            return
        }
        enter(makeSegment(row: row, column: column, sidecar: sidecar))
    }

    func makeSegment(row: Row, column: Column, sidecar: ExpirySidecar, isNew: Bool = false) -> Segment {
        let file = RecordFile(
            number: takeFileNumber(),
            place: FilePlace(
                kind: .segment,
                directory: row.names.directory.name,
                file: sidecar.segmentID.withUnsafeBytes { Bytes16(copying: $0) }
            ),
            associatedData: sidecar.encoded,
            key: Segment.key(row: row, column: column, segmentID: sidecar.segmentID),
            header: isNew ? [] : nil
        )
        return Segment(file: file, sidecar: sidecar, column: column, row: row)
    }

    func enter(_ segment: Segment) {
        segments[segment.file.number] = segment
        segment.row.segments[segment.file.number] = segment
        segment.column.segments[segment.file.number] = segment
        if !segment.isProbed { segment.row.isProbed = false }
        announce(segment)
    }

    /// Overwrites and removes a segment that counts as expired, as far as that goes; its keys are not there or not to be
    /// used.
    private func dispose(_ stem: String, in directory: FileDescriptor, reporting: String?) {
        guard !isReadOnly else { return }
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

    func enter(_ record: MessageRecord, in segment: Segment) {
        segment.records.append(record)
        let position = segment.records.indices.upperBound - 1
        segment.row.insert(segment, position)
        segment.noteExpiry(of: position)
    }

    /// A segment of the row for a tier and an expiry that takes appends.
    func segment(for row: Row, _ tier: Tier, expiresAt: Int64) throws(StoreError) -> Segment {
        if let last = row.lastAppended, last.sidecar.tier == tier, last.acceptsAppends,
            tier.bucket(expiresAt: expiresAt) == last.sidecar.bucket, !isReadOnly
        {
            return last
        }
        return try segment(for: row, in: column(tier, expiresAt: expiresAt))
    }

    /// A segment that takes appends, made if there is none. It comes to the disk with the first checkpoint that has
    /// something of it.
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
            segmentID: randomBytes(16),
            column: column,
            inboxTag: row.names.tag,
            key: row.names.sidecarKey.bytes
        )
        let segment = makeSegment(row: row, column: column, sidecar: sidecar, isNew: true)
        segment.isProbed = true
        segment.earliest = .max
        enter(segment)
        row.appending[column.slot] = segment
        row.lastAppended = segment
        return segment
    }
}
