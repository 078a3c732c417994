import Cryptography

/// An append-only file of sealed records. Each record's number is in its associated data, so records cannot be moved,
/// repeated or taken from another file.
///
/// Erasing a record zeroes its sealed part. Frame and trailer stay, so that the neighbouring records can be found (see
/// ``RecordFrames``). Records are sealed into memory. A commit copies them into the journal. A checkpoint writes them
/// into the file and then frees the memory: `written <= durable <= submitted <= end`.
final class RecordFile {
    /// Largest payload in bytes: above the limits of messages and inbox states.
    static let maximumPlaintext = 16 << 20
    /// Most bytes of a file that are read into memory.
    static let maximumByteCount = 128 << 20

    struct Span: Sendable {
        /// Offset of the sealed bytes, after the frame.
        let offset: Int64
        let length: Int
        var end: Int64 { offset + Int64(length) }
    }

    struct Erasure {
        enum Kind {
            case first
            /// Zeroed once the other erasures of the commit are durable.
            case last
            /// A version that moved to another file: not erased if the new version cannot be stored.
            case moved
            /// The record has expired: the reaper reports a failure.
            case due
            /// A retry after a reported failure, with read-back.
            case again
            /// A retry with read-back, once the other erasures of the commit are durable.
            case lastAgain

            var isLast: Bool { self == .last || self == .lastAgain }
            var isAgain: Bool { self == .again || self == .lastAgain }
        }
        let span: Span
        let kind: Kind
    }

    /// Bytes that are only in memory, and perhaps in the journal.
    final class Chunk {
        let offset: Int64
        let buffer: RecordBuffer
        /// A checkpoint under way reads the chunk.
        var isInFlight = false
        var end: Int64 { offset + Int64(buffer.count) }

        init(offset: Int64, buffer: RecordBuffer) {
            self.offset = offset
            self.buffer = buffer
        }
    }

    let number: Int
    let place: FilePlace
    let frames: RecordFrames
    /// Offset of the next record, including bytes in memory.
    private(set) var end: Int64 = 0
    private(set) var nextNumber: UInt32 = 0
    /// No appends: the file is damaged, or its keys are gone.
    var isClosed = false

    /// The file has every byte before this offset.
    private(set) var written: Int64 = 0
    /// Completed commits cover every byte before this offset.
    private(set) var durable: Int64 = 0
    /// Every byte before this offset was submitted to a commit.
    private(set) var submitted: Int64 = 0
    /// The file and its name are durable.
    var isPlaced: Bool
    private(set) var isBeingPlaced = false
    private var chunks: [Chunk] = []
    private var tail: Chunk?
    /// Bytes before this offset may once have been in the journal.
    private(set) var exposed: Int64 = 0
    private(set) var erasures: [Erasure] = []
    /// Some data of the file may be only in the kernel's cache.
    var needsSynchronizing = false
    /// The file is in the group commit's list.
    var isListed = false
    var descriptor: FileDescriptor?
    weak var owner: (any RecordFileOwner)?

    /// - Parameter header: of a new file; `nil` for an existing one.
    init(number: Int, place: FilePlace, associatedData: [UInt8], key: SharedSecret, header: [UInt8]? = nil) {
        self.number = number
        self.place = place
        frames = RecordFrames(associatedData: associatedData, key: key)
        isPlaced = header == nil
        if let header, !header.isEmpty {
            makeTail(reserving: header.count).append(header)
            end = Int64(header.count)
        }
    }

    var path: String { place.path }
    var isDirty: Bool { submitted < end || !erasures.isEmpty || needsSynchronizing }
    var isUnwritten: Bool { written < end }
    var unwrittenPieceCount: Int { chunks.count + (tail == nil ? 0 : 1) }

    /// Stops opening and appending.
    func wipeKey() {
        frames.key.wipe()
        isClosed = true
    }

    /// A record that does not fit begins a new buffer, because growing the old one would copy it.
    private func makeTail(reserving byteCount: Int) -> RecordBuffer {
        var capacity = 4_096
        if let tail {
            if tail.buffer.hasRoom(for: byteCount) { return tail.buffer }
            chunks.append(tail)
            capacity = min(2 * tail.buffer.count, 256 << 10)
        }
        let buffer = RecordBuffer(capacity: max(capacity, byteCount))
        tail = Chunk(offset: end, buffer: buffer)
        return buffer
    }

