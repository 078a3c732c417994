import Cryptography

/// The framed records of one file, sealed under its key (Store.md, *Segment*).
///
///     length (4) ‖ number (4) ‖ check (8) ‖ nonce (24) ‖ ciphertext ‖ tag (16) ‖ length (4)
struct RecordFrames {
    static let frameByteCount = 16
    /// The length again, so that a file can be read from its end.
    static let trailerByteCount = 4

    /// Candidate positions at which one file is searched for a frame after damage: half a second's work. Random bytes
    /// match once in 32 bytes, so this covers 32 MiB of damage. The limit stops a file full of forged frames.
    static let searchLimit = 1 << 20

    struct Loaded {
        /// Every byte was valid, except perhaps a torn tail.
        var isSound = true
        /// The tail was valid, too.
        var isWhole = true
    }

    /// T in Store.md: identifies the file in every frame and in every record's associated data.
    private let tag: Bytes16
    let key: SharedSecret

    init(associatedData: [UInt8], key: SharedSecret) {
        let hash = BLAKE2b.hash(Array("mayfly file".utf8), associatedData, byteCount: 16)
        tag = hash.withUnsafeBytes { Bytes16(copying: $0) }
        self.key = key
    }

    /// Seals a record in its frame: writes both parts of the plaintext and seals them in place.
    /// - Parameters:
    ///   - target: as long as the record with its frame and trailer.
    ///   - writeHeader: writes `headerByteCount` bytes.
    func seal(
        _ payload: [UInt8], after headerByteCount: Int, number: UInt32, nonces: inout NoncePool,
        into target: UnsafeMutableRawBufferPointer, _ writeHeader: (UnsafeMutableRawBufferPointer) -> Void
    ) {
        let length = headerByteCount + payload.count + XChaChaPoly.overheadByteCount
        writeFrame(length: UInt32(length), number: number, into: target)
        let sealed = UnsafeMutableRawBufferPointer(
            rebasing: target[Self.frameByteCount..<(Self.frameByteCount + length)])
        nonces.take(into: UnsafeMutableRawBufferPointer(rebasing: sealed[..<XChaChaPoly.nonceByteCount]))
        let plaintext = sealed[XChaChaPoly.nonceByteCount...]
        writeHeader(UnsafeMutableRawBufferPointer(rebasing: plaintext.prefix(headerByteCount)))
        UnsafeMutableRawBufferPointer(rebasing: plaintext.dropFirst(headerByteCount)).copyBytes(from: payload)
        withAssociatedData(number) { XChaChaPoly.seal(inPlace: sealed, key: key.bytes, authenticating: $0) }
        target.storeBytes(of: UInt32(length).littleEndian, toByteOffset: Self.frameByteCount + length, as: UInt32.self)
    }

    private func withAssociatedData<Result, Failure: Error>(
        _ number: UInt32, _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        var data = (tag.first.bigEndian, tag.second.bigEndian, UInt64(number).littleEndian)
        return try withUnsafeBytes(of: &data) { data throws(Failure) in try body(data) }
    }

    private func check(length: UInt32, number: UInt32) -> UInt64 {
        var key = (tag.first.bigEndian, tag.second.bigEndian)
        var head = (length.littleEndian, number.littleEndian)
        return withUnsafeBytes(of: &key) { key in withUnsafeBytes(of: &head) { SipHash.hash(key: key, $0) } }
    }

    private func writeFrame(length: UInt32, number: UInt32, into target: UnsafeMutableRawBufferPointer) {
        target.storeBytes(of: length.littleEndian, toByteOffset: 0, as: UInt32.self)
        target.storeBytes(of: number.littleEndian, toByteOffset: 4, as: UInt32.self)
        target.storeBytes(of: check(length: length, number: number).littleEndian, toByteOffset: 8, as: UInt64.self)
    }

    func open(_ sealed: UnsafeRawBufferPointer, number: UInt32) -> FoundRecord {
        let plaintext = withAssociatedData(number) { data in
            try? XChaChaPoly.open(sealed, key: key.bytes, authenticating: data)
        }
        if let plaintext { return .opened(plaintext: plaintext) }
        return sealed.allSatisfy { $0 == 0 } ? .erased : .damaged
    }

