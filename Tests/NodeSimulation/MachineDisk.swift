import Glibc
import Messaging
import SimulatedDisk
import Store

/// A machine's disk: a ``SimulatedDisk`` with temporary failures, full and unreadable periods, and the planted
/// mistakes.
final class MachineDisk: FileSystem, @unchecked Sendable {
    private(set) var platter: SimulatedDisk
    var user: UInt32 { platter.user }
    private let mistake: PlantedMistake?
    private let time: SimulatedTime
    private var dice: Randomness
    /// Percentage of changes that fail, and their error code.
    var failure: (percent: UInt64, code: CInt)?
    /// Percentage of reads and opens that fail.
    var readFailure: UInt64?
    /// Number of changes until the power fails during one.
    var changesUntilPowerCut: Int?
    var powerCut: () -> Void = {}

    var isInUse = false

    private var names: [FileDescriptor: String] = [:]
    /// Bytes of writes that were dropped, by file and offset; the process reads them back.
    private var believed: [String: [Int64: [UInt8]]] = [:]
    private var taken: [String: Set<Int64>] = [:]

    init(_ platter: SimulatedDisk, mistake: PlantedMistake?, time: SimulatedTime, dice: Randomness) {
        (self.platter, self.mistake, self.time, self.dice) = (platter, mistake, time, dice)
    }

    var isInTrouble: Bool { failure != nil || readFailure != nil || platter.with { $0.isFull || $0.isCrashed } }

    var hasLostPower: Bool { platter.with { $0.isCrashed } }

    func mend() {
        failure = nil
        readFailure = nil
        platter.with { $0.isFull = false }
    }

    func replace(by other: SimulatedDisk) { platter = other }

    func restart() {
        names = [:]
        believed = [:]
        changesUntilPowerCut = nil
    }

    private func change(_ name: String) throws(SystemError) {
        if let left = changesUntilPowerCut {
            changesUntilPowerCut = left > 1 ? left - 1 : nil
            if left == 1 {
                platter.with { $0.crashAt = $0.operations + 1 }
                powerCut()
            }
        }
        guard let failure, dice.next(upperBound: UInt64(100)) < failure.percent else { return }
        throw SystemError(name, failure.code)
    }

    private func look(_ name: String, _ code: CInt) throws(SystemError) {
        guard let readFailure, dice.next(upperBound: UInt64(100)) < readFailure else { return }
        throw SystemError(name, code)
    }

    func open(_ name: String, in directory: FileDescriptor?, _ access: FileAccess) throws(SystemError) -> FileDescriptor
    {
        try look("open", EMFILE)
        if !access.isDisjoint(with: [.create, .createIfMissing]) { try change("open") }
        let file = try platter.open(name, in: directory, access)
        names[file] = name
        return file
    }

    func close(_ file: FileDescriptor) {
        names[file] = nil
        platter.close(file)
    }

    func read(_ file: FileDescriptor, at offset: Int64, count: Int) throws(SystemError) -> [UInt8] {
        try look("read", EIO)
        if let name = names[file], let bytes = believed[name]?[offset], bytes.count == count { return bytes }
        return try platter.read(file, at: offset, count: count)
    }

    func write(_ file: FileDescriptor, at offset: Int64, _ bytes: [UInt8]) throws(SystemError) {
        try change("write")
        if let name = names[file], isSwallowed(name, offset, bytes) {
            believed[name, default: [:]][offset] = bytes
            return
        }
        try platter.write(file, at: offset, bytes)
    }

    private func isSwallowed(_ name: String, _ offset: Int64, _ bytes: [UInt8]) -> Bool {
        switch (mistake, name) {
        case (.forgottenClock, "clock"): return isInUse
        case (.keptRow, "rows.slots"):
            // A page is written when it is made, and when it is destroyed.
            return isInUse && bytes.count == 4_096 && !taken[name, default: []].insert(offset).inserted
        default: return false
        }
    }

    func synchronize(_ file: FileDescriptor, dataOnly: Bool) throws(SystemError) {
        if mistake == .lyingFsync, dataOnly { return }
        if mistake == .lateFsync, dataOnly {
            time.plan(inMilliseconds: 20_000) { [platter] in try? platter.synchronize(file, dataOnly: true) }
            return
        }
        try change("fsync")
        try platter.synchronize(file, dataOnly: dataOnly)
    }

    func synchronizeAll(_ file: FileDescriptor) throws(SystemError) {
        try change("syncfs")
        try platter.synchronizeAll(file)
    }

    func makeDirectory(_ name: String, in directory: FileDescriptor?) throws(SystemError) {
        try change("mkdir")
        try platter.makeDirectory(name, in: directory)
    }

    func remove(_ name: String, in directory: FileDescriptor, isDirectory: Bool) throws(SystemError) {
        try change("unlink")
        try platter.remove(name, in: directory, isDirectory: isDirectory)
    }

    func rename(_ name: String, to newName: String, in directory: FileDescriptor) throws(SystemError) {
        try change("rename")
        try platter.rename(name, to: newName, in: directory)
    }

    func list(_ directory: FileDescriptor) throws(SystemError) -> [String] { try platter.list(directory) }
    func status(_ file: FileDescriptor) throws(SystemError) -> FileStatus { try platter.status(file) }
    func status(path: String) throws(SystemError) -> FileStatus { try platter.status(path: path) }
    func canonicalPath(_ path: String) throws(SystemError) -> String { try platter.canonicalPath(path) }
    func tryLock(_ file: FileDescriptor) throws(SystemError) -> Bool { try platter.tryLock(file) }

    func erasurePromise(home: FileDescriptor, smallFile: FileDescriptor) -> ErasurePromise {
        platter.erasurePromise(home: home, smallFile: smallFile)
    }
}
