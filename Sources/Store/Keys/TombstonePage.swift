import Crypto

/// Stays the same across updates.
package struct TombstoneID: Hashable, Sendable {
    /// 16 random bytes.
    package let bytes: [UInt8]
}

package struct Tombstone: Equatable, Sendable {
    package let id: TombstoneID
    /// Milliseconds since the epoch; the page is destroyed then.
    package let keepUntil: Int64
    package let payload: [UInt8]
}

/// A page of `tombstones.slots`: a node's record of an inbox that it destroyed.
///
///     magic (8) ‖ keepUntil (8) ‖ check (16) ‖ sealed by KT: id (16) ‖ version (4) ‖ length (2) ‖ payload ‖ zeros
struct TombstonePage {
    static let headerByteCount = 32
    static let fixedByteCount = 22
    static let maximumPayload =
        SlotFile.pageByteCount - headerByteCount - XChaChaPoly.overheadByteCount - fixedByteCount
    static let magic = Magic("MFTOMB1")

    let id: [UInt8]
    let version: UInt32
    let keepUntil: Int64
    let payload: [UInt8]

    func seal(index: Int, keys: GridKeys) -> [UInt8] {
        let header = Self.header(keepUntil)
        var plaintext = id + version.littleEndianBytes + UInt16(payload.count).littleEndianBytes + payload
        plaintext += [UInt8](repeating: 0, count: Self.maximumPayload - payload.count)
        return header
            + XChaChaPoly.seal(
                plaintext, key: keys.tombstones, nonce: randomBytes(XChaChaPoly.nonceByteCount),
                authenticating: KeyPage.associatedData(file: SlotFile.tombstonesName, index: index, header: header))
    }

    static func open(_ page: [UInt8], index: Int, keys: GridKeys) -> TombstonePage? {
        guard let keepUntil = keepUntil(page) else { return nil }
        let data = KeyPage.associatedData(
            file: SlotFile.tombstonesName, index: index, header: Array(page[..<headerByteCount]))
        let opened = try? XChaChaPoly.open(page[headerByteCount...], key: keys.tombstones, authenticating: data)
        guard let plaintext = opened, let version = plaintext.integer(UInt32.self, at: 16),
            let count = plaintext.integer(UInt16.self, at: 20), fixedByteCount + Int(count) <= plaintext.count
        else { return nil }
        return TombstonePage(
            id: Array(plaintext[..<16]), version: version, keepUntil: keepUntil,
            payload: Array(plaintext[fixedByteCount..<(fixedByteCount + Int(count))]))
    }

    /// The clear time, for the reaper; `nil` for a free or damaged page.
    static func keepUntil(_ page: [UInt8]) -> Int64? {
        guard page.count == SlotFile.pageByteCount, let time = page.integer(Int64.self, at: 8),
            page.starts(with: header(time))
        else { return nil }
        return time
    }

    static func hasMagic(_ page: [UInt8]) -> Bool { magic.begins(page) }

    private static func header(_ keepUntil: Int64) -> [UInt8] {
        let bytes = magic.bytes + keepUntil.littleEndianBytes
        return bytes + BLAKE2b.hash(Array("mayfly tombstone".utf8), bytes, byteCount: 16)
    }
}
