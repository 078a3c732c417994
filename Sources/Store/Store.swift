import Crypto
import DequeModule
import Glibc
import HeapModule

/// The node's disk: sealed messages that are gone after their time, for whoever holds the raw disk and the passphrase.
///
/// The design, with its reasons, is `design/store.md`: a grid of keys, one 4 KiB page per inbox (row) and one per expiry
/// bucket (column), destroyed by overwriting in place. The store deals in opaque bytes and knows no protocol.
///
/// Used from one thread. Only the group commit runs on a thread of its own, and reports through a `@Sendable` closure.
/// Time is an argument everywhere: milliseconds since the Unix epoch.
package final class Store {
    /// Most bytes of a message's payload.
    package static let maximumPayload = RecordFile.maximumPlaintext
    static let inboxesName = "inboxes"
    /// Of the journal of a new home, in bytes.
    package static let journalByteCount = 8 << 20
    /// A smaller one would be written out with nearly every commit.
    package static let smallestJournalByteCount = 128 << 10
    /// How much ``collect(limit:)`` does by default, in files: a millisecond or two.
    package static let collectLimit = 64
    /// Most directories looked through in one reap.
    static let scanLimit = 128
    /// So many entries of the queue of deadlines may be out of date, and as many as are not.
    static let staleDeadlineLimit = 1_024
    /// How much of segments with something due one reap reads, in bytes.
    static let dueByteCount = 4 << 20

    /// Whether and how the passphrase protects the home.
    package let protection: Protection
    /// What overwriting in place is worth here, and why.
    package let erasurePromise: ErasurePromise
    /// What opening the home found overdue and destroyed.
    package internal(set) var openingReport = ReapReport()
    /// What is wrong on the disk, in words for `doctor` and `status`; each thing once.
    package var damage: [String] { damageList.entries }
    package var isLocked: Bool { keys == nil }
    package var isReadOnly: Bool { home.isReadOnly }
    /// The home is not where it was any more.
    package var isHomeGone: Bool { home.isGone }

    let disk: any FileSystem
    let home: HomeDirectory
    let keystore: Keystore
    let argon2Floor: Argon2Parameters
    let directories: InboxDirectories
    let damageList = DamageList()
    let journal: Journal
    let commits: GroupCommit
    let writer: FileWriter
    var nonces = NoncePool()
    let sweeper: Sweeper
    var isClosed = false

    // The pages.
    let rowFile: SlotFile
    let columnFile: SlotFile
    let tombstoneFile: SlotFile
    let tombstoneTable: TombstoneTable
    var rowSlots = SlotMap()
    var columnSlots = SlotMap()
    /// Clear headers of the column pages, by slot: known without the passphrase.
    var headers: [Int: ColumnHeader] = [:]
    /// Pages that could not be destroyed yet. Nothing is served from them.
    var doomedPages: [DoomedPage] = []
    /// The first end of a column, a tombstone or a lost directory, due or not.
    var earliestPage: Int64?
    /// Directories of inboxes whose pages are doomed, by slot.
    var doomedDirectories: [Int: String] = [:]
    /// Slots of rows that were destroyed while the store was locked.
    var burntSlots: [Int] = []
    /// Slots whose pages say what has become of a directory, until that is durable: they are not used again before.
    var reservedSlots: [Int] = []
    /// What destroyed inboxes have left in memory.
    var remains: Deque<RowRemains> = []

    // While unlocked.
    var keys: GridKeys?
    var rows: [RowID: Row] = [:]
    /// Directories of the rows that were live when the store was locked.
    var rowsAtLock: [RowID: String] = [:]
    var rowOfSlot: [UInt32: Row] = [:]
    var controlRow: Row?
    var columns: [Int: Column] = [:]
    /// By the tag that sidecars carry.
    var columnOfTag: [[UInt8]: Column] = [:]
    /// Every column page could be read, so that a segment without one has really expired.
    var columnsAreComplete = true
    /// The column that appends to a bucket use.
    var columnOfBucket: [BucketKey: Column] = [:]
    var segments: [Int: Segment] = [:]
    /// Rows whose directories have not been looked at, in slot order.
    var unknownRows: Deque<RowID> = []
    /// When the first of the buckets that the unlock has found begins to fall due: rows that are unknown may have records
    /// in it.
    var firstColumnStart: Int64?
    /// No directory of the last scan could be read.
    var scanFailed = false
    /// Rows that go to rest as soon as nothing of them is on its way to the disk.
    var drowsyRows: Set<RowID> = []
    /// Rows with something that the disk has refused to read.
    var refusedRows: [Row] = []
    /// Segments, and rows at rest, by their next expiry. An entry that is out of date is skipped.
    var deadlines = Heap<Deadline>()
    /// Segments with records that expired, are hidden, and are not yet to be destroyed.
    var withholding: Set<Int> = []
    /// Something else that an earlier run has left may be.
    var isUnsettled = false
    /// A reap has left segments in which something is due, or may be.
    var hasUnreadDue = false
    /// A commit is wanted for moves that were interrupted earlier.
    var movesAreWaiting = false

    // Commits.
    var nextFileNumber = 0
    let openFiles: OpenFiles

    /// The latest moment known, from ``open(home:fileSystem:now:argon2Floor:committingOn:)`` and ``reap(hide:destroy:)``.
    var latestHide: Int64
    var clock: ClockMark

    init(
        home: HomeDirectory,
        smallFile: FileDescriptor,
        now: Int64,
        argon2Floor: Argon2Parameters,
        committingOn thread: CommitThread
    ) throws(StoreError) {
        self.home = home
        self.argon2Floor = argon2Floor
        disk = home.disk
        latestHide = now
        keystore = try Keystore(in: home)
        protection = keystore.protection
        erasurePromise = home.disk.erasurePromise(home: home.descriptor, smallFile: smallFile)
        sweeper = Sweeper(disk: home.disk, thread: thread)
        var opened: [SlotFile] = []
        do throws(StoreError) {
            rowFile = try SlotFile(SlotFile.rowsName, in: home)
            opened.append(rowFile)
            columnFile = try SlotFile(SlotFile.columnsName, in: home)
            opened.append(columnFile)
            tombstoneFile = try SlotFile(SlotFile.tombstonesName, in: home)
            opened.append(tombstoneFile)
            clock = try ClockMark(in: home)
        } catch {
            for file in opened { file.close() }
            throw error
        }
        let inboxes: FileDescriptor
        do throws(StoreError) {
            inboxes = try onDisk(home.path(Self.inboxesName)) { () throws(SystemError) in
                try home.disk.open(Self.inboxesName, in: home.descriptor, .directory)
            }
        } catch {
            for file in opened { file.close() }
            clock.close()
            let path = home.path(Self.inboxesName)
            if case .io(_, _, ENOTDIR) = error, (try? home.disk.status(path: path))?.kind == .symlink {
                throw .symlink(path: path)
            }
            throw error
        }
        tombstoneTable = TombstoneTable(tombstoneFile, isReadOnly: home.isReadOnly, damage: damageList)
        directories = InboxDirectories(
            inboxes,
            path: home.path(Self.inboxesName),
            in: home,
            damage: damageList,
            sweeper: sweeper
        )
        openFiles = OpenFiles(disk: home.disk, directories: directories)
        journal = Journal(in: home, damage: damageList)
        writer = FileWriter(disk: home.disk, inboxes: inboxes, gate: DirectoryGate())
        commits = GroupCommit(
            committer: Committer(journal: journal, writer: writer, thread: thread),
            journal: journal,
            damage: damageList,
            unsettled: directories.unsettled
        )
        if keystore.readableCopyCount < 2 { report("one of the two copies of \(home.path(Keystore.name))") }
        if clock.isDamaged { report("\(home.path(ClockMark.name))") }
    }

    /// Notes damage once.
    func report(_ what: String) {
        damageList.report(what)
    }

    func unlockedKeys() throws(StoreError) -> GridKeys {
        guard let keys, !isClosed else { throw .locked }
        return keys
    }

    func takeFileNumber() -> Int {
        defer { nextFileNumber += 1 }
        return nextFileNumber
    }
}

