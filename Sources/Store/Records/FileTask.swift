import Cryptography
import Glibc
import Synchronization

/// Data that a checkpoint writes into one file, so that the journal need not keep it.
struct FileTask: Sendable {
    enum Making: Sendable {
        case exists
        /// A segment: create its sidecar first.
        case withSidecar([UInt8])
        /// A log: write it under another name, then rename it over the previous log once it is durable.
        case replacing
        /// A log from the journal: write only if the file id matches, because another log may have replaced it.
        case onlyIfSame
    }

    /// Number within this process; -1 for a file that only the journal knows.
    let file: Int
    let place: FilePlace
    let making: Making
    /// Set for a log.
    let fileID: [UInt8]?
    /// The directory may not exist, or its name may not be durable.
    let isDirectoryNew: Bool
    let pieces: [FilePiece]

    var byteCount: Int { pieces.reduce(0) { $0 + $1.buffer.count } }

    /// Set for a segment whose sidecar may not be on the disk.
    var sidecar: [UInt8]? {
        if case .withSidecar(let bytes) = making { return bytes }
        return nil
    }

    var offset: Int64 { pieces.map(\.offset).min() ?? 0 }

    /// The file already has its name on the disk.
    var isPlaced: Bool {
        switch making {
        case .exists, .onlyIfSame: true
        case .withSidecar, .replacing: false
        }
    }

    /// The file's contents after the task, from the contents `found` on the disk.
    func applied(to found: [UInt8]) -> [UInt8] {
        var bytes = found
        if case .replacing = making { bytes = [] }
        for piece in pieces {
            let start = Int(clamping: piece.offset)
            let end = start + piece.buffer.count
            if bytes.count < end { bytes += [UInt8](repeating: 0, count: end - bytes.count) }
            bytes.withUnsafeMutableBytes { bytes in
                UnsafeMutableRawBufferPointer(rebasing: bytes[start..<end]).copyMemory(from: piece.buffer.bytes)
            }
        }
        return bytes
    }

    /// The task as a journal batch, with zeros in place of `spans`.
    func batch(without spans: [RecordFile.Span]) -> JournalBatch {
        var batch = JournalBatch(byteCount: byteCount)
        for piece in pieces {
            let start = batch.bodies.count
            batch.bodies.append(piece.buffer.bytes)
            let end = piece.offset + Int64(piece.buffer.count)
            for span in spans where span.offset < end && span.end > piece.offset {
                let from = start + Int(max(span.offset, piece.offset) - piece.offset)
                batch.bodies.zero(from..<(start + Int(min(span.end, end) - piece.offset)))
            }
            batch.add(
                JournalEntry(
                    place: place, sidecar: sidecar, fileID: fileID, offset: piece.offset, byteCount: piece.buffer.count)
            )
        }
        return batch
    }
}

extension FileTask {
    /// The data of a journal for each file.
    /// - Parameters:
    ///   - known: directories of readable rows.
    ///   - hasEnded: whether the bucket of a sidecar has ended. Such data is dropped.
    static func recovered(from blocks: [JournalBlock], known: Set<Bytes16>, hasEnded: ([UInt8]) -> Bool) -> [FileTask] {
        var order: [FilePlace] = []
        var found: [FilePlace: FoundFile] = [:]
        for block in blocks {
            var position = 0
            for entry in block.entries {
                let bytes = block.bodies[position..<(position + entry.byteCount)]
                position += entry.byteCount
                if let sidecar = entry.sidecar, hasEnded(sidecar) { continue }
                if found[entry.place] == nil { order.append(entry.place) }
                found[entry.place, default: FoundFile()].add(entry, bytes)
            }
        }
        return order.compactMap { place in found[place]?.task(place, isKnown: known.contains(place.directory)) }
    }
}

private struct FoundFile {
    private var sidecar: [UInt8]?
    private var fileID: [UInt8]?
    private var pieces: [FilePiece] = []
    private var hasBeginning = false

