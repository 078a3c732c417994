/// The pages of `tombstones.slots`: their ends are readable without the passphrase, their payloads with it.
final class TombstoneTable {
    private let file: SlotFile
    private let isReadOnly: Bool
    private let damage: DamageList
    private var slots = SlotMap()
    private var keepUntil: [Int: Int64] = [:]
    /// By slot; empty while the store is locked.
    private var pages: [Int: TombstonePage] = [:]
    /// Slots by tombstone id, as of the lock.
    private var slotsAtLock: [[UInt8]: Int] = [:]
    /// Slots of pages that await destruction. They serve no data.
    private var doomed: [Int] = []

    init(_ file: SlotFile, isReadOnly: Bool, damage: DamageList) {
        self.file = file
        self.isReadOnly = isReadOnly
        self.damage = damage
    }

    // MARK: - Opening

    func readHeaders() {
        slots.extend(to: file.pageCount)
        file.forEachPage { slot, page in
            guard let page else {
                slots[slot] = .unreadable
                damage.report("page \(slot) of \(file.path) cannot be read")
                return
            }
            if let time = TombstonePage.keepUntil(page) {
                slots[slot] = .used
                keepUntil[slot] = time
            } else if TombstonePage.hasMagic(page) {
                damage.report("the header of page \(slot) of \(file.path) is damaged")
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
                damage.report("page \(slot) of \(file.path) was changed")
                drop(slot)
                continue
            }
            if let other = newest[tombstone.id], let known = pages[other] {
                let older = known.version < tombstone.version ? other : slot
                if older == other {
                    newest[tombstone.id] = slot
                    pages[slot] = tombstone
                }
                drop(older)
            } else {
                newest[tombstone.id] = slot
                pages[slot] = tombstone
            }
        }
        destroyDoomed()
    }

    func forgetPages() {
        slotsAtLock = Dictionary(pages.map { ($1.id, $0) }) { first, _ in first }
        pages = [:]
    }

    // MARK: - Tombstones

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
        let slot = try slots.take(growing: file)
        do throws(StoreError) { try file.write(slot, tombstone.seal(index: slot, keys: keys)) } catch {
            doom(slot)
            throw error
        }
        slots[slot] = .used
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

    // MARK: - Ends

    var ends: Dictionary<Int, Int64>.Values { keepUntil.values }
    var doomedCount: Int { doomed.count }

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

    private func doom(_ slot: Int) {
        if !doomed.contains(slot) { doomed.append(slot) }
        slots[slot] = .unreadable
    }

    /// Overwrites the marked pages and reads them back. The pages of returned failures stay marked.
    @discardableResult func destroyDoomed() -> [StoreError] {
        guard !isReadOnly else { return [] }
        var failures: [StoreError] = []
        for slot in doomed {
            do throws(StoreError) {
                try file.destroy(slot)
                slots[slot] = .free
                doomed.removeAll { $0 == slot }
            } catch {
                damage.report("a page waits for its destruction: \(error)")
                failures.append(error)
            }
        }
        return failures
    }
}
