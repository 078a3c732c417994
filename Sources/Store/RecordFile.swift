import Primitives

/// What a sealed record turned out to be when its file was read.
enum FoundRecord {
    case opened(plaintext: [UInt8])
    /// All zeros: erased in place.
    case erased
    case damaged
}

/// An append-only file of sealed records, each with its number in the associated data, so that none can be moved,
/// repeated or taken from another file.
///
///     length (4) ‖ number (4) ‖ check (8) ‖ nonce (24) ‖ ciphertext ‖ tag (16)
///
/// Erasing a record writes zeros over everything after the frame, which stays readable; the next record is found all
/// the same. Appends are buffered until a commit takes them.
final class RecordFile {
    static let frameByteCount = 16
    /// Most bytes of one payload: above what a message or an inbox's state may have.
    static let maximumPlaintext = 16 << 20
    /// Most bytes of a file that are ever read into memory.
    static let maximumByteCount = 128 << 20

    /// Most places of one file at which a frame is looked for after damage: half a second's work. Chance needs one in 32
    /// bytes, so that is 32 MiB of damage; whoever fills a file with what looks like frames holds nobody up.
    static let searchLimit = 1 << 20

    struct Span {
        /// Of the sealed bytes, after the frame.
        let offset: Int64
        let length: Int
    }

    /// Names the file within this process, for the commit thread.
    let number: Int
    let directory: String
    let name: String
    private let associatedData: [UInt8]
    private let frameTag: [UInt8]
    private let key: SharedSecret

    var descriptor: FileDescriptor?
    /// Where the next record goes, counting what is buffered.
    private(set) var end: Int64
    private(set) var nextNumber: UInt32 = 0
    /// No appends any more: a write or fsync failed, or the tail is torn.
    var isClosed = false
    var isDirty: Bool {
        !buffered.isEmpty || !erasures.isEmpty || !movedErasures.isEmpty || !setup.isEmpty || !finish.isEmpty
            || needsSynchronizing
    }
    /// Whether the store's list of files to commit has it.
    var isListed = false
    /// What the commit thread has of this file at the moment.
    private(set) var inFlight: [(sequence: UInt64, offset: Int64, bytes: [UInt8])] = []
    private var buffered: [UInt8]
    private var erasures: [Span] = []
    private var movedErasures: [(span: Span, newFile: Int)] = []
    /// Something of it may be in the kernel's cache only.
    var needsSynchronizing = false
    var setup: [SetupStep] = []
    var finish: [SetupStep] = []

    init(
        number: Int,
        directory: String,
        name: String,
        associatedData: [UInt8],
        key: SharedSecret,
        header: [UInt8] = []
    ) {
        self.number = number
        self.directory = directory
        self.name = name
        self.associatedData = associatedData
        frameTag = BLAKE2b.hash(Array("mayfly file".utf8), associatedData, byteCount: 16)
        self.key = key
        buffered = header
        end = Int64(header.count)
    }

    var path: String { directory + "/" + name }

    /// Nothing can be opened or added from here on.
    func wipeKey() {
        key.wipe()
        isClosed = true
    }

    // MARK: - Writing

    func append(_ plaintext: [UInt8]) -> Span {
        let sealed = XChaChaPoly.seal(
            plaintext,
            key: key.bytes,
            nonce: randomBytes(XChaChaPoly.nonceByteCount),
            authenticating: associatedData + UInt64(nextNumber).littleEndianBytes
        )
        buffered += frame(length: UInt32(sealed.count), number: nextNumber)
        buffered += sealed
        let span = Span(offset: end + Int64(Self.frameByteCount), length: sealed.count)
        end += Int64(Self.frameByteCount + sealed.count)
        nextNumber += 1
        return span
    }

    /// Zeros over a record, with the next commit.
    func erase(_ span: Span) { erasures.append(span) }

    /// Zeros over a record with the next commit, once that has made the other file durable.
    func erase(_ span: Span, after newFile: Int) { movedErasures.append((span, newFile)) }

    /// Everything since the last commit, in an order in which zeros come after what they erase.
    func takeJob(sequence: UInt64, descriptor: FileDescriptor) -> FileJob {
        var writes: [FileJob.Write] = []
        if !buffered.isEmpty {
            let offset = end - Int64(buffered.count)
            writes.append(FileJob.Write(offset: offset, bytes: buffered))
            inFlight.append((sequence, offset, buffered))
            buffered = []
        } else {
            inFlight.append((sequence, end, []))
        }
        for span in erasures { writes.append(Self.zeros(span)) }
        let moved = movedErasures.map { (write: Self.zeros($0.span), newFile: $0.newFile) }
        erasures = []
        movedErasures = []
        needsSynchronizing = false
        let steps = (before: setup, after: finish)
        setup = []
        finish = []
        return FileJob(
            file: number,
            descriptor: descriptor,
            path: path,
            setup: steps.before,
            writes: writes,
            finish: steps.after,
            erasures: moved
        )
    }

