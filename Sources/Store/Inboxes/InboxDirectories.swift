import Cryptography
import DequeModule
import Dispatch
import Glibc

/// The directory `inboxes`: names of the inbox directories before, during and after the life of their inboxes.
///
/// `D` belongs to an inbox. `D.gone` belonged to an inbox destroyed on purpose and is being removed. `D.lost-T` has had
/// no key page since the time T.
final class InboxDirectories {
    static let name = "inboxes"
    /// How long a directory without a key page is kept, in milliseconds: seven days.
    static let lostInterval: Int64 = 7 * 24 * 3_600_000
    private static let goneSuffix = ".gone"
    private static let lostSuffix = ".lost-"

    private enum Remains: Sendable {
        /// Already renamed.
        case directory(String)
        case segment(directory: String, stem: String)
    }

    private let disk: any FileSystem
    let descriptor: FileDescriptor
    let path: String
    private let isReadOnly: Bool
    private let damage: DamageList
    private let sweeper: Sweeper
    let unsettled = UnsettledDirectories()
    /// A directory was renamed since the names were last synchronised.
    private var hasAbandoned = false
    /// A directory could not be renamed.
    private var hasStrays = false
    private var destroyed: Set<String> = []
    /// Directories without a key page, and until when they are kept.
    private var lost: [String: Int64] = [:]
    /// The directory of a live inbox may still carry the name `D.lost-T`.
    private(set) var mayBeSetAside = false
    private var remains: Deque<Remains> = []

    init(in home: HomeDirectory, damage: DamageList, sweeper: Sweeper) throws(StoreError) {
        let disk = home.disk
        let path = home.path(Self.name)
        do throws(SystemError) { descriptor = try disk.open(Self.name, in: home.descriptor, .directory) } catch {
            if error.code == ENOTDIR, (try? disk.status(path: path))?.kind == .symlink { throw .symlink(path: path) }
            throw StoreError(error, path: path)
        }
        self.disk = disk
        self.path = path
        isReadOnly = home.isReadOnly
        self.damage = damage
        self.sweeper = sweeper
    }

    func open(_ name: String) throws(SystemError) -> FileDescriptor { try disk.open(name, in: descriptor, .directory) }

    func path(of directory: String) -> String { "\(path)/\(directory)" }

    func synchronize() throws(StoreError) {
        try onDisk(path) { () throws(SystemError) in try disk.synchronize(descriptor, dataOnly: false) }
    }

    func close() { disk.close(descriptor) }

    var hasRemains: Bool { !remains.isEmpty }

    /// Queues a segment whose key is destroyed, and its sidecar, for removal.
    func discard(segment stem: String, of directory: String) {
        remains.append(.segment(directory: directory, stem: stem))
    }

    /// Removes the next item, after the commits under way: a checkpoint among them may still create the file.
    func collectNext(after committer: Committer) {
        guard let next = remains.popFirst() else { return }
        committer.whenFinished { [sweeper, descriptor] in
            switch next {
            case .directory(let name): sweeper.remove(directory: name, in: descriptor)
            case .segment(let directory, let stem): sweeper.remove(segment: stem, directory, in: descriptor)
            }
        }
    }

    /// Renames the directory of a destroyed inbox, to tell it from one with a damaged page. Removal follows later.
    func abandon(_ directory: String) {
        unsettled.doubts[directory] = nil
        let gone = directory + Self.goneSuffix
        do throws(SystemError) {
            try disk.rename(directory, to: gone, in: descriptor)
            hasAbandoned = true
            remains.append(.directory(gone))
        } catch {
            guard error.code != ENOENT else { return }
            hasStrays = true
            remains.append(.directory(directory))
        }
    }

    /// Makes the names `D.gone` durable. False when that fails; the caller retries.
    func settleAbandoned() -> Bool {
        if hasStrays { return false }
        if hasAbandoned, (try? disk.synchronize(descriptor, dataOnly: false)) == nil { return false }
        hasAbandoned = false
        return true
    }

    func forgetNames() {
        destroyed = []
        hasStrays = false
    }

    func noteDestroyed(_ directory: String) { destroyed.insert(directory) }

    /// Pages of destroyed inboxes exist: an earlier process may have renamed their directories without a barrier.
    func noteAbandoned() { hasAbandoned = true }

    /// Classifies the directories, once per unlock.
    /// - Parameters:
    ///   - known: directories of inboxes.
    ///   - isComplete: every row page could be read, so a directory without one has none.
    ///   - burntCount: number of inboxes destroyed while locked, when their directories could not be named.
    func sort(known: Set<String>, isComplete: Bool, burntCount: Int, now: Int64) {
        lost = [:]
        mayBeSetAside = false
        guard !isReadOnly else { return }
        if let names = try? disk.list(descriptor) {
            bringBack(names, known)
            if isComplete { sortOrphans(names, known, burntCount, now) }
        } else {
            hasStrays = true
            mayBeSetAside = true
        }
    }

