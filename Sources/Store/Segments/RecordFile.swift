import Crypto

/// What a sealed record turned out to be when its file was read.
enum FoundRecord {
    case opened(plaintext: [UInt8])
    /// All zeros: erased in place.
    case erased
    case damaged
}

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
///     length (4) ‖ number (4) ‖ check (8) ‖ nonce (24) ‖ ciphertext ‖ tag (16) ‖ length (4)
///
/// Erasing a record writes zeros over the sealed part; frame and trailer stay, so that the records after and before it
/// are found. Records are sealed into memory. A commit copies them into the journal; a checkpoint writes them into the
/// file, and only then does the memory go: `written <= durable <= submitted <= end`.
final class RecordFile {
    static let frameByteCount = 16
    /// The length once more, so that a file can be read from its end.
    static let trailerByteCount = 4
    /// Most bytes of one payload: above what a message or an inbox's state may have.
    static let maximumPlaintext = 16 << 20
    /// Most bytes of a file that are ever read into memory.
    static let maximumByteCount = 128 << 20

    /// Most places of one file at which a frame is looked for after damage: half a second's work. Chance needs one in 32
    /// bytes, so that is 32 MiB of damage; a file full of what looks like frames holds nobody up.
    static let searchLimit = 1 << 20

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
    /// T: names the file in every frame and every record's associated data.
    private let tag: Bytes16
    private let key: SharedSecret
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
        tag = Self.tag(associatedData)
        self.key = key
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

    static func tag(_ associatedData: [UInt8]) -> Bytes16 {
        let hash = BLAKE2b.hash(Array("mayfly file".utf8), associatedData, byteCount: 16)
        return hash.withUnsafeBytes { Bytes16(copying: $0) }
    }

    var path: String { place.path }
    var isDirty: Bool { submitted < end || !erasures.isEmpty || needsSynchronizing }
    var isUnwritten: Bool { written < end }