    mutating func add(_ entry: JournalEntry, _ bytes: ArraySlice<UInt8>) {
        if let bytes = entry.sidecar { sidecar = bytes }
        if entry.fileID != fileID {
            fileID = entry.fileID
            pieces = []
            hasBeginning = false
        }
        if entry.offset == 0 { hasBeginning = true }
        let buffer = RecordBuffer(capacity: bytes.count)
        bytes.withUnsafeBytes { buffer.append($0) }
        pieces.append(FilePiece(offset: entry.offset, buffer: buffer))
    }

    /// - Parameter isKnown: the directory belongs to a readable row. Otherwise it is only written to if it exists,
    ///   because its row page may have been unreadable.
    func task(_ place: FilePlace, isKnown: Bool) -> FileTask {
        var making = FileTask.Making.exists
        if place.kind == .log { making = hasBeginning ? .replacing : .onlyIfSame }
        if let sidecar { making = .withSidecar(sidecar) }
        return FileTask(file: -1, place: place, making: making, fileID: fileID, isDirectoryNew: isKnown, pieces: pieces)
    }
}

/// Guards the creation of inbox directories by the commit thread: none is created again after its inbox was destroyed.
final class DirectoryGate: Sendable {
    private let gone = Mutex<Set<Bytes16>>([])

    func close(_ directory: Bytes16) { gone.withLock { _ = $0.insert(directory) } }

    /// No commit that could create the directory is left.
    func forget(_ directory: Bytes16) { gone.withLock { _ = $0.remove(directory) } }

    func make(_ directory: Bytes16, _ body: () throws(SystemError) -> Void) throws(SystemError) {
        try gone.withLock { gone throws(SystemError) in if !gone.contains(directory) { try body() } }
    }
}

struct ErasureTask: Sendable {
    let file: Int
    let place: FilePlace
    let spans: [RecordFile.Span]
    /// Written once all other zeros of the commit are durable.
    let lastSpans: [RecordFile.Span]
    /// Read back, because an earlier attempt failed.
    let isVerified: Bool
}

/// Writes record files in place. Runs on the commit thread, or on the caller's while no commit is under way.
struct FileWriter: Sendable {
    let disk: any FileSystem
    let inboxes: FileDescriptor
    let gate: DirectoryGate

    /// Makes every task durable, even if others fail. Returns the failures, by index in `tasks`.
    func perform(_ tasks: [FileTask]) -> [Int: StoreError] {
        var failures: [Int: StoreError] = [:]
        var isDirectoryNew = false
        for (index, task) in tasks.enumerated() {
            do throws(StoreError) {
                try perform(task)
                isDirectoryNew = isDirectoryNew || task.isDirectoryNew
            } catch { failures[index] = error }
        }
        if isDirectoryNew {
            do throws(SystemError) { try disk.synchronize(inboxes, dataOnly: false) } catch {
                for (index, task) in tasks.enumerated() where task.isDirectoryNew && failures[index] == nil {
                    failures[index] = StoreError(error, path: task.place.directoryName)
                }
            }
        }
        return failures
    }

    /// - Returns: the directory, or `nil` when its inbox is destroyed.
    private func open(_ place: FilePlace, isNew: Bool = false) throws(SystemError) -> FileDescriptor? {
        let name = place.directoryName
        do throws(SystemError) { return try disk.open(name, in: inboxes, .directory) } catch {
            guard error.code == ENOENT else { throw error }
            if !isNew { return nil }
        }
        try gate.make(place.directory) { () throws(SystemError) in
            do throws(SystemError) { try disk.makeDirectory(name, in: inboxes) } catch {
                if error.code != EEXIST { throw error }
            }
        }
        return try open(place)
    }

    /// Makes data that was read from the kernel's cache durable.
    func synchronize(_ place: FilePlace) throws(StoreError) {
        try onDisk(place.path) { () throws(SystemError) in
            guard let directory = try open(place) else { return }
            defer { disk.close(directory) }
            let file = try disk.open(place.fileName, in: directory, .write)
            defer { disk.close(file) }
            try disk.synchronize(file, dataOnly: true)
        }
    }

