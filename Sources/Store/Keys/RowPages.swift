import Crypto

final class RowPages {
    private let home: HomeDirectory
    private let directories: InboxDirectories
    private let findings: DamageList
    private let doomed: DoomedPages
    let file: SlotFile
    private var slots = SlotMap()
    private(set) var doomedDirectories: [Int: String] = [:]
    private(set) var burntSlots: [Int] = []
    /// Slots whose pages name destroyed directories. They are not reused until the directories' new names are durable.
    private var reservedSlots: [Int] = []

    init(
        _ home: HomeDirectory, _ directories: InboxDirectories, _ findings: DamageList, file: SlotFile,
        doomed: DoomedPages
    ) {
        self.home = home
        self.directories = directories
        self.findings = findings
        self.file = file
        self.doomed = doomed
    }

    // MARK: - Opening

    /// - Parameters:
    ///   - fused: slots that fuses refer to.
    ///   - enter: called with each row.
    /// - Returns: `isComplete` is false when a page could not be read, because then a directory may belong to an unseen
    ///   row. `fingerprints` are of the pages in `fused`.
    func open(_ keys: GridKeys, fused: Set<UInt32>, _ enter: (UInt32, SharedSecret) -> Void) -> (
        isComplete: Bool, fingerprints: [UInt32: [UInt8]]
    ) {
        var isComplete = true
        var fingerprints: [UInt32: [UInt8]] = [:]
        directories.forgetNames()
        burntSlots = []
        reservedSlots = []
        slots = SlotMap()
        slots.extend(to: file.pageCount)
        if file.pageCount < SlotFile.growth {
            // The file was longer once: lost pages may have named the directories that have none now.
            findings.report("\(file.path) was cut off")
            isComplete = false
        }
        file.forEachPage { slot, page in
            guard let page else {
                slots[slot] = .unreadable
                findings.report("page \(slot) of \(file.path) cannot be read")
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

    /// Creates a page. It is durable on return.
    func make(_ keys: GridKeys) throws(StoreError) -> (slot: UInt32, secret: SharedSecret) {
        if home.isReadOnly { throw .readOnly(path: file.path) }
        settleAbandoned()
        let slot = try slots.take(growing: file)
        guard let number = UInt32(exactly: slot), number < .max else { throw .full(path: file.path) }
        let page = KeyPage.make(file: file.name, index: slot, header: [], keys: keys)
        do throws(StoreError) { try file.write(slot, page) } catch {
            // The write may have succeeded all the same: the slot is not reused before it is destroyed.
            doom(slot)
            throw error
        }
        let opened = KeyPage.open(page, file: file.name, index: slot, headerByteCount: 0, keys: keys)
        guard let secret = opened else { preconditionFailure("a page that was just sealed opens") }
        slots[slot] = .used
        return (number, secret)
    }

    func fingerprint(_ slot: UInt32) throws(StoreError) -> [UInt8] { KeyPage.fingerprint(try file.read(Int(slot))) }

    // MARK: - Destroying

    /// Marks a page for destruction. It serves no data from here on. `directory`: the row's, if known.
    func doom(_ slot: Int, directory: String? = nil) {
        doomed.insert(DoomedPage(file: .rows, slot: slot))
        slots[slot] = .unreadable
        if let directory { doomedDirectories[slot] = directory }
    }

    /// The page is about to be destroyed. Its slot is not reused before the read-back.
    func retire(_ slot: Int) { slots[slot] = .unreadable }

    /// Overwrites a row's page and reads it back. `directory`: the row's, if known.
    func destroy(_ slot: Int, directory: String?, _ keys: GridKeys?) throws(StoreError) {
        let beginning: [UInt8]
        if let keys, let directory {
            beginning = DestroyedRow.note(directory: directory, slot: slot, keys: keys)
        } else {
            beginning = DestroyedRow.burnt
        }
        try file.destroy(slot, beginning: beginning)
    }

    /// Destroys a marked page. The caller removes the mark.
    func destroyDoomed(_ slot: Int, _ keys: GridKeys?) throws(StoreError) {
        let directory = doomedDirectories[slot]
        try destroy(slot, directory: directory, keys)
        reserve(slot)
        doomedDirectories[slot] = nil
        if let directory { directories.abandon(directory) }
    }

    /// Destroys the page of the fuse, not a later one in its slot. False when the page is gone already.
    func destroy(namedBy fuse: ColumnHeader, _ keys: GridKeys?) throws(StoreError) -> Bool {
        let slot = Int(fuse.rowSlot)
        guard slot < file.pageCount, try fingerprint(fuse.rowSlot) == fuse.rowFingerprint else { return false }
        try destroy(slot, directory: doomedDirectories[slot], keys)
        doomed.remove(DoomedPage(file: .rows, slot: slot))
        if let directory = doomedDirectories.removeValue(forKey: slot) { directories.abandon(directory) }
        reserve(slot)
        return true
    }

    /// Reserves the slot of a destroyed page that names a directory.
    func reserve(_ slot: Int) {
        slots[slot] = .unreadable
        reservedSlots.append(slot)
    }

    /// Makes the new names of destroyed directories durable. Then the pages that name them may be overwritten.
    func settleAbandoned() {
        // After a failure the slots stay reserved until the next attempt.
        guard !reservedSlots.isEmpty, !home.isReadOnly, directories.settleAbandoned() else { return }
        for slot in reservedSlots where slots[slot] == .unreadable {
            if burntSlots.contains(slot), (try? file.destroy(slot)) == nil { continue }
            slots[slot] = .free
        }
        reservedSlots = []
        burntSlots = []
    }
}

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
