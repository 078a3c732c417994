import Crypto

/// The pages of `columns.slots`, one per expiry bucket and fuse. Their headers need no passphrase.
final class ColumnPages {
    private let home: HomeDirectory
    private let findings: DamageList
    private let doomed: DoomedPages
    let file: SlotFile
    private var slots = SlotMap()
    private(set) var headers: [Int: ColumnHeader] = [:]
    /// Every page could be read, so a segment without a column has really expired.
    private(set) var isComplete = true

    init(_ home: HomeDirectory, _ findings: DamageList, file: SlotFile, doomed: DoomedPages) {
        self.home = home
        self.findings = findings
        self.file = file
        self.doomed = doomed
    }

    /// Reads the clear headers. A damaged column page is destroyed: its end is no longer known.
    func readHeaders() {
        slots.extend(to: file.pageCount)
        file.forEachPage { slot, page in
            guard let page else {
                slots[slot] = .unreadable
                isComplete = false
                findings.report("page \(slot) of \(file.path) cannot be read")
                return
            }
            if let header = ColumnHeader(page: page) {
                slots[slot] = .used
                headers[slot] = header
            } else if ColumnHeader.hasMagic(page) {
                findings.report("the header of page \(slot) of \(file.path) is damaged: its messages count as expired")
                if !home.isReadOnly { doom(slot) }
            }
        }
    }

    enum Opened {
        case column(Column)
        /// The page on the disk is not authentic.
        case changed
        case unreadable
    }

    func open(_ slot: Int, _ header: ColumnHeader, _ keys: GridKeys) -> Opened {
        guard let page = try? file.read(slot) else {
            findings.report("page \(slot) of \(file.path) cannot be read")
            isComplete = false
            return .unreadable
        }
        let opened = KeyPage.open(
            page, file: file.name, index: slot, headerByteCount: ColumnHeader.byteCount, keys: keys)
        guard let secret = opened, ColumnHeader(page: page) == header else {
            findings.report("page \(slot) of \(file.path) was changed: its messages count as expired")
            return .changed
        }
        return .column(Column(slot: slot, header: header, secret: secret))
    }

    /// Creates a page. It is durable on return.
    func make(_ header: ColumnHeader, _ keys: GridKeys) throws(StoreError) -> Column {
        if home.isReadOnly { throw .readOnly(path: file.path) }
        let slot = try slots.take(growing: file)
        let page = KeyPage.make(file: file.name, index: slot, header: header.encoded, keys: keys)
        do throws(StoreError) {
            // Header last: after a power cut, a header without its page would count as altered and destroy a fuse's
            // row.
            try file.write(slot, randomBytes(header.encoded.count) + page[header.encoded.count...])
            try file.write(slot, page)
        } catch {
            doom(slot)
            throw error
        }
        let opened = KeyPage.open(
            page, file: file.name, index: slot, headerByteCount: ColumnHeader.byteCount, keys: keys)
        guard let secret = opened else { preconditionFailure("a page that was just sealed opens") }
        slots[slot] = .used
        headers[slot] = header
        return Column(slot: slot, header: header, secret: secret)
    }

    func fuses(of slot: UInt32) -> [(slot: Int, header: ColumnHeader)] {
        headers.filter { $0.value.tier == .fuse && $0.value.rowSlot == slot }.map { ($0.key, $0.value) }
    }

    // MARK: - Destroying

    /// The bucket or fuse has ended: forgets the header and marks the page for destruction.
    func end(_ slot: Int) {
        headers[slot] = nil
        doom(slot)
    }

    private func doom(_ slot: Int) {
        doomed.insert(DoomedPage(file: .columns, slot: slot))
        slots[slot] = .unreadable
    }

    /// Overwrites a marked page and reads it back. The header of a fuse goes first: half a fuse would count as altered
    /// and destroy its row. The caller removes the mark.
    func destroyDoomed(_ slot: Int) throws(StoreError) {
        if let page = try? file.read(slot), ColumnHeader(page: page)?.tier == .fuse {
            try file.write(slot, randomBytes(ColumnHeader.byteCount) + page[ColumnHeader.byteCount...])
        }
        try file.destroy(slot)
        slots[slot] = .free
    }
}
