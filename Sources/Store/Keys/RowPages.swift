import Cryptography

final class RowPages: SealedPages {
    /// `nil` while the store is locked.
    var keys: GridKeys?
    private let directories: InboxDirectories
    private(set) var doomedDirectories: [Int: String] = [:]
    private(set) var burntSlots: [Int] = []
    /// Slots whose pages name destroyed directories. They are not reused until the directories' new names are durable.
    private var reservedSlots: [Int] = []

    init(_ file: SlotFile, _ directories: InboxDirectories, isReadOnly: Bool, _ findings: DamageList) {
        self.directories = directories
        super.init(file, isReadOnly: isReadOnly, findings)
    }

    /// - Parameters:
    ///   - fused: slots that fuses refer to.
    ///   - enter: called with each row.
    /// - Returns: `isComplete` is false when a page could not be read, because then a directory may belong to an unseen
    ///   row. `fingerprints` are of the pages in `fused`.
    func open(_ keys: GridKeys, fused: Set<UInt32>, _ enter: (UInt32, SharedSecret) -> Void) -> (
        isComplete: Bool, fingerprints: [UInt32: [UInt8]]
    ) {
        var fingerprints: [UInt32: [UInt8]] = [:]
        directories.forgetNames()
        burntSlots = []
        reservedSlots = []
        slots = SlotMap()
        // The file was longer once: lost pages may have named the directories that have none now.
        let isCut = file.pageCount < SlotFile.growth
        if isCut { findings.report("\(file.path) was cut off") }
        let isComplete = readAll { slot, page in
            if doomed.contains(slot) {
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
        return (isComplete && !isCut, fingerprints)
    }

    /// Creates a page. It is durable on return.
    func make(_ keys: GridKeys) throws(StoreError) -> (slot: UInt32, secret: SharedSecret) {
        settleAbandoned()
        guard file.pageCount + SlotFile.growth < Int(UInt32.max) else { throw .full(path: file.path) }
        return try make { free throws(StoreError) in
            let made = KeyPage.make(file: file.name, index: free.lowerBound, header: [], keys: keys)
            try file.write(free.lowerBound, made.page)
            return (UInt32(truncatingIfNeeded: free.lowerBound), made.secret)
        }
    }

    func fingerprint(_ slot: UInt32) throws(StoreError) -> [UInt8] { KeyPage.fingerprint(try file.read(Int(slot))) }

    /// `directory`: the row's.
    func doom(_ slot: Int, directory: String) {
        doom(slot)
        doomedDirectories[slot] = directory
    }

    /// The page is about to be destroyed. Its slot is not reused before the read-back.
    func retire(_ slot: Int) { slots[slot] = .unreadable }

    /// Overwrites a row's page and reads it back. `directory`: the row's, if known.
    func destroy(_ slot: Int, directory: String?) throws(StoreError) {
        let beginning: [UInt8]
        if let keys, let directory {
            beginning = DestroyedRow.note(directory: directory, slot: slot, keys: keys)
        } else {
            beginning = DestroyedRow.burnt
        }
        try file.destroy(slot, beginning: beginning)
    }

    override func destroy(_ slot: Int) throws(StoreError) {
        let directory = doomedDirectories[slot]
        try destroy(slot, directory: directory)
        reserve(slot)
        doomedDirectories[slot] = nil
        if let directory { directories.abandon(directory) }
    }

    /// Destroys the page of the fuse, not a later one in its slot. False when the page is gone already.
    func destroy(namedBy fuse: ColumnHeader) throws(StoreError) -> Bool {
        let slot = Int(fuse.rowSlot)
        guard slot < file.pageCount, try fingerprint(fuse.rowSlot) == fuse.rowFingerprint else { return false }
        try destroy(slot)
        removeMark(slot)
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
        guard !reservedSlots.isEmpty, !isReadOnly, directories.settleAbandoned() else { return }
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
