import Crypto

/// The `.expiry` file beside a segment: 128 bytes, written once.
///
///     magic (8) ‖ segment id (16) ‖ tier (1) ‖ zeros (7) ‖ bucket (8) ‖ notAfter (8) ‖ inbox tag (16) ‖ column tag (16)
///     ‖ zeros (16) ‖ MAC (32) under a key derived from the row
///
/// It is the associated data of every record in its segment. Altering a byte loses all records, so tampering can
/// shorten a lifetime but not extend it.
struct ExpirySidecar: Equatable {
    static let byteCount = 128
    private static let magic = Magic("MFEXP1")

    let segmentID: [UInt8]
    let tier: Tier
    let bucket: Int64
    /// Milliseconds since the epoch, the end of the bucket.
    let notAfter: Int64
    let inboxTag: [UInt8]
    let columnTag: [UInt8]
    let encoded: [UInt8]

    init(segmentID: [UInt8], header: ColumnHeader, columnTag: [UInt8], inboxTag: [UInt8], key: borrowing SecretBytes) {
        self.segmentID = segmentID
        tier = header.tier
        bucket = header.bucket
        notAfter = header.notAfter
        self.inboxTag = inboxTag
        self.columnTag = columnTag
        var bytes = Self.magic.bytes + segmentID + [tier.rawValue] + [UInt8](repeating: 0, count: 7)
        bytes += bucket.littleEndianBytes + notAfter.littleEndianBytes + inboxTag + columnTag
        bytes += [UInt8](repeating: 0, count: 16)
        encoded = bytes + Self.authenticate(bytes, key)
    }

    static func columnTag(in bytes: [UInt8]) -> [UInt8]? { bytes.count == byteCount ? Array(bytes[64..<80]) : nil }

    /// `nil` unless it is the authentic sidecar of this inbox and segment.
    init?(_ bytes: [UInt8], segmentID: [UInt8], inboxTag: [UInt8], key: borrowing SecretBytes) {
        guard bytes.count == Self.byteCount, Self.magic.begins(bytes),
            equalInConstantTime(Array(bytes[96...]), Self.authenticate(Array(bytes[..<96]), key)),
            Array(bytes[8..<24]) == segmentID, Array(bytes[48..<64]) == inboxTag, let tier = Tier(rawValue: bytes[24]),
            let bucket = bytes.integer(Int64.self, at: 32), let notAfter = bytes.integer(Int64.self, at: 40)
        else { return nil }
        self.segmentID = segmentID
        self.tier = tier
        self.bucket = bucket
        self.notAfter = notAfter
        self.inboxTag = inboxTag
        columnTag = Array(bytes[64..<80])
        encoded = bytes
    }

    static func isNewer(_ bytes: [UInt8]) -> Bool { magic.isLater(bytes) }

    private static func authenticate(_ bytes: [UInt8], _ key: borrowing SecretBytes) -> [UInt8] {
        BLAKE2b.authenticate(key: key, Array("mayfly sidecar".utf8), bytes)
    }
}
