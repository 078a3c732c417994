import Crypto
import Glibc

/// Indexes segments and their records lazily, at the first use of an inbox.
final class InboxIndex {
    private static let retryLimit = 128

    private let services: StoreServices
    private let pages: KeyPages
    private let grid: Grid
    private let segments: SegmentTable
    private let refused: RefusedRows
    private let olderVersions: OlderVersions
    private let reader: SegmentReader
    private let resting: RestingRows
    private let recovery: InboxRecovery

    init(
        _ services: StoreServices, pages: KeyPages, grid: Grid, segments: SegmentTable, refused: RefusedRows,
        olderVersions: OlderVersions, reader: SegmentReader, resting: RestingRows, recovery: InboxRecovery
    ) {
        self.services = services
        self.pages = pages
        self.grid = grid
        self.segments = segments
        self.refused = refused
        self.olderVersions = olderVersions
        self.reader = reader
        self.resting = resting
        self.recovery = recovery
    }

    /// Indexes the newest messages of a row: reads its sidecars and the tail of each segment.
    func index(_ row: Row) throws(StoreError) {
        services.commits.absorb()
        row.isAsleep = false
        readAgain(row)
        guard !row.isProbed else { return }
        if services.isLocked { throw .locked }
        try scan(row)
        probeSegments(of: row)
    }

    private func probeSegments(of row: Row) {
        for segment in row.orderedSegments where !segment.isProbed && !row.refusedSegments.contains(segment.file.number)
        { reader.probe(segment) }
        row.isProbed = true
        olderVersions.eraseLeftBehind(row)
    }

    /// Retries the refused reads of a row, unless its retry pause is still running.
    private func readAgain(_ row: Row) {
        guard row.isOpen, let refusal = row.refusal, refusal.end(at: services.latestHide) <= services.latestHide else {
            return
        }
        row.refusal?.goOn(at: services.latestHide)
        let isInUse = row.isProbed
        if !row.refusedSidecars.isEmpty, let directory = try? services.directories.open(row.directory) {
            defer { services.disk.close(directory) }
            for stem in row.refusedSidecars.sorted() { find(stem + ".seg", stem, row, directory) }
        }
        for number in row.refusedSegments.sorted() {
            guard let segment = row.segments[number] else { continue }
            if segment.isProbed { reader.index(segment) } else { reader.probe(segment) }
        }
        if isInUse { probeSegments(of: row) }
        guard !row.isRefused else { return }
        row.refusal = nil
        row.erasedMeanwhile = []
        refused.remove(row)
    }

    /// Due records are destroyed at their time, or as soon as the disk reads them. Expired segments are removed.
    func readRefusedRows() { for row in refused.due.prefix(Self.retryLimit) { readAgain(row) } }

    /// Reads a row's sidecars. A segment with a missing, foreign or altered sidecar is overwritten and removed.
    func scan(_ row: Row) throws(StoreError) {
        if case .resting = row.contents { resting.open(row) }
        guard !row.isOpen else { return }
        try recovery.settle(row)
        // Includes segments that exist only in the journal.
        let unwritten = services.commits.backlog.lazy.map(\.place).filter {
            $0.kind == .segment && $0.directory == row.names.directory.name
        }.map(\.fileName)
        let directory: FileDescriptor?
        do throws(SystemError) { directory = try services.directories.open(row.directory) } catch {
            guard error.code == ENOENT else { throw StoreError(error, path: row.directory) }
            directory = nil
        }
        defer { if let directory { services.disk.close(directory) } }
        var names: [String] = []
        if let directory {
            names = try onDisk(row.directory) { () throws(SystemError) in try services.disk.list(directory) }
        }
        let present = Set(names).union(unwritten)
        names += present.subtracting(names).sorted()
        row.contents = .open
        for name in names {
            let stem = String(name.prefix { $0 != "." })
            if name.hasSuffix(".seg") {
                find(name, stem, row, directory)
            } else if name.hasSuffix(".expiry"), present.contains(stem + ".seg") {
                continue
            } else if name != row.logName, let directory {
                // A sidecar without a segment, or a log whose rewrite was interrupted.
                try? services.disk.remove(name, in: directory, isDirectory: false)
            }
        }
    }

    /// - Parameter directory: `nil` when it does not exist and the segment is only in the journal.
    private func find(_ name: String, _ stem: String, _ row: Row, _ directory: FileDescriptor?) {
        let path = services.inboxPath("\(row.directory)/\(name)")
        let segmentID = Hex.decode(stem).flatMap { $0.count == 16 ? $0 : nil }
        let unwritten = segmentID.flatMap { Bytes16($0) }.flatMap { id in
            services.commits.backlog(of: FilePlace(kind: .segment, directory: row.names.directory.name, file: id))?
                .sidecar
        }
        var bytes = unwritten ?? []
        do throws(SystemError) {
            if unwritten == nil, let directory {
                let file = try services.disk.open(stem + ".expiry", in: directory, [])
                defer { services.disk.close(file) }
                bytes = try services.disk.read(file, at: 0, count: ExpirySidecar.byteCount + 1)
            }
        } catch {
            if error.code != ENOENT && error.code != ELOOP {
                // The disk failed, perhaps temporarily: do not serve the segment, and do not remove it.
                services.report("\(path): its sidecar cannot be read")
                row.refused(sidecar: stem)
                return refused.note(row)
            }
        }
        row.noteRead(sidecar: stem)
        if ExpirySidecar.isNewer(bytes) {
            services.report("\(StoreError.newerFormat(path: path)): its messages are not served")
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
            let isDue = sidecar.notAfter <= services.latestHide
            if !isDue, !pages.columns.isComplete { return row.lackSegment() }
            if !isDue { services.report("\(path): its key page is gone, so it has expired") }
            guard !pages.columns.isComplete || pages.hasDoomed else {
                // No key opens the segment any more: remove it unread.
                return services.directories.discard(segment: stem, of: row.directory)
            }
            dispose(stem, in: directory)
            return
        }
        segments.enter(segments.make(row: row, column: column, sidecar: sidecar))
    }

    /// Best effort: overwrites and removes a segment that counts as expired. Its keys are missing or must not be used.
    private func dispose(_ stem: String, in directory: FileDescriptor?, reporting: String? = nil) {
        guard let directory, !services.isReadOnly else { return }
        let name = stem + ".seg"
        if let file = try? services.disk.open(name, in: directory, .write) {
            let count = (try? services.disk.status(file).byteCount) ?? 0
            if count > 0, let reporting { services.report(reporting) }
            var offset: Int64 = 0
            while offset < count {
                let length = Int(min(count - offset, 1 << 20))
                guard (try? services.disk.write(file, at: offset, [UInt8](repeating: 0, count: length))) != nil else {
                    break
                }
                offset += Int64(length)
            }
            if count > 0 { try? services.disk.synchronize(file, dataOnly: true) }
            services.disk.close(file)
        } else if let reporting {
            services.report(reporting)
        }
        try? services.disk.remove(name, in: directory, isDirectory: false)
        try? services.disk.remove(stem + ".expiry", in: directory, isDirectory: false)
    }

    // MARK: - Messages

    func find(_ id: Bytes16, in row: Row) throws(StoreError) -> Row.Place? {
        try index(row)
        while true {
            if let record = row.index[id].flatMap({ row.record(at: $0) }) {
                reader.read(row, downTo: record.order)
                return row.index[id]
            }
            guard reader.readMore(of: row) else { return nil }
        }
    }

    func indexAll(_ row: Row) throws(StoreError) {
        try index(row)
        while reader.readMore(of: row) {}
        olderVersions.eraseLeftBehind(row)
    }
}