    /// Seals a header and a payload as one plaintext.
    /// - Parameter writeHeader: writes `headerByteCount` bytes in place, since a block of memory for each message would
    ///   cost as much as its sealing.
    func append(
        _ payload: [UInt8], after headerByteCount: Int = 0, nonces: inout NoncePool,
        _ writeHeader: (UnsafeMutableRawBufferPointer) -> Void = { _ in }
    ) -> Span {
        let length = headerByteCount + payload.count + XChaChaPoly.overheadByteCount
        let whole = RecordFrames.frameByteCount + length + RecordFrames.trailerByteCount
        let target = makeTail(reserving: whole).extend(by: whole)
        frames.seal(payload, after: headerByteCount, number: nextNumber, nonces: &nonces, into: target, writeHeader)
        let span = Span(offset: end + Int64(RecordFrames.frameByteCount), length: length)
        end += Int64(whole)
        nextNumber += 1
        return span
    }

    /// Zeroes a record with the next commit, and at once in memory if no commit took it.
    func erase(_ span: Span, _ kind: Erasure.Kind = .first) {
        if span.offset >= submitted { zero(span) }
        if span.offset < max(exposed, submitted) { erasures.append(Erasure(span: span, kind: kind)) }
    }

    /// Retries a failed erasure.
    /// - Parameter isLast: as in the first attempt: the disk may apply the zeros of one attempt in any order.
    func eraseAgain(_ span: Span, isLast: Bool) {
        erasures.append(Erasure(span: span, kind: isLast ? .lastAgain : .again))
    }

    /// Zeroes the record in memory. No checkpoint under way may read it.
    func zero(_ span: Span) {
        for chunk in chunks + [tail].compactMap({ $0 }) where chunk.offset < span.end && span.offset < chunk.end {
            let from = Int(max(span.offset, chunk.offset) - chunk.offset)
            chunk.buffer.zero(from..<Int(min(span.end, chunk.end) - chunk.offset))
        }
    }

    func takeErasures() -> [Erasure] {
        defer { erasures = [] }
        return erasures
    }

    func takeUnsubmitted(into body: RecordBuffer) {
        for chunk in chunks + [tail].compactMap({ $0 }) where chunk.end > submitted {
            let from = Int(max(submitted, chunk.offset) - chunk.offset)
            body.append(UnsafeRawBufferPointer(rebasing: chunk.buffer.bytes[from...]))
        }
        submitAll()
    }

    /// Counts all bytes as submitted: a checkpoint writes them.
    func submitAll() {
        submitted = end
        exposed = max(exposed, end)
    }

    func committed(upTo offset: Int64) { durable = max(durable, min(offset, end)) }

    /// The next commit submits the undurable bytes again, as the owner left them.
    func commitFailed() { submitted = durable }

    /// The pieces that no checkpoint under way writes. If one of those fails, so does the one that takes these.
    func takeUnwritten() -> [FilePiece] {
        if let tail {
            chunks.append(tail)
            self.tail = nil
        }
        isBeingPlaced = !isPlaced
        return chunks.compactMap { chunk in
            guard !chunk.isInFlight else { return nil }
            chunk.isInFlight = true
            return FilePiece(offset: chunk.offset, buffer: chunk.buffer)
        }
    }

    func checkpointed(upTo offset: Int64) {
        chunks.removeAll { $0.end <= offset }
        written = max(written, offset)
        durable = max(durable, offset)
        isPlaced = true
        isBeingPlaced = false
    }

    /// The next checkpoint writes everything again.
    func checkpointFailed() {
        isBeingPlaced = false
        for chunk in chunks { chunk.isInFlight = false }
    }

    /// Forgets bytes that no checkpoint has taken.
    func discard() {
        chunks = []
        tail = nil
        end = written
        submitted = min(submitted, end)
        durable = min(durable, end)
        erasures = []
        needsSynchronizing = false
    }

    func withUnwritten<Result>(_ span: Span, _ body: (UnsafeRawBufferPointer) -> Result) -> Result? {
        guard span.offset >= written else { return nil }
        func read(_ chunk: Chunk?) -> Result? {
            guard let chunk, span.offset >= chunk.offset, span.end <= chunk.end else { return nil }
            let from = Int(span.offset - chunk.offset)
            return body(UnsafeRawBufferPointer(rebasing: chunk.buffer.bytes[from..<(from + span.length)]))
        }
        if let found = read(tail) { return found }
        for chunk in chunks.reversed() { if let found = read(chunk) { return found } }
        return nil
    }

