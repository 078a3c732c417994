import Cryptography

/// The keys under the root. KS seals key pages, KX mixes a page into its secret, KT seals tombstones, KJ seals the
/// tables of the journal. KC is the secret of the control row, which owns the fan-out lists.
///
/// A class, so that its holders share it: the last reference wipes the keys. Commits hold only KJ, so `lock` need not
/// wait for them to wipe the others.
final class GridKeys: Sendable {
    let sealing: SecretBytes
    let mixing: SecretBytes
    let tombstones: SecretBytes
    let control: SecretBytes
    let journal: JournalKey

    init(root: borrowing SecretBytes) {
        sealing = BLAKE2b.derive(key: root, Array("mayfly KS: key pages".utf8))
        mixing = BLAKE2b.derive(key: root, Array("mayfly KX: page to secret".utf8))
        tombstones = BLAKE2b.derive(key: root, Array("mayfly KT: tombstones".utf8))
        control = BLAKE2b.derive(key: root, Array("mayfly KC: control row".utf8))
        journal = JournalKey(BLAKE2b.derive(key: root, Array("mayfly KJ: journal".utf8)))
    }
}

/// KJ, wiped with the last reference.
final class JournalKey: Sendable {
    let bytes: SecretBytes

    init(_ bytes: consuming SecretBytes) { self.bytes = bytes }
}

/// A shared secret, wiped with the last reference.
final class SharedSecret {
    private(set) var bytes: SecretBytes

    init(_ bytes: consuming SecretBytes) { self.bytes = bytes }

    func wipe() { bytes = SecretBytes(byteCount: bytes.byteCount) { _ in } }

    /// For keys derived from two secrets: the destruction of either loses them.
    func joined(with other: SharedSecret) -> SecretBytes {
        SecretBytes(byteCount: bytes.byteCount + other.bytes.byteCount) { target in
            bytes.withBytes { target.copyMemory(from: $0) }
            other.bytes.withBytes {
                UnsafeMutableRawBufferPointer(rebasing: target[bytes.byteCount...]).copyMemory(from: $0)
            }
        }
    }
}

/// A 4 KiB page whose random payload is mixed into a 32-byte secret. Overwriting any sector destroys the secret.
///
///     header ‖ nonce (24) ‖ payload ‖ tag (16)        sealed by KS, AAD = file ‖ index ‖ header
///     secret = BLAKE2b(KX, AAD ‖ payload)
enum KeyPage {
    static func associatedData(file: String, index: Int, header: [UInt8]) -> [UInt8] {
        Array("mayfly \(file)\0".utf8) + UInt64(index).littleEndianBytes + header
    }

    static func make(file: String, index: Int, header: [UInt8], keys: GridKeys) -> (page: [UInt8], secret: SharedSecret)
    {
        let data = associatedData(file: file, index: index, header: header)
        var payload = randomBytes(SlotFile.pageByteCount - header.count - XChaChaPoly.overheadByteCount)
        defer { wipe(&payload) }
        let sealed = XChaChaPoly.seal(
            payload, key: keys.sealing, nonce: randomBytes(XChaChaPoly.nonceByteCount), authenticating: data)
        return (header + sealed, SharedSecret(BLAKE2b.derive(key: keys.mixing, data, payload)))
    }

    /// `nil` for a free, destroyed, altered or moved page.
    static func open(_ page: [UInt8], file: String, index: Int, headerByteCount: Int, keys: GridKeys) -> SharedSecret? {
        guard page.count == SlotFile.pageByteCount else { return nil }
        let data = associatedData(file: file, index: index, header: Array(page[..<headerByteCount]))
        guard var payload = try? XChaChaPoly.open(page[headerByteCount...], key: keys.sealing, authenticating: data)
        else { return nil }
        defer { wipe(&payload) }
        return SharedSecret(BLAKE2b.derive(key: keys.mixing, data, payload))
    }

    /// Identifies a page's current content without opening it, so that a fuse never destroys a reused slot.
    static func fingerprint(_ page: [UInt8]) -> [UInt8] { BLAKE2b.hash(Array("mayfly page".utf8), page, byteCount: 16) }
}

/// The clear 64 bytes of a column page, which the reaper reads without a passphrase.
///
///     magic (8) ‖ tier (1) ‖ zeros (3) ‖ row slot (4) ‖ bucket (8) ‖ notAfter (8) ‖ row fingerprint (16) ‖ check (16)
struct ColumnHeader: Equatable {
    static let byteCount = 64
    static let magic = Magic("MFCOL1")

    let tier: Tier
    let bucket: Int64
    /// Milliseconds since the epoch: the page must not exist from then on.
    let notAfter: Int64
    let rowSlot: UInt32
    let rowFingerprint: [UInt8]

