import Crypto

/// What every object of an open store uses: the home and its disk, the journal and its commits, the latest moment known, and
/// the keys while the store is unlocked.
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

    /// While the store is unlocked.
    var keys: GridKeys?
    var isClosed = false
    /// The latest moment known: from the opening of the home and from the last reap.
    var latestHide: Int64
    var nonces = NoncePool()
    private var nextFileNumber = 0

    /// - Parameter inboxes: the directory of that name; these objects close it.
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
    /// Of a file in the directory of an inbox.
    func inboxPath(_ path: String) -> String { "\(directories.path)/\(path)" }

    /// Notes damage once.
    func report(_ what: String) { damage.report(what) }

    func unlockedKeys() throws(StoreError) -> GridKeys {
        guard let keys, !isClosed else { throw .locked }
        return keys
    }

    func takeFileNumber() -> Int {
        defer { nextFileNumber += 1 }
        return nextFileNumber
    }

    /// A commit for the store's own sake. It takes along what others have buffered, so a failure is told to their commit,
    /// the next one.
    func commitUntold(withCheckpoint: Bool = false) {
        commits.commit(now: latestHide, withCheckpoint: withCheckpoint, nil)
    }

    /// Drops a file nobody will read again: what is buffered is forgotten.
    func discard(_ file: RecordFile) {
        commits.forget(file)
        openFiles.close(file)
    }
}
