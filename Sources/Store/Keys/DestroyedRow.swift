import Crypto

/// The note at the start of a destroyed row's page. It tells the next unlock that the row's directory is garbage, not
/// an inbox with a damaged page. It is part of the single write that destroys the key, so no power cut comes in
/// between.
///
///     unlocked: nonce (24) ‖ directory (16), sealed by KT, AAD = file ‖ index ‖ "destroyed" ‖ tag (16)
///     locked: "MFBURN1" ‖ 0, until the next unlock has removed a directory for it
enum DestroyedRow {
    private static let byteCount = XChaChaPoly.overheadByteCount + 16
    static let burnt = Array("MFBURN1\0".utf8)

    private static func associatedData(_ slot: Int) -> [UInt8] {
        KeyPage.associatedData(file: SlotFile.rowsName, index: slot, header: Array("destroyed".utf8))
    }

    /// Without the passphrase the note looks like the noise after it.
    static func note(directory: String, slot: Int, keys: GridKeys) -> [UInt8] {
        XChaChaPoly.seal(
            Hex.decode(directory) ?? [], key: keys.tombstones, nonce: randomBytes(XChaChaPoly.nonceByteCount),
            authenticating: associatedData(slot))
    }

    /// The directory named by a destroyed page; `nil` for every other page.
    static func directory(_ page: [UInt8], slot: Int, keys: GridKeys) -> String? {
        guard page.count == SlotFile.pageByteCount else { return nil }
        let name = try? XChaChaPoly.open(page[..<byteCount], key: keys.tombstones, authenticating: associatedData(slot))
        return name.flatMap { $0.count == 16 ? Hex.encode($0) : nil }
    }
}
