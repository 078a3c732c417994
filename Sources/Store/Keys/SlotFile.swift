import Crypto
import Glibc

/// A file of 4 KiB pages that are written, and destroyed, in place. Free pages are random, so that without the
/// passphrase a row page cannot be told from a free one.
final class SlotFile {
    static let pageByteCount = 4_096
    /// A new file has this many pages, and grows by as many.
    static let growth = 64
    static let rowsName = "rows.slots"
    static let columnsName = "columns.slots"
    static let tombstonesName = "tombstones.slots"

    let name: String
    let path: String
    private let disk: any FileSystem
    private let file: FileDescriptor
    private(set) var pageCount: Int

    /// Makes the file with random pages, durable; its directory entry is the caller's to synchronise.
    static func create(_ name: String, in home: HomeDirectory) throws(StoreError) {
        let disk = home.disk
        try onDisk(home.path(name)) { () throws(SystemError) in
            let file = try disk.open(name, in: home.descriptor, [.write, .create])
            defer { disk.close(file) }
            try disk.write(file, at: 0, randomBytes(growth * pageByteCount))
            try disk.synchronize(file, dataOnly: false)
        }
    }

    init(_ name: String, in home: HomeDirectory) throws(StoreError) {
        self.name = name
        path = home.path(name)
        disk = home.disk
        let base: FileAccess = home.isReadOnly ? [] : [.write, .durable]
        file = try Self.openDirect(name, base, in: home)
        do throws(StoreError) {
            let status = try home.check(file, name)
            pageCount = Int(clamping: status.byteCount / Int64(Self.pageByteCount))
        } catch {
            home.disk.close(file)
            throw error
        }
    }

    /// O_DIRECT where the file system has it, so that reading back reads the disk and not the cache.
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

    func close() { disk.close(file) }

    /// Every page once more, as it is: see ``Doubt/refused``.
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

    /// Every page in order; `nil` for one the disk cannot read.
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

    /// One durable 4 KiB write in place.
    func write(_ index: Int, _ page: [UInt8]) throws(StoreError) {
        precondition(page.count == Self.pageByteCount && index < pageCount)
        try onDisk(path) { () throws(SystemError) in
            try disk.write(file, at: Int64(index) * Int64(Self.pageByteCount), page)
        }
    }

    /// Overwrites a page with random bytes and reads them back.
    /// - Parameter beginning: what the first of the bytes are instead.
    /// - Throws: when the page may still be there. It then has to be destroyed again, not merely synchronised again.
    func destroy(_ index: Int, beginning: [UInt8] = []) throws(StoreError) {
        try replace(index, beginning + randomBytes(Self.pageByteCount - beginning.count))
    }

    /// ``write(_:_:)``, and reads the page back.
    func replace(_ index: Int, _ page: [UInt8]) throws(StoreError) {
        try write(index, page)
        guard try read(index) == page else { throw .io(path: path, operation: "read back", code: EIO) }
    }

    /// Appends random pages, durable.
    func grow() throws(StoreError) {
        try onDisk(path) { () throws(SystemError) in
            let offset = Int64(pageCount) * Int64(Self.pageByteCount)
            try disk.write(file, at: offset, randomBytes(Self.growth * Self.pageByteCount))
            try disk.synchronize(file, dataOnly: false)
        }
        pageCount += Self.growth
    }
}

/// Which pages of a slot file are free, in use, or not to be trusted.
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

    /// The lowest free page, growing the file when none is left, and ahead of time so that a disk that has filled up
    /// meanwhile still has pages to spare.
    mutating func take(growing file: SlotFile) throws(StoreError) -> Int {
        extend(to: file.pageCount)
        if freeCount == 0 {
            try file.grow()
            extend(to: file.pageCount)
        } else if freeCount < 8, (try? file.grow()) != nil {
            extend(to: file.pageCount)
        }
        while firstMaybeFree < states.count {
            if states[firstMaybeFree] == .free { return firstMaybeFree }
            firstMaybeFree += 1
        }
        throw .full(path: file.path)
    }
}
