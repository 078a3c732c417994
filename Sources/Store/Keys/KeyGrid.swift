import Crypto

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
}

/// A 4 KiB page whose random payload is mixed into a 32-byte secret. Overwriting any sector destroys the secret.
///
///     header ‖ nonce (24) ‖ payload ‖ tag (16)        sealed by KS, AAD = file ‖ index ‖ header
///     secret = BLAKE2b(KX, AAD ‖ payload)
enum KeyPage {
    static func associatedData(file: String, index: Int, header: [UInt8]) -> [UInt8] {
        Array("mayfly \(file)\0".utf8) + UInt64(index).littleEndianBytes + header
    }

    static func make(file: String, index: Int, header: [UInt8], keys: GridKeys) -> [UInt8] {
        var payload = randomBytes(SlotFile.pageByteCount - header.count - XChaChaPoly.overheadByteCount)
        defer { wipe(&payload) }
        return header
            + XChaChaPoly.seal(
                payload, key: keys.sealing, nonce: randomBytes(XChaChaPoly.nonceByteCount),
                authenticating: associatedData(file: file, index: index, header: header))
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
        guard page.count >= Self.byteCount, Self.hasMagic(page), Array(page[48..<64]) == Self.check(page[..<48]),
            let tier = Tier(rawValue: page[8]), page[9] == 0, page[10] == 0, page[11] == 0,
            let rowSlot = page.integer(UInt32.self, at: 12), let bucket = page.integer(Int64.self, at: 16),
            let notAfter = page.integer(Int64.self, at: 24), Tier.times.contains(notAfter),
            bucket == tier.bucket(expiresAt: notAfter), bucket * tier.bucketWidth == notAfter
        else { return nil }
        self.tier = tier
        self.rowSlot = rowSlot
        self.bucket = bucket
        self.notAfter = notAfter
        rowFingerprint = Array(page[32..<48])
    }

    /// Whether the page is a column, even one with a damaged header.
    static func hasMagic(_ page: [UInt8]) -> Bool { magic.begins(page) }

    var encoded: [UInt8] {
        var bytes = Self.magic.bytes + [tier.rawValue, 0, 0, 0] + rowSlot.littleEndianBytes
        bytes += bucket.littleEndianBytes + notAfter.littleEndianBytes + rowFingerprint
        return bytes + Self.check(bytes[...])
    }

    private static func check(_ bytes: ArraySlice<UInt8>) -> [UInt8] {
        BLAKE2b.hash(Array("mayfly column header".utf8), Array(bytes), byteCount: 16)
    }
}