    /// Nothing can be opened or added from here on.
    func wipeKey() {
        key.wipe()
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
    func append(
        byteCount: Int,
        nonces: inout NoncePool,
        _ write: (UnsafeMutableRawBufferPointer) -> Void
    ) -> Span {
        let length = byteCount + XChaChaPoly.overheadByteCount
        let whole = Self.frameByteCount + length + Self.trailerByteCount
        let target = makeTail(reserving: whole).extend(by: whole)
        writeFrame(length: UInt32(length), number: nextNumber, into: target)
        let sealed = UnsafeMutableRawBufferPointer(
            rebasing: target[Self.frameByteCount..<(Self.frameByteCount + length)]
        )
        nonces.take(into: UnsafeMutableRawBufferPointer(rebasing: sealed[..<XChaChaPoly.nonceByteCount]))
        write(
            UnsafeMutableRawBufferPointer(
                rebasing: sealed[XChaChaPoly.nonceByteCount..<(length - XChaChaPoly.tagByteCount)]
            )
        )
        withAssociatedData(nextNumber) { XChaChaPoly.seal(inPlace: sealed, key: key.bytes, authenticating: $0) }
        target.storeBytes(
            of: UInt32(length).littleEndian,
            toByteOffset: whole - Self.trailerByteCount,
            as: UInt32.self
        )
        let span = Span(offset: end + Int64(Self.frameByteCount), length: length)
        end += Int64(whole)
        nextNumber += 1
        return span
    }

    func append(_ plaintext: [UInt8], nonces: inout NoncePool) -> Span {
        append(byteCount: plaintext.count, nonces: &nonces) { $0.copyBytes(from: plaintext) }
    }

    private func withAssociatedData<Result, Failure: Error>(
        _ number: UInt32,
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        var data = (tag.first.bigEndian, tag.second.bigEndian, UInt64(number).littleEndian)
        return try withUnsafeBytes(of: &data) { data throws(Failure) in try body(data) }
    }

    private func check(length: UInt32, number: UInt32) -> UInt64 {
        var key = (tag.first.bigEndian, tag.second.bigEndian)
        var head = (length.littleEndian, number.littleEndian)
        return withUnsafeBytes(of: &key) { key in
            withUnsafeBytes(of: &head) { SipHash.hash(key: key, $0) }
        }
    }

    private func writeFrame(length: UInt32, number: UInt32, into target: UnsafeMutableRawBufferPointer) {
        target.storeBytes(of: length.littleEndian, toByteOffset: 0, as: UInt32.self)
        target.storeBytes(of: number.littleEndian, toByteOffset: 4, as: UInt32.self)
        target.storeBytes(of: check(length: length, number: number).littleEndian, toByteOffset: 8, as: UInt64.self)
    }

    // MARK: - Erasing

    /// Zeros over a record with the next commit; at once when no commit has ever taken the record.
    func erase(_ span: Span, _ kind: Erasure.Kind = .first) {
        if span.offset >= submitted { zero(span) }
        if span.offset < max(exposed, submitted) { erasures.append(Erasure(span: span, kind: kind)) }
    }

    /// Once more, when an earlier attempt has failed.
    func eraseAgain(_ span: Span) { erasures.append(Erasure(span: span, kind: .again)) }

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

    /// What a checkpoint has to write.
    /// - Parameter all: also what an earlier one is writing: of a file that is made anew.
    func takeUnwritten(all: Bool) -> [FilePiece] {
        if let tail {
            chunks.append(tail)
            self.tail = nil
        }
        return chunks.compactMap { chunk in
            guard all || !chunk.isInFlight else { return nil }
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
    }

    /// The checkpoint has failed: the next one writes all of it again.
    func checkpointFailed() {
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
        for chunk in chunks.reversed() {
            if let found = read(chunk) { return found }
        }
        return nil
    }

    func open(_ sealed: UnsafeRawBufferPointer, number: UInt32) -> FoundRecord {
        let plaintext = withAssociatedData(number) { data in
            try? XChaChaPoly.open(sealed, key: key.bytes, authenticating: data)
        }
        if let plaintext { return .opened(plaintext: plaintext) }
        return sealed.allSatisfy { $0 == 0 } ? .erased : .damaged
    }

    func open(_ sealed: [UInt8], number: UInt32) -> FoundRecord {
        sealed.withUnsafeBytes { open($0, number: number) }
    }

    /// What a file has that was read.
    struct Loaded {
        /// Every byte made sense, except perhaps a torn tail.
        var isSound = true
        /// The tail made sense too.
        var isWhole = true
    }

    /// Finds the records of a file's bytes.
    /// - Postcondition: appends go after the last byte, if the tail is whole.
    func load(
        _ bytes: [UInt8],
        from start: Int,
        searchLimit: Int = RecordFile.searchLimit,
        _ body: (UInt32, Span, FoundRecord) -> Void
    ) -> Loaded {
        // First: what is found may have to be overwritten.
        rest(at: Int64(bytes.count))
        let (result, next) = scan(bytes, from: start, searchLimit: searchLimit, body)
        nextNumber = next
        return result
    }

    /// The same for the beginning of a file whose end is known.
    /// - Returns: also the number after the last that was found.
    func scan(
        _ bytes: [UInt8],
        from start: Int,
        searchLimit: Int = RecordFile.searchLimit,
        _ body: (UInt32, Span, FoundRecord) -> Void
    ) -> (Loaded, nextNumber: UInt32) {
        bytes.withUnsafeBytes { bytes in
            var result = Loaded()
            var position = start
            var expected: UInt32 = 0
            var searches = 0
            while position < bytes.count, searches < searchLimit {
                guard
                    let found = nextFrame(in: bytes, from: position, atLeast: expected, &searches, limit: searchLimit)
                else { break }
                if found.position != position || found.number != expected { result.isSound = false }
                let from = found.position + Self.frameByteCount
                let sealed = UnsafeRawBufferPointer(rebasing: bytes[from..<(from + found.length)])
                let record = open(sealed, number: found.number)
                if case .damaged = record { result.isSound = false }
                let trailer = bytes.loadUnaligned(fromByteOffset: from + found.length, as: UInt32.self)
                if Int(UInt32(littleEndian: trailer)) != found.length { result.isSound = false }
                body(found.number, Span(offset: Int64(from), length: found.length), record)
                position = from + found.length + Self.trailerByteCount
                expected = found.number &+ 1
            }
            result.isWhole = position == bytes.count
            return (result, expected)
        }
    }

    /// Finds records from the end of a part of the file.
    /// - Parameters:
    ///   - bytes: from `offset` on, to the end of a record.
    ///   - next: the number of the record after them, if that is known.
    /// - Returns: the records that are whole in the part, the last one first, and where the first of them begins; `nil` when
    ///   something is not as the store writes it.
    func walkBack(
        _ bytes: [UInt8],
        offset: Int64,
        next: UInt32?
    ) -> (records: [(number: UInt32, span: Span, found: FoundRecord)], start: Int64)? {
        bytes.withUnsafeBytes { bytes in
            var records: [(number: UInt32, span: Span, found: FoundRecord)] = []
            var expected = next
            var end = bytes.count
            while end > 0 {
                let around = Self.frameByteCount + Self.trailerByteCount
                guard end >= around + XChaChaPoly.overheadByteCount else { break }
                let trailer = bytes.loadUnaligned(fromByteOffset: end - Self.trailerByteCount, as: UInt32.self)
                let length = Int(UInt32(littleEndian: trailer))
                guard length >= XChaChaPoly.overheadByteCount, length <= Self.maximumByteCount else { return nil }
                let start = end - around - length
                if start < 0 { break }
                var searches = 0
                guard let frame = frame(in: bytes, at: start, atLeast: 0, &searches), frame.length == length,
                    expected.map({ $0 > 0 && $0 - 1 == frame.number }) ?? true
                else { return nil }
                let from = start + Self.frameByteCount
                let found = open(UnsafeRawBufferPointer(rebasing: bytes[from..<(from + length)]), number: frame.number)
                if case .damaged = found { return nil }
                records.append((frame.number, Span(offset: offset + Int64(from), length: length), found))
                expected = frame.number
                end = start
            }
            // A file begins with its first record.
            if offset == 0, end != 0 || records.last.map({ $0.number != 0 }) ?? true { return nil }
            return (records, offset + Int64(end))
        }
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

    /// The next frame at or after `position`: after damage the reader looks for one that fits.
    private func nextFrame(
        in bytes: UnsafeRawBufferPointer,
        from position: Int,
        atLeast expected: UInt32,
        _ searches: inout Int,
        limit: Int
    ) -> (position: Int, number: UInt32, length: Int)? {
        var candidate = position
        while candidate <= bytes.count - Self.frameByteCount, searches < limit {
            if let (number, length) = frame(in: bytes, at: candidate, atLeast: expected, &searches) {
                return (candidate, number, length)
            }
            candidate += 1
        }
        return nil
    }

    /// The frame at a position, if there is one whose record ends within the bytes.
    private func frame(
        in bytes: UnsafeRawBufferPointer,
        at position: Int,
        atLeast expected: UInt32,
        _ searches: inout Int
    ) -> (number: UInt32, length: Int)? {
        guard position >= 0, position <= bytes.count - Self.frameByteCount else { return nil }
        let length = UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: position, as: UInt32.self))
        let number = UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: position + 4, as: UInt32.self))
        let room = bytes.count - position - Self.frameByteCount - Self.trailerByteCount
        guard length >= XChaChaPoly.overheadByteCount, Int(length) <= room, number >= expected, number < UInt32.max
        else { return nil }
        searches += 1
        let found = UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: position + 8, as: UInt64.self))
        guard found == check(length: length, number: number) else { return nil }
        return (number, Int(length))
    }
}
