import Glibc

/// The home's journal: one file of fixed, preallocated length, so a commit for all inboxes is one write and one barrier
/// and changes no metadata.
///
/// The file has two halves. Blocks follow each other in one half until a checkpoint has written their data into the
/// record files. Then zeros overwrite the journal and it begins anew. If a checkpoint finds the disk full but a record
/// must be erased, the other records move to the other half.
///
/// One thread at a time uses a journal: the commit thread, or the store's while no commit is under way.
final class Journal: @unchecked Sendable {
    static let name = "journal"
    /// A longer file is not ours and is never read further.
    static let maximumByteCount: Int64 = 64 << 20
    private static let pageByteCount = JournalBlock.pageByteCount

    private let disk: any FileSystem
    private let file: FileDescriptor?
    let path: String
    let halfPageCount: Int
    private var half = 0
    private var position = 0
    /// The number of the next block. Never reuse the number of a failed write: its block may be on the disk.
    private var sequence: UInt64 = 1
    private var previous: UInt64 = 0
    private var first: UInt64 = 1
    /// Upper bound of the pages written in each half; the half's first page if there are none.
    private var used: [Int]
    /// No block with entries was written since the last reset, not even in part.
    private var isClean = true
    /// Pages are unreadable or only in the kernel's cache: all must be overwritten before the next write.
    var needsReset = false
    /// The last write has failed: its block may be in the kernel's cache only.
    private var isLastUncertain = false

    /// Creates the file with zeros, durable. The caller synchronises its directory.
    static func create(in home: HomeDirectory, byteCount: Int) throws(StoreError) {
        let disk = home.disk
        try onDisk(home.path(name)) { () throws(SystemError) in
            let file = try disk.open(name, in: home.descriptor, [.write, .create])
            defer { disk.close(file) }
            let run = 1 << 20
            for offset in stride(from: 0, to: byteCount, by: run) {
                try disk.write(file, at: Int64(offset), [UInt8](repeating: 0, count: min(run, byteCount - offset)))
            }
            try disk.synchronize(file, dataOnly: false)
        }
    }

    /// Opens the journal of a home. If it is missing or malformed, reports that and works without a journal.
    init(in home: HomeDirectory, damage: DamageList) {
        disk = home.disk
        let path = home.path(Self.name)
        self.path = path
        var pages = 0
        var opened: FileDescriptor?
        do throws(StoreError) {
            let file = try home.open(Self.name, home.isReadOnly ? [] : .write)
            opened = file
            let count = try onDisk(path) { () throws(SystemError) in try home.disk.status(file).byteCount }
            pages = Int(min(count, Self.maximumByteCount)) / Self.pageByteCount
            if pages < 4 { damage.report("\(path) was cut off: commits take longer without it") }
        } catch { damage.report("\(path): \(error): commits take longer without it") }
        file = opened
        halfPageCount = pages < 4 ? 0 : pages / 2
        used = [0, pages < 4 ? 0 : pages / 2]
    }

    func close() { if let file { disk.close(file) } }

    /// Bytes for blocks in one half. Its last page is for a marker.
    var halfByteCount: Int { max(0, halfPageCount - 1) * Self.pageByteCount }
    var usedByteCount: Int { (position - half * halfPageCount) * Self.pageByteCount }

    /// Writes one block for all batches. It is durable on return.
    func append(_ batches: [JournalBatch], _ key: JournalKey) throws(StoreError) {
        let pages = JournalBlock.pageCount(of: batches)
        guard !needsReset, position + pages < (half + 1) * halfPageCount else { throw .full(path: path) }
        isClean = false
        used[half] = max(used[half], position + pages)
        try write(batches, at: position, key)
        position += pages
    }

