import Cryptography
import Glibc

/// 4 KiB pages, written and destroyed in place. Free pages are random, like row pages without the passphrase.
final class SlotFile {
    static let pageByteCount = 4_096
    /// Pages of a new file, and of each growth step.
    static let growth = 64
    static let rowsName = "rows.slots"
    static let columnsName = "columns.slots"
    static let tombstonesName = "tombstones.slots"
    /// The slot files of a home.
    static let names = [rowsName, columnsName, tombstonesName]

    let name: String
    let path: String
    private let disk: any FileSystem
    private let file: FileDescriptor
    private(set) var pageCount = 0
    private var isOpen = true

    /// Creates the file with random pages, durable. The caller synchronises its directory.
    static func create(_ name: String, in home: HomeDirectory) throws(StoreError) {
        try home.create(name, randomBytes(growth * pageByteCount))
    }

    init(_ name: String, in home: HomeDirectory) throws(StoreError) {
        self.name = name
        path = home.path(name)
        disk = home.disk
        let base: FileAccess = home.isReadOnly ? [] : [.write, .durable]
        file = try Self.openDirect(name, base, in: home)
        let status = try home.check(file, name)
        pageCount = Int(clamping: status.byteCount / Int64(Self.pageByteCount))
    }

    /// Uses O_DIRECT if the file system has it, so that read-back reads the disk and not the cache.
    private static func openDirect(_ name: String, _ base: FileAccess, in home: HomeDirectory) throws(StoreError)
        -> FileDescriptor
    {
        let disk = home.disk
        do throws(SystemError) {
            let file = try disk.open(name, in: home.descriptor, base.union(.direct))
            do throws(SystemError) {
                _ = try disk.read(file, at: 0, count: pageByteCount)
                return file
            } catch {
                disk.close(file)
                if error.code != EINVAL { throw error }
            }
        } catch {
            if error.code == ENOENT { throw .missing(path: home.path(name)) }
            if error.code == ELOOP { throw .symlink(path: home.path(name)) }
            if error.code != EINVAL && error.code != EOPNOTSUPP { throw StoreError(error, path: home.path(name)) }
        }
        return try onDisk(home.path(name)) { () throws(SystemError) in try disk.open(name, in: home.descriptor, base) }
    }

    deinit { close() }

    func close() {
        if isOpen { disk.close(file) }
        isOpen = false
    }

    /// Writes every page again: see ``Doubt/refused``.
    func rewrite() throws(StoreError) {
        try onDisk(path) { () throws(SystemError) in
            try disk.rewrite(file, byteCount: Int64(pageCount) * Int64(Self.pageByteCount))
        }
    }

    func synchronize() throws(StoreError) {
        try onDisk(path) { () throws(SystemError) in try disk.synchronize(file, dataOnly: false) }
    }

    func read(_ index: Int) throws(StoreError) -> [UInt8] {
        try onDisk(path) { () throws(SystemError) in
            try disk.read(file, at: Int64(index) * Int64(Self.pageByteCount), count: Self.pageByteCount)
        }
    }

    /// Passes `nil` for a page that the disk cannot read.
    func forEachPage(_ body: (Int, [UInt8]?) -> Void) {
        let run = Self.growth
        for start in stride(from: 0, to: pageCount, by: run) {
            let count = min(run, pageCount - start) * Self.pageByteCount
            let chunk = try? disk.read(file, at: Int64(start) * Int64(Self.pageByteCount), count: count)
            for index in start..<min(start + run, pageCount) {
                let offset = (index - start) * Self.pageByteCount
                if let chunk, chunk.count >= offset + Self.pageByteCount {
                    body(index, Array(chunk[offset..<offset + Self.pageByteCount]))
                } else {
                    body(index, try? read(index))
                }
            }
        }
    }

    /// Writes a page, or several that follow each other.
    func write(_ index: Int, _ pages: [UInt8]) throws(StoreError) {
        let count = pages.count / Self.pageByteCount
        precondition(pages.count == count * Self.pageByteCount && index + count <= pageCount)
        try onDisk(path) { () throws(SystemError) in
            try disk.write(file, at: Int64(index) * Int64(Self.pageByteCount), pages)
        }
    }

    /// Overwrites a page with random bytes and reads them back.
    /// - Parameter beginning: replaces the first random bytes.
    /// - Throws: when the page may still exist. The caller must then destroy it again; another fsync is not enough.
    func destroy(_ index: Int, beginning: [UInt8] = []) throws(StoreError) {
        try replace(index, beginning + randomBytes(Self.pageByteCount - beginning.count))
    }

    func replace(_ index: Int, _ page: [UInt8]) throws(StoreError) {
        try write(index, page)
        guard try read(index) == page else { throw .io(path: path, operation: "read back", code: EIO) }
    }

    /// Appends at least `count` random pages, durable.
    func grow(by count: Int) throws(StoreError) {
        let added = (count + Self.growth - 1) / Self.growth * Self.growth
        try onDisk(path) { () throws(SystemError) in
            let offset = Int64(pageCount) * Int64(Self.pageByteCount)
            try disk.write(file, at: offset, randomBytes(added * Self.pageByteCount))
            try disk.synchronize(file, dataOnly: false)
        }
        pageCount += added
    }
}

/// The state of each page in a slot file. An unreadable slot is not reused.
struct SlotMap {
    enum State { case free, used, unreadable }

    private var states: [State] = []
    private(set) var freeCount = 0
    private var firstMaybeFree = 0

    subscript(_ index: Int) -> State {
        get { index < states.count ? states[index] : .free }
        set {
            while states.count <= index {
                states.append(.free)
                freeCount += 1
            }
            if states[index] == .free { freeCount -= 1 }
            if newValue == .free {
                freeCount += 1
                firstMaybeFree = min(firstMaybeFree, index)
            }
            states[index] = newValue
        }
    }

    mutating func extend(to count: Int) { if count > states.count { self[count - 1] = .free } }

    /// Takes the lowest free pages that follow each other, at most `count`. Grows the file ahead of time, so that a
    /// full disk still has spare pages, and rather than fill single gaps with many pages.
    mutating func take(_ count: Int, growing file: SlotFile) throws(StoreError) -> Range<Int> {
        extend(to: file.pageCount)
        let shortest = min(count, 8)
        if freeCount >= count + 7, let free = free(count, atLeast: shortest) { return free }
        do throws(StoreError) { try file.grow(by: count) } catch {
            do throws(StoreError) { try file.grow(by: 1) } catch { if freeCount == 0 { throw error } }
        }
        extend(to: file.pageCount)
        guard let free = free(count, atLeast: shortest) ?? free(count, atLeast: 1) else { throw .full(path: file.path) }
        return free
    }

    private mutating func free(_ count: Int, atLeast shortest: Int) -> Range<Int>? {
        while firstMaybeFree < states.count, states[firstMaybeFree] != .free { firstMaybeFree += 1 }
        var start = firstMaybeFree
        while start < states.count {
            let end = states[start...].prefix(count).firstIndex { $0 != .free } ?? min(start + count, states.count)
            if end - start >= shortest { return start..<end }
            start = end + 1
        }
        return nil
    }
}
