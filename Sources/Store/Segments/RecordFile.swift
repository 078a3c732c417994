import Crypto

/// What a record file holds, as its inbox knows it.
protocol RecordFileOwner: AnyObject {
    /// The inbox is destroyed, or the bucket has ended.
    var isGone: Bool { get }
    var directory: InboxDirectory { get }
    /// Of a segment: what is written before its first record.
    var sidecarBytes: [UInt8]? { get }
    /// Of a log: which one it is.
    var fileID: [UInt8]? { get }
    /// A commit has failed: records that begin in the range may or may not be on the disk, and are not served.
    func commitFailed(in range: Range<Int64>)
    /// A commit has completed.
    func committed()
    /// A version that moved to another file is overwritten, or it stays.
    func moveEnded(_ span: RecordFile.Span, isErased: Bool)
}

/// An append-only file of sealed records, each with its number in the associated data, so that no record can be moved,
/// repeated or taken from another file.
///
/// Erasing a record writes zeros over the sealed part; frame and trailer stay, so that the records after and before it
/// are found (see ``RecordFrames``). Records are sealed into memory. A commit copies them into the journal; a checkpoint
/// writes them into the file, and only then does the memory go: `written <= durable <= submitted <= end`.
final class RecordFile {
    /// Most bytes of one payload: above what a message or an inbox's state may have.
    static let maximumPlaintext = 16 << 20
    /// Most bytes of a file that are ever read into memory.
    static let maximumByteCount = 128 << 20

    struct Span: Sendable {
        /// Of the sealed bytes, after the frame.
        let offset: Int64
        let length: Int
        var end: Int64 { offset + Int64(length) }
    }

    /// Zeros over a record.
    struct Erasure {
        enum Kind {
            case first
            /// Once the others of the same commit are durable.
            case last
            /// Of a version that has moved to another file: not when the new one cannot be stored.
            case moved
            /// The record's time has come: a failure is the reaper's to report.
            case due
            /// An earlier attempt has failed and was told: what is written is read back.
            case again
            /// The same, once the others of the same commit are durable.
            case lastAgain

            var isLast: Bool { self == .last || self == .lastAgain }
            var isAgain: Bool { self == .again || self == .lastAgain }
        }
        let span: Span
        let kind: Kind
    }

    /// Bytes that only memory has, and perhaps the journal.
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

    /// Names the file within this process, for the commit thread.
    let number: Int
    let place: FilePlace
    let frames: RecordFrames
    /// Where the next record goes, counting what is in memory.
    private(set) var end: Int64
    private(set) var nextNumber: UInt32 = 0
    /// No appends any more: the file is damaged, or its keys are gone.
    var isClosed = false

    /// Before this the file has every byte.
    private(set) var written: Int64
    /// Before this a completed commit covers every byte.
    private(set) var durable: Int64
    /// Before this every byte was handed to a commit.
    private(set) var submitted: Int64
    /// The file and its name are durable.
    var isPlaced: Bool
    /// A checkpoint under way makes the file.
    private(set) var isBeingPlaced = false
    /// Complete chunks, and the one that takes appends.
    private var chunks: [Chunk] = []
    private var tail: Chunk?
    /// Before this something may once have been in the journal.
    private(set) var exposed: Int64 = 0
    /// Zeros to be written with the next commit.
    private(set) var erasures: [Erasure] = []
    /// Something of the file may be in the kernel's cache only.
    var needsSynchronizing = false
    /// Whether the list of files with something to commit has it, and the list of those with something to write.
    var isListed = false
    var isUnwrittenListed = false
    /// For reading.
    var descriptor: FileDescriptor?
    weak var owner: (any RecordFileOwner)?

    /// - Parameter header: of a file that is to be made; `nil` for one that is there.
    init(number: Int, place: FilePlace, associatedData: [UInt8], key: SharedSecret, header: [UInt8]? = nil) {
        self.number = number
        self.place = place
        frames = RecordFrames(associatedData: associatedData, key: key)
        end = 0
        written = 0
        durable = 0
        submitted = 0
        isPlaced = header == nil
        if let header, !header.isEmpty {
            makeTail().append(header)
            end = Int64(header.count)
        }
    }

    var path: String { place.path }
    var isDirty: Bool { submitted < end || !erasures.isEmpty || needsSynchronizing }
    var isUnwritten: Bool { written < end }

    /// Nothing can be opened or added from here on.
    func wipeKey() {
        frames.wipeKey()
        isClosed = true
    }

    // MARK: - Appending

    private func makeTail(reserving byteCount: Int = 0) -> RecordBuffer {
        if let tail { return tail.buffer }
        let buffer = RecordBuffer(capacity: max(4_096, byteCount))
        tail = Chunk(offset: end, buffer: buffer)
        return buffer
    }

