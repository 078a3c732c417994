import Primitives

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