    /// Finds the records in a file's bytes.
    /// - Postcondition: appends go after the last byte, if the tail is whole.
    func load(
        _ bytes: [UInt8], from start: Int, searchLimit: Int = RecordFrames.searchLimit,
        _ body: (UInt32, Span, FoundRecord) -> Void
    ) -> RecordFrames.Loaded {
        // First, because found records may have to be overwritten.
        rest(at: Int64(bytes.count))
        let (result, next) = frames.scan(bytes, from: start, searchLimit: searchLimit, body)
        nextNumber = next
        return result
    }

    /// After ``load(_:from:searchLimit:_:)``: keeps bytes that only the journal has in memory until the next
    /// checkpoint.
    /// - Parameters:
    ///   - offset: the first byte that the disk may lack.
    ///   - isPlaced: the file has its name on the disk.
    func restore(_ bytes: [UInt8], from offset: Int64, isPlaced: Bool) {
        let buffer = RecordBuffer(capacity: bytes.count)
        buffer.append(Array(bytes[Int(clamping: offset)...]))
        chunks = [Chunk(offset: offset, buffer: buffer)]
        written = offset
        self.isPlaced = isPlaced
    }

    /// Sets the offsets of a file that is wholly on the disk.
    func rest(at byteCount: Int64, nextNumber: UInt32? = nil) {
        end = byteCount
        written = end
        durable = end
        submitted = end
        exposed = end
        chunks = []
        tail = nil
        isPlaced = true
        if let nextNumber { self.nextNumber = nextNumber }
    }
}

/// Sealed bytes on their way to the disk.
///
/// @unchecked Sendable: the commit thread reads a buffer only between its handover and the commit's outcome. Meanwhile
/// the store does not change it.
final class RecordBuffer: @unchecked Sendable {
    private var memory: UnsafeMutableRawBufferPointer
    private(set) var count = 0

    init(capacity: Int = 4_096) { memory = .allocate(byteCount: max(64, capacity), alignment: 16) }

    deinit { memory.deallocate() }

    var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: memory[..<count]) }

    func hasRoom(for byteCount: Int) -> Bool { count + byteCount <= memory.count }

    /// Uninitialised room at the end.
    func extend(by byteCount: Int) -> UnsafeMutableRawBufferPointer {
        if !hasRoom(for: byteCount) {
            let larger = UnsafeMutableRawBufferPointer.allocate(
                byteCount: max(2 * memory.count, count + byteCount), alignment: 16)
            larger.copyMemory(from: bytes)
            memory.deallocate()
            memory = larger
        }
        defer { count += byteCount }
        return UnsafeMutableRawBufferPointer(rebasing: memory[count..<(count + byteCount)])
    }

    func append(_ bytes: UnsafeRawBufferPointer) { extend(by: bytes.count).copyMemory(from: bytes) }

    func append(_ bytes: [UInt8]) { bytes.withUnsafeBytes { append($0) } }

    /// - Precondition: no other thread reads the buffer.
    func zero(_ range: Range<Int>) {
        UnsafeMutableRawBufferPointer(rebasing: memory[range]).initializeMemory(as: UInt8.self, repeating: 0)
    }
}

/// Random nonces, 100 per system call: one call for each would cost as much as the sealing.
struct NoncePool {
    private static let byteCount = 100 * 24
    private var pool = [UInt8](repeating: 0, count: Self.byteCount)
    private var used = Self.byteCount

    /// - Parameter target: at most 2,400 bytes.
    mutating func take(into target: UnsafeMutableRawBufferPointer) {
        if used + target.count > pool.count {
            pool.withUnsafeMutableBytes { fillRandomly($0) }
            used = 0
        }
        pool.withUnsafeBytes { bytes in
            target.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[used..<(used + target.count)]))
        }
        used += target.count
    }
}

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

/// The segment or state log that a record file belongs to.
protocol RecordFileOwner: AnyObject {
    /// The inbox is destroyed, or the bucket has ended.
    var isGone: Bool { get }
    var directory: InboxDirectory { get }
    /// A segment's sidecar, written before its first record.
    var sidecarBytes: [UInt8]? { get }
    /// Set for a log.
    var fileID: [UInt8]? { get }
    /// A commit failed: records that begin in the range may be on the disk, and must not be served.
    func commitFailed(in range: Range<Int64>)
    func committed()
    /// `isErased`: the version that moved to another file is overwritten. Otherwise it stays.
    func moveEnded(_ span: RecordFile.Span, isErased: Bool)
}