extension Store {
    /// Most bytes of a tombstone's payload.
    package static let maximumTombstonePayload = TombstonePage.maximumPayload

    /// Durable when this returns.
    package func addTombstone(keepUntil: Int64, payload: [UInt8]) throws(StoreError) -> TombstoneID {
        let id = randomBytes(16)
        let page = TombstonePage(id: id, version: 0, keepUntil: keepUntil, payload: payload)
        try tombstoneTable.write(page, unlockedKeys())
        notePageEnd(keepUntil)
        return TombstoneID(bytes: id)
    }

    /// Replaces the payload, durably and at no moment without either version; the old page is destroyed.
    package func updateTombstone(_ id: TombstoneID, payload: [UInt8]) throws(StoreError) {
        try tombstoneTable.update(id, payload: payload, unlockedKeys())
    }

    /// In slot order.
    package func tombstones() throws(StoreError) -> [Tombstone] {
        _ = try unlockedKeys()
        return tombstoneTable.all
    }

    /// Destroys the page.
    /// - Throws: when it may still be there; ``reap(hide:destroy:)`` tries again.
    package func removeTombstone(_ id: TombstoneID) throws(StoreError) {
        _ = try unlockedKeys()
        try tombstoneTable.remove(id)
    }
}

/// A page whose destruction failed and is tried again at every reap.
struct DoomedPage: Equatable {
    enum File { case rows, columns }
    let file: File
    let slot: Int
}

struct BucketKey: Hashable {
    let tier: Tier
    let bucket: Int64
}
