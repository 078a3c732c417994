import Cryptography

/// The pages of `tombstones.slots`: their ends are readable without the passphrase, their payloads with it.
final class TombstoneTable: SealedPages {
    private var keepUntil: [Int: Int64] = [:]
    /// By slot; empty while the store is locked.
    private var pages: [Int: TombstonePage] = [:]
    /// Slots by tombstone id, as of the lock.
    private var slotsAtLock: [[UInt8]: Int] = [:]

    func readHeaders() {
        _ = readAll { slot, page in
            if let time = TombstonePage.keepUntil(page) {
                slots[slot] = .used
                keepUntil[slot] = time
            } else if TombstonePage.magic.begins(page) {
                findings.report("the header of page \(slot) of \(file.path) is damaged")
                if !isReadOnly { doom(slot) }
            }
        }
    }

    /// Opens the pages. Destroys altered pages, and the older version that an interrupted update left.
    func open(_ keys: GridKeys) {
        slotsAtLock = [:]
        var newest: [[UInt8]: Int] = [:]
        for slot in keepUntil.keys.sorted() {
            guard let page = try? file.read(slot) else { continue }
            guard let tombstone = TombstonePage.open(page, index: slot, keys: keys) else {
                findings.report("page \(slot) of \(file.path) was changed")
                drop(slot)
                continue
            }
            if let other = newest[tombstone.id], let known = pages[other] {
                let isNewer = known.version < tombstone.version
                drop(isNewer ? other : slot)
                if !isNewer { continue }
            }
            newest[tombstone.id] = slot
            pages[slot] = tombstone
        }
        destroyDoomed()
    }

    func forgetPages() {
        slotsAtLock = Dictionary(pages.map { ($1.id, $0) }) { first, _ in first }
        pages = [:]
    }

    /// In slot order.
    var all: [Tombstone] {
        pages.sorted { $0.key < $1.key }.map { _, page in
            Tombstone(id: TombstoneID(bytes: page.id), keepUntil: page.keepUntil, payload: page.payload)
        }
    }

    /// Durable on return.
    func write(_ tombstone: TombstonePage, _ keys: GridKeys) throws(StoreError) {
        if isReadOnly { throw .readOnly(path: file.path) }
        guard tombstone.payload.count <= TombstonePage.maximumPayload else {
            throw .tooLarge(limit: TombstonePage.maximumPayload)
        }
        guard Tier.times.contains(tombstone.keepUntil) else { throw .invalidArgument("time \(tombstone.keepUntil)") }
        let slot = try make { free throws(StoreError) in
            try file.write(free.lowerBound, tombstone.seal(index: free.lowerBound, keys: keys))
            return free.lowerBound
        }
        keepUntil[slot] = tombstone.keepUntil
        pages[slot] = tombstone
    }

    /// Replaces the payload durably: one of the two versions exists at every moment. Then destroys the old page.
    func update(_ id: TombstoneID, payload: [UInt8], _ keys: GridKeys) throws(StoreError) {
        let (slot, old) = try find(id)
        try write(
            TombstonePage(id: old.id, version: old.version &+ 1, keepUntil: old.keepUntil, payload: payload), keys)
        drop(slot)
        destroyDoomed()
    }

    /// - Throws: when the page may still exist; the next reap retries.
    func remove(_ id: TombstoneID) throws(StoreError) {
        let slot: Int
        if let known = slotsAtLock[id.bytes] { slot = known } else { slot = try find(id).slot }
        if isReadOnly { throw .readOnly(path: file.path) }
        slotsAtLock[id.bytes] = nil
        drop(slot)
        if let failure = destroyDoomed().first { throw failure }
    }

    private func find(_ id: TombstoneID) throws(StoreError) -> (slot: Int, page: TombstonePage) {
        guard let found = pages.first(where: { $0.value.id == id.bytes }) else { throw .unknownTombstone }
        return (found.key, found.value)
    }

    var ends: Dictionary<Int, Int64>.Values { keepUntil.values }

    /// Marks due pages for destruction and returns their number.
    func reap(_ destroy: Int64) -> Int {
        let due = keepUntil.keys.sorted().filter { keepUntil[$0].map { $0 <= destroy } ?? false }
        for slot in due { drop(slot) }
        return due.count
    }

    private func drop(_ slot: Int) {
        pages[slot] = nil
        keepUntil[slot] = nil
        doom(slot)
    }
}

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

    private static func header(_ keepUntil: Int64) -> [UInt8] {
        let bytes = magic.bytes + keepUntil.littleEndianBytes
        return bytes + BLAKE2b.hash(Array("mayfly tombstone".utf8), bytes, byteCount: 16)
    }
}
