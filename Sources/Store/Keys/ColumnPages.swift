import Crypto

/// The pages of `columns.slots`, one per expiry bucket and fuse. Their headers need no passphrase.
final class ColumnPages: SealedPages {
    private(set) var headers: [Int: ColumnHeader] = [:]
    /// Every page could be read, so a segment without a column has really expired.
    private(set) var isComplete = true

    /// Reads the clear headers. A damaged column page is destroyed: its end is no longer known.
    func readHeaders() {
        isComplete = readAll { slot, page in
            if let header = ColumnHeader(page: page) {
                slots[slot] = .used
                headers[slot] = header
            } else if ColumnHeader.hasMagic(page) {
                findings.report("the header of page \(slot) of \(file.path) is damaged: its messages count as expired")
                if !isReadOnly { doom(slot) }
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
        let (slot, secret) = try make { slot throws(StoreError) in
            let made = KeyPage.make(file: file.name, index: slot, header: header.encoded, keys: keys)
            // Header last: after a power cut, a header without its page would count as altered and destroy a fuse's
            // row.
            try file.write(slot, randomBytes(header.encoded.count) + made.page[header.encoded.count...])
            try file.write(slot, made.page)
            return made.secret
        }
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

    /// The header of a fuse goes first: half a fuse would count as altered and destroy its row.
    override func destroy(_ slot: Int) throws(StoreError) {
        if let page = try? file.read(slot), ColumnHeader(page: page)?.tier == .fuse {
            try file.write(slot, randomBytes(ColumnHeader.byteCount) + page[ColumnHeader.byteCount...])
        }
        try super.destroy(slot)
    }
}