    func open(_ sealed: [UInt8], number: UInt32) -> FoundRecord { sealed.withUnsafeBytes { open($0, number: number) } }

    /// Finds the records in a file's bytes, or in their beginning, and the number after the last one.
    func scan(
        _ bytes: [UInt8], from start: Int, searchLimit: Int = RecordFrames.searchLimit,
        _ body: (UInt32, RecordFile.Span, FoundRecord) -> Void
    ) -> (Loaded, nextNumber: UInt32) {
        bytes.withUnsafeBytes { bytes in
            var result = Loaded()
            var position = start
            var expected: UInt32 = 0
            var searches = 0
            while position < bytes.count, searches < searchLimit {
                guard let found = nextFrame(in: bytes, from: position, atLeast: expected, &searches, limit: searchLimit)
                else { break }
                if found.position != position || found.number != expected { result.isSound = false }
                let from = found.position + Self.frameByteCount
                let sealed = UnsafeRawBufferPointer(rebasing: bytes[from..<(from + found.length)])
                let record = open(sealed, number: found.number)
                if case .damaged = record { result.isSound = false }
                let trailer = bytes.loadUnaligned(fromByteOffset: from + found.length, as: UInt32.self)
                if Int(UInt32(littleEndian: trailer)) != found.length { result.isSound = false }
                body(found.number, RecordFile.Span(offset: Int64(from), length: found.length), record)
                position = from + found.length + Self.trailerByteCount
                expected = found.number &+ 1
            }
            result.isWhole = position == bytes.count
            return (result, expected)
        }
    }

    /// Finds records backwards from the end of a part of the file.
    /// - Parameters:
    ///   - bytes: from `offset` to the end of a record.
    ///   - next: the number of the record after them, if known.
    /// - Returns: the whole records in the part, the last one first, and where the first of them begins; `nil` for
    ///   malformed bytes.
    func walkBack(_ bytes: [UInt8], offset: Int64, next: UInt32?) -> (
        records: [(number: UInt32, span: RecordFile.Span, found: FoundRecord)], start: Int64
    )? {
        bytes.withUnsafeBytes { bytes in
            var records: [(number: UInt32, span: RecordFile.Span, found: FoundRecord)] = []
            var expected = next
            var end = bytes.count
            while end > 0 {
                let around = Self.frameByteCount + Self.trailerByteCount
                guard end >= around + XChaChaPoly.overheadByteCount else { break }
                let trailer = bytes.loadUnaligned(fromByteOffset: end - Self.trailerByteCount, as: UInt32.self)
                let length = Int(UInt32(littleEndian: trailer))
                guard length >= XChaChaPoly.overheadByteCount, length <= RecordFile.maximumByteCount else { return nil }
                let start = end - around - length
                if start < 0 { break }
                var searches = 0
                guard let frame = frame(in: bytes, at: start, atLeast: 0, &searches), frame.length == length,
                    expected.map({ $0 > 0 && $0 - 1 == frame.number }) ?? true
                else { return nil }
                let from = start + Self.frameByteCount
                let found = open(UnsafeRawBufferPointer(rebasing: bytes[from..<(from + length)]), number: frame.number)
                if case .damaged = found { return nil }
                records.append((frame.number, RecordFile.Span(offset: offset + Int64(from), length: length), found))
                expected = frame.number
                end = start
            }
            // A file begins with its first record.
            if offset == 0, end != 0 || records.last.map({ $0.number != 0 }) ?? true { return nil }
            return (records, offset + Int64(end))
        }
    }

    private func nextFrame(
        in bytes: UnsafeRawBufferPointer, from position: Int, atLeast expected: UInt32, _ searches: inout Int,
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

    /// The frame at a position, if its record ends within the bytes.
    private func frame(
        in bytes: UnsafeRawBufferPointer, at position: Int, atLeast expected: UInt32, _ searches: inout Int
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

enum FoundRecord {
    case opened(plaintext: [UInt8])
    /// All zeros: erased in place.
    case erased
    case damaged
}