    /// Seals a record into memory.
    /// - Parameters:
    ///   - byteCount: of the plaintext.
    ///   - write: writes all of the plaintext; it is sealed where it lies.
    func append(byteCount: Int, nonces: inout NoncePool, _ write: (UnsafeMutableRawBufferPointer) -> Void) -> Span {
        let length = byteCount + XChaChaPoly.overheadByteCount
        let whole = RecordFrames.frameByteCount + length + RecordFrames.trailerByteCount
        let target = makeTail(reserving: whole).extend(by: whole)
        frames.seal(byteCount: byteCount, number: nextNumber, nonces: &nonces, into: target, write)
        let span = Span(offset: end + Int64(RecordFrames.frameByteCount), length: length)
        end += Int64(whole)
        nextNumber += 1
        return span
    }

    func append(_ plaintext: [UInt8], nonces: inout NoncePool) -> Span {
        append(byteCount: plaintext.count, nonces: &nonces) { $0.copyBytes(from: plaintext) }
    }

    // MARK: - Erasing

    /// Zeros over a record with the next commit; at once when no commit has ever taken the record.
    func erase(_ span: Span, _ kind: Erasure.Kind = .first) {
        if span.offset >= submitted { zero(span) }
        if span.offset < max(exposed, submitted) { erasures.append(Erasure(span: span, kind: kind)) }
    }

    /// Once more, when an earlier attempt has failed.
    /// - Parameter isLast: it came last then, and does so again: the disk may have the zeros of one attempt in any order.
    func eraseAgain(_ span: Span, isLast: Bool) {
        erasures.append(Erasure(span: span, kind: isLast ? .lastAgain : .again))
    }

    /// Zeros over what memory has of a record.
    /// - Precondition: no checkpoint under way has the record.
    func zero(_ span: Span) {
        for chunk in chunks + [tail].compactMap({ $0 }) where chunk.offset < span.end && span.offset < chunk.end {
            let from = Int(max(span.offset, chunk.offset) - chunk.offset)
            chunk.buffer.zero(from..<Int(min(span.end, chunk.end) - chunk.offset))
        }
    }

    /// Hands the erasures to a commit.
    func takeErasures() -> [Erasure] {
        defer { erasures = [] }
        return erasures
    }

    // MARK: - Commits and checkpoints

    /// Copies what no commit has taken yet.
    func takeUnsubmitted(into body: RecordBuffer) -> Range<Int64> {
        let range = submitted..<end
        exposed = max(exposed, end)
        for chunk in chunks + [tail].compactMap({ $0 }) where chunk.end > submitted {
            let from = Int(max(submitted, chunk.offset) - chunk.offset)
            body.append(UnsafeRawBufferPointer(rebasing: chunk.buffer.bytes[from...]))
        }
        submitted = end
        return range
    }

    /// A checkpoint will write them: they count as submitted.
    func submitAll() {
        submitted = end
        exposed = max(exposed, end)
    }

    /// The commit that covered everything before `offset` has completed.
    func committed(upTo offset: Int64) { durable = max(durable, min(offset, end)) }

    /// The commit has failed: the next one takes what is in doubt again, as its owner has left it.
    func commitFailed() { submitted = durable }

    /// The pieces that no checkpoint under way writes. The checkpoint that takes them fails if one of those fails.
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

    /// A checkpoint that wrote everything before `offset` has completed.
    func checkpointed(upTo offset: Int64) {
        chunks.removeAll { $0.end <= offset }
        written = max(written, offset)
        durable = max(durable, offset)
        isPlaced = true
        isBeingPlaced = false
    }

    /// The checkpoint has failed: the next one writes all of it again.
    func checkpointFailed() {
        isBeingPlaced = false
        for chunk in chunks { chunk.isInFlight = false }
    }

    /// Forgets what no checkpoint has taken.
    func discard() {
        chunks = []
        tail = nil
        end = written
        submitted = min(submitted, end)
        durable = min(durable, end)
        erasures = []
        needsSynchronizing = false
    }

    // MARK: - Reading

    /// The sealed bytes if they are still in memory.
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

    /// Finds the records of a file's bytes.
    /// - Postcondition: appends go after the last byte, if the tail is whole.
    func load(
        _ bytes: [UInt8], from start: Int, searchLimit: Int = RecordFrames.searchLimit,
        _ body: (UInt32, Span, FoundRecord) -> Void
    ) -> RecordFrames.Loaded {
        // First: what is found may have to be overwritten.
        rest(at: Int64(bytes.count))
        let (result, next) = frames.scan(bytes, from: start, searchLimit: searchLimit, body)
        nextNumber = next
        return result
    }

    /// After ``load(_:from:searchLimit:_:)``: bytes that only the journal has stay in memory until the next checkpoint.
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

    /// Everything that the file has is on the disk.
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
