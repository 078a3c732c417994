import Crypto

/// Services shared by the objects of an open store.
final class StoreServices {
    static let inboxesName = "inboxes"

    let home: HomeDirectory
    let disk: any FileSystem
    let damage: DamageList
    let sweeper: Sweeper
    let directories: InboxDirectories
    let openFiles: OpenFiles
    let journal: Journal
    let writer: FileWriter
    let commits: GroupCommit

    var keys: GridKeys?
    var isClosed = false
    /// The latest known time, from the opening of the home and from reaps.
    var latestHide: Int64
    var nonces = NoncePool()
    private var nextFileNumber = 0

    /// - Parameter inboxes: the directory's descriptor; these objects close it.
    init(_ home: HomeDirectory, inboxes: FileDescriptor, now: Int64, committingOn thread: CommitThread) {
        self.home = home
        damage = DamageList()
        disk = home.disk
        latestHide = now
        sweeper = Sweeper(disk: home.disk, thread: thread)
        directories = InboxDirectories(
            inboxes, path: home.path(Self.inboxesName), in: home, damage: damage, sweeper: sweeper)
        openFiles = OpenFiles(disk: home.disk, directories: directories)
        journal = Journal(in: home, damage: damage)
        writer = FileWriter(disk: home.disk, inboxes: inboxes, gate: DirectoryGate())
        commits = GroupCommit(
            committer: Committer(journal: journal, writer: writer, thread: thread), journal: journal, damage: damage,
            unsettled: directories.unsettled)
    }

    var isLocked: Bool { keys == nil }
    var isReadOnly: Bool { home.isReadOnly }
    func inboxPath(_ path: String) -> String { "\(directories.path)/\(path)" }

    func report(_ what: String) { damage.report(what) }

    func unlockedKeys() throws(StoreError) -> GridKeys {
        guard let keys, !isClosed else { throw .locked }
        return keys
    }

    func takeFileNumber() -> Int {
        defer { nextFileNumber += 1 }
        return nextFileNumber
    }

    /// An internal commit. It includes callers' buffered data, so a caller's next commit reports its failure.
    func commitUntold(withCheckpoint: Bool = false) {
        commits.commit(now: latestHide, withCheckpoint: withCheckpoint, nil)
    }

    func discard(_ file: RecordFile) {
        commits.forget(file)
        openFiles.close(file)
    }
}