    /// Renames directories back that were set aside and whose key pages open again.
    private func bringBack(_ names: [String], _ known: Set<String>) {
        let present = Set(names)
        for name in names {
            let stem = stem(of: name)
            guard known.contains(stem), !present.contains(stem), lostMoment(name, stem) != nil else { continue }
            do throws(SystemError) { try bringBack(name, stem) } catch {
                mayBeSetAside = true
                let path = path(of: name)
                damage.report("\(path): its key page could be read again, but it cannot be renamed")
            }
        }
    }

    private func bringBack(_ name: String, _ stem: String) throws(SystemError) {
        try disk.rename(name, to: stem, in: descriptor)
        damage.report("\(path)/\(name): its key page could be read again; the inbox is back")
    }

    /// Renames the inbox's directory back if it was set aside. Call it before the directory counts as never made.
    /// - Throws: when the names cannot be read or the rename fails. The inbox must not be served then.
    func bringBack(_ directory: String) throws(StoreError) {
        guard mayBeSetAside else { return }
        try onDisk(path(of: directory)) { () throws(SystemError) in
            let names = try disk.list(descriptor)
            guard !names.contains(directory) else { return }
            for name in names where lostMoment(name, directory) != nil { return try bringBack(name, directory) }
        }
    }

    /// Whether the directory exists under a name `D.lost-T`, set aside because its page did not open.
    func isSetAside(_ directory: String) throws(SystemError) -> Bool {
        try disk.list(descriptor).contains { lostMoment($0, directory) != nil }
    }

    private func stem(of name: String) -> String { String(name.prefix { $0 != "." }) }

    /// Handles directories without a row. One destroyed on purpose is marked and removed. Any other may be an inbox
    /// whose page is damaged or was misread: it is set aside, reported, and kept for seven days.
    private func sortOrphans(_ names: [String], _ known: Set<String>, _ burntCount: Int, _ now: Int64) {
        let present = Set(names)
        let orphans = Set(names.filter { !known.contains($0) && Hex.decode($0)?.count == 16 })
        // Unnamed directories are explained if there are at most as many as rows destroyed while locked.
        let isExplained = orphans.subtracting(destroyed).count <= burntCount
        for name in names where !known.contains(name) {
            let path = path(of: name)
            let stem = stem(of: name)
            if name == stem + Self.goneSuffix {
                remains.append(.directory(name))
            } else if let found = lostMoment(name, stem) {
                if !known.contains(stem) {
                    keepLost(name, until: found &+ Self.lostInterval, now)
                } else if present.contains(stem) {
                    damage.report("\(path) was set aside, and its inbox has another directory by now")
                }
            } else if orphans.contains(name) {
                if isExplained || destroyed.contains(name) {
                    abandon(name)
                    continue
                }
                let aside = name + Self.lostSuffix + String(now)
                if (try? disk.rename(name, to: aside, in: descriptor)) != nil {
                    keepLost(aside, until: now &+ Self.lostInterval, now)
                }
            } else {
                damage.report("\(path) does not belong there and was removed")
                sweeper.remove(directory: name, in: descriptor)
            }
        }
    }

    private func lostMoment(_ name: String, _ stem: String) -> Int64? {
        guard name.hasPrefix(stem + Self.lostSuffix) else { return nil }
        return Int64(name.dropFirst(stem.count + Self.lostSuffix.count)).flatMap { Tier.times.contains($0) ? $0 : nil }
    }

    private func keepLost(_ name: String, until moment: Int64, _ now: Int64) {
        if moment <= now { return remains.append(.directory(name)) }
        lost[name] = moment
        damage.report(
            "\(path)/\(name) belongs to no key page: the page is damaged, or its inbox was just "
                + "destroyed when the node was stopped; it cannot be opened and is removed after seven days")
    }

    var lostEnds: Dictionary<String, Int64>.Values { lost.values }

    func reapLost(_ destroy: Int64) {
        for (name, moment) in lost where moment <= destroy {
            lost[name] = nil
            remains.append(.directory(name))
        }
    }

    /// Makes durable what an earlier run left in the cache, for every inbox.
    func settleAll(_ doubt: Doubt) throws(StoreError) {
        try onDisk(path) { () throws(SystemError) in
            for name in try disk.list(descriptor) where Hex.decode(name)?.count == 16 {
                do throws(SystemError) { try settle(directory: name, doubt) } catch { unsettled.doubts[name] = doubt }
            }
            try disk.synchronize(descriptor, dataOnly: false)
        }
    }