    private func write(_ batches: [JournalBatch], at page: Int, _ key: JournalKey) throws(StoreError) {
        guard let file else { throw .full(path: path) }
        let block = JournalBlock.encode(
            page: page, sequence: sequence, previous: previous, first: first, batches: batches, key: key)
        let number = sequence
        sequence += 1
        isLastUncertain = true
        try onDisk(path) { () throws(SystemError) in
            try disk.write(file, at: Int64(page) * Int64(Self.pageByteCount), block.bytes)
            try disk.synchronize(file, dataOnly: true)
        }
        (previous, isLastUncertain) = (number, false)
    }

    /// Overwrites all blocks with zeros once their data is in the record files. Durable on return.
    ///
    /// First writes a marker, a block without entries, into the last page of the half. It invalidates the blocks before
    /// it while the zeros are being written in any order. Only another marker, a single-sector write, overwrites its
    /// page. So even if zeroing failed, a torn block cannot destroy the marker.
    func reset(_ key: JournalKey) throws(StoreError) {
        guard file != nil, !isClean || needsReset else { return }
        let page = markerPage(of: half)
        let before = first
        first = sequence
        do throws(StoreError) { try write([], at: page, key) } catch {
            first = before
            throw error
        }
        first = sequence
        used[half] = min(used[half], page)
        try zero([0..<used[0], halfPageCount..<used[1]])
        needsReset = false
        isClean = true
        used = [0, halfPageCount]
        half = 0
        position = 0
    }

    private func markerPage(of half: Int) -> Int { (half + 1) * halfPageCount - 1 }

    /// Writes only these batches into the other half, then overwrites the old one.
    func move(to batches: [JournalBatch], _ key: JournalKey) throws(StoreError) {
        let pages = JournalBlock.pageCount(of: batches)
        guard !needsReset, pages < halfPageCount else { throw .full(path: path) }
        let old = half
        let start = (1 - old) * halfPageCount
        try zero([start..<used[1 - old]])
        used[1 - old] = start + pages
        isClean = false
        let before = first
        first = sequence
        do throws(StoreError) { try write(batches, at: start, key) } catch {
            first = before
            throw error
        }
        (half, position) = (1 - old, start + pages)
        let oldStart = old * halfPageCount
        try zero([oldStart..<used[old]])
        used[old] = oldStart
    }

    private func zero(_ ranges: [Range<Int>]) throws(StoreError) {
        guard let file, ranges.contains(where: { !$0.isEmpty }) else { return }
        try onDisk(path) { () throws(SystemError) in
            let run = 256
            for range in ranges {
                for page in stride(from: range.lowerBound, to: range.upperBound, by: run) {
                    let count = min(run, range.upperBound - page) * Self.pageByteCount
                    let zeros = [UInt8](repeating: 0, count: count)
                    try disk.write(file, at: Int64(page) * Int64(Self.pageByteCount), zeros)
                }
            }
            try disk.synchronize(file, dataOnly: true)
        }
    }

    /// Writes the whole file again: see ``Doubt/refused``.
    func rewrite() throws(StoreError) {
        guard let file else { return }
        try onDisk(path) { () throws(SystemError) in
            try disk.rewrite(file, byteCount: Int64(2 * halfPageCount * Self.pageByteCount))
            try disk.synchronize(file, dataOnly: true)
        }
    }

    func synchronize() throws(StoreError) {
        guard let file else { return }
        try onDisk(path) { () throws(SystemError) in try disk.synchronize(file, dataOnly: true) }
    }

