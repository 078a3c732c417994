import Cryptography

struct JournalEntry: Equatable, Sendable {
    let place: FilePlace
    /// Set for a segment whose sidecar may not be on the disk.
    let sidecar: [UInt8]?
    /// Set for a log.
    let fileID: [UInt8]?
    let offset: Int64
    let byteCount: Int

    private enum Form: UInt8 {
        case segment = 1
        case segmentWithSidecar = 2
        case log = 3
    }

    func encode(to table: inout [UInt8]) {
        let form: Form = place.kind == .log ? .log : sidecar == nil ? .segment : .segmentWithSidecar
        table.append(form.rawValue)
        place.directory.append(to: &table)
        place.file.append(to: &table)
        table += offset.littleEndianBytes
        table += UInt32(clamping: byteCount).littleEndianBytes
        table += sidecar ?? fileID ?? []
    }

    /// All entries of a table; `nil` if it is malformed.
    static func decode(_ table: [UInt8]) -> [JournalEntry]? {
        var entries: [JournalEntry] = []
        var position = 0
        func take(_ count: Int) -> ArraySlice<UInt8>? {
            guard count <= table.count - position else { return nil }
            defer { position += count }
            return table[position..<(position + count)]
        }
        while position < table.count {
            guard let form = take(1)?.first.flatMap(Form.init), let directory = take(16).flatMap({ Bytes16($0) }),
                let file = take(16).flatMap({ Bytes16($0) }), let offset = take(8)?.integer(Int64.self, at: 0),
                let byteCount = take(4)?.integer(UInt32.self, at: 0), offset >= 0,
                offset <= Int64(RecordFile.maximumByteCount), Int(byteCount) <= RecordFile.maximumByteCount
            else { return nil }
            var (sidecar, fileID): ([UInt8]?, [UInt8]?) = (nil, nil)
            switch form {
            case .segment: break
            case .segmentWithSidecar:
                guard let bytes = take(ExpirySidecar.byteCount) else { return nil }
                sidecar = Array(bytes)
            case .log:
                guard let bytes = take(16) else { return nil }
                fileID = Array(bytes)
            }
            entries.append(
                JournalEntry(
                    place: FilePlace(kind: form == .log ? .log : .segment, directory: directory, file: file),
                    sidecar: sidecar, fileID: fileID, offset: offset, byteCount: Int(byteCount)))
        }
        return entries
    }
}

/// One commit, or several written together.
///
///     magic (8) ‖ page (8) ‖ sequence (8) ‖ previous (8) ‖ first (8) ‖ bytes of bodies (4) ‖ bytes of the table (4)
///     ‖ bodies ‖ table, sealed by KJ, AAD = everything before ‖ zeros up to the next page
///
/// The bodies are bytes of record files, sealed under the files' own keys; the journal's key does not open them.
struct JournalBlock {
    static let pageByteCount = 4_096
    static let headerByteCount = 48
    static let magic = Magic("MFJRNL1")

    /// The file page at which the block begins. A moved block does not open.
    let page: Int
    let sequence: UInt64
    /// The last block durable when this one was written. Numbers in between belong to failed writes.
    let previous: UInt64
    /// Blocks before this number are invalid.
    let first: UInt64
    let entries: [JournalEntry]
    let bodies: [UInt8]
    let pageCount: Int

    /// A marker says that the blocks before it are in the record files.
    var isMarker: Bool { entries.isEmpty }

    static func pageCount(byteCount: Int) -> Int { (byteCount + pageByteCount - 1) / pageByteCount }

    static func pageCount(of batches: [JournalBatch]) -> Int {
        let byteCount = batches.reduce(headerByteCount) { $0 + $1.bodies.count + $1.table.count }
        return pageCount(byteCount: byteCount + XChaChaPoly.overheadByteCount)
    }