    private static func zeros(_ span: Span) -> FileJob.Write {
        FileJob.Write(offset: span.offset, bytes: [UInt8](repeating: 0, count: span.length))
    }

    func committed(sequence: UInt64) { inFlight.removeAll { $0.sequence <= sequence } }

    /// Forgets what no commit has taken.
    func discardBuffered() -> [SetupStep] {
        end -= Int64(buffered.count)
        buffered = []
        erasures = []
        movedErasures = []
        needsSynchronizing = false
        defer {
            setup = []
            finish = []
        }
        return setup + finish
    }

    // MARK: - Reading

    /// The sealed bytes if they are still in memory.
    func unwritten(_ span: Span) -> [UInt8]? {
        let start = end - Int64(buffered.count)
        if span.offset >= start {
            let from = Int(span.offset - start)
            return from + span.length <= buffered.count ? Array(buffered[from..<(from + span.length)]) : nil
        }
        for chunk in inFlight where span.offset >= chunk.offset {
            let from = Int(span.offset - chunk.offset)
            if from + span.length <= chunk.bytes.count { return Array(chunk.bytes[from..<(from + span.length)]) }
        }
        return nil
    }

    func open(_ sealed: some Collection<UInt8>, number: UInt32) -> FoundRecord {
        let data = associatedData + UInt64(number).littleEndianBytes
        if let plaintext = try? XChaChaPoly.open(sealed, key: key.bytes, authenticating: data) {
            return .opened(plaintext: plaintext)
        }
        return sealed.allSatisfy { $0 == 0 } ? .erased : .damaged
    }

    /// Finds the records of a file's bytes.
    /// - Returns: whether every byte made sense except perhaps a torn tail, and whether the tail was whole too.
    /// - Postcondition: appends go after the last byte, if the tail is whole.
    func load(
        _ bytes: [UInt8],
        from start: Int,
        searchLimit: Int = RecordFile.searchLimit,
        _ body: (UInt32, Span, FoundRecord) -> Void
    ) -> (isSound: Bool, isWhole: Bool) {
        var isSound = true
        var position = start
        var expected: UInt32 = 0
        var searches = 0
        while position < bytes.count, searches < searchLimit {
            guard
                let found = nextFrame(
                    in: bytes,
                    from: position,
                    atLeast: expected,
                    &searches,
                    limit: searchLimit
                )
            else { break }
            if found.position != position || found.number != expected { isSound = false }
            let from = found.position + Self.frameByteCount
            let sealed = bytes[from..<(from + found.length)]
            let record = open(sealed, number: found.number)
            if case .damaged = record { isSound = false }
            body(found.number, Span(offset: Int64(from), length: found.length), record)
            position = from + found.length
            expected = found.number &+ 1
        }
        end = Int64(bytes.count)
        buffered = []
        nextNumber = expected
        return (isSound, position == bytes.count)
    }

    /// The next frame at or after `position`: after damage the reader looks for one that fits.
    private func nextFrame(
        in bytes: [UInt8],
        from position: Int,
        atLeast expected: UInt32,
        _ searches: inout Int,
        limit: Int
    ) -> (position: Int, number: UInt32, length: Int)? {
        var candidate = position
        while candidate <= bytes.count - Self.frameByteCount, searches < limit {
            if let length = bytes.integer(UInt32.self, at: candidate), length >= XChaChaPoly.overheadByteCount,
                Int(length) <= bytes.count - candidate - Self.frameByteCount,
                let number = bytes.integer(UInt32.self, at: candidate + 4), number >= expected, number < UInt32.max
            {
                if bytes[(candidate + 8)..<(candidate + 16)].elementsEqual(frame(length: length, number: number)[8...])
                {
                    return (candidate, number, Int(length))
                }
                searches += 1
            }
            candidate += 1
        }
        return nil
    }

    private func frame(length: UInt32, number: UInt32) -> [UInt8] {
        let head = length.littleEndianBytes + number.littleEndianBytes
        return head + BLAKE2b.hash(frameTag, head, byteCount: 16)[..<8]
    }
}