    /// The valid blocks in order. Reports damage in the rest.
    func recover(_ key: JournalKey, _ damage: DamageList) -> [JournalBlock] {
        var found: [JournalBlock] = []
        var page = 0
        var isTorn = false
        used = [0, halfPageCount]
        // After an unlock no block may name the failed one as durable.
        if isLastUncertain { needsReset = true }
        let end = 2 * halfPageCount
        // A stretch at a time: the whole journal would be the largest piece of memory that a node ever takes.
        var (stretch, base): ([UInt8], Int) = ([], 0)
        while page < end {
            if page >= base + stretch.count / Self.pageByteCount {
                (stretch, base) = (read(page..<min(page + Self.stretchPageCount, end), damage), page)
            }
            var start = (page - base) * Self.pageByteCount
            if Self.isZero(stretch, at: start) {
                page += 1
                continue
            }
            if let count = JournalBlock.pageCount(stretch, at: start), count <= end - page,
                start + count * Self.pageByteCount > stretch.count
            {
                (stretch, base, start) = (read(page..<page + count, damage), page, 0)
            }
            let half = page / halfPageCount
            if let block = JournalBlock(stretch, at: start, page: page, key: key) {
                found.append(block)
                page += block.pageCount
                if block.isMarker, block.page == markerPage(of: half) { continue }
            } else {
                isTorn = true
                page += 1
            }
            used[half] = max(used[half], min(page, (half + 1) * halfPageCount))
        }
        let blocks = counted(found, damage)
        if isTorn { damage.report("\(path): its end makes no commit: a write that was interrupted, or damage") }
        // Unreadable pages may hold higher numbers, at most one each.
        sequence = max(sequence, (found.map(\.sequence).max() ?? 0) + 1) + (needsReset ? UInt64(end) : 0)
        (half, position, previous, first) = (0, 0, sequence - 1, sequence)
        if let last = blocks.last {
            half = last.page / halfPageCount
            position = last.page + last.pageCount
            previous = last.sequence
            first = last.isMarker ? sequence : last.first
        }
        if needsReset { used = [halfPageCount, 2 * halfPageCount] }
        isClean = found.allSatisfy(\.isMarker) && !isTorn
        if isClean, !needsReset { (half, position, first) = (0, 0, sequence) }
        return blocks
    }

    /// Compares a page in one call: most pages of a journal are zeros.
    private static func isZero(_ bytes: [UInt8], at start: Int) -> Bool {
        bytes.withUnsafeBytes { bytes in
            zeros.withUnsafeBytes { memcmp(bytes.baseAddress! + start, $0.baseAddress!, pageByteCount) == 0 }
        }
    }

    private static let zeros = [UInt8](repeating: 0, count: pageByteCount)

    /// The block with the highest number, then the predecessor that each block names as durable, back to `first`.
    ///
    /// A block that no later block names belongs to a failed, unacknowledged write and does not count. Only the last
    /// block may be such a one, because no block follows that could name it.
    private func counted(_ found: [JournalBlock], _ damage: DamageList) -> [JournalBlock] {
        guard let head = found.max(by: { $0.sequence < $1.sequence }) else { return [] }
        var counted = [head]
        var expected = head.previous
        for block in found.sorted(by: { $0.sequence > $1.sequence })
        where block.page / halfPageCount == head.page / halfPageCount && block.sequence <= expected {
            if block.sequence < head.first { break }
            if block.sequence < expected { reportMissing(block.sequence + 1, to: expected, damage) }
            counted.append(block)
            expected = block.previous
        }
        if expected >= head.first { reportMissing(head.first, to: expected, damage) }
        return counted.reversed()
    }

    private func reportMissing(_ from: UInt64, to last: UInt64, _ damage: DamageList) {
        damage.report("\(path) is damaged: commits \(from) to \(last) cannot be opened")
    }

    private static let stretchPageCount = 64

    /// Zeros in place of unreadable pages.
    private func read(_ pages: Range<Int>, _ damage: DamageList) -> [UInt8] {
        func read(_ pages: Range<Int>) -> [UInt8]? {
            let count = pages.count * Self.pageByteCount
            let bytes = file.flatMap {
                try? disk.read($0, at: Int64(pages.lowerBound) * Int64(Self.pageByteCount), count: count)
            }
            return bytes?.count == count ? bytes : nil
        }
        if let bytes = read(pages) { return bytes }
        return pages.flatMap { page in
            if let bytes = read(page..<page + 1) { return bytes }
            needsReset = true
            damage.report("pages of \(path) cannot be read: what was stored last may be lost")
            return Self.zeros
        }
    }
}
