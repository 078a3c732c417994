import Cryptography

/// A version of a message in a segment.
struct MessageRecord {
    enum State: UInt8 {
        case live
        case superseded
        /// Superseded, and a commit under way overwrites it.
        case moving
        /// Its commit failed: it may be on the disk, and is not served.
        case failed
        case erased
    }

    let id: Bytes16
    /// Milliseconds since the epoch; at this time the record is no longer served.
    let expiresAt: Int64
    let order: UInt64
    let version: UInt32
    let number: UInt32
    let length: UInt32
    /// Offset of the sealed bytes; a file has at most 128 MiB.
    let offset: UInt32
    let kind: Kind
    var state: State
    /// A reap has reported it to the node.
    var isReported = false

    package enum Kind: UInt8, Sendable {
        /// By its id and in lists.
        case listed = 0
        /// By its id only. No list, count or reap report includes it.
        case hidden = 1
        /// Together with the messages before it. It has no id, and no list or count includes it.
        case status = 2
    }

    var span: RecordFile.Span { RecordFile.Span(offset: Int64(offset), length: Int(length)) }
    var isListed: Bool { kind == .listed }
    /// The sealed length without nonce, tag and record header.
    var payloadByteCount: Int { max(0, Int(length) - XChaChaPoly.overheadByteCount - Self.headerByteCount) }

    /// The id field of a status holds two places, so it never matches a message.
    func isVersion(of message: Bytes16) -> Bool { id == message && kind != .status }

    /// The places that a status concerns: its id field holds the first and the last.
    var concerned: ClosedRange<UInt64>? {
        guard kind == .status, id.first <= id.second else { return nil }
        return id.first...id.second
    }

    static let headerByteCount = 52

    /// In the version field: the record is hidden.
    private static let hiddenBit: UInt32 = 1 << 31
    /// In the version field: the record is a status.
    private static let statusBit: UInt32 = 1 << 30
    /// In the version field: an earlier record of the segment is hidden.
    private static let afterHiddenBit: UInt32 = 1 << 29
    /// The bits above are flags.
    static let maximumVersion: UInt32 = (1 << 29) - 1

    /// Bounds of all earlier records, stored in every record, so that a segment can be read from its end.
    struct Bounds: Equatable {
        /// The highest order plus one; zero for none.
        var ceiling: UInt64 = 0
        var floor: Int64 = .max
        var hasHidden = false

        mutating func add(order: UInt64, expiresAt: Int64, kind: Kind) {
            ceiling = max(ceiling, order + 1)
            floor = min(floor, expiresAt)
            if kind == .hidden { hasHidden = true }
        }
    }

    /// Writes the plaintext before the payload, ``headerByteCount`` bytes.
    static func writeHeader(
        id: Bytes16, expiresAt: Int64, order: UInt64, version: UInt32, kind: Kind, bounds: Bounds,
        to target: UnsafeMutableRawBufferPointer
    ) {
        var bits = version
        if kind == .hidden { bits |= hiddenBit }
        if kind == .status { bits |= statusBit }
        if bounds.hasHidden { bits |= afterHiddenBit }
        target.storeBytes(of: expiresAt.littleEndian, toByteOffset: 0, as: Int64.self)
        target.storeBytes(of: order.littleEndian, toByteOffset: 8, as: UInt64.self)
        target.storeBytes(of: bits.littleEndian, toByteOffset: 16, as: UInt32.self)
        id.copy(to: UnsafeMutableRawBufferPointer(rebasing: target[20..<36]))
        target.storeBytes(of: bounds.ceiling.littleEndian, toByteOffset: 36, as: UInt64.self)
        target.storeBytes(of: bounds.floor.littleEndian, toByteOffset: 44, as: Int64.self)
    }
}

extension MessageRecord {
    /// `nil` for a malformed plaintext: too short, or with a time outside `Tier.times`.
    init?(_ plaintext: [UInt8], number: UInt32, span: RecordFile.Span) {
        guard plaintext.count >= Self.headerByteCount, let expiresAt = plaintext.integer(Int64.self, at: 0),
            let order = plaintext.integer(UInt64.self, at: 8), let bits = plaintext.integer(UInt32.self, at: 16),
            let id = Bytes16(plaintext[20..<36]), let length = UInt32(exactly: span.length),
            let offset = UInt32(exactly: span.offset), order < UInt64.max, Tier.times.contains(expiresAt)
        else { return nil }
        let isStatus = bits & Self.statusBit != 0
        let isHidden = bits & Self.hiddenBit != 0
        if isStatus, isHidden { return nil }
        self.init(
            id: id, expiresAt: expiresAt, order: order, version: bits & Self.maximumVersion, number: number,
            length: length, offset: offset, kind: isStatus ? .status : isHidden ? .hidden : .listed, state: .live)
    }

    static func bounds(_ plaintext: [UInt8]) -> Bounds? {
        guard let bits = plaintext.integer(UInt32.self, at: 16), let ceiling = plaintext.integer(UInt64.self, at: 36),
            let floor = plaintext.integer(Int64.self, at: 44)
        else { return nil }
        return Bounds(ceiling: ceiling, floor: floor, hasHidden: bits & afterHiddenBit != 0)
    }

    init(erased number: UInt32, _ span: RecordFile.Span) {
        self.init(
            id: Bytes16(0, 0), expiresAt: 0, order: 0, version: 0, number: number,
            length: UInt32(clamping: span.length), offset: UInt32(clamping: span.offset), kind: .listed, state: .erased)
    }
}

/// The records of a segment in memory. Their positions stay valid when older records are prepended.
struct RecordList {
    /// First position of a new list: leaves room for more older records than any file holds.
    private static let beginning = 1 << 28
    private var storage: [MessageRecord] = []
    private var base = Self.beginning

    var indices: Range<Int> { base..<(base + storage.count) }
    var count: Int { storage.count }
    var all: [MessageRecord] { storage }
    var first: MessageRecord? { storage.first }

    subscript(_ position: Int) -> MessageRecord {
        get { storage[position - base] }
        _modify { yield &storage[position - base] }
    }

    mutating func append(_ record: MessageRecord) { storage.append(record) }

    /// - Parameter older: the oldest first.
    mutating func prepend(_ older: [MessageRecord]) {
        base -= older.count
        storage = older + storage
    }
}

package struct StoredMessage: Equatable, Sendable {
    package let id: Bytes16
    /// Milliseconds since the epoch.
    package let expiresAt: Int64
    package let payload: [UInt8]
}

/// A record's order and lifetime, for appending a status of it.
package struct MessagePlace: Equatable, Sendable {
    package let order: UInt64
    package let tier: Tier
    package let expiresAt: Int64
}
