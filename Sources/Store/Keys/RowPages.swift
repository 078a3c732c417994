import Crypto

/// The pages of `rows.slots`, one for each inbox.
final class RowPages {
    private let services: StoreServices
    private let doomed: DoomedPages
    let file: SlotFile
    private var slots = SlotMap()
    /// Directories of inboxes whose pages are doomed, by slot.
    private(set) var doomedDirectories: [Int: String] = [:]
    /// Slots of rows that were destroyed while the store was locked.
    private(set) var burntSlots: [Int] = []
    /// Slots whose pages say what has become of a directory, until that is durable: they are not used again before.
    private var reservedSlots: [Int] = []

    init(_ services: StoreServices, file: SlotFile, doomed: DoomedPages) {
        self.services = services
        self.file = file
        self.doomed = doomed
    }

    // MARK: - Opening

    /// Opens the pages.
    /// - Parameters:
    ///   - fused: slots that fuses name.
    ///   - enter: given each row.
    /// - Returns: false when a page could not be read, so that a directory may belong to a row we do not see; and the
    ///   fingerprints of pages that a fuse may name.
    func open(_ keys: GridKeys, fused: Set<UInt32>, _ enter: (UInt32, SharedSecret) -> Void) -> (
        isComplete: Bool, fingerprints: [UInt32: [UInt8]]
    ) {
        let directories = services.directories
        var isComplete = true
        var fingerprints: [UInt32: [UInt8]] = [:]
        directories.forgetNames()
        burntSlots = []
        reservedSlots = []
        slots = SlotMap()
        slots.extend(to: file.pageCount)
        if file.pageCount < SlotFile.growth {
            // It was longer when it was made: what it lost may belong to the directories that no page names.
            services.report("\(file.path) was cut off")
            isComplete = false
        }
        file.forEachPage { slot, page in
            guard let page else {
                slots[slot] = .unreadable
                services.report("page \(slot) of \(file.path) cannot be read")
                isComplete = false
                return
            }
            if doomed.contains(DoomedPage(file: .rows, slot: slot)) {
                slots[slot] = .unreadable
                return
            }
            let opened = KeyPage.open(page, file: file.name, index: slot, headerByteCount: 0, keys: keys)
            guard let secret = opened, let number = UInt32(exactly: slot) else {
                if let directory = DestroyedRow.directory(page, slot: slot, keys: keys) {
                    directories.noteDestroyed(directory)
                    reserve(slot)
                } else if page.starts(with: DestroyedRow.burnt) {
                    burntSlots.append(slot)
                    reserve(slot)
                }
                return
            }
            slots[slot] = .used
            enter(number, secret)
            if fused.contains(number) { fingerprints[number] = KeyPage.fingerprint(page) }
        }
        // An earlier process may have renamed or removed them without a barrier.
        if !reservedSlots.isEmpty { directories.noteAbandoned() }
        return (isComplete, fingerprints)
    }

    // MARK: - Making

    /// A new page, on the disk when this returns.
    func make(_ keys: GridKeys) throws(StoreError) -> (slot: UInt32, secret: SharedSecret) {
        if services.isReadOnly { throw .readOnly(path: file.path) }
        settleAbandoned()
        let slot = try slots.take(growing: file)
        guard let number = UInt32(exactly: slot), number < .max else { throw .full(path: file.path) }
        let page = KeyPage.make(file: file.name, index: slot, header: [], keys: keys)
        do throws(StoreError) { try file.write(slot, page) } catch {
            // It may have arrived after all: the slot is not used again before it is destroyed.
            doom(slot)
            throw error
        }
        let opened = KeyPage.open(page, file: file.name, index: slot, headerByteCount: 0, keys: keys)
        guard let secret = opened else { preconditionFailure("a page that was just sealed opens") }
        slots[slot] = .used
        return (number, secret)
    }

    /// Names the page's present content.
    func fingerprint(_ slot: UInt32) throws(StoreError) -> [UInt8] { KeyPage.fingerprint(try file.read(Int(slot))) }

    // MARK: - Destroying

    /// Marks a page for destruction; nothing is served from it from here on.
    /// - Parameter directory: the row's, if anybody knows.
    func doom(_ slot: Int, directory: String? = nil) {
        doomed.insert(DoomedPage(file: .rows, slot: slot))
        slots[slot] = .unreadable
        if let directory { doomedDirectories[slot] = directory }
    }

    /// The page is about to be destroyed: its slot is not used again before that has been read back.
    func retire(_ slot: Int) { slots[slot] = .unreadable }

    /// Overwrites a row's page and reads it back.
    /// - Parameter directory: the row's, if anybody knows.
    func destroy(_ slot: Int, directory: String?) throws(StoreError) {
        let beginning: [UInt8]
        if let keys = services.keys, let directory {
            beginning = DestroyedRow.note(directory: directory, slot: slot, keys: keys)
        } else {
            beginning = DestroyedRow.burnt
        }
        try file.destroy(slot, beginning: beginning)
    }

    /// Destroys a page that is marked. The mark is the caller's to remove.
    func destroyDoomed(_ slot: Int) throws(StoreError) {
        let directory = doomedDirectories[slot]
        try destroy(slot, directory: directory)
        reserve(slot)
        doomedDirectories[slot] = nil
        if let directory { services.directories.abandon(directory) }
    }

    /// Destroys the page that a fuse was made for, and not one that has its slot now.
    /// - Returns: false when that page is gone already.
    func destroy(namedBy fuse: ColumnHeader) throws(StoreError) -> Bool {
        let slot = Int(fuse.rowSlot)
        guard slot < file.pageCount, try fingerprint(fuse.rowSlot) == fuse.rowFingerprint else { return false }
        try destroy(slot, directory: doomedDirectories[slot])
        doomed.remove(DoomedPage(file: .rows, slot: slot))
        if let directory = doomedDirectories.removeValue(forKey: slot) { services.directories.abandon(directory) }
        reserve(slot)
        return true
    }

    /// The page is destroyed, and says what has become of the directory.
    func reserve(_ slot: Int) {
        slots[slot] = .unreadable
        reservedSlots.append(slot)
    }

    /// Makes it durable that the directories of destroyed inboxes have other names, so that the pages that name them may be
    /// written over.
    func settleAbandoned() {
        // If it fails, the next time: until then the slots wait.
        guard !reservedSlots.isEmpty, !services.isReadOnly, !services.isLocked, services.directories.settleAbandoned()
        else { return }
        for slot in reservedSlots where slots[slot] == .unreadable {
            if burntSlots.contains(slot), (try? file.destroy(slot)) == nil { continue }
            slots[slot] = .free
        }
        reservedSlots = []
        burntSlots = []
    }
}
