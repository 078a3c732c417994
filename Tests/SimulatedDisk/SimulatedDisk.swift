import Glibc
import Store
import Synchronization

/// A disk in memory that distinguishes what is on the platter from what is only in the cache, crashes at the n-th
/// operation, tears writes at 512 bytes, loses what was not synchronised, and fails on command.
package final class SimulatedDisk: FileSystem {
    package final class Node {
        package let isDirectory: Bool
        package var mode: UInt32
        package var content: [UInt8] = []
        package var entries: [String: Int] = [:]
        /// What survives a power cut for certain.
        package var durable: [UInt8] = []
        package var durableEntries: [String: Int] = [:]
        /// Writes since the last synchronisation, any sector of which may or may not survive.
        package var unsynced: [(offset: Int, bytes: [UInt8])] = []

        package init(isDirectory: Bool) {
            self.isDirectory = isDirectory
            mode = isDirectory ? 0o700 : 0o600
        }
    }

    package struct Open {
        package let node: Int
        package let isWritable: Bool
        package let isDurable: Bool
        package let path: String
    }

    package struct Fault {
        /// The operation it strikes, counted from the start.
        package var at: Int
        package var code: Int32
        /// Whether it also strikes every later operation of the same kind.
        package var isLasting: Bool

        package init(at: Int, code: Int32, isLasting: Bool) {
            self.at = at
            self.code = code
            self.isLasting = isLasting
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
        /// No new blocks: writes that extend a file and new files fail with ENOSPC.
        package var isFull = false
        package var isReadOnly = false
        package var history: [[UInt8]] = []
        package var keepsHistory = false
        package var generator = Generator(seed: 1)
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

    package init() {
        var state = State()
        state.nodes[0] = Node(isDirectory: true)
        box = Mutex(Box(state: state))
    }

    package func with<Result>(_ body: (inout State) throws -> Result) rethrows -> Result {
        nonisolated(unsafe) var result: Result?
        try box.withLock { box in result = try body(&box.state) }
        return result!
    }

    package var operations: Int { with { $0.operations } }

    // MARK: - Faults

    /// Counts an operation and decides its fate. `isChange` operations are where a crash may leave half.
    private func begin(_ state: inout State, _ name: String) throws(SystemError) -> Bool {
        if state.isCrashed { throw SystemError(name, EIO) }
        state.operations += 1
        if let fault = state.fault, state.operations == fault.at || (fault.isLasting && state.operations > fault.at) {
            throw SystemError(name, fault.code)
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

    /// The power comes back: everything durable, and of the rest what luck left.
    /// - Parameter seed: decides the luck.
    package func reboot(seed: UInt64) {
        with { state in
            var luck = Generator(seed: seed)
            let mood = luck.next() % 3
            func survives() -> Bool { mood == 0 ? false : mood == 1 ? true : luck.next() % 2 == 0 }
            for number in state.nodes.keys.sorted() {
                guard let node = state.nodes[number] else { continue }
                for write in node.unsynced {
                    var position = 0
                    while position < write.bytes.count {
                        let sectorEnd = (write.offset + position) / 512 * 512 + 512
                        let end = min(write.bytes.count, sectorEnd - write.offset)
                        if survives() {
                            let needed = write.offset + end
                            if node.durable.count < needed {
                                node.durable += [UInt8](repeating: 0, count: needed - node.durable.count)
                            }
                            node.durable.replaceSubrange(
                                (write.offset + position)..<needed,
                                with: write.bytes[position..<end]
                            )
                        }
                        position = end
                    }
                }
                node.unsynced = []
                node.content = node.durable
                for name in Set(node.entries.keys).union(node.durableEntries.keys).sorted()
                where node.entries[name] != node.durableEntries[name] && survives() {
                    node.durableEntries[name] = node.entries[name]
                }
                node.entries = node.durableEntries
            }
            state.firstFile = state.nextFile
            state.files = [:]
            state.locks = [:]
            state.isCrashed = false
            state.crashAt = nil
            state.fault = nil
        }
    }

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
                state.nodes[folder]?.entries[last] = number
            }
            guard let number else { throw SystemError("open", ENOENT) }
            if halved { throw SystemError("open", EIO) }
            if access.contains(.directory), state.nodes[number]?.isDirectory != true {
                throw SystemError("open", ENOTDIR)
            }
            let file = state.nextFile
            state.nextFile += 1
            state.files[file] = Open(
                node: number,
                isWritable: access.contains(.write),
                isDurable: access.contains(.durable),
                path: name
            )
            return file
        }
    }

    package func close(_ file: Int32) {
        with { state in
            // A descriptor from before the power cut.
            if file < state.firstFile { return }
            guard let open = state.files.removeValue(forKey: file) else {
                preconditionFailure("closed twice: \(file)")
            }
            if state.locks[open.node] == file { state.locks[open.node] = nil }
        }
    }

    package func read(_ file: Int32, at offset: Int64, count: Int) throws(SystemError) -> [UInt8] {
        try run { state throws(SystemError) in
            if try begin(&state, "read") { throw SystemError("read", EIO) }
            let content = state.nodes[try open(state, file).node]?.content ?? []
            guard offset < content.count else { return [] }
            return Array(content[Int(offset)..<min(content.count, Int(offset) + count)])
        }
    }

    package func write(_ file: Int32, at offset: Int64, _ bytes: [UInt8]) throws(SystemError) {
        try run { state throws(SystemError) in
            let halved = try begin(&state, "write")
            let open = try open(state, file)
            guard open.isWritable else { throw SystemError("write", EBADF) }
            guard let node = state.nodes[open.node] else { throw SystemError("write", EIO) }
            if state.isReadOnly { throw SystemError("write", EROFS) }
            var bytes = bytes
            let isTooLong = state.isFull && Int(offset) + bytes.count > node.content.count
            // A full disk may have taken the first part of a write.
            if isTooLong { bytes = Array(bytes.prefix(max(0, node.content.count - Int(offset)))) }
            if !bytes.isEmpty {
                let end = Int(offset) + bytes.count
                if node.content.count < end {
                    node.content += [UInt8](repeating: 0, count: end - node.content.count)
                }
                node.content.replaceSubrange(Int(offset)..<end, with: bytes)
                node.unsynced.append((Int(offset), bytes))
                if state.keepsHistory { state.history.append(bytes) }
            }
            if isTooLong { throw SystemError("write", ENOSPC) }
            if halved { throw SystemError("write", EIO) }
            if open.isDurable { settle(node) }
        }
    }

    private func settle(_ node: Node) {
        node.durable = node.content
        node.durableEntries = node.entries
        node.unsynced = []
    }

    package func synchronize(_ file: Int32, dataOnly: Bool) throws(SystemError) {
        try run { state throws(SystemError) in
            do throws(SystemError) {
                if try begin(&state, "fsync") { throw SystemError("fsync", EIO) }
            } catch {
                // As Linux does: the dirty pages are dropped from the dirty list, and the next fsync succeeds.
                if !state.isCrashed, let open = state.files[file], let node = state.nodes[open.node] {
                    node.unsynced = []
                }
                throw error
            }
            guard let node = state.nodes[try open(state, file).node] else { throw SystemError("fsync", EIO) }
            var content = node.durable
            if node.unsynced.isEmpty, content.count != node.content.count || content != node.content {
                // Dropped earlier: not on the disk although the cache shows it.
                node.durableEntries = node.entries
                return
            }
            content = node.content
            node.durable = content
            settle(node)
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
            state.nodes[folder]?.entries[last] = state.nextNode
            state.nextNode += 1
            if halved { throw SystemError("mkdir", EIO) }
        }
    }

    package func remove(_ name: String, in directory: Int32, isDirectory: Bool) throws(SystemError) {
        try run { state throws(SystemError) in
            let halved = try begin(&state, "unlink")
            let folder = try open(state, directory).node
            guard let number = state.nodes[folder]?.entries[name] else { throw SystemError("unlink", ENOENT) }
            if state.isReadOnly { throw SystemError("unlink", EROFS) }
            if isDirectory, state.nodes[number]?.entries.isEmpty == false { throw SystemError("rmdir", ENOTEMPTY) }
            state.nodes[folder]?.entries[name] = nil
            if halved { throw SystemError("unlink", EIO) }
        }
    }

    package func rename(_ name: String, to newName: String, in directory: Int32) throws(SystemError) {
        try run { state throws(SystemError) in
            let halved = try begin(&state, "rename")
            let folder = try open(state, directory).node
            guard let number = state.nodes[folder]?.entries[name] else { throw SystemError("rename", ENOENT) }
            if state.isReadOnly { throw SystemError("rename", EROFS) }
            state.nodes[folder]?.entries[name] = nil
            state.nodes[folder]?.entries[newName] = number
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
            kind: node?.isDirectory == true ? .directory : .file,
            mode: node?.mode ?? 0,
            owner: user,
            byteCount: Int64(node?.content.count ?? 0)
        )
    }

    package func status(_ file: Int32) throws(SystemError) -> FileStatus {
        try run { state throws(SystemError) in
            if try begin(&state, "stat") { throw SystemError("stat", EIO) }
            return status(state, try open(state, file).node)
        }
    }

    package func status(path: String) throws(SystemError) -> FileStatus {
        try run { state throws(SystemError) in status(state, try node(&state, path, in: nil)) }
    }

    package func canonicalPath(_ path: String) throws(SystemError) -> String { path }

    package func tryLock(_ file: Int32) throws(SystemError) -> Bool {
        try run { state throws(SystemError) in
            let number = try open(state, file).node
            if let holder = state.locks[number], holder != file { return false }
            state.locks[number] = file
            return true
        }
    }

    package func erasurePromise(home: Int32, smallFile: Int32) -> ErasurePromise {
        ErasurePromise(.inPlace, "a simulated disk overwrites in place")
    }

    // MARK: - For tests

    /// Every file as it is now: path to bytes.
    package func files() -> [String: [UInt8]] {
        with { state in
            var found: [String: [UInt8]] = [:]
            func visit(_ number: Int, _ path: String) {
                guard let node = state.nodes[number] else { return }
                if !node.isDirectory { found[path] = node.content }
                for (name, child) in node.entries { visit(child, path + "/" + name) }
            }
            visit(0, "")
            return found
        }
    }

    /// Changes a file's bytes behind the store's back, durably; `nil` removes it.
    package func replace(_ path: String, with bytes: [UInt8]?) {
        with { state in
            let (parent, last) = split(path)
            guard let folder = try? node(&state, parent, in: nil) else { preconditionFailure(path) }
            guard let bytes else {
                state.nodes[folder]?.entries[last] = nil
                state.nodes[folder]?.durableEntries[last] = nil
                return
            }
            guard let number = state.nodes[folder]?.entries[last], let node = state.nodes[number] else {
                preconditionFailure(path)
            }
            node.content = bytes
            settle(node)
        }
    }

    /// The same disk once more, all of it durable.
    package func copy() -> SimulatedDisk {
        let other = SimulatedDisk()
        let (nodes, next) = with { state in
            var nodes: [Int: Node] = [:]
            for (number, node) in state.nodes {
                let copy = Node(isDirectory: node.isDirectory)
                copy.mode = node.mode
                copy.content = node.content
                copy.entries = node.entries
                copy.durable = node.content
                copy.durableEntries = node.entries
                nodes[number] = copy
            }
            return (nodes, state.nextNode)
        }
        other.with { state in
            state.nodes = nodes
            state.nextNode = next
        }
        return other
    }
}
