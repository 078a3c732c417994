import Cryptography

/// The key pages of a home: rows, columns and tombstones, their ends, and the pages that await destruction.
final class KeyPages {
    let rows: RowPages
    let columns: ColumnPages
    let tombstones: TombstoneTable
    private let directories: InboxDirectories
    /// The first end of a column, a tombstone or a lost directory, due or not.
    private(set) var earliestEnd: Int64?

    /// - Parameter files: those of the rows, the columns and the tombstones.
    init(_ files: [SlotFile], isReadOnly: Bool, _ directories: InboxDirectories, _ findings: DamageList) {
        self.directories = directories
        rows = RowPages(files[0], directories, isReadOnly: isReadOnly, findings)
        columns = ColumnPages(files[1], isReadOnly: isReadOnly, findings)
        tombstones = TombstoneTable(files[2], isReadOnly: isReadOnly, findings)
    }

    private var files: [SlotFile] { [rows.file, columns.file, tombstones.file] }

    /// Reads the clear headers. A damaged column or tombstone page is destroyed: its end is no longer known.
    func readClearHeaders() {
        columns.readHeaders()
        tombstones.readHeaders()
        settleEnds()
    }

    func close() { for file in files { file.close() } }

    /// Writes every page again: see ``Doubt/refused``.
    func rewrite() throws(StoreError) { for file in files { try file.rewrite() } }

    func synchronize() throws(StoreError) { for file in files { try file.synchronize() } }

    func noteEnd(_ moment: Int64) { earliestEnd = min(earliestEnd ?? moment, moment) }

    func settleEnds() {
        let ends = [
            columns.headers.values.lazy.map(\.notAfter).min(), tombstones.ends.min(), directories.lostEnds.min(),
        ]
        earliestEnd = ends.compactMap { $0 }.min()
    }

    func hasOverdue(at moment: Int64) -> Bool {
        columns.headers.values.contains { $0.notAfter <= moment } || tombstones.ends.contains { $0 <= moment }
            || hasDoomed
    }

    /// - Returns: columns of the first headers: as many as one write takes.
    func makeColumns(_ headers: [ColumnHeader], _ keys: GridKeys) throws(StoreError) -> [Column] {
        let made = try columns.make(headers, keys)
        for column in made { noteEnd(column.header.notAfter) }
        return made
    }

    var hasDoomed: Bool { !rows.doomed.isEmpty || !columns.doomed.isEmpty || !tombstones.doomed.isEmpty }

    /// Overwrites the marked pages of rows and columns and reads them back. The pages of returned failures stay marked.
    @discardableResult func destroyDoomed() -> [StoreError] { rows.destroyDoomed() + columns.destroyDoomed() }

    func extinguishFuses(of slot: UInt32) {
        for (fuse, _) in columns.fuses(of: slot) { columns.end(fuse) }
        destroyDoomed()
    }

    /// Arms a fuse, which needs no passphrase to destroy the page. Removes later fuses of the same page.
    func light(_ fuse: ColumnHeader, _ keys: GridKeys) throws(StoreError) {
        _ = try makeColumns([fuse], keys)
        for (slot, other) in columns.fuses(of: fuse.rowSlot)
        where other.rowFingerprint == fuse.rowFingerprint && other.notAfter > fuse.notAfter { columns.end(slot) }
        destroyDoomed()
    }
}

/// The pages of one slot file: which slots are used, and which pages await destruction.
class SealedPages {
    let file: SlotFile
    let isReadOnly: Bool
    let findings: DamageList
    final var slots = SlotMap()
    /// Slots of the pages whose destruction failed or is still to come, in the order in which they were marked. They
    /// serve no data, and every reap retries.
    private(set) final var doomed: [Int] = []

    init(_ file: SlotFile, isReadOnly: Bool, _ findings: DamageList) {
        (self.file, self.isReadOnly, self.findings) = (file, isReadOnly, findings)
    }

    /// Passes every page that can be read, and reports the others.
    /// - Returns: whether every page could be read.
    final func readAll(_ body: (Int, [UInt8]) -> Void) -> Bool {
        var isComplete = true
        slots.extend(to: file.pageCount)
        file.forEachPage { slot, page in
            if let page { return body(slot, page) }
            slots[slot] = .unreadable
            findings.report("page \(slot) of \(file.path) cannot be read")
            isComplete = false
        }
        return isComplete
    }

    /// Writes pages into free slots that follow each other, at most `count`. They are durable on return.
    final func make<Made>(_ count: Int = 1, _ write: (_ free: Range<Int>) throws(StoreError) -> Made) throws(StoreError)
        -> Made
    {
        if isReadOnly { throw .readOnly(path: file.path) }
        let free = try slots.take(count, growing: file)
        do throws(StoreError) {
            let made = try write(free)
            for slot in free { slots[slot] = .used }
            return made
        } catch {
            // The write may have succeeded all the same: a slot is not reused before it is destroyed.
            for slot in free { doom(slot) }
            throw error
        }
    }

    /// Marks a page for destruction. It serves no data from here on.
    final func doom(_ slot: Int) {
        if !doomed.contains(slot) { doomed.append(slot) }
        slots[slot] = .unreadable
    }

    final func removeMark(_ slot: Int) { doomed.removeAll { $0 == slot } }

    /// Overwrites the marked pages and reads them back. The pages of returned failures stay marked.
    @discardableResult final func destroyDoomed(only: Int? = nil) -> [StoreError] {
        guard !isReadOnly else { return [] }
        var failures: [StoreError] = []
        for slot in doomed where only == nil || slot == only {
            do throws(StoreError) {
                try destroy(slot)
                removeMark(slot)
            } catch {
                findings.report("a page waits for its destruction: \(error)")
                failures.append(error)
            }
        }
        return failures
    }

    /// Overwrites a marked page and reads it back.
    func destroy(_ slot: Int) throws(StoreError) {
        try file.destroy(slot)
        slots[slot] = .free
    }
}

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
            } else if ColumnHeader.magic.begins(page) {
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

    /// Creates pages of the first headers, as many as one write takes. They are durable on return.
    func make(_ wanted: [ColumnHeader], _ keys: GridKeys) throws(StoreError) -> [Column] {
        let made = try make(wanted.count) { free throws(StoreError) in
            var pages: [UInt8] = []
            let made = zip(free, wanted).map { slot, header in
                let (page, secret) = KeyPage.make(file: file.name, index: slot, header: header.encoded, keys: keys)
                pages += page
                return Column(slot: slot, header: header, secret: secret)
            }
            // Headers last: after a power cut, a header without its page would count as altered and destroy a fuse's
            // row.
            var hidden = pages
            for start in stride(from: 0, to: pages.count, by: SlotFile.pageByteCount) {
                hidden.replaceSubrange(
                    start..<start + ColumnHeader.byteCount, with: randomBytes(ColumnHeader.byteCount))
            }
            try file.write(free.lowerBound, hidden)
            try file.write(free.lowerBound, pages)
            return made
        }
        for column in made { headers[column.slot] = column.header }
        return made
    }

    func fuses(of slot: UInt32) -> [(slot: Int, header: ColumnHeader)] {
        headers.filter { $0.value.tier == .fuse && $0.value.rowSlot == slot }.map { ($0.key, $0.value) }
    }

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
