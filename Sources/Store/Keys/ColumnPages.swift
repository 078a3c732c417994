import Crypto

/// The pages of `columns.slots`, one for each expiry bucket and each fuse: their headers without the passphrase.
final class ColumnPages {
    private let services: StoreServices
    private let doomed: DoomedPages
    let file: SlotFile
    private var slots = SlotMap()
    /// Clear headers, by slot: known without the passphrase.
    private(set) var headers: [Int: ColumnHeader] = [:]
    /// Every page could be read, so that a segment without one has really expired.
    private(set) var isComplete = true

    init(_ services: StoreServices, file: SlotFile, doomed: DoomedPages) {
        self.services = services
        self.file = file
        self.doomed = doomed
    }

    /// What can be known without the passphrase. A page that says it is a column and is damaged is destroyed: its end is no
    /// longer known.
    func readHeaders() {
        slots.extend(to: file.pageCount)
        file.forEachPage { slot, page in
            guard let page else {
                slots[slot] = .unreadable
                isComplete = false
                services.report("page \(slot) of \(file.path) cannot be read")
                return
            }
            if let header = ColumnHeader(page: page) {
                slots[slot] = .used
                headers[slot] = header
            } else if ColumnHeader.hasMagic(page) {
                services.report("the header of page \(slot) of \(file.path) is damaged: its messages count as expired")
                if !services.isReadOnly { doom(slot) }
            }
        }
    }

    enum Opened {
        case column(Column)
        /// What the page is was changed on the disk.
        case changed
        case unreadable
    }

    /// Opens the page that has this header.
    func open(_ slot: Int, _ header: ColumnHeader, _ keys: GridKeys) -> Opened {
        guard let page = try? file.read(slot) else {
            services.report("page \(slot) of \(file.path) cannot be read")
            isComplete = false
            return .unreadable
        }
        let opened = KeyPage.open(
            page, file: file.name, index: slot, headerByteCount: ColumnHeader.byteCount, keys: keys)
        guard let secret = opened, ColumnHeader(page: page) == header else {
            services.report("page \(slot) of \(file.path) was changed: its messages count as expired")
            return .changed
        }
        return .column(Column(slot: slot, header: header, secret: secret))
    }

    /// A new page, on the disk when this returns.
    func make(_ header: ColumnHeader, _ keys: GridKeys) throws(StoreError) -> Column {
        if services.isReadOnly { throw .readOnly(path: file.path) }
        let slot = try slots.take(growing: file)
        let page = KeyPage.make(file: file.name, index: slot, header: header.encoded, keys: keys)
        do throws(StoreError) {
            // The header last: a page of which a power cut has left only the header would be taken for one that was changed,
            // and a changed fuse takes its row along.
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

    /// The bucket or fuse has ended: forgets the header and marks the page.
    func end(_ slot: Int) {
        headers[slot] = nil
        doom(slot)
    }

    private func doom(_ slot: Int) {
        doomed.insert(DoomedPage(file: .columns, slot: slot))
        slots[slot] = .unreadable
    }

    /// Overwrites a page that is marked and reads it back. Of a fuse the header goes first: half a fuse would be taken for
    /// one that was changed, and take its row along. The mark is the caller's to remove.
    func destroyDoomed(_ slot: Int) throws(StoreError) {
        if let page = try? file.read(slot), ColumnHeader(page: page)?.tier == .fuse {
            try file.write(slot, randomBytes(ColumnHeader.byteCount) + page[ColumnHeader.byteCount...])
        }
        try file.destroy(slot)
        slots[slot] = .free
    }
}
