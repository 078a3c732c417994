import Primitives

/// A version of a message in a segment.
struct MessageRecord {
    enum State: UInt8 {
        case live
        /// A later version was stored.
        case superseded
        /// The same, and a commit under way overwrites it.
        case moving
        /// Its commit failed: it may or may not be on the disk, and is not served.
        case failed
        case erased
    }

    let id: Bytes16
    /// Milliseconds since the epoch; at it the message is gone.
    let expiresAt: Int64
    /// Place of the message among all of its row.
    let order: UInt64
    let version: UInt32
    let number: UInt32
    let length: UInt32
    /// Of the sealed bytes; a file has at most 128 MiB.
    let offset: UInt32
    let kind: Kind
    var state: State
    /// Whether a reap has told the node.
    var isReported = false

    /// How a record is found.
    package enum Kind: UInt8, Sendable {
        /// By its id and in lists.
        case listed = 0
        /// By its id only: in no list, in no count, and no reap names it.
        case hidden = 1
    }

    var span: RecordFile.Span { RecordFile.Span(offset: Int64(offset), length: Int(length)) }
    var isHidden: Bool { kind != .listed }

    static let headerByteCount = 52

    /// Set in the stored version of a hidden record.
    private static let hiddenBit: UInt32 = 1 << 31
    /// Versions end here.
    static let maximumVersion: UInt32 = (1 << 30) - 1

    /// What every record says of those before it in its segment, so that a segment can be read from its end.
    struct Bounds: Equatable {
        /// One more than the highest order; zero for none.
        var ceiling: UInt64 = 0
        /// The earliest expiry.
        var floor: Int64 = .max

        mutating func add(order: UInt64, expiresAt: Int64) {
            ceiling = max(ceiling, order + 1)
            floor = min(floor, expiresAt)
        }
    }

    /// Writes what comes before the payload.
    static func writeHeader(
        id: Bytes16,
        expiresAt: Int64,
        order: UInt64,
        version: UInt32,
        kind: Kind,
        bounds: Bounds,
        to target: UnsafeMutableRawBufferPointer
    ) {
        target.storeBytes(of: expiresAt.littleEndian, toByteOffset: 0, as: Int64.self)
        target.storeBytes(of: order.littleEndian, toByteOffset: 8, as: UInt64.self)
        let bits = kind == .hidden ? version | hiddenBit : version
        target.storeBytes(of: bits.littleEndian, toByteOffset: 16, as: UInt32.self)
        id.copy(to: UnsafeMutableRawBufferPointer(rebasing: target[20..<36]))
        target.storeBytes(of: bounds.ceiling.littleEndian, toByteOffset: 36, as: UInt64.self)
        target.storeBytes(of: bounds.floor.littleEndian, toByteOffset: 44, as: Int64.self)
    }

    static func encode(
        id: Bytes16,
        expiresAt: Int64,
        order: UInt64,
        version: UInt32,
        kind: Kind,
        bounds: Bounds,
        payload: [UInt8]
    ) -> [UInt8] {
        var header = [UInt8](repeating: 0, count: headerByteCount)
        header.withUnsafeMutableBytes {
            writeHeader(
                id: id,
                expiresAt: expiresAt,
                order: order,
                version: version,
                kind: kind,
                bounds: bounds,
                to: $0
            )
        }
        return header + payload
    }

    /// `nil` for a plaintext that is not one of ours: too short, or with a time that no record has.
    init?(_ plaintext: [UInt8], number: UInt32, span: RecordFile.Span) {
        guard plaintext.count >= Self.headerByteCount, let expiresAt = plaintext.integer(Int64.self, at: 0),
            let order = plaintext.integer(UInt64.self, at: 8), let bits = plaintext.integer(UInt32.self, at: 16),
            let id = Bytes16(plaintext[20..<36]), let length = UInt32(exactly: span.length),
            let offset = UInt32(exactly: span.offset),
            order < UInt64.max, Tier.times.contains(expiresAt)
        else { return nil }
        let version = bits & ~Self.hiddenBit
        guard version <= Self.maximumVersion else { return nil }
        self.init(
            id: id,
            expiresAt: expiresAt,
            order: order,
            version: version,
            number: number,
            length: length,
            offset: offset,
            kind: bits & Self.hiddenBit != 0 ? .hidden : .listed,
            state: .live
        )
    }

    /// What the record says of those before it.
    static func bounds(_ plaintext: [UInt8]) -> Bounds? {
        guard let ceiling = plaintext.integer(UInt64.self, at: 36), let floor = plaintext.integer(Int64.self, at: 44)
        else { return nil }
        return Bounds(ceiling: ceiling, floor: floor)
    }

    init(
        id: Bytes16,
        expiresAt: Int64,
        order: UInt64,
        version: UInt32,
        number: UInt32,
        length: UInt32,
        offset: UInt32,
        kind: Kind,
        state: State
    ) {
        self.id = id
        self.expiresAt = expiresAt
        self.order = order
        self.version = version
        self.number = number
        self.length = length
        self.offset = offset
        self.kind = kind
        self.state = state
    }
}