    /// The same for one inbox whose data the disk refused before.
    func settle(_ directory: String, _ doubt: Doubt) throws(StoreError) {
        try onDisk(path(of: directory)) { () throws(SystemError) in
            try settle(directory: directory, doubt)
            try disk.synchronize(descriptor, dataOnly: false)
        }
        unsettled.doubts[directory] = nil
    }

    private func settle(directory name: String, _ doubt: Doubt) throws(SystemError) {
        let directory: FileDescriptor
        do throws(SystemError) { directory = try open(name) } catch {
            // Removed meanwhile, or a foreign file.
            if [ENOENT, ENOTDIR, ELOOP].contains(error.code) { return }
            throw error
        }
        defer { disk.close(directory) }
        for file in try disk.list(directory) { try settle(file, in: directory, doubt) }
        try disk.synchronize(directory, dataOnly: false)
    }

    private func settle(_ name: String, in directory: FileDescriptor, _ doubt: Doubt) throws(SystemError) {
        let file: FileDescriptor
        do throws(SystemError) { file = try disk.open(name, in: directory, .write) } catch {
            if [ENOENT, EISDIR, ELOOP, ENXIO].contains(error.code) { return }
            throw error
        }
        defer { disk.close(file) }
        let status = try disk.status(file)
        guard status.kind == .file else { return }
        if doubt == .refused { try disk.rewrite(file, byteCount: status.byteCount) }
        try disk.synchronize(file, dataOnly: false)
    }
}

/// Removes files on a thread of its own: unlinking 16 MiB takes longer than writing a message.
final class Sweeper: Sendable {
    private let disk: any FileSystem
    private let queue: DispatchQueue?

    init(disk: any FileSystem, thread: CommitThread) {
        self.disk = disk
        queue =
            switch thread {
            case .own: DispatchQueue(label: "mayfly.store.remains", qos: .utility)
            case .caller, .later: nil
            }
    }

    func drain() { queue?.sync {} }

    private func run(_ body: @escaping @Sendable () -> Void) {
        if let queue { queue.async(execute: body) } else { body() }
    }

    /// Frees large values on its thread: releasing a hundred megabytes is slow.
    func free(_ values: some Sendable) { run { withExtendedLifetime(values) {} } }

    /// Removes a directory with its files, or a file of that name. Ignores errors: the next unlock removes it.
    func remove(directory name: String, in parent: FileDescriptor) {
        run { [disk] in
            guard let directory = try? disk.open(name, in: parent, .directory) else {
                try? disk.remove(name, in: parent, isDirectory: false)
                return
            }
            for file in (try? disk.list(directory)) ?? [] { try? disk.remove(file, in: directory, isDirectory: false) }
            disk.close(directory)
            try? disk.remove(name, in: parent, isDirectory: true)
        }
    }

    func remove(segment stem: String, _ directory: String, in parent: FileDescriptor) {
        run { [disk] in
            guard let opened = try? disk.open(directory, in: parent, .directory) else { return }
            defer { disk.close(opened) }
            try? disk.remove(stem + ".seg", in: opened, isDirectory: false)
            try? disk.remove(stem + ".expiry", in: opened, isDirectory: false)
        }
    }
}

/// Descriptors of segments and logs for reading. A bounded number stays open between commits.
final class OpenFiles {
    private static let limit = 256
    private let disk: any FileSystem
    private let directories: InboxDirectories
    private var files: Deque<RecordFile> = []

    init(disk: any FileSystem, directories: InboxDirectories) {
        self.disk = disk
        self.directories = directories
    }

    var isEmpty: Bool { files.isEmpty }

    func descriptor(of file: RecordFile) throws(StoreError) -> FileDescriptor {
        if let descriptor = file.descriptor { return descriptor }
        let opened = try onDisk(file.path) { () throws(SystemError) in
            let directory = try directories.open(file.place.directoryName)
            defer { disk.close(directory) }
            return try disk.open(file.place.fileName, in: directory, [])
        }
        adopt(opened, for: file)
        return opened
    }

    func adopt(_ descriptor: FileDescriptor, for file: RecordFile) {
        file.descriptor = descriptor
        files.append(file)
        closeSurplus()
    }

    func closeSurplus() { while files.count > Self.limit, let file = files.popFirst() { closeDescriptor(of: file) } }

    func close(_ file: RecordFile) {
        if file.descriptor != nil { files.removeAll { $0 === file } }
        closeDescriptor(of: file)
    }

    func closeAll() {
        for file in files { closeDescriptor(of: file) }
        files = []
    }

    private func closeDescriptor(of file: RecordFile) {
        if let descriptor = file.descriptor { disk.close(descriptor) }
        file.descriptor = nil
    }
}
