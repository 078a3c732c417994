import Synchronization

/// A disk that remembers failed writes: after one, data that is read may be only in the kernel's cache.
final class WatchedDisk: FileSystem {
    private let disk: any FileSystem
    private struct State {
        var doubt: Doubt?
        var onRefusal: (@Sendable (any FileSystem) -> Void)?
    }
    private let state = Mutex(State())

    init(_ disk: any FileSystem) { self.disk = disk }

    var doubt: Doubt? { state.withLock { $0.doubt } }

    /// Forgets earlier failures.
    /// - Parameter action: called once, on the failing thread, at the first refused barrier from now on.
    func watch(_ action: @escaping @Sendable (any FileSystem) -> Void) {
        state.withLock { $0 = State(onRefusal: action) }
    }

    private func note(_ doubt: Doubt) {
        let action = state.withLock { state in
            state.doubt = max(state.doubt ?? doubt, doubt)
            return doubt == .refused ? state.onRefusal.take() : nil
        }
        action?(disk)
    }

    // MARK: - FileSystem

    var user: UInt32 { disk.user }

    func open(_ name: String, in directory: FileDescriptor?, _ access: FileAccess) throws(SystemError) -> FileDescriptor
    { try disk.open(name, in: directory, access) }

    func close(_ file: FileDescriptor) { disk.close(file) }

    func read(_ file: FileDescriptor, at offset: Int64, count: Int) throws(SystemError) -> [UInt8] {
        try disk.read(file, at: offset, count: count)
    }

    func write(_ file: FileDescriptor, at offset: Int64, _ bytes: [UInt8]) throws(SystemError) {
        do throws(SystemError) { try disk.write(file, at: offset, bytes) } catch {
            note(error.isForWantOfSpace ? .unsynchronised : .refused)
            throw error
        }
    }

    func write(_ file: FileDescriptor, at offset: Int64, _ bytes: UnsafeRawBufferPointer) throws(SystemError) {
        do throws(SystemError) { try disk.write(file, at: offset, bytes) } catch {
            note(error.isForWantOfSpace ? .unsynchronised : .refused)
            throw error
        }
    }

    func synchronize(_ file: FileDescriptor, dataOnly: Bool) throws(SystemError) {
        do throws(SystemError) { try disk.synchronize(file, dataOnly: dataOnly) } catch {
            note(.refused)
            throw error
        }
    }

    func synchronizeAll(_ file: FileDescriptor) throws(SystemError) { try disk.synchronizeAll(file) }

    func makeDirectory(_ name: String, in directory: FileDescriptor?) throws(SystemError) {
        try disk.makeDirectory(name, in: directory)
    }

    func remove(_ name: String, in directory: FileDescriptor, isDirectory: Bool) throws(SystemError) {
        try disk.remove(name, in: directory, isDirectory: isDirectory)
    }

    func rename(_ name: String, to newName: String, in directory: FileDescriptor) throws(SystemError) {
        try disk.rename(name, to: newName, in: directory)
    }

    func list(_ directory: FileDescriptor) throws(SystemError) -> [String] { try disk.list(directory) }
    func status(_ file: FileDescriptor) throws(SystemError) -> FileStatus { try disk.status(file) }
    func status(path: String) throws(SystemError) -> FileStatus { try disk.status(path: path) }
    func canonicalPath(_ path: String) throws(SystemError) -> String { try disk.canonicalPath(path) }
    func tryLock(_ file: FileDescriptor) throws(SystemError) -> Bool { try disk.tryLock(file) }

    func erasurePromise(home: FileDescriptor, smallFile: FileDescriptor) -> ErasurePromise {
        disk.erasurePromise(home: home, smallFile: smallFile)
    }
}