    init(tier: Tier, expiresAt: Int64, rowSlot: UInt32 = 0, rowFingerprint: [UInt8]? = nil) {
        self.tier = tier
        bucket = tier.bucket(expiresAt: expiresAt)
        notAfter = bucket * tier.bucketWidth
        self.rowSlot = rowSlot
        self.rowFingerprint = rowFingerprint ?? [UInt8](repeating: 0, count: 16)
    }

    /// `nil` unless the check holds and bucket and end agree.
    init?(page: [UInt8]) {
        guard page.count >= Self.byteCount, Self.magic.begins(page), Array(page[48..<64]) == Self.check(page[..<48]),
            let tier = Tier(rawValue: page[8]), page[9] == 0, page[10] == 0, page[11] == 0,
            let rowSlot = page.integer(UInt32.self, at: 12), let bucket = page.integer(Int64.self, at: 16),
            let notAfter = page.integer(Int64.self, at: 24), Tier.times.contains(notAfter),
            bucket == tier.bucket(expiresAt: notAfter), bucket * tier.bucketWidth == notAfter
        else { return nil }
        (self.tier, self.rowSlot, self.bucket, self.notAfter) = (tier, rowSlot, bucket, notAfter)
        rowFingerprint = Array(page[32..<48])
    }

    var encoded: [UInt8] {
        var bytes = Self.magic.bytes + [tier.rawValue, 0, 0, 0] + rowSlot.littleEndianBytes
        bytes += bucket.littleEndianBytes + notAfter.littleEndianBytes + rowFingerprint
        return bytes + Self.check(bytes[...])
    }

    private static func check(_ bytes: ArraySlice<UInt8>) -> [UInt8] {
        BLAKE2b.hash(Array("mayfly column header".utf8), Array(bytes), byteCount: 16)
    }
}

/// The `.expiry` file beside a segment: 128 bytes, written once.
///
///     magic (8) ‖ segment id (16) ‖ tier (1) ‖ zeros (7) ‖ bucket (8) ‖ notAfter (8) ‖ inbox tag (16)
///     ‖ column tag (16) ‖ zeros (16) ‖ MAC (32) under a key derived from the row
///
/// It is the associated data of every record in its segment. Altering a byte loses all records, so tampering can
/// shorten a lifetime but not extend it.
struct ExpirySidecar: Equatable {
    static let byteCount = 128
    static let magic = Magic("MFEXP1")

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
        (self.segmentID, self.tier, self.bucket, self.notAfter) = (segmentID, tier, bucket, notAfter)
        self.inboxTag = inboxTag
        columnTag = Array(bytes[64..<80])
        encoded = bytes
    }

    private static func authenticate(_ bytes: [UInt8], _ key: borrowing SecretBytes) -> [UInt8] {
        BLAKE2b.authenticate(key: key, Array("mayfly sidecar".utf8), bytes)
    }
}

/// A class of lifetimes and the width of its expiry buckets.
///
/// A record that expires at T goes into the column whose bucket ends at the first edge at or after T. So its key is
/// destroyed at most one width after T.
package enum Tier: UInt8, CaseIterable, Sendable {
    case oneHour = 1
    case sixHours = 2
    case oneDay = 3
    case sevenDays = 4
    case thirtyDays = 5
    /// Fan-out lists of explosions: seven days, in no inbox.
    case control = 16
    /// The scheduled destruction of a row. Its bucket end is the exact moment.
    case fuse = 17

    /// Longest lifetime of records in the tier, in milliseconds. Zero for a fuse, which stores no data.
    package var lifetime: Int64 {
        switch self {
        case .oneHour: 3_600_000
        case .sixHours: 6 * 3_600_000
        case .oneDay: 24 * 3_600_000
        case .sevenDays, .control: 7 * 24 * 3_600_000
        case .thirtyDays: 30 * 24 * 3_600_000
        case .fuse: 0
        }
    }

    /// Milliseconds.
    package var bucketWidth: Int64 {
        switch self {
        case .oneHour: 10_000
        case .sixHours: 60_000
        case .oneDay: 5 * 60_000
        case .sevenDays, .control: 30 * 60_000
        case .thirtyDays: 2 * 3_600_000
        case .fuse: 1
        }
    }

    /// The bucket number for an expiry. The bucket ends at `bucket * bucketWidth`.
    package func bucket(expiresAt: Int64) -> Int64 { expiresAt / bucketWidth + (expiresAt % bucketWidth == 0 ? 0 : 1) }

    /// Times for which no sum overflows: 1970 to about the year 9,000.
    static let times: ClosedRange<Int64> = 0...(1 << 48)
}