    func perform(_ task: FileTask) throws(StoreError) {
        try onDisk(task.place.path) { () throws(SystemError) in
            guard let directory = try open(task.place, isNew: task.isDirectoryNew) else { return }
            defer { disk.close(directory) }
            switch task.making {
            case .exists: try write(task, in: directory)
            case .onlyIfSame: try write(task, in: directory, isChecked: true)
            case .withSidecar(let sidecar):
                try writeSidecar(sidecar, task, in: directory)
                try write(task, in: directory, isNew: true)
                try disk.synchronize(directory, dataOnly: false)
            case .replacing: try replace(task, in: directory)
            }
        }
    }

    private func writeSidecar(_ sidecar: [UInt8], _ task: FileTask, in directory: FileDescriptor) throws(SystemError) {
        let file = try disk.open(task.place.sidecarName, in: directory, [.write, .createIfMissing])
        defer { disk.close(file) }
        try disk.write(file, at: 0, sidecar)
        try disk.synchronize(file, dataOnly: false)
    }

    private func write(_ task: FileTask, in directory: FileDescriptor, isNew: Bool = false, isChecked: Bool = false)
        throws(SystemError)
    {
        let file: FileDescriptor
        do throws(SystemError) {
            file = try disk.open(task.place.fileName, in: directory, isNew ? [.write, .createIfMissing] : .write)
        } catch {
            // Its bucket has ended meanwhile, or the log never existed.
            if error.code == ENOENT, task.place.kind == .segment || isChecked { return }
            throw error
        }
        defer { disk.close(file) }
        if isChecked {
            let header = try disk.read(file, at: 0, count: StateLog.headerByteCount)
            if StateLog.fileID(header) != task.fileID { return }
        }
        for piece in task.pieces { try disk.write(file, at: piece.offset, piece.buffer.bytes) }
        try disk.synchronize(file, dataOnly: !isNew)
    }

    private func replace(_ task: FileTask, in directory: FileDescriptor) throws(SystemError) {
        let temporary = task.place.fileName + ".new"
        try? disk.remove(temporary, in: directory, isDirectory: false)
        let file = try disk.open(temporary, in: directory, [.write, .create])
        defer { disk.close(file) }
        for piece in task.pieces { try disk.write(file, at: piece.offset, piece.buffer.bytes) }
        try disk.synchronize(file, dataOnly: false)
        try disk.rename(temporary, to: task.place.fileName, in: directory)
        try disk.synchronize(directory, dataOnly: false)
    }

    /// - Parameter isLast: writes the last spans instead of the others.
    /// - Returns: the failures, by file number.
    func perform(_ tasks: [ErasureTask], isLast: Bool) -> [Int: StoreError] {
        var failures: [Int: StoreError] = [:]
        for task in tasks {
            let spans = isLast ? task.lastSpans : task.spans
            if spans.isEmpty { continue }
            do throws(StoreError) {
                try onDisk(task.place.path) { () throws(SystemError) in try erase(spans, task) }
            } catch { failures[task.file] = error }
        }
        return failures
    }

    private func erase(_ spans: [RecordFile.Span], _ task: ErasureTask) throws(SystemError) {
        guard let directory = try open(task.place) else { return }
        defer { disk.close(directory) }
        let file: FileDescriptor
        do throws(SystemError) { file = try disk.open(task.place.fileName, in: directory, .write) } catch {
            if error.code == ENOENT { return }
            throw error
        }
        defer { disk.close(file) }
        // Never past the end: unwritten bytes need no overwriting.
        let end = try disk.status(file).byteCount
        for span in spans {
            let length = Int(clamping: min(Int64(span.length), end - span.offset))
            if length > 0 { try disk.write(file, at: span.offset, [UInt8](repeating: 0, count: length)) }
        }
        try disk.synchronize(file, dataOnly: true)
        guard task.isVerified else { return }
        for span in spans {
            guard try disk.read(file, at: span.offset, count: span.length).allSatisfy({ $0 == 0 }) else {
                throw SystemError("read back", EIO)
            }
        }
    }
}
