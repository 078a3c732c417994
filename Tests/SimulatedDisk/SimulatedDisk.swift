import Glibc
import Store
import Synchronization

/// An in-memory disk with a volatile cache. It crashes at the n-th operation, tears writes at 512 bytes, loses unsynced
/// data and fails on command. Copies share unchanged pages.
package final class SimulatedDisk: FileSystem {
    package static let sectorByteCount = 512
    private static let blockByteCount = 4_096

    /// A cached version of a sector since it was last durable.
    struct Version {
        let bytes: [UInt8]
        /// A failed fsync has marked the page clean: the version may have arrived, and no later fsync writes it.
        var isDropped = false
    }

    package struct Node {
        package let isDirectory: Bool
        package var mode: UInt32
        package var content = SimulatedBytes()
        package var entries: [String: Int] = [:]
        /// Content that certainly survives a power cut.
        package var durable = SimulatedBytes()
        package var durableEntries: [String: Int] = [:]
        /// Content that may survive it, by sector, oldest first.
        var pending: [Int: [Version]] = [:]
        var sizes: [Int] = []
        var pendingEntries: [String: [Int?]] = [:]

        init(isDirectory: Bool) {
            self.isDirectory = isDirectory
            mode = isDirectory ? 0o700 : 0o600
        }

        var isClean: Bool { pending.isEmpty && sizes.isEmpty && pendingEntries.isEmpty }
        var durableCount: Int { durable.count }

        mutating func restart() {
            content = durable
            entries = durableEntries
            pending = [:]
            sizes = []
            pendingEntries = [:]
        }
    }

    package struct Open {
        package let node: Int
        package let isWritable: Bool
        package let isDurable: Bool
        package let path: String
    }

    package struct Fault {
        /// The number of the first failing operation, counted from the start.
        package var at: Int
        package var code: Int32
        package var isLasting: Bool
        /// Only operations with the name of the first failing one fail.
        package var isForOneCall: Bool

        package init(at: Int, code: Int32, isLasting: Bool, isForOneCall: Bool = false) {
            (self.at, self.code, self.isLasting, self.isForOneCall) = (at, code, isLasting, isForOneCall)
        }
    }

    package struct State {
        package var nodes: [Int: Node] = [:]
        package var files: [Int32: Open] = [:]
        package var nextNode = 1
        package var nextFile: Int32 = 3
        package var firstFile: Int32 = 3
        package var locks: [Int: Int32] = [:]
        package var operations = 0
        package var crashAt: Int?
        package var isCrashed = false
        package var fault: Fault?
        package var struckCall: String?
        /// A full disk: writes that need a new block, and new files, fail with ENOSPC.
        package var isFull = false
        package var fullAt: Int?
        package var isReadOnly = false
        /// Unreadable ranges by the file name at opening.
        package var unreadable: [String: Range<Int>] = [:]
        /// Every write, in order, if ``keepsHistory``.
        package var history: [[UInt8]] = []
        package var keepsHistory = false
        /// fsync succeeds without making anything durable, as on a disk with its own volatile cache.
        package var liesAboutBarriers = false
        /// fsync of the file opened by this name has no effect, so that a commit is acknowledged before its barrier.
        package var skipsBarriersOf: String?
        /// Zeros are not written to this file, so that its ciphertext outlives erasure.
        package var keepsWhatIsErasedOf: String?
        /// Every write is durable at once, for tests without power cuts.
        package var isWrittenThrough = false
        /// Keeps overwritten blocks, like a copy-on-write file system or one that replaces files by renaming.
        package var keepsOldBlocks = false
        var oldBlocks: [(offset: Int, bytes: [UInt8])] = []
        /// Called with a snapshot at every moment when a power cut could leave something new.
        var observer: ((SimulatedDisk) -> Void)?

        mutating func restart() {
            firstFile = nextFile
            files = [:]
            locks = [:]
            isCrashed = false
            crashAt = nil
            fault = nil
            fullAt = nil
            struckCall = nil
            observer = nil
        }
    }

    package struct Generator: RandomNumberGenerator {
        package var state: UInt64
        package init(seed: UInt64) { state = seed &* 0x9E37_79B9_7F4A_7C15 | 1 }
        package mutating func next() -> UInt64 {
            state ^= state << 13
            state ^= state >> 7
            state ^= state << 17
            return state
        }
    }

    private struct Box: @unchecked Sendable { var state: State }
    private let box: Mutex<Box>
    package let user: UInt32 = 1_000

    package convenience init() {
        var state = State()
        state.nodes[0] = Node(isDirectory: true)
        self.init(state: state)
    }

    init(state: State) { box = Mutex(Box(state: state)) }

    package func with<Result>(_ body: (inout State) throws -> Result) rethrows -> Result {
        nonisolated(unsafe) var result: Result?
        try box.withLock { box in result = try body(&box.state) }
        return result!
    }

    package var operations: Int { with { $0.operations } }

    // MARK: - Faults

    /// Counts an operation and applies faults. Returns whether the power fails during it.
    private func begin(_ state: inout State, _ name: String) throws(SystemError) -> Bool {
        if state.isCrashed { throw SystemError(name, EIO) }
        state.operations += 1
        if state.operations == state.fullAt { state.isFull = true }
        if let fault = state.fault {
            let isFirst = state.operations == fault.at
            if isFirst { state.struckCall = name }
            let isLater = fault.isLasting && state.operations > fault.at
            if isFirst || isLater && (!fault.isForOneCall || state.struckCall == name) {
                throw SystemError(name, fault.code)
            }
        }
        if state.operations == state.crashAt {
            state.isCrashed = true
            return true
        }
        return false
    }

    private func run<Result>(_ body: (inout State) throws(SystemError) -> Result) throws(SystemError) -> Result {
        nonisolated(unsafe) var result: Swift.Result<Result, SystemError>?
        box.withLock { box in
            do throws(SystemError) { result = .success(try body(&box.state)) } catch { result = .failure(error) }
        }
        return try result!.get()
    }

    private func tell(_ state: State) { state.observer?(Self.snapshot(state)) }

    // MARK: - FileSystem

    private func node(_ state: inout State, _ name: String, in directory: Int32?) throws(SystemError) -> Int {
        var current = 0
        if let directory { current = try open(state, directory).node }
        for part in name.split(separator: "/") where part != "." {
            guard let next = state.nodes[current]?.entries[String(part)] else { throw SystemError("open", ENOENT) }
            current = next
        }
        return current
    }

    private func open(_ state: State, _ file: Int32) throws(SystemError) -> Open {
        guard let open = state.files[file] else { throw SystemError("descriptor", EBADF) }
        return open
    }

    private func split(_ name: String) -> (parent: String, last: String) {
        guard let slash = name.lastIndex(of: "/") else { return ("", name) }
        return (String(name[..<slash]), String(name[name.index(after: slash)...]))
    }

    /// Adds or removes a directory entry; durable with the directory's next fsync.
    private func enter(_ state: inout State, _ folder: Int, _ name: String, _ node: Int?) {
        state.nodes[folder]?.entries[name] = node
        if state.isWrittenThrough {
            state.nodes[folder]?.durableEntries[name] = node
            return
        }
        state.nodes[folder]?.pendingEntries[name, default: []].append(node)
    }

    package func open(_ name: String, in directory: Int32?, _ access: FileAccess) throws(SystemError) -> Int32 {
        try run { state throws(SystemError) in
            let halved = try begin(&state, "open")
            let (parent, last) = split(name)
            let folder = try node(&state, parent, in: directory)
            var number = name == "/" || name == "." ? folder : state.nodes[folder]?.entries[last]
            if number != nil, access.contains(.create) { throw SystemError("open", EEXIST) }
            if state.isReadOnly, access.contains(.write) { throw SystemError("open", EROFS) }
            if number == nil, !access.isDisjoint(with: [.create, .createIfMissing]) {
                if state.isFull { throw SystemError("open", ENOSPC) }
                number = state.nextNode
                state.nextNode += 1
                state.nodes[state.nextNode - 1] = Node(isDirectory: false)
                enter(&state, folder, last, number)
                tell(state)
            }
            guard let number else { throw SystemError("open", ENOENT) }
            if halved { throw SystemError("open", EIO) }
            if access.contains(.directory), state.nodes[number]?.isDirectory != true {
                throw SystemError("open", ENOTDIR)
            }
            let file = state.nextFile
            state.nextFile += 1
            state.files[file] = Open(
                node: number, isWritable: access.contains(.write), isDurable: access.contains(.durable), path: name)
            return file
        }
    }

    package func close(_ file: Int32) {
        with { state in
            // The descriptor was opened before the power cut.
            if file < state.firstFile { return }
            guard let open = state.files.removeValue(forKey: file) else { preconditionFailure("closed twice: \(file)") }
            if state.locks[open.node] == file { state.locks[open.node] = nil }
        }
    }

    package func read(_ file: Int32, at offset: Int64, count: Int) throws(SystemError) -> [UInt8] {
        try run { state throws(SystemError) in
            if try begin(&state, "read") { throw SystemError("read", EIO) }
            let open = try open(state, file)
            if let bad = state.unreadable[open.path], bad.overlaps(Int(offset)..<(Int(offset) + count)) {
                throw SystemError("read", EIO)
            }
            return state.nodes[open.node]?.content.read(at: Int(offset), count: count) ?? []
        }
    }

    package func write(_ file: Int32, at offset: Int64, _ bytes: [UInt8]) throws(SystemError) {
        try run { state throws(SystemError) in
            let halved = try begin(&state, "write")
            let open = try open(state, file)
            guard open.isWritable else { throw SystemError("write", EBADF) }
            guard let count = state.nodes[open.node]?.content.count else { throw SystemError("write", EIO) }
            if state.isReadOnly { throw SystemError("write", EROFS) }
            if open.path == state.keepsWhatIsErasedOf, bytes.allSatisfy({ $0 == 0 }) { return }
            var part = bytes[...]
            // A full disk accepts bytes up to the end of the file's last block.
            let room = (count + Self.blockByteCount - 1) / Self.blockByteCount * Self.blockByteCount
            let isTooLong = state.isFull && Int(offset) + bytes.count > room
            if isTooLong { part = bytes.prefix(max(0, room - Int(offset))) }
            let sectors = put(&state, open.node, Int(offset), part)
            if isTooLong { throw SystemError("write", ENOSPC) }
            if halved { throw SystemError("write", EIO) }
            if open.isDurable {
                settle(&state, open.node, sectors)
                tell(state)
            }
        }
    }

    private func put(_ state: inout State, _ number: Int, _ offset: Int, _ bytes: ArraySlice<UInt8>) -> Range<Int> {
        guard !bytes.isEmpty, var node = state.nodes[number] else { return 0..<0 }
        state.nodes[number] = nil
        let old = node.content.count
        let end = offset + bytes.count
        if state.keepsOldBlocks { state.oldBlocks.append((offset, node.content.read(at: offset, count: bytes.count))) }
        if state.isWrittenThrough {
            // Changes one of the two while the other is empty, so that no page is copied.
            node.durable = SimulatedBytes()
            node.content.write(bytes, at: offset)
            node.durable = node.content
            state.nodes[number] = node
            return 0..<0
        }
        node.content.write(bytes, at: offset)
        let sectors = (offset / Self.sectorByteCount)..<((end + Self.sectorByteCount - 1) / Self.sectorByteCount)
        for sector in sectors {
            var content = node.content.read(at: sector * Self.sectorByteCount, count: Self.sectorByteCount)
            content += [UInt8](repeating: 0, count: Self.sectorByteCount - content.count)
            node.pending[sector, default: []].append(Version(bytes: content))
            // A power cut may leave any size the file was extended to.
            let sectorEnd = min(end, (sector + 1) * Self.sectorByteCount)
            if sectorEnd > old { node.sizes.append(sectorEnd) }
        }
        state.nodes[number] = node
        if state.keepsHistory { state.history.append(Array(bytes)) }
        tell(state)
        return sectors
    }

    /// Makes the cached version of these sectors durable.
    private func settle(_ state: inout State, _ number: Int, _ sectors: some Sequence<Int>) {
        guard !state.isWrittenThrough, var node = state.nodes[number] else { return }
        state.nodes[number] = nil
        for sector in sectors {
            guard let version = node.pending.removeValue(forKey: sector)?.last else { continue }
            node.durable.write(version.bytes[...], at: sector * Self.sectorByteCount)
        }
        node.durable.resize(to: node.content.count)
        node.sizes = []
        state.nodes[number] = node
    }

    package func synchronize(_ file: Int32, dataOnly: Bool) throws(SystemError) {
        try run { state throws(SystemError) in
            do throws(SystemError) { if try begin(&state, "fsync") { throw SystemError("fsync", EIO) } } catch {
                // Like Linux: a failed fsync marks the dirty pages clean, and the next fsync succeeds.
                if !state.isCrashed, let number = state.files[file]?.node { drop(&state, number) }
                throw error
            }
            let number = try open(state, file).node
            guard let node = state.nodes[number] else { throw SystemError("fsync", EIO) }
            if state.liesAboutBarriers || state.files[file]?.path == state.skipsBarriersOf { return }
            writeBack(&state, number)
            if !node.isClean { tell(state) }
        }
    }

    package func synchronizeAll(_ file: Int32) throws(SystemError) {
        try run { state throws(SystemError) in
            if try begin(&state, "syncfs") { throw SystemError("syncfs", EIO) }
            if state.liesAboutBarriers { return }
            let changed = state.nodes.filter { !$0.value.isClean }.keys.sorted()
            for number in changed { writeBack(&state, number) }
            if !changed.isEmpty { tell(state) }
        }
    }

    private func writeBack(_ state: inout State, _ number: Int) {
        guard let node = state.nodes[number] else { return }
        settle(&state, number, node.pending.filter { $0.value.contains { !$0.isDropped } }.keys.sorted())
        for (name, versions) in node.pendingEntries {
            if let last = versions.last { state.nodes[number]?.durableEntries[name] = last }
        }
        state.nodes[number]?.pendingEntries = [:]
    }

    private func drop(_ state: inout State, _ number: Int) {
        for sector in state.nodes[number].map({ Array($0.pending.keys) }) ?? [] {
            for index in state.nodes[number]?.pending[sector]?.indices ?? 0..<0 {
                state.nodes[number]?.pending[sector]?[index].isDropped = true
            }
        }
    }

    package func makeDirectory(_ name: String, in directory: Int32?) throws(SystemError) {
        try run { state throws(SystemError) in
            let halved = try begin(&state, "mkdir")
            let (parent, last) = split(name)
            let folder = try node(&state, parent, in: directory)
            if state.nodes[folder]?.entries[last] != nil { throw SystemError("mkdir", EEXIST) }
            if state.isReadOnly { throw SystemError("mkdir", EROFS) }
            if state.isFull { throw SystemError("mkdir", ENOSPC) }
            state.nodes[state.nextNode] = Node(isDirectory: true)
            enter(&state, folder, last, state.nextNode)
            state.nextNode += 1
            tell(state)
            if halved { throw SystemError("mkdir", EIO) }
        }
    }

    package func remove(_ name: String, in directory: Int32, isDirectory: Bool) throws(SystemError) {
        try run { state throws(SystemError) in
            let halved = try begin(&state, "unlink")
            let folder = try open(state, directory).node
            guard let number = state.nodes[folder]?.entries[name] else { throw SystemError("unlink", ENOENT) }
            if state.isReadOnly { throw SystemError("unlink", EROFS) }
            if state.nodes[number]?.isDirectory != isDirectory {
                throw SystemError("unlink", isDirectory ? ENOTDIR : EISDIR)
            }
            if isDirectory, state.nodes[number]?.entries.isEmpty == false { throw SystemError("rmdir", ENOTEMPTY) }
            enter(&state, folder, name, nil)
            tell(state)
            if halved { throw SystemError("unlink", EIO) }
        }
    }

    package func rename(_ name: String, to newName: String, in directory: Int32) throws(SystemError) {
        try run { state throws(SystemError) in
            let halved = try begin(&state, "rename")
            let folder = try open(state, directory).node
            guard let number = state.nodes[folder]?.entries[name] else { throw SystemError("rename", ENOENT) }
            if state.isReadOnly { throw SystemError("rename", EROFS) }
            enter(&state, folder, name, nil)
            enter(&state, folder, newName, number)
            tell(state)
            if halved { throw SystemError("rename", EIO) }
        }
    }

    package func list(_ directory: Int32) throws(SystemError) -> [String] {
        try run { state throws(SystemError) in
            if try begin(&state, "readdir") { throw SystemError("readdir", EIO) }
            return state.nodes[try open(state, directory).node]?.entries.keys.sorted() ?? []
        }
    }

    private func status(_ state: State, _ number: Int) -> FileStatus {
        let node = state.nodes[number]
        return FileStatus(
            kind: node?.isDirectory == true ? .directory : .file, mode: node?.mode ?? 0, owner: user,
            byteCount: Int64(node?.content.count ?? 0))
    }

    package func status(_ file: Int32) throws(SystemError) -> FileStatus {
        try run { state throws(SystemError) in
            if try begin(&state, "stat") { throw SystemError("stat", EIO) }
            return status(state, try open(state, file).node)
        }
    }

    package func status(path: String) throws(SystemError) -> FileStatus {
        try run { state throws(SystemError) in
            if try begin(&state, "lstat") { throw SystemError("lstat", EIO) }
            return status(state, try node(&state, path, in: nil))
        }
    }

    package func canonicalPath(_ path: String) throws(SystemError) -> String { path }

    package func tryLock(_ file: Int32) throws(SystemError) -> Bool {
        try run { state throws(SystemError) in
            if try begin(&state, "flock") { throw SystemError("flock", EIO) }
            let number = try open(state, file).node
            if let holder = state.locks[number], holder != file { return false }
            state.locks[number] = file
            return true
        }
    }

    package func erasurePromise(home: Int32, smallFile: Int32) -> ErasurePromise {
        ErasurePromise(.inPlace, "a simulated disk overwrites in place")
    }
}
