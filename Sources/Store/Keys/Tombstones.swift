import Primitives

/// Names a tombstone, across updates.
package struct TombstoneID: Hashable, Sendable {
    /// 16 random bytes.
    package let bytes: [UInt8]
}

package struct Tombstone: Equatable, Sendable {
    package let id: TombstoneID
    /// Milliseconds since the epoch; from then on the page is destroyed.
    package let keepUntil: Int64
    package let payload: [UInt8]
}

/// A page of `tombstones.slots`: what a node remembers of an inbox it has destroyed.
///
///     magic (8) ‖ keepUntil (8) ‖ check (16) ‖ sealed by KT: id (16) ‖ version (4) ‖ length (2) ‖ payload ‖ zeros
struct TombstonePage {
    static let headerByteCount = 32
    static let fixedByteCount = 22
    static let maximumPayload =
        SlotFile.pageByteCount - headerByteCount - XChaChaPoly.overheadByteCount - fixedByteCount
    private static let magic = Array("MFTOMB1\0".utf8)

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
                plaintext,
                key: keys.tombstones,
                nonce: randomBytes(XChaChaPoly.nonceByteCount),
                authenticating: KeyPage.associatedData(file: Store.tombstonesName, index: index, header: header)
            )
    }

    static func open(_ page: [UInt8], index: Int, keys: GridKeys) -> TombstonePage? {
        guard let keepUntil = keepUntil(page) else { return nil }
        let data = KeyPage.associatedData(
            file: Store.tombstonesName,
            index: index,
            header: Array(page[..<headerByteCount])
        )
        let opened = try? XChaChaPoly.open(page[headerByteCount...], key: keys.tombstones, authenticating: data)
        guard let plaintext = opened, let version = plaintext.integer(UInt32.self, at: 16),
            let count = plaintext.integer(UInt16.self, at: 20), fixedByteCount + Int(count) <= plaintext.count
        else { return nil }
        return TombstonePage(
            id: Array(plaintext[..<16]),
            version: version,
            keepUntil: keepUntil,
            payload: Array(plaintext[fixedByteCount..<(fixedByteCount + Int(count))])
        )
    }

    /// What the reaper needs: the clear time, or `nil` for a free or damaged page.
    static func keepUntil(_ page: [UInt8]) -> Int64? {
        guard page.count == SlotFile.pageByteCount, let time = page.integer(Int64.self, at: 8),
            page.starts(with: header(time))
        else { return nil }
        return time
    }

    static func hasMagic(_ page: [UInt8]) -> Bool { page.starts(with: magic) }

    private static func header(_ keepUntil: Int64) -> [UInt8] {
        let bytes = magic + keepUntil.littleEndianBytes
        return bytes + BLAKE2b.hash(Array("mayfly tombstone".utf8), bytes, byteCount: 16)
    }
}

extension Store {
    /// Most bytes of a tombstone's payload.
    package static let maximumTombstonePayload = TombstonePage.maximumPayload

    func readTombstoneHeaders() {
        tombstoneSlots.extend(to: tombstoneFile.pageCount)
        tombstoneFile.forEachPage { slot, page in
            guard let page else {
                tombstoneSlots[slot] = .unreadable
                report("page \(slot) of \(tombstoneFile.path) cannot be read")
                return
            }
            if let time = TombstonePage.keepUntil(page) {
                tombstoneSlots[slot] = .used
                keepUntil[slot] = time
            } else if TombstonePage.hasMagic(page) {
                report("header of page \(slot) of \(tombstoneFile.path)")
                if !isReadOnly { doom(.tombstones, slot) }
            }
        }
    }

    func openTombstones(_ keys: GridKeys) {
        var newest: [[UInt8]: Int] = [:]
        for slot in keepUntil.keys.sorted() {
            guard let page = try? tombstoneFile.read(slot) else { continue }
            guard let tombstone = TombstonePage.open(page, index: slot, keys: keys) else {
                report("page \(slot) of \(tombstoneFile.path) was changed")
                dropTombstone(slot)
                continue
            }
            // An update that was interrupted leaves two versions.
            if let other = newest[tombstone.id], let known = tombstoneTexts[other] {
                let older = known.version < tombstone.version ? other : slot
                if older == other {
                    newest[tombstone.id] = slot
                    tombstoneTexts[slot] = tombstone
                }
                dropTombstone(older)
            } else {
                newest[tombstone.id] = slot
                tombstoneTexts[slot] = tombstone
            }
        }
        _ = destroyDoomedPages()
    }

    private func dropTombstone(_ slot: Int) {
        tombstoneTexts[slot] = nil
        keepUntil[slot] = nil
        doom(.tombstones, slot)
    }

    /// Durable when this returns.
    package func addTombstone(keepUntil: Int64, payload: [UInt8]) throws(StoreError) -> TombstoneID {
        let id = randomBytes(16)
        try write(TombstonePage(id: id, version: 0, keepUntil: keepUntil, payload: payload))
        return TombstoneID(bytes: id)
    }

    /// Replaces the payload, durably and at no moment without either version; the old page is destroyed.
    package func updateTombstone(_ id: TombstoneID, payload: [UInt8]) throws(StoreError) {
        _ = try unlockedKeys()
        guard let (slot, old) = tombstoneTexts.first(where: { $0.value.id == id.bytes }) else {
            throw .unknownTombstone
        }
        try write(TombstonePage(id: old.id, version: old.version &+ 1, keepUntil: old.keepUntil, payload: payload))
        dropTombstone(slot)
        _ = destroyDoomedPages()
    }

    private func write(_ tombstone: TombstonePage) throws(StoreError) {
        let keys = try unlockedKeys()
        if isReadOnly { throw .readOnly(path: tombstoneFile.path) }
        guard tombstone.payload.count <= TombstonePage.maximumPayload else {
            throw .tooLarge(limit: TombstonePage.maximumPayload)
        }
        guard Tier.times.contains(tombstone.keepUntil) else { throw .invalidArgument("time \(tombstone.keepUntil)") }
        let slot = try tombstoneSlots.take(growing: tombstoneFile)
        do throws(StoreError) {
            try tombstoneFile.write(slot, tombstone.seal(index: slot, keys: keys))
        } catch {
            doom(.tombstones, slot)
            throw error
        }
        tombstoneSlots[slot] = .used
        keepUntil[slot] = tombstone.keepUntil
        notePageEnd(tombstone.keepUntil)
        tombstoneTexts[slot] = tombstone
    }

    /// In slot order.
    package func tombstones() throws(StoreError) -> [Tombstone] {
        _ = try unlockedKeys()
        return tombstoneTexts.sorted { $0.key < $1.key }.map { _, page in
            Tombstone(id: TombstoneID(bytes: page.id), keepUntil: page.keepUntil, payload: page.payload)
        }
    }

    /// Destroys the page.
    /// - Throws: when it may still be there; ``reap(hide:destroy:)`` tries again.
    package func removeTombstone(_ id: TombstoneID) throws(StoreError) {
        _ = try unlockedKeys()
        guard let slot = tombstoneTexts.first(where: { $0.value.id == id.bytes })?.key else {
            throw .unknownTombstone
        }
        if isReadOnly { throw .readOnly(path: tombstoneFile.path) }
        dropTombstone(slot)
        if let failure = destroyDoomedPages().first { throw failure }
    }
}