    static func encode(
        page: Int, sequence: UInt64, previous: UInt64, first: UInt64, batches: [JournalBatch], key: JournalKey
    ) -> RecordBuffer {
        let bodyCount = batches.reduce(0) { $0 + $1.bodies.count }
        let tableCount = batches.reduce(0) { $0 + $1.table.count } + XChaChaPoly.overheadByteCount
        let pageCount = pageCount(of: batches)
        let block = RecordBuffer(capacity: pageCount * pageByteCount)
        var header =
            magic.bytes + UInt64(page).littleEndianBytes + sequence.littleEndianBytes + previous.littleEndianBytes
        header += first.littleEndianBytes
        header += UInt32(bodyCount).littleEndianBytes + UInt32(tableCount).littleEndianBytes
        block.append(header)
        for batch in batches { block.append(batch.bodies.bytes) }
        let covered = block.count
        let sealed = block.extend(by: tableCount)
        fillRandomly(UnsafeMutableRawBufferPointer(rebasing: sealed[..<XChaChaPoly.nonceByteCount]))
        var position = XChaChaPoly.nonceByteCount
        for batch in batches {
            UnsafeMutableRawBufferPointer(rebasing: sealed[position...]).copyBytes(from: batch.table)
            position += batch.table.count
        }
        let data = UnsafeRawBufferPointer(rebasing: block.bytes[..<covered])
        XChaChaPoly.seal(inPlace: sealed, key: key.bytes, authenticating: data)
        _ = block.extend(by: pageCount * pageByteCount - block.count).initializeMemory(as: UInt8.self, repeating: 0)
        return block
    }

    /// Pages of the block that begins at `start`, as its header says; `nil` without a header.
    static func pageCount(_ journal: [UInt8], at start: Int) -> Int? {
        guard magic.begins(journal[start...]), let bodyCount = journal.integer(UInt32.self, at: start + 40),
            let tableCount = journal.integer(UInt32.self, at: start + 44)
        else { return nil }
        return pageCount(byteCount: headerByteCount + Int(bodyCount) + Int(tableCount))
    }

    /// Decodes the block at `start`, which is `page` of the file; `nil` unless it is whole and authentic.
    init?(_ journal: [UInt8], at start: Int = 0, page: Int, key: JournalKey) {
        guard start >= 0, start <= journal.count - Self.pageByteCount, Self.magic.begins(journal[start...]),
            journal.integer(UInt64.self, at: start + 8) == UInt64(page),
            let sequence = journal.integer(UInt64.self, at: start + 16),
            let previous = journal.integer(UInt64.self, at: start + 24),
            let first = journal.integer(UInt64.self, at: start + 32),
            let bodyCount = journal.integer(UInt32.self, at: start + 40),
            let tableCount = journal.integer(UInt32.self, at: start + 44)
        else { return nil }
        let covered = start + Self.headerByteCount + Int(bodyCount)
        let end = covered + Int(tableCount)
        // Both counts are bounded by the file's size, so these sums do not overflow.
        guard end <= journal.count, sequence < .max else { return nil }
        let opened = journal.withUnsafeBytes { bytes in
            try? XChaChaPoly.open(
                UnsafeRawBufferPointer(rebasing: bytes[covered..<end]), key: key.bytes,
                authenticating: UnsafeRawBufferPointer(rebasing: bytes[start..<covered]))
        }
        guard let opened, let entries = JournalEntry.decode(opened),
            entries.reduce(0, { $0 + $1.byteCount }) == Int(bodyCount)
        else { return nil }
        (self.page, self.sequence, self.previous, self.first, self.entries) = (page, sequence, previous, first, entries)
        bodies = Array(journal[(start + Self.headerByteCount)..<covered])
        pageCount = Self.pageCount(byteCount: end - start)
    }
}

struct JournalBatch: Sendable {
    var table: [UInt8] = []
    let bodies: RecordBuffer
    var isEmpty: Bool { table.isEmpty }
    var pageCount: Int { isEmpty ? 0 : JournalBlock.pageCount(of: [self]) }

    /// - Parameter byteCount: the bytes of all bodies.
    init(byteCount: Int) { bodies = RecordBuffer(capacity: byteCount) }

    mutating func add(_ entry: JournalEntry) { entry.encode(to: &table) }
}
